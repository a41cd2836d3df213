//! Which variables does a programme have? The sums for several constraints and objectives are here too.
//!
//! | in the algebra | here | meaning |
//! |---|---|---|
//! | x(g, b) integer | `replicas` | replicas of group g with batch size b |
//! | y(g, b) binary | `runs` | group g runs batch size b |
//! | v(g, b) binary | `carries` | group g runs batch size b and serves queries; only where replicas may be lost |
//! | n(g, b) | `serving` | replicas that may be counted on; only where replicas may be lost |
//! | f(p) | `share` | share of the root's queries that take the prefix p; c(p) of Loki where p is a whole path |
//! | d(h) integer | `devices` | whole devices of hardware type h |
//! | a(g) | `loaded` | replicas of g that must be loaded, for the cost of switching |

use crate::answer::{INTEGER_MAX, ReferenceError};
use crate::sets::{BatchSize, ReferenceGroup, Sets};
use apportion_domain::{HardwareIndex, Pipeline, PipelineIndex, Problem, TaskIndex};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, variable};

/// The variables of one pipeline; those of groups by group and batch size.
pub struct PipelineVariables {
    pub index: PipelineIndex,
    pub sets: Sets,
    /// The pipeline's weight over the sum of all weights.
    pub weight: f64,
    /// U(g, b): most replicas worth having.
    pub replicas_max: Vec<Vec<f64>>,
    pub replicas: Vec<Vec<Variable>>,
    pub runs: Vec<Vec<Variable>>,
    /// Empty where the pipeline need not survive losses.
    pub carries: Vec<Vec<Variable>>,
    /// Empty where the pipeline need not survive losses.
    pub serving: Vec<Vec<Variable>>,
    /// By prefix.
    pub share: Vec<Variable>,
}

/// A programme without its objective.
pub struct Model<'a> {
    pub problem: &'a Problem,
    pub variables: ProblemVariables,
    pub constraints: Vec<Constraint>,
    pub parts: Vec<PipelineVariables>,
    /// By hardware type.
    pub devices: Vec<Variable>,
}

/// A sum of terms.
pub fn sum(terms: impl IntoIterator<Item = (f64, Variable)>) -> Expression {
    let mut sum = Expression::default();
    terms.into_iter().for_each(|(factor, variable)| sum.add_mul(factor, variable));
    sum
}

impl PipelineVariables {
    fn new(problem: &Problem, index: PipelineIndex, variables: &mut ProblemVariables) -> Result<Self, ReferenceError> {
        let pipeline = problem.pipeline(index);
        let sets = Sets::new(problem, index)?;
        let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
        let weight = if total > 0.0 { pipeline.weight / total } else { 1.0 / problem.pipelines.len() as f64 };
        let replicas_max = (0..sets.groups.len()).map(|g| replicas_max(problem, pipeline, &sets, g)).collect::<Vec<_>>();
        if replicas_max.iter().flatten().any(|&most| most > INTEGER_MAX) {
            return Err(ReferenceError::TooManyReplicas(format!("pipeline {:?}", pipeline.name)));
        }
        let mut by_batch = |variable: &dyn Fn(f64) -> good_lp::VariableDefinition| -> Vec<Vec<Variable>> {
            let of_group = |most: &Vec<f64>| most.iter().map(|&most| variables.add(variable(most))).collect();
            replicas_max.iter().map(of_group).collect()
        };
        let replicas = by_batch(&|most| variable().integer().min(0.0).max(most));
        let runs = by_batch(&|_| variable().binary());
        let survives = pipeline.survive > 0;
        let carries = if survives { by_batch(&|_| variable().binary()) } else { Vec::new() };
        let serving = if survives { by_batch(&|most| variable().min(0.0).max(most)) } else { Vec::new() };
        let share = sets.prefixes.iter().map(|_| variables.add(variable().min(0.0).max(1.0))).collect();
        Ok(Self { index, sets, weight, replicas_max, replicas, runs, carries, serving, share })
    }

    /// `sum over b of x(g, b)`.
    pub fn replicas_of(&self, group: usize) -> Expression {
        sum(self.replicas[group].iter().map(|&x| (1.0, x)))
    }

