//! What is deployed: the plan in force, the replicas of its groups, and the changes to come.

use super::replicas::Replicas;
use super::routers::RouterUpdates;
use super::schedule::Schedule;
use super::steward_state::StewardState;
use crate::compile::PipelineCompiler;
use crate::scenario::Scenario;
use crate::state::RunState;

/// Changes that were carried out.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeCounts {
    /// Changes of replica counts and batch sizes.
    pub replicas: u64,
    /// Plans that came into force.
    pub plans: u64,
    /// Tables of stewards that came into force.
    pub steerings: u64,
}

/// Who chooses the serving policies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// The plan in force.
    Plan,
    /// The caller of the run: the policies of plans have no effect.
    Caller,
}

/// The plan in force and its replicas.
pub struct Deployment<'a> {
    /// The replicas of each group.
    pub replicas: Replicas,
    /// The part in force, by pipeline; `None` for pipelines that are not served.
    pub plans: Vec<Option<PipelineCompiler<'a>>>,
    /// The steward of each pipeline; empty in runs without stewards.
    pub stewards: Vec<Option<StewardState>>,
    /// The changes to come.
    pub schedule: Schedule,
    /// Delays and rules of the run; its events and controllers have been taken out.
    pub scenario: Scenario<'a>,
    /// Who chose the policies.
    pub policies: PolicySource,
    /// Changes so far.
    pub counts: ChangeCounts,
}

impl std::fmt::Debug for Deployment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Deployment");
        debug.field("replicas", &self.replicas).field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

impl<'a> Deployment<'a> {
    /// The routers of a run, to be brought in line with this deployment.
    pub fn routers<'s>(&'s self, run: &'s mut RunState) -> RouterUpdates<'s, 'a> {
        RouterUpdates { run, replicas: &self.replicas, plans: &self.plans }
    }
}
