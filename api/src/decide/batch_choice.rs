//! Which batch size is measured next? The one at which the latency is least sure.
//!
//! Example: batches of 1, 8 and 64 were measured. A plan takes the latencies between them from straight lines, as the
//! profile does. Without the 8 the line would miss its latency by 20 %. So the lines on both sides of it may miss as well,
//! and a size on the longer side comes next. On a straight line three sizes are enough.

/// A latency counts as known if the lines miss it by no more than this part of it. The medians themselves are known to
/// within 5 %.
pub const ERROR_MAX: f64 = 0.03;

/// A measured batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLatency {
    /// Queries in the batch.
    pub batch: u32,
    /// Median time of the batch.
    pub latency_ms: f64,
}

/// The value at `batch` of the straight line through two points.
#[must_use]
pub fn on_line(left: BatchLatency, right: BatchLatency, batch: u32) -> f64 {
    let part = (f64::from(batch) - f64::from(left.batch)) / (f64::from(right.batch) - f64::from(left.batch));
    left.latency_ms + (right.latency_ms - left.latency_ms) * part
}

/// The part by which a line through the neighbours of a measured size misses it; 0 for the first and the last size.
fn gap(measured: &[BatchLatency], at: usize) -> f64 {
    let neighbours = at.checked_sub(1).and_then(|left| Some((*measured.get(left)?, *measured.get(at + 1)?)));
    let own = measured[at];
    neighbours.map_or(0.0, |(left, right)| (on_line(left, right, own.batch) - own.latency_ms).abs() / own.latency_ms)
}

/// How unsure the line after a measured size is: the gap of each of its ends, in proportion to its own part of the line
/// that has this gap.
fn unsureness(measured: &[BatchLatency], segment: usize) -> f64 {
    if measured.len() == 2 {
        return f64::INFINITY;
    }
    let length = f64::from(measured[segment + 1].batch - measured[segment].batch);
    let of_end = |end: usize| match (end.checked_sub(1), measured.get(end + 1)) {
        (Some(left), Some(right)) => gap(measured, end) * length / f64::from(right.batch - measured[left].batch),
        _ => 0.0,
    };
    of_end(segment).max(of_end(segment + 1))
}

/// The next of `sizes` to measure, both by increasing batch size; `None` if the others are known well enough.
#[must_use]
pub fn next_batch(sizes: &[u32], measured: &[BatchLatency]) -> Option<u32> {
    let is_known = |size: u32| measured.iter().any(|m| m.batch == size);
    if let Some(end) = [sizes.first(), sizes.last()].into_iter().flatten().find(|size| !is_known(**size)) {
        return Some(*end);
    }
    let mut best: Option<(f64, u32)> = None;
    for segment in 0..measured.len().saturating_sub(1) {
        let (left, right) = (measured[segment].batch, measured[segment + 1].batch);
        let middle = (f64::from(left) * f64::from(right)).sqrt().ln();
        let distance = |size: &u32| (f64::from(*size).ln() - middle).abs();
        let inside = sizes.iter().copied().filter(|size| left < *size && *size < right);
        let Some(size) = inside.min_by(|a, b| distance(a).total_cmp(&distance(b))) else { continue };
        let unsure = unsureness(measured, segment);
        if unsure > ERROR_MAX && best.is_none_or(|(most, _)| unsure > most) {
            best = Some((unsure, size));
        }
    }
    best.map(|(_, size)| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A latency by batch size.
    type Curve = fn(u32) -> f64;

    /// Measures a curve until no size is unsure.
    fn measured(sizes: &[u32], curve: impl Fn(u32) -> f64) -> Vec<BatchLatency> {
        let mut all: Vec<BatchLatency> = Vec::new();
        while let Some(batch) = next_batch(sizes, &all) {
            assert!(all.len() < sizes.len() && all.iter().all(|m| m.batch != batch), "{batch} again: {all:?}");
            all.push(BatchLatency { batch, latency_ms: curve(batch) });
            all.sort_by_key(|m| m.batch);
        }
        all
    }

    /// The largest part by which the lines through the measured sizes miss a size.
    fn error(sizes: &[u32], measured: &[BatchLatency], curve: impl Fn(u32) -> f64) -> f64 {
        let of = |size: &u32| {
            let pair = measured.windows(2).find(|pair| pair[0].batch <= *size && *size <= pair[1].batch);
            pair.map_or(0.0, |pair| (on_line(pair[0], pair[1], *size) - curve(*size)).abs() / curve(*size))
        };
        sizes.iter().map(of).fold(0.0, f64::max)
    }

    #[test]
    fn three_sizes_are_enough_on_a_line() {
        let sizes: Vec<u32> = (1..=64).collect();
        let curves: [Curve; 2] = [|n| 5.0 + 2.0 * f64::from(n), |_| 7.0];
        for curve in curves {
            assert_eq!(measured(&sizes, curve).iter().map(|m| m.batch).collect::<Vec<_>>(), [1, 8, 64]);
        }
        assert_eq!(measured(&[4], |_| 1.0).len(), 1);
        assert_eq!(measured(&[], |_| 1.0), []);
    }

    #[test]
    fn the_lines_miss_no_size_of_a_bent_curve() {
        let curves: [(&str, Curve); 4] = [
            ("knee", |n| if n <= 8 { 10.0 } else { 10.0 + 3.0 * f64::from(n - 8) }),
            ("steps", |n| 4.0 + 24.0 * f64::from(n.div_ceil(16))),
            ("late knee", |n| 20.0 + 2.0 * f64::from(n.saturating_sub(40))),
            ("power", |n| 3.0 + f64::from(n).powf(1.3)),
        ];
        for (name, curve) in curves {
            for sizes in [(1..=64).collect::<Vec<u32>>(), vec![1, 2, 4, 8, 16, 32, 64]] {
                let chosen = measured(&sizes, curve);
                let missed = error(&sizes, &chosen, curve);
                assert!(missed <= ERROR_MAX, "{name}: {missed} with {chosen:?}");
                assert!(sizes.len() < 10 || chosen.len() <= sizes.len() / 2, "{name}: {} sizes", chosen.len());
            }
        }
    }
}
