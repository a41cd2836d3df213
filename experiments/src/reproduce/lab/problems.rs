//! Which problems do comparisons start from, and how are they changed?

use anyhow::anyhow;
use apportion_domain::{Mode, Pipeline, PipelineDraft, Problem, TaskIndex};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::{BadInput, ProblemFile, read_problem};
use std::path::PathBuf;

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

/// A pipeline of a user's problem file.
pub struct OwnPipeline {
    /// The name of its file, followed by its own where the file has several.
    pub name: String,
    /// A problem with this pipeline alone.
    pub problem: Problem,
}

/// Every pipeline of these problem files.
///
/// # Errors
/// If a file holds no allocation problem, or a pipeline without a demand.
pub fn own_pipelines(files: &[PathBuf]) -> Result<Vec<OwnPipeline>, Failure> {
    let mut pipelines = Vec::new();
    for file in files {
        let shown = file.display().to_string();
        let all = input::read_allocation_problem(&shown)?;
        let stem = file.file_stem().map_or_else(|| shown.clone(), |stem| stem.to_string_lossy().into_owned());
        for (at, pipeline) in all.pipelines.iter().enumerate() {
            if pipeline.demand_qps <= 0.0 {
                let expected = "a demand above 0: traces are scaled to it";
                return Err(
                    BadInput::one(&shown, format!("/pipelines/{at}/demand_qps"), pipeline.demand_qps, expected).into()
                );
            }
            let name = if all.pipelines.len() == 1 { stem.clone() } else { format!("{stem}/{}", pipeline.name) };
            pipelines.push(OwnPipeline { name, problem: with_pipeline(&all, at, |_| {})? });
        }
    }
    Ok(pipelines)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_pipelines_are_those_of_all_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let files = [file("mine.json", CHAIN.text), file("theirs.yaml", INFERLINE.text)];
        let of_two = INFERLINE.problem().expect("a problem").pipelines.len();
        let read = own_pipelines(&files).expect("pipelines");
        assert!(of_two > 1 && read.len() == 1 + of_two, "{of_two}");
        assert!(read[0].name == "mine" && read[1].name.starts_with("theirs/"), "{} {}", read[0].name, read[1].name);
        assert!(read.iter().all(|of| of.problem.pipelines.len() == 1));
        let demand = format!("\"demand_qps\": {}", CHAIN.problem().expect("a problem").pipelines[0].demand_qps);
        assert!(CHAIN.text.contains(&demand), "{demand}");
        let idle = file("idle.json", &CHAIN.text.replace(&demand, "\"demand_qps\": 0"));
        let refused = own_pipelines(&[idle]).err().map(|failure| failure.to_string()).expect("a refusal");
        assert!(refused.contains("/pipelines/0/demand_qps: 0: expected a demand above 0"), "{refused}");
        assert!(own_pipelines(&["no/such/file.json".into()]).is_err());
    }
}
