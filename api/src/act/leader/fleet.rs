//! Has the fleet changed, and does the target follow it?

use crate::act::agent_facts::agent_facts;
use crate::act::apply::{
    ApplyError, DuplicatePipelines, MissingDevices, Proposal, ProposalResult, SpecSource, apply_to, describe, fence,
};
use crate::app::{App, now};
use crate::decide::broken_variants::BrokenVariants;
use crate::decide::fleet::{AgentSignature, Fleet};
use crate::decide::heartbeat::{GracePeriod, LossJudgement, ProcessHeartbeats};
use crate::decide::membership::{AgentStatus, Disruption, FleetMembers, Membership};
use crate::decide::on_demand::OnDemandChange;
use crate::store::{self, agents::AgentRow, leases::HeldLease, target::TargetRow};
use apportion_protocol::v1;
use apportion_wire::PipelineSpec;
use prost::Message;
use sqlx::Connection;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// If an agent was silent for longer, its reports are missing: the arrivals of these seconds are unknown.
const REPORT_DELAY_MAX: Duration = Duration::from_secs(2);

/// Whether the reports of all agents have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reports {
    /// They have.
    Complete,
    /// Some may be missing: the arrivals of the last seconds are unknown.
    MayBeMissing,
}

/// The facts on which the placement depends.
#[derive(Clone, PartialEq)]
struct Signature {
    agents: Vec<AgentSignature>,
    failed: BTreeSet<u64>,
}

impl Signature {
    /// The same fleet if no device measured for a profile job.
    fn without_claims(&self) -> Self {
        Self { agents: self.agents.iter().map(AgentSignature::without_claims).collect(), failed: self.failed.clone() }
    }
}

/// The leader's view of the fleet.
pub(super) struct FleetWatch {
    app: App,
    lease: HeldLease,
    grace: GracePeriod,
    processes: ProcessHeartbeats,
    membership: Membership,
    members: FleetMembers,
    /// Pipelines of the previous leader's target. They are not planned before their load could be observed.
    inherited: BTreeSet<String>,
    reports: Reports,
    fleet: Fleet,
    signature: Option<Signature>,
    broken: BrokenVariants,
}

impl FleetWatch {
    pub(super) fn new(app: App, lease: HeldLease, at: Instant) -> Self {
        Self {
            app,
            lease,
            grace: GracePeriod::longest(at),
            processes: ProcessHeartbeats::default(),
            membership: Membership::default(),
            members: FleetMembers::default(),
            inherited: BTreeSet::new(),
            reports: Reports::MayBeMissing,
            fleet: Fleet::default(),
            signature: None,
            broken: BrokenVariants::default(),
        }
    }

    /// The members of the fleet.
    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Whether the reports of all members have come.
    pub(super) fn reports(&self) -> Reports {
        self.reports
    }

    /// Whether all members are live. Lost agents that may come back are no reason to plan with fewer devices.
    pub(super) fn is_complete(&self) -> bool {
        self.members.kept == 0 && !self.fleet.is_empty()
    }

    /// Whether there is no agent, and none was left out of the target for a while.
    pub(super) fn has_no_agents(&self) -> bool {
        self.members.agents.is_empty() && self.fleet.is_empty()
    }

    /// Whether a pipeline's plan is another leader's; true once for each pipeline.
    pub(super) fn take_inherited(&mut self, pipeline: &str) -> bool {
        self.inherited.remove(pipeline)
    }

    /// The spec without variants that cannot be loaded.
    pub(super) fn without_broken(&mut self, spec: PipelineSpec) -> PipelineSpec {
        self.broken.expire(Instant::now());
        self.broken.remove_from(spec)
    }

    /// Finds lost and new agents, and places the plans in force on the fleet. Returns why pipelines must be planned again,
    /// if they must.
    pub(super) async fn follow_changes(&mut self) -> Result<Option<String>, ApplyError> {
        let at = Instant::now();
        let judgement = self.grace.observe(at);
        let mut db = self.app.pool.acquire().await?;
        let live = self.processes.observe(at, &store::processes::beats(&mut db).await?);
        if judgement == LossJudgement::Allowed {
            let mut tx = db.begin().await?;
            fence(&mut tx, self.lease).await?;
            let lost = store::agents::mark_unheld_lost(&mut tx, &live).await?;
            tx.commit().await?;
            for name in lost {
                let why = "the process that held this agent's stream is gone, and the agent joined no other: it is lost";
                tracing::warn!(agent = name, why);
            }
        }
        let agents = store::agents::list(&mut db).await?;
        let target = store::target::get(&mut db).await?;
        drop(db);
        self.decide_members(at, &agents, &target);
        let fleet = Fleet::members(agents.iter().map(agent_facts).collect(), &self.members.agents);
        let are_late = self.grace.has_gap() || fleet.longest_silence(now()) > REPORT_DELAY_MAX;
        self.reports = if are_late { Reports::MayBeMissing } else { Reports::Complete };
        let signature = Signature { agents: fleet.signature(), failed: fleet.failed() };
        if self.signature.as_ref() == Some(&signature) {
            return Ok(None);
        }
        self.place_plans_in_force(fleet, signature, target).await
    }

