//! Which problems do comparisons start from, and how are they changed?

use anyhow::anyhow;
use apportion_domain::{Mode, Pipeline, PipelineDraft, Problem, TaskIndex};
use apportion_support::exit::Failure;
use apportion_wire::{ProblemFile, read_problem};

/// A problem file that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name in messages.
    pub name: &'static str,
    /// Its text, JSON or YAML.
    pub text: &'static str,
}

/// Loki's traffic pipeline.
pub const TRAFFIC: BuiltIn =
    BuiltIn { name: "examples/traffic.yaml", text: include_str!("../../../../examples/traffic.yaml") };
/// A chain of tasks.
pub const CHAIN: BuiltIn = BuiltIn { name: "examples/chain.json", text: include_str!("../../../../examples/chain.json") };
/// Pipelines with the shapes of InferLine's evaluation.
pub const INFERLINE: BuiltIn = BuiltIn {
    name: "examples/reproduce/inferline.yaml",
    text: include_str!("../../../../examples/reproduce/inferline.yaml"),
};
/// Pipelines with the shapes of PARD's evaluation.
pub const PARD: BuiltIn =
    BuiltIn { name: "examples/reproduce/pard.yaml", text: include_str!("../../../../examples/reproduce/pard.yaml") };

impl BuiltIn {
    /// Parses the problem.
    ///
    /// # Errors
    /// If the file holds no allocation problem.
    pub fn problem(&self) -> Result<Problem, Failure> {
        match read_problem(self.name, self.text)? {
            ProblemFile::Allocation(problem) => Ok(problem),
            ProblemFile::Scaling(_) => Err(anyhow!("{} is a scaling problem", self.name).into()),
        }
    }
}

/// A problem with one of the pipelines, changed.
///
/// # Errors
/// If the changed pipeline is invalid.
pub fn with_pipeline(problem: &Problem, index: usize, change: impl FnOnce(&mut PipelineDraft)) -> Result<Problem, Failure> {
    let pipeline: Pipeline = problem.pipelines[index]
        .changed(&problem.hardware, change)
        .map_err(|e| anyhow!("the changed pipeline is invalid: {e:?}"))?;
    let changed = problem.changed(|d| {
        d.pipelines = vec![pipeline];
        d.deployed.clear();
    });
    Ok(changed.map_err(|e| anyhow!("the changed problem is invalid: {e:?}"))?)
}

/// The first pipeline with the most accurate variant of each task, for least cost and without limits on devices.
///
/// #
/// Errors If the problem becomes invalid.
pub fn most_accurate(problem: &Problem) -> Result<Problem, Failure> {
    let p = &problem.pipelines[0];
    let kept: Vec<usize> = (0..p.tasks.len()).filter_map(|t| p.most_accurate(TaskIndex(t)).next().map(|v| v.0)).collect();
    let reduced = with_pipeline(problem, 0, |d| {
        for (task, &v) in d.tasks.iter_mut().zip(&kept) {
            task.variants = vec![task.variants.swap_remove(v)];
        }
        d.path_accuracy.clear();
        d.min_accuracy = None;
    })?;
    let changed = reduced.changed(|d| {
        d.objective.mode = Mode::MinCost;
        d.objective.budget_per_hour = None;
        d.hardware.iter_mut().for_each(|h| h.count = None);
    });
    Ok(changed.map_err(|e| anyhow!("{e:?}"))?)
}
