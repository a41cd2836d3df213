//! The constraints that every plan obeys, in every mode and under both latency rules.

use crate::model::{Model, sum};
use apportion_domain::HardwareIndex;
use good_lp::{Expression, constraint};

impl Model<'_> {
    /// Adds every constraint that neither the mode nor the latency rule changes.
    pub fn add_allocation(&mut self) {
        for part in 0..self.parts.len() {
            self.add_flow(part);
            self.add_batches(part);
            self.add_load(part);
            self.add_losses(part);
            self.add_presence(part);
            self.add_least_replicas(part);
            self.add_floor(part);
        }
        self.add_devices();
        self.add_budget();
    }

    /// (13) `sum of f(p) over the root's prefixes = 1`, and for each prefix p and each child task of its last task
    /// `sum of f(p') over the prefixes p' that go on from p to the child = f(p)`. Loki leaves this out, and without
    /// it no replica is needed.
    fn add_flow(&mut self, part: usize) {
        let part = &self.parts[part];
        for split in &part.sets.splits {
            let onward = sum(split.to.iter().map(|&p| (1.0, part.share[p])));
            let arriving = split.from.map_or(Expression::from(1.0), |p| part.share[p].into());
            self.constraints.push(constraint!(onward == arriving));
        }
    }

    /// (4) A group runs at most one batch size: `sum over b of y(g, b) <= 1`.
    /// (14) Replicas run where their batch size does: `x(g, b) <= U(g, b) y(g, b)`.
    fn add_batches(&mut self, part: usize) {
        let part = &self.parts[part];
        for (g, runs) in part.runs.iter().enumerate() {
            let one = sum(runs.iter().map(|&y| (1.0, y)));
            self.constraints.push(constraint!(one <= 1.0));
            for (b, &y) in runs.iter().enumerate() {
                let most = part.replicas_max[g][b];
                self.constraints.push(constraint!(part.replicas[g][b] <= most * y));
            }
        }
    }

    /// (2) `sum of D m(p) f(p) over the prefixes that end at g <= sum over b of q(g, b) n(g, b)`, divided by the
    /// largest q(g, b). Without losses to survive n is x.
    fn add_load(&mut self, part: usize) {
        let part = &self.parts[part];
        let counted = if part.serving.is_empty() { &part.replicas } else { &part.serving };
        for (g, group) in part.sets.groups.iter().enumerate() {
            let unit = group.batches.iter().map(|b| b.qps).fold(0.0, f64::max);
            let load = sum(part.sets.ending_at(g).map(|p| (part.sets.prefixes[p].load_qps / unit, part.share[p])));
            let capacity = sum(part.terms(g, counted, |b| b.qps / unit));
            self.constraints.push(constraint!(load <= capacity));
        }
    }

    /// (15) Where s replicas of a group may be lost: `n(g, b) <= x(g, b) - s v(g, b)`, `n(g, b) <= U(g, b) v(g, b)` and
    /// `x(g, b) >= (s + 1) v(g, b)`.
    fn add_losses(&mut self, part: usize) {
        let part = &self.parts[part];
        let survive = f64::from(self.problem.pipeline(part.index).survive);
        for (g, serving) in part.serving.iter().enumerate() {
            for (b, &n) in serving.iter().enumerate() {
                let (x, v, most) = (part.replicas[g][b], part.carries[g][b], part.replicas_max[g][b]);
                self.constraints.push(constraint!(n <= x - survive * v));
                self.constraints.push(constraint!(n <= most * v));
                self.constraints.push(constraint!(x >= (survive + 1.0) * v));
            }
        }
    }

    /// (16) Queries go where replicas are: `sum of f(p) over the prefixes that end at g <= sum over b of x(g, b)`, or
    /// of v(g, b) where replicas may be lost. It follows from (2) unless the demand is 0.
    fn add_presence(&mut self, part: usize) {
        let part = &self.parts[part];
        let present = if part.carries.is_empty() { &part.replicas } else { &part.carries };
        for (g, present) in present.iter().enumerate() {
            let here = sum(part.sets.ending_at(g).map(|p| (1.0, part.share[p])));
            let present = sum(present.iter().map(|&x| (1.0, x)));
            self.constraints.push(constraint!(here <= present));
        }
    }

    /// (17) `sum of x(g, b) over the groups of a task >= min_replicas`.
    fn add_least_replicas(&mut self, part: usize) {
        for task in self.tasks(part) {
            let part = &self.parts[part];
            let least = f64::from(self.problem.pipeline(part.index).task(task).min_replicas);
            let replicas: Expression = part.sets.groups_of(task).map(|g| part.replicas_of(g)).sum();
            self.constraints.push(constraint!(replicas >= least));
        }
    }

    /// (18) `sum of A(p) f(p) >= min_accuracy`.
    fn add_floor(&mut self, part: usize) {
        let part = &self.parts[part];
        if let Some(floor) = self.problem.pipeline(part.index).min_accuracy {
            self.constraints.push(constraint!(part.accuracy() >= floor));
        }
    }

    /// (3) `sum of share(g) x(g, b) over the groups on h <= d(h)`, for each hardware type h; the number of devices
    /// that exist bounds d(h). Shares divide each other, so that first-fit decreasing packs them and one row is
    /// exact.
    fn add_devices(&mut self) {
        for (h, &d) in self.devices.iter().enumerate() {
            let mut used = Expression::default();
            for part in &self.parts {
                let on = (0..part.sets.groups.len()).filter(|&g| part.sets.groups[g].hardware == HardwareIndex(h));
                on.for_each(|g| used.add_mul(part.sets.groups[g].share.value(), part.replicas_of(g)));
            }
            self.constraints.push(constraint!(used <= d));
        }
    }

    /// (19) `sum of price(h) d(h) <= budget`.
    fn add_budget(&mut self) {
        if let Some(budget) = self.problem.objective.budget_per_hour {
            self.constraints.push(constraint!(self.cost() <= budget));
        }
    }
}
