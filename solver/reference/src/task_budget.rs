//! Latency rule `task_budget`: the slowest group of each task counts, so that any replica may pass work to any other.
//!
//! With e(g, b) from (5), t(i) the budget of task i and F(i) the time by which a query is done with it at the latest:
//!
//! - (20) `t(i) >= sum over b of e(g, b) y(g, b)` for each group g of task i;
//! - (21) `F(root) >= t(root)`, and `F(j) >= F(i) + t(j)` for each edge from i to j, also for edges that only delay;
//! - (22) `F(i) <= SLO`.
//!
//! They stand for Loki's (6) and (7). Times are parts of the SLO.

use crate::model::{Model, sum};
use apportion_domain::{SLACK, TaskIndex};
use good_lp::{Variable, constraint, variable};

impl Model<'_> {
    /// Adds (20) to (22) for one pipeline.
    pub fn add_task_budgets(&mut self, part: usize) {
        let slo_ms = self.problem.pipeline(self.parts[part].index).slo_ms;
        let slo = 1.0 + SLACK * slo_ms.max(1.0) / slo_ms;
        let mut time = |_: TaskIndex| self.variables.add(variable().min(0.0).max(slo));
        let tasks = || (0..self.problem.pipeline(self.parts[part].index).tasks.len()).map(TaskIndex);
        let budget: Vec<Variable> = tasks().map(&mut time).collect();
        let finish: Vec<Variable> = tasks().map(&mut time).collect(); // (22) is their upper bound

        let part = &self.parts[part];
        let pipeline = self.problem.pipeline(part.index);
        for task in tasks() {
            let (t, done) = (budget[task.get()], finish[task.get()]);
            for g in part.sets.groups_of(task) {
                let charge = sum(part.terms(g, &part.runs, |b| b.charge_ms / slo_ms));
                self.constraints.push(constraint!(t >= charge)); // (20)
            }
            self.constraints.push(constraint!(done >= t)); // (21)
            for edge in pipeline.edges_into(task) {
                self.constraints.push(constraint!(done >= finish[edge.from.get()] + t)); // (21)
            }
        }
    }
}
