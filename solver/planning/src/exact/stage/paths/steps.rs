//! What is the best value within a time? A function that rises in steps.
//!
//! Example: within 30 ms a query can pass `read-m` with batch 1, which is worth 0.2. Within 50 ms it can pass `read-m` with
//! batch 8, which is worth 0.5. The steps are (30, 0.2) and (50, 0.5). A step that takes more time for no more value is
//! left out.

/// From this time on, this value can be had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueStep {
    pub time_ms: f64,
    pub value: f64,
}

/// The best value within each time: steps by increasing time and by increasing value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ValueSteps {
    steps: Vec<ValueStep>,
}

impl ValueSteps {
    /// The value 0 at once.
    pub fn zero() -> Self {
        Self { steps: vec![ValueStep { time_ms: 0.0, value: 0.0 }] }
    }

    /// The steps that no other step beats. `of` is emptied, and keeps its capacity.
    pub fn best_of(of: &mut Vec<ValueStep>) -> Self {
        of.sort_unstable_by(|a, b| a.time_ms.total_cmp(&b.time_ms).then(b.value.total_cmp(&a.value)));
        let mut best = f64::NEG_INFINITY;
        let better = |step: &ValueStep| {
            let is_better = step.value > best;
            best = best.max(step.value);
            is_better
        };
        let mut steps = std::mem::take(of);
        steps.retain(better);
        let kept = steps.clone();
        steps.clear();
        *of = steps;
        Self { steps: kept }
    }

    /// The steps, by increasing time.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ValueStep> + '_ {
        self.steps.iter().copied()
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// The best value within a time; minus infinity if the time is too short.
    pub fn at(&self, time_ms: f64) -> f64 {
        let after = self.steps.partition_point(|step| step.time_ms <= time_ms);
        after.checked_sub(1).map_or(f64::NEG_INFINITY, |last| self.steps[last].value)
    }

    /// The sum of two functions.
    pub fn plus(&self, other: &Self) -> Self {
        if other.steps.as_slice() == [ValueStep { time_ms: 0.0, value: 0.0 }] {
            return self.clone();
        }
        let (mut a, mut b) = (self.steps.iter().peekable(), other.steps.iter().peekable());
        let (mut of_a, mut of_b) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        let mut steps = Vec::with_capacity(self.steps.len() + other.steps.len());
        while let Some(time_ms) = [a.peek(), b.peek()].into_iter().flatten().map(|s| s.time_ms).reduce(f64::min) {
            if let Some(step) = a.next_if(|s| s.time_ms <= time_ms) {
                of_a = step.value;
            }
            if let Some(step) = b.next_if(|s| s.time_ms <= time_ms) {
                of_b = step.value;
            }
            if of_a.is_finite() && of_b.is_finite() {
                steps.push(ValueStep { time_ms, value: of_a + of_b });
            }
        }
        Self { steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps<const N: usize>(of: [(f64, f64); N]) -> ValueSteps {
        ValueSteps::best_of(&mut of.map(|(time_ms, value)| ValueStep { time_ms, value }).into())
    }

    #[test]
    fn slower_steps_of_no_more_value_are_left_out() {
        let best = steps([(50.0, 0.5), (30.0, 0.2), (40.0, 0.2), (60.0, 0.4), (30.0, 0.1)]);
        assert_eq!(best, steps([(30.0, 0.2), (50.0, 0.5)]));
        assert_eq!((best.at(29.9), best.at(30.0), best.at(70.0)), (f64::NEG_INFINITY, 0.2, 0.5));
    }

    #[test]
    fn sums_agree_with_the_sums_of_values() {
        let (a, b) = (steps([(10.0, 1.0), (20.0, 3.0)]), steps([(5.0, -2.0), (20.0, 0.0), (40.0, 4.0)]));
        let sum = a.plus(&b);
        for time in [0.0, 5.0, 9.0, 10.0, 15.0, 20.0, 39.0, 40.0, 90.0] {
            assert_eq!(sum.at(time), a.at(time) + b.at(time), "at {time}");
        }
        assert_eq!(a.plus(&ValueSteps::zero()), a);
        assert_eq!(a.plus(&ValueSteps::default()).len(), 0);
    }
}