    /// `sum over p of A(p) f(p)`: the pipeline's accuracy.
    pub fn accuracy(&self) -> Expression {
        sum(self.sets.prefixes.iter().zip(&self.share).map(|(p, &f)| (p.accuracy, f)))
    }

    /// `factor(b) variable(g, b)` for each batch size b of a group.
    pub fn terms<'a>(
        &'a self,
        group: usize,
        variables: &'a [Vec<Variable>],
        factor: impl Fn(&BatchSize) -> f64 + 'a,
    ) -> impl Iterator<Item = (f64, Variable)> + 'a {
        let batches = self.sets.groups[group].batches.iter();
        batches.zip(&variables[group]).map(move |(b, &variable)| (factor(b), variable))
    }
}

/// U(g, b) for each batch size of a group: enough replicas for the largest load after losses, and at least `min_replicas`.
/// The existing devices limit them. More replicas never make a plan better.
fn replicas_max(problem: &Problem, pipeline: &Pipeline, sets: &Sets, g: usize) -> Vec<f64> {
    let group: &ReferenceGroup = &sets.groups[g];
    let load_qps = sets.ending_at(g).map(|p| sets.prefixes[p].load_qps).fold(0.0, f64::max);
    let least = f64::from(pipeline.task(group.task).min_replicas);
    let there = problem.hardware_at(group.hardware).count.map(|count| f64::from(count) / group.share.value());
    let most = |qps: f64| ((load_qps / qps).ceil().max(1.0) + f64::from(pipeline.survive)).max(least);
    group.batches.iter().map(|b| most(b.qps).min(there.unwrap_or(f64::INFINITY))).collect()
}

impl<'a> Model<'a> {
    /// The variables of a problem, without any constraint.
    pub fn new(problem: &'a Problem) -> Result<Self, ReferenceError> {
        let mut variables = ProblemVariables::new();
        let indices = (0..problem.pipelines.len()).map(PipelineIndex);
        let parts =
            indices.map(|index| PipelineVariables::new(problem, index, &mut variables)).collect::<Result<Vec<_>, _>>()?;
        let mut devices = Vec::new();
        for (h, hardware) in problem.hardware.iter().enumerate() {
            let most: f64 = parts.iter().map(|part| eighths_max(part, HardwareIndex(h)) / 8.0).sum();
            let most = hardware.count.map_or(most.ceil(), |count| most.ceil().min(f64::from(count)));
            if most > INTEGER_MAX {
                return Err(ReferenceError::TooManyReplicas(format!("hardware {:?}", hardware.name)));
            }
            devices.push(variables.add(variable().integer().min(0.0).max(most)));
        }
        Ok(Self { problem, variables, constraints: Vec::new(), parts, devices })
    }

    /// `sum of x(g, b)`: all replicas.
    pub fn replicas(&self) -> Expression {
        sum(self.parts.iter().flat_map(|part| part.replicas.iter().flatten()).map(|&x| (1.0, x)))
    }

    /// `sum of price(h) d(h)`: the cost of the devices per hour.
    pub fn cost(&self) -> Expression {
        sum(self.problem.hardware.iter().zip(&self.devices).map(|(h, &d)| (h.price_per_hour, d)))
    }

    /// `sum of weight A(p) f(p)` over all pipelines.
    pub fn accuracy(&self) -> Expression {
        let mut accuracy = Expression::default();
        self.parts.iter().for_each(|part| accuracy.add_mul(part.weight, part.accuracy()));
        accuracy
    }

    /// The pipeline's tasks by position.
    pub fn tasks(&self, part: usize) -> impl Iterator<Item = TaskIndex> + use<> {
        (0..self.problem.pipeline(self.parts[part].index).tasks.len()).map(TaskIndex)
    }
}

/// Eighths of a device that all groups of a pipeline may use of a hardware type: the groups' shares, each with its
/// largest U.
fn eighths_max(part: &PipelineVariables, hardware: HardwareIndex) -> f64 {
    let groups = part.sets.groups.iter().zip(&part.replicas_max).filter(|(g, _)| g.hardware == hardware);
    groups.map(|(g, most)| f64::from(g.share.eighths()) * most.iter().copied().fold(0.0, f64::max)).sum()
}