    fn decide_members(&mut self, at: Instant, agents: &[AgentRow], target: &TargetRow) {
        if self.signature.is_none() {
            self.members.agents = agents_of(target);
            self.inherited = pipelines_of(target);
        }
        let statuses: Vec<_> = agents.iter().map(|a| AgentStatus { number: a.number as u64, state: a.state }).collect();
        let members = self.membership.decide(at, &statuses, &self.members.agents);
        if members.disruption != self.members.disruption {
            let (disruption, members, kept) = (members.disruption, members.agents.len(), members.kept);
            match disruption {
                Disruption::None => tracing::info!(members, "enough agents are back: lost agents are removed as usual"),
                Disruption::Partial => tracing::warn!(members, kept, "most agents are lost: none is removed for a while"),
                Disruption::Full => tracing::warn!(members, "all agents are lost: the target stays as it is"),
            }
        }
        self.members = members;
    }

    /// Places the plans in force on a fleet that has changed.
    async fn place_plans_in_force(
        &mut self,
        fleet: Fleet,
        signature: Signature,
        target: TargetRow,
    ) -> Result<Option<String>, ApplyError> {
        let (is_first, has_target) = (self.signature.is_none(), target.generation > 0);
        let is_failure = self.signature.as_ref().is_some_and(|known| known.agents == signature.agents);
        let is_claim = !is_failure
            && self.signature.as_ref().is_some_and(|known| known.without_claims() == signature.without_claims());
        let why = if is_failure { "replicas have failed, or come up again" } else { "the fleet has changed" };
        self.fleet = fleet;
        let mut broken = Vec::new();
        if has_target && !self.fleet.is_empty() {
            let applied = self.apply_plans_in_force(target.plans, why).await?;
            broken = self.note_broken(&applied);
            if !applied.shortages.is_empty() {
                tracing::warn!(missing = describe(&applied.shortages), "the target is not complete");
            }
            if is_claim || (is_failure && broken.is_empty()) {
                // Other devices have taken over the failed replicas, or a device without replicas measures: the plan is as
                // good as before.
                self.signature = Some(signature);
                return Ok(None);
            }
        }
        self.signature = Some(signature);
        if is_first && has_target {
            return Ok(None);
        }
        let cannot_load = || format!("a variant cannot be loaded: {}", broken.join(", "));
        Ok(Some(if is_failure { cannot_load() } else { why.to_owned() }))
    }

    /// Notes the variants that could be loaded on no device of their hardware type; returns the new ones.
    fn note_broken(&mut self, applied: &ProposalResult) -> Vec<String> {
        let broken = applied.shortages.iter().filter(|s| s.placed == 0 && s.refused > 0).map(|s| &s.key);
        let new = broken.filter(|key| self.broken.add((*key).clone(), Instant::now()));
        new.map(|key| format!("{}/{}", key.pipeline, key.group)).collect()
    }

    async fn apply_plans_in_force(&self, plans: Vec<uuid::Uuid>, why: &str) -> Result<ProposalResult, ApplyError> {
        let proposal = Proposal {
            plans,
            duplicates: DuplicatePipelines::LastWins,
            replaces: None,
            missing_devices: MissingDevices::Allowed,
            specs: SpecSource::InForce,
            on_demand: OnDemandChange::None,
            reason: why.to_owned(),
            hold: None,
            heeds_holds_of: Vec::new(),
            lease: Some(self.lease),
        };
        apply_to(&self.app, &proposal, Some(&self.fleet.numbers())).await
    }
}

/// The agents of a target.
fn agents_of(target: &TargetRow) -> BTreeSet<u64> {
    let composed = v1::Target::decode(target.composed.as_slice());
    let composed = composed.inspect_err(|error| tracing::error!(%error, "the stored target cannot be read"));
    composed.unwrap_or_default().agents.iter().map(|agent| agent.agent).collect()
}

/// The pipelines of a target.
fn pipelines_of(target: &TargetRow) -> BTreeSet<String> {
    target.specs.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}
