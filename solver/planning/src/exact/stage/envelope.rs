//! Which bound does the linear relaxation give, without a solver? For one pipeline on one kind of device and given budgets.
//!
//! With fixed operating points a path strategy has a price in workers per unit of root traffic, the sum of
//! `D m(p) / q`, and an accuracy. The relaxation has one resource row, so its optimum lies on the upper concave envelope
//! of these points. A walk up the trie builds the envelope. Over a variant's child tasks the envelopes add (Minkowski sum).
//! Over the variants of a task they unite (upper hull).

use crate::exact::model::space::PipelineSpace;
use apportion_domain::SLACK;

/// The most accuracy for every number of workers: a concave chain of `(workers, accuracy)`, both increasing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Envelope(pub Vec<(f64, f64)>);

impl Envelope {
    /// The envelope of a part whose groups run at `points` (one group for each variant; `None` may not run).
    /// `None` if no path can be taken.
    pub fn new(part: &PipelineSpace, points: &[Option<usize>]) -> Option<Envelope> {
        debug_assert!(!part.trie.merged || part.trie.splits.iter().all(|s| s.from.is_none()));
        let nodes = part.trie.nodes.len();
        // the envelope below each node; `None`: some child task has no path
        let mut below: Vec<Option<Envelope>> = vec![Some(Envelope(vec![(0.0, 0.0)])); nodes];
        let mut whole = Some(Envelope(vec![(0.0, 0.0)]));
        for split in part.trie.splits.iter().rev() {
            let mut union = Vec::new();
            for &n in &split.to {
                let node = &part.trie.nodes[n];
                let group = part.by_variant[node.task.get()][node.variant.get()][0];
                if let (Some(envelope), Some(point)) = (&below[n], points[group]) {
                    let workers = node.load_qps / part.groups[group].points[point].qps;
                    union.extend(envelope.0.iter().map(|&(w, a)| (w + workers, a + node.accuracy)));
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
        self.0[0].0
    }

    /// Most accuracy with this many workers; `None` if they carry no strategy.
    pub fn accuracy_at(&self, workers: f64) -> Option<f64> {
        if self.workers_min() > workers + SLACK * workers.max(1.0) {
            return None;
        }
        let after = self.0.partition_point(|&(w, _)| w <= workers).max(1);
        let (w0, a0) = self.0[after - 1];
        Some(match self.0.get(after) {
            Some(&(w1, a1)) => a0 + (a1 - a0) * ((workers - w0) / (w1 - w0)).clamp(0.0, 1.0),
            None => a0,
        })
    }

    /// Fewest workers for at least this accuracy; `None` if no number reaches it.
    pub fn workers_for(&self, accuracy: f64) -> Option<f64> {
        let at = self.0.iter().position(|&(_, a)| a >= accuracy)?;
        if at == 0 {
            return Some(self.0[0].0);
        }
        let ((w0, a0), (w1, a1)) = (self.0[at - 1], self.0[at]);
        Some(w0 + (w1 - w0) * (accuracy - a0) / (a1 - a0))
    }

    /// Minkowski sum: steepest steps first.
    fn plus(&self, other: &Envelope) -> Envelope {
        let steps = |chain: &[(f64, f64)]| -> Vec<(f64, f64)> {
            chain.windows(2).map(|p| (p[1].0 - p[0].0, p[1].1 - p[0].1)).collect()
        };
        let mut all = steps(&self.0);
        all.extend(steps(&other.0));
        all.sort_by(|a, b| (b.1 * a.0).total_cmp(&(a.1 * b.0)));
        let mut at = (self.0[0].0 + other.0[0].0, self.0[0].1 + other.0[0].1);
        let mut chain = vec![at];
        for (workers, accuracy) in all {
            at = (at.0 + workers, at.1 + accuracy);
            chain.push(at);
        }
        Envelope(chain)
    }
}

/// The increasing part of the upper concave hull.
fn hull(mut points: Vec<(f64, f64)>) -> Envelope {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut chain: Vec<(f64, f64)> = Vec::new();
    for p in points {
        if chain.last().is_some_and(|last| p.1 <= last.1) {
            continue;
        }
        while let [.., a, b] = chain[..] {
            let below = (b.1 - a.1) * (p.0 - a.0) <= (p.1 - a.1) * (b.0 - a.0);
            if !below {
                break;
            }
            chain.pop();
        }
        // of two points with equal workers the first, more accurate one stays
        if chain.last().is_some_and(|last| p.0 <= last.0) {
            chain.pop();
        }
        chain.push(p);
    }
    Envelope(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hull_keeps_points_above_every_mix() {
        let points = vec![(4.0, 1.0), (1.0, 0.5), (2.0, 0.6), (2.5, 0.9), (3.0, 0.8), (1.0, 0.4)];
        assert_eq!(hull(points).0, [(1.0, 0.5), (2.5, 0.9), (4.0, 1.0)]);
    }

    #[test]
    fn sums_take_the_steepest_step_first() {
        let a = Envelope(vec![(1.0, 0.5), (2.0, 0.9)]);
        let b = Envelope(vec![(1.0, 0.2), (2.0, 0.8), (4.0, 1.0)]);
        let sum = a.plus(&b);
        let expected = [(2.0, 0.7), (3.0, 1.3), (4.0, 1.7), (6.0, 1.9)];
        assert_eq!(sum.0.len(), expected.len());
        for (p, e) in sum.0.iter().zip(expected) {
            assert!((p.0 - e.0).abs() < 1e-12 && (p.1 - e.1).abs() < 1e-12);
        }
        assert_eq!(sum.accuracy_at(1.5), None);
        assert!((sum.accuracy_at(5.0).unwrap() - 1.8).abs() < 1e-12);
        assert!((sum.workers_for(1.8).unwrap() - 5.0).abs() < 1e-12);
    }
}
