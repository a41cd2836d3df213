//! Which integers of a solution decide the plan?

use crate::exact::model::columns::PartColumns;
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::{PipelineSpace, Space};
use apportion_domain::{Deployed, Problem};

/// The integers of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GroupChoice {
    pub replicas: u32,
    /// Position of its operating point. It means nothing without replicas.
    pub point: usize,
}

/// The integers of a plan: replicas and operating point of every group of every pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanIntegers {
    /// By pipeline and group.
    pub groups: Vec<Vec<GroupChoice>>,
}

impl PlanIntegers {
    /// All replicas.
    pub fn replicas(&self) -> u64 {
        self.groups.iter().flatten().map(|c| u64::from(c.replicas)).sum()
    }

    /// The groups with replicas, as what runs.
    pub fn as_deployed(&self, space: &Space) -> Vec<Deployed> {
        let mut deployed = Vec::new();
        for (part, groups) in space.parts.iter().zip(&self.groups) {
            for (group, choice) in part.groups.iter().zip(groups).filter(|(_, c)| c.replicas > 0) {
                deployed.push(Deployed {
                    pipeline: part.index,
                    task: group.task,
                    variant: group.variant,
                    hardware: group.hardware,
                    share: group.share,
                    batch: group.points[choice.point].batch,
                    replicas: choice.replicas,
                });
            }
        }
        deployed
    }
}

/// Reads the integers of a solution. Budgets without a binary are those of the fixed points.
pub(crate) fn read_choice(space: &Space, columns: &[PartColumns], values: &[f64]) -> PlanIntegers {
    let of_part = |(part, own): (&PipelineSpace, &PartColumns)| {
        let budget = |t: usize| {
            let chosen = own.level[t].iter().zip(&part.levels[t]).filter(|(w, _)| values[w.0] > 0.5);
            chosen.map(|(_, &theta)| theta).fold(0.0, f64::max)
        };
        let budgets: Vec<f64> = (0..own.level.len()).map(budget).collect();
        let group = |(g, group): (usize, &FeasibleGroup)| {
            let point = match (&own.fixed, own.batch.get(g)) {
                (Some(fixed), _) => fixed[g],
                (None, Some(batches)) => batches.iter().position(|z| values[z.0] > 0.5),
                (None, None) => group.best_within(budgets[group.task.get()]),
            };
            let replicas = values[own.replicas[g].0].round().max(0.0) as u32;
            point.map_or(GroupChoice::default(), |point| GroupChoice { replicas, point })
        };
        part.groups.iter().enumerate().map(group).collect()
    };
    PlanIntegers { groups: space.parts.iter().zip(columns).map(of_part).collect() }
}

/// Reliable capacity of a group in queries per second: `(replicas - survive) * q`.
pub(crate) fn capacity(problem: &Problem, part: &PipelineSpace, g: usize, choice: GroupChoice) -> f64 {
    let survive = problem.pipeline(part.index).survive;
    f64::from(choice.replicas.saturating_sub(survive)) * part.groups[g].points[choice.point].qps
}
