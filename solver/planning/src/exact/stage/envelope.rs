//! Which bound does the linear relaxation give, without a solver? For one pipeline on one kind of device and given budgets.
//!
//! With fixed operating points a path strategy has a price in workers per unit of root traffic, the sum of
//! `D m(p) / q`, and an accuracy. The relaxation has one resource row, so its optimum lies on the upper concave envelope
//! of these points. A walk up the trie builds the envelope. Over a variant's child tasks the envelopes add (Minkowski sum).
//! Over the variants of a task they unite (upper hull).

use crate::exact::model::space::PipelineSpace;
use apportion_domain::SLACK;

/// A mix of paths: its price in workers, and its accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct EnvelopePoint {
    workers: f64,
    accuracy: f64,
}

impl EnvelopePoint {
    /// The sum of two points.
    fn plus(self, other: Self) -> Self {
        Self { workers: self.workers + other.workers, accuracy: self.accuracy + other.accuracy }
    }

    /// The step from `self` to another point.
    fn step_to(self, other: Self) -> Self {
        Self { workers: other.workers - self.workers, accuracy: other.accuracy - self.accuracy }
    }
}

/// The most accuracy for every number of workers: a concave chain of points. Workers and accuracy both increase along it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccuracyEnvelope {
    chain: Vec<EnvelopePoint>,
}

impl AccuracyEnvelope {
    /// The envelope of nothing: no workers, no accuracy.
    fn zero() -> Self {
        Self { chain: vec![EnvelopePoint::default()] }
    }

    /// The envelope of a part whose groups run at `points` (one group for each variant; `None` may not run).
    /// `None` if no path can be taken.
    pub fn new(part: &PipelineSpace, points: &[Option<usize>]) -> Option<AccuracyEnvelope> {
        debug_assert!(!part.trie.merged || part.trie.splits.iter().all(|s| s.from.is_none()));
        let nodes = part.trie.nodes.len();
        // the envelope below each node; `None`: some child task has no path
        let mut below: Vec<Option<AccuracyEnvelope>> = vec![Some(AccuracyEnvelope::zero()); nodes];
        let mut whole = Some(AccuracyEnvelope::zero());
        for split in part.trie.splits.iter().rev() {
            let mut union = Vec::new();
            for &n in &split.to {
                let node = &part.trie.nodes[n];
                let group = part.by_variant[node.task.get()][node.variant.get()][0];
                if let (Some(envelope), Some(point)) = (&below[n], points[group]) {
                    let workers = node.load_qps / part.groups[group].points[point].qps;
                    let own = EnvelopePoint { workers, accuracy: node.accuracy };
                    union.extend(envelope.chain.iter().map(|p| p.plus(own)));
                }
            }
            let target = match split.from {
                Some(from) => &mut below[from],
                None => &mut whole,
            };
            *target = match target.take() {
                Some(envelope) if !union.is_empty() => Some(envelope.plus(&hull(union))),
                _ => None,
            };
        }
        whole
    }

    /// Fewest workers of any strategy.
    pub fn workers_min(&self) -> f64 {
        self.chain[0].workers
    }

    /// Most accuracy with this many workers; `None` if they carry no strategy.
    pub fn accuracy_at(&self, workers: f64) -> Option<f64> {
        if self.workers_min() > workers + SLACK * workers.max(1.0) {
            return None;
        }
        let after = self.chain.partition_point(|p| p.workers <= workers).max(1);
        let left = self.chain[after - 1];
        Some(match self.chain.get(after) {
            Some(right) => {
                let part = ((workers - left.workers) / (right.workers - left.workers)).clamp(0.0, 1.0);
                left.accuracy + (right.accuracy - left.accuracy) * part
            }
            None => left.accuracy,
        })
    }

    /// Fewest workers for at least this accuracy; `None` if no number reaches it.
    pub fn workers_for(&self, accuracy: f64) -> Option<f64> {
        let at = self.chain.iter().position(|p| p.accuracy >= accuracy)?;
        if at == 0 {
            return Some(self.workers_min());
        }
        let (left, right) = (self.chain[at - 1], self.chain[at]);
        let step = left.step_to(right);
        Some(left.workers + step.workers * (accuracy - left.accuracy) / step.accuracy)
    }

    /// Minkowski sum: steepest steps first.
    fn plus(&self, other: &AccuracyEnvelope) -> AccuracyEnvelope {
        let steps = |envelope: &AccuracyEnvelope| -> Vec<EnvelopePoint> {
            envelope.chain.windows(2).map(|pair| pair[0].step_to(pair[1])).collect()
        };
        let mut all = steps(self);
        all.extend(steps(other));
        all.sort_by(|a, b| (b.accuracy * a.workers).total_cmp(&(a.accuracy * b.workers)));
        let mut at = self.chain[0].plus(other.chain[0]);
        let mut chain = vec![at];
        for step in all {
            at = at.plus(step);
            chain.push(at);
        }
        AccuracyEnvelope { chain }
    }
}

/// The increasing part of the upper concave hull.
fn hull(mut points: Vec<EnvelopePoint>) -> AccuracyEnvelope {
    points.sort_by(|a, b| a.workers.total_cmp(&b.workers).then(b.accuracy.total_cmp(&a.accuracy)));
    let mut chain: Vec<EnvelopePoint> = Vec::new();
    for p in points {
        if chain.last().is_some_and(|last| p.accuracy <= last.accuracy) {
            continue;
        }
        while let [.., a, b] = chain[..] {
            let (to_b, to_p) = (a.step_to(b), a.step_to(p));
            let is_below = to_b.accuracy * to_p.workers <= to_p.accuracy * to_b.workers;
            if !is_below {
                break;
            }
            chain.pop();
        }
        // of two points with equal workers the first, more accurate one stays
        if chain.last().is_some_and(|last| p.workers <= last.workers) {
            chain.pop();
        }
        chain.push(p);
    }
    AccuracyEnvelope { chain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points<const N: usize>(points: [(f64, f64); N]) -> Vec<EnvelopePoint> {
        points.map(|(workers, accuracy)| EnvelopePoint { workers, accuracy }).into()
    }

    #[test]
    fn a_hull_keeps_points_above_every_mix() {
        let all = points([(4.0, 1.0), (1.0, 0.5), (2.0, 0.6), (2.5, 0.9), (3.0, 0.8), (1.0, 0.4)]);
        assert_eq!(hull(all).chain, points([(1.0, 0.5), (2.5, 0.9), (4.0, 1.0)]));
    }

    #[test]
    fn sums_take_the_steepest_step_first() {
        let a = AccuracyEnvelope { chain: points([(1.0, 0.5), (2.0, 0.9)]) };
        let b = AccuracyEnvelope { chain: points([(1.0, 0.2), (2.0, 0.8), (4.0, 1.0)]) };
        let sum = a.plus(&b);
        let expected = points([(2.0, 0.7), (3.0, 1.3), (4.0, 1.7), (6.0, 1.9)]);
        assert_eq!(sum.chain.len(), expected.len());
        for (p, e) in sum.chain.iter().zip(expected) {
            assert!((p.workers - e.workers).abs() < 1e-12 && (p.accuracy - e.accuracy).abs() < 1e-12);
        }
        assert_eq!(sum.accuracy_at(1.5), None);
        assert!((sum.accuracy_at(5.0).unwrap() - 1.8).abs() < 1e-12);
        assert!((sum.workers_for(1.8).unwrap() - 5.0).abs() < 1e-12);
    }
}
