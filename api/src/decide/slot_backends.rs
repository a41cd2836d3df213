//! Which agents would refuse the continuous tasks of a pipeline?
//!
//! Example: the agents of hardware `gpu` hand their variants to a Triton, which forms its own batches. The task `generate`
//! is continuous and has a profile for `gpu`. A plan could place it there, and these agents would refuse the target.

use apportion_wire::{MeasuredRow, PipelineSpec, ProfileSet, TaskSpec};
use std::collections::BTreeSet;
use std::fmt;

/// The backend of an agent whose variants run on another server, as the agent says it when it registers.
pub const REMOTE_BACKEND: &str = "remote";

/// An agent, as far as its backend matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentBackend {
    /// Its name.
    pub name: String,
    /// Hardware type of its devices.
    pub hardware: String,
    /// What runs its variants; empty if it has not told.
    pub backend: String,
}

impl AgentBackend {
    fn is_remote(&self) -> bool {
        self.backend == REMOTE_BACKEND
    }
}

impl fmt::Display for AgentBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, hardware, backend } = self;
        write!(f, "agent {name} of hardware {hardware} has `--backend {backend}`, a server that forms its own batches")
    }
}

/// A place of a document at which an agent would refuse a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusingAgent<'a> {
    /// Position of the task in its pipeline, or of the row in its profile.
    pub at: usize,
    /// The agent.
    pub agent: &'a AgentBackend,
}

/// The first continuous task that a plan could place on an agent before another server. A task goes to the hardware types
/// of its latencies. One without latencies is refused only if all agents are before another server.
#[must_use]
pub fn refused_task<'a>(
    spec: &PipelineSpec,
    profile: &ProfileSet,
    agents: &'a [AgentBackend],
) -> Option<RefusingAgent<'a>> {
    let tasks = || spec.tasks.iter().enumerate().filter(|(_, task)| task.is_continuous());
    let in_use = tasks().find_map(|(at, task)| {
        let types = hardware_types(task, profile);
        let agent = agents.iter().find(|agent| agent.is_remote() && types.contains(agent.hardware.as_str()))?;
        Some(RefusingAgent { at, agent })
    });
    let unmeasured = || {
        let agent = agents.first().filter(|_| agents.iter().all(AgentBackend::is_remote))?;
        let (at, _) = tasks().find(|(_, task)| hardware_types(task, profile).is_empty())?;
        Some(RefusingAgent { at, agent })
    };
    in_use.or_else(unmeasured)
}

/// The first of these latencies that is of a continuous task, and on the hardware type of an agent before another server.
#[must_use]
pub fn refused_row<'a>(spec: &PipelineSpec, rows: &[MeasuredRow], agents: &'a [AgentBackend]) -> Option<RefusingAgent<'a>> {
    let continuous: BTreeSet<&str> = spec.tasks.iter().filter(|t| t.is_continuous()).map(|t| t.name.as_str()).collect();
    let mut of_continuous = rows.iter().enumerate().filter(|(_, row)| continuous.contains(row.task.as_str()));
    of_continuous.find_map(|(at, row)| {
        let agent = agents.iter().find(|agent| agent.is_remote() && agent.hardware == row.hardware)?;
        Some(RefusingAgent { at, agent })
    })
}

/// The hardware types for which a task has latencies, in its pipeline or in the profile.
fn hardware_types<'a>(task: &'a TaskSpec, profile: &'a ProfileSet) -> BTreeSet<&'a str> {
    let own = task.variants.iter().flat_map(|variant| variant.profile.iter().flatten());
    let measured = profile.rows.iter().filter(|row| row.task == task.name);
    own.map(|row| row.hardware.as_str()).chain(measured.map(|row| row.hardware.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str, kind: &str) -> TaskSpec {
        TaskSpec { name: name.into(), kind: Some(kind.into()), ..TaskSpec::default() }
    }

    fn row(task: &str, hardware: &str) -> MeasuredRow {
        MeasuredRow {
            task: task.into(),
            variant: "v".into(),
            hardware: hardware.into(),
            share: 1.0,
            batch: 1,
            latency_ms: 1.0,
            p99_ms: None,
            measured: None,
        }
    }

    fn agents(list: &[(&str, &str, &str)]) -> Vec<AgentBackend> {
        let agent = |&(name, hardware, backend): &(&str, &str, &str)| AgentBackend {
            name: name.into(),
            hardware: hardware.into(),
            backend: backend.into(),
        };
        list.iter().map(agent).collect()
    }

    /// A pipeline of a batch task and a continuous one.
    fn pipeline() -> PipelineSpec {
        PipelineSpec { tasks: vec![task("find", "batch"), task("generate", "continuous")], ..PipelineSpec::default() }
    }

    #[test]
    fn a_task_is_refused_on_the_hardware_of_another_server() {
        let spec = pipeline();
        let set = |rows: Vec<MeasuredRow>| ProfileSet { rows, ..ProfileSet::default() };
        let fleet = agents(&[("a", "cpu", "onnx"), ("b", "gpu", "remote"), ("old", "gpu", "")]);
        let of = |rows: Vec<MeasuredRow>| {
            let found = refused_task(&spec, &set(rows), &fleet);
            found.map(|found| (found.at, found.agent.name.clone()))
        };
        let cases = [
            (vec![], None),
            (vec![row("find", "gpu")], None),
            (vec![row("generate", "cpu")], None),
            (vec![row("generate", "other")], None),
            (vec![row("generate", "cpu"), row("generate", "gpu")], Some((1, "b".to_owned()))),
        ];
        for (rows, expected) in cases {
            assert_eq!(of(rows.clone()), expected, "{rows:?}");
        }
    }

    #[test]
    fn an_unmeasured_task_needs_one_agent_with_slots() {
        let (spec, none) = (pipeline(), ProfileSet::default());
        let is_refused = |list: &[(&str, &str, &str)]| refused_task(&spec, &none, &agents(list)).map(|found| found.at);
        assert_eq!(is_refused(&[]), None, "agents may come");
        assert_eq!(is_refused(&[("b", "gpu", "remote")]), Some(1));
        assert_eq!(is_refused(&[("b", "gpu", "remote"), ("c", "tpu", "remote")]), Some(1));
        assert_eq!(is_refused(&[("b", "gpu", "remote"), ("a", "cpu", "onnx")]), None);
        assert_eq!(is_refused(&[("b", "gpu", "remote"), ("old", "gpu", "")]), None, "nobody knows of the old one");
    }

    #[test]
    fn a_row_is_refused_on_the_hardware_of_another_server() {
        let (spec, fleet) = (pipeline(), agents(&[("a", "cpu", "emulated"), ("b", "gpu", "remote")]));
        let rows = [row("find", "gpu"), row("generate", "cpu"), row("generate", "gpu")];
        let found = refused_row(&spec, &rows, &fleet).expect("the last row");
        assert_eq!((found.at, found.agent.name.as_str()), (2, "b"));
        assert!(found.agent.to_string().contains("agent b of hardware gpu has `--backend remote`"), "{}", found.agent);
        assert_eq!(refused_row(&spec, &rows[..2], &fleet), None);
    }
}
