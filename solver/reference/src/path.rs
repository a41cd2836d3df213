//! Latency rule `path`, Loki's own: each path that carries traffic keeps to the SLO.
//!
//! With e(g, b) from (5), and I(p) binary for each whole path p:
//!
//! - (6) `l(p) = sum over the groups g of p and over b of e(g, b) y(g, b)`;
//! - (7) `l(p) I(p) <= SLO`, where I(p) = 1 if p carries traffic. It is not linear. With M(p) the longest that p can
//!   take less the SLO, the same is `l(p) <= SLO + M(p) (1 - I(p))` and `f(p) <= I(p)`.
//!
//! A path that can never be late has neither I(p) nor a row. Edges that only delay make no queries, so no path has
//! them.

use crate::model::{Model, sum};
use apportion_domain::SLACK;
use good_lp::{Expression, constraint, variable};

impl Model<'_> {
    /// Adds (6) and (7) for one pipeline, divided by the SLO.
    pub fn add_paths_in_time(&mut self, part: usize) {
        let part = &self.parts[part];
        let slo_ms = self.problem.pipeline(part.index).slo_ms;
        let slo = 1.0 + SLACK * slo_ms.max(1.0) / slo_ms;
        let longest = |g: usize| part.sets.groups[g].batches.iter().map(|b| b.charge_ms / slo_ms).fold(0.0, f64::max);
        for (prefix, &f) in part.sets.prefixes.iter().zip(&part.share).filter(|(p, _)| p.is_path) {
            let late_by = prefix.groups.iter().map(|&g| longest(g)).sum::<f64>() - slo;
            if late_by <= 0.0 {
                continue;
            }
            let charge = |&g: &usize| sum(part.terms(g, &part.runs, |b| b.charge_ms / slo_ms));
            let latency: Expression = prefix.groups.iter().map(charge).sum(); // (6)
            let used = self.variables.add(variable().binary());
            self.constraints.push(constraint!(latency <= slo + late_by * (1.0 - used))); // (7)
            self.constraints.push(constraint!(f <= used)); // (7)
        }
    }
}
