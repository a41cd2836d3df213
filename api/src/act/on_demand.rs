//! How does the leader react to variants that requests want, and to replicas that no request uses any more?
//!
//! Example: an agent says that requests of `photos` want group 12. The leader finds a free device, and the next target has
//! a replica of group 12 there. A minute after the last query the leader takes it out again. Each step is an event.

use super::apply::{ApplyError, DuplicatePipelines, MissingDevices, Proposal, SpecSource, apply_to, fence};
use super::lease::Chain;
use super::offer_facts::add_registered_hardware;
use crate::app::{App, now};
use crate::decide::drift::PERIOD_S;
use crate::decide::fleet::Fleet;
use crate::decide::offers::Offering;
use crate::decide::on_demand::{
    FreeRoom, IdleReplica, KnownMemory, OnDemandChange, OnDemandWatch, WantRefusal, WantVerdict, WantedPipeline, described,
    loaded_for_requests,
};
use crate::decide::placement::{PlacedGroup, Placement};
use crate::documents;
use crate::store::{self, holds::FLEET, holds::HoldRow, leases::HeldLease, wants::VariantWantRow};
use apportion_wire::{OnDemandSpec, PipelineSpec, ReplanSpec};
use serde_json::json;
use sqlx::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The kind of an event about replicas for requests.
const ON_DEMAND_EVENT: &str = "on-demand";
/// Most wants that are answered in one turn of the leader: each may make a target.
const WANTS_PER_TURN_MAX: usize = 16;
/// Pause between two looks at settings and idle replicas.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The leader's view of the replicas that requests have loaded.
pub(super) struct OnDemandLoads {
    app: App,
    lease: HeldLease,
    watch: OnDemandWatch,
    looked_at: Option<Instant>,
    /// Wants for which another target came in between.
    postponed: Vec<VariantWantRow>,
    /// The settings for which a target was made last, by pipeline.
    offered: BTreeMap<String, Offering>,
}

/// The target in force, as far as replicas for requests depend on it.
struct TargetFacts {
    generation: i64,
    plans: Vec<Uuid>,
    placement: Placement,
    specs: BTreeMap<String, PipelineSpec>,
    /// The replan settings of its pipelines as they are registered now.
    settings: BTreeMap<String, ReplanSpec>,
    /// The holds in force. A target is compared with those of its transaction.
    holds: Vec<HoldRow>,
}

impl TargetFacts {
    /// What requests of a pipeline may have loaded.
    fn on_demand(&self, pipeline: &str) -> Option<&OnDemandSpec> {
        self.settings.get(pipeline)?.on_demand.as_ref()
    }

    fn is_held(&self, pipeline: &str) -> bool {
        self.holds.iter().any(|hold| hold.pipeline == FLEET || hold.pipeline == pipeline)
    }

    /// The offered groups with these numbers.
    fn groups(&self, ids: &[u64]) -> Vec<PlacedGroup> {
        ids.iter().filter_map(|id| self.placement.group(*id).cloned()).collect()
    }
}

impl OnDemandLoads {
    pub(super) fn new(app: App, lease: HeldLease) -> Self {
        let (watch, offered) = (OnDemandWatch::default(), BTreeMap::new());
        Self { app, lease, watch, looked_at: None, postponed: Vec::new(), offered }
    }

    /// Answers the wants that have come, and once in a while looks at settings and idle replicas.
    pub(super) async fn follow(&mut self, fleet: &Fleet) -> Result<(), ApplyError> {
        if fleet.is_empty() {
            return Ok(());
        }
        match self.take_step(fleet).await {
            Err(error @ (ApplyError::Database(_) | ApplyError::LeaseLost(_))) => Err(error),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "replicas for requests stay as they are");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn take_step(&mut self, fleet: &Fleet) -> Result<(), ApplyError> {
        let mut wants = self.take_wants().await?;
        // The others follow at the next turn.
        self.postponed = wants.split_off(wants.len().min(WANTS_PER_TURN_MAX));
        let is_look_due = self.looked_at.is_none_or(|last| last.elapsed() >= LOOK_EVERY);
        if wants.is_empty() && !is_look_due {
            return Ok(());
        }
        let mut of = self.read_target().await?;
        if !wants.is_empty() {
            of = self.answer_all(fleet, of, wants).await?;
        }
        if is_look_due {
            self.looked_at = Some(Instant::now());
            if self.follow_settings(fleet, &of).await? == StepOutcome::TargetChanged {
                of = self.read_target().await?;
            }
            self.unload_idle(fleet, &of).await?;
        }
        Ok(())
    }

    /// Answers wants in their order. Returns the target that is in force afterwards.
    async fn answer_all(
        &mut self,
        fleet: &Fleet,
        mut of: TargetFacts,
        wants: Vec<VariantWantRow>,
    ) -> Result<TargetFacts, ApplyError> {
        let mut memory = self.read_memory(&of).await?;
        for want in wants {
            if self.answer(fleet, &of, &memory, want).await? == StepOutcome::TargetChanged {
                of = self.read_target().await?;
                memory = self.read_memory(&of).await?;
            }
        }
        Ok(of)
    }

    async fn take_wants(&mut self) -> Result<Vec<VariantWantRow>, ApplyError> {
        let mut wants = std::mem::take(&mut self.postponed);
        if wants.len() >= WANTS_PER_TURN_MAX {
            return Ok(wants);
        }
        let mut db = self.app.pool.acquire().await?;
        if store::wants::is_any(&mut db).await? {
            let mut tx = db.begin().await?;
            fence(&mut tx, self.lease).await?;
            wants.extend(store::wants::take(&mut tx).await?);
            tx.commit().await?;
        }
        Ok(wants)
    }

    async fn read_target(&self) -> Result<TargetFacts, ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let target = store::target::get(&mut db).await?;
        let specs: BTreeMap<String, PipelineSpec> = serde_json::from_value(target.specs).unwrap_or_default();
        let names: Vec<String> = specs.keys().cloned().collect();
        let rows = store::pipelines::replan_settings(&mut db, &names).await?;
        let settings = rows.into_iter().filter_map(|row| Some((row.settings().ok()??, row.name)));
        Ok(TargetFacts {
            generation: target.generation,
            plans: target.plans,
            placement: serde_json::from_value(target.placement).unwrap_or_default(),
            settings: settings.map(|(settings, name)| (name, settings)).collect(),
            holds: store::holds::in_force(&mut db, now()).await?,
            specs,
        })
    }

    async fn read_memory(&self, of: &TargetFacts) -> Result<KnownMemory, ApplyError> {
        let facts = of.specs.iter().filter_map(|(name, spec)| Some((name.clone(), documents::facts(spec).ok()?)));
        let mut facts = facts.collect();
        let mut db = self.app.pool.acquire().await?;
        Ok(add_registered_hardware(&mut db, &mut facts).await?)
    }

    /// Loads what requests want, or notes why not.
    async fn answer(
        &mut self,
        fleet: &Fleet,
        of: &TargetFacts,
        memory: &KnownMemory,
        want: VariantWantRow,
    ) -> Result<StepOutcome, ApplyError> {
        let Some(settings) = of.on_demand(&want.pipeline) else { return Ok(StepOutcome::Unchanged) };
        let groups: Vec<u64> = want.groups.iter().map(|group| group.cast_unsigned()).collect();
        let devices = fleet.devices();
        let pipeline = WantedPipeline {
            name: &want.pipeline,
            settings,
            is_applied: Offering::of(of.settings.get(&want.pipeline)) == Offering::Loaded,
            is_held: of.is_held(&want.pipeline),
        };
        let room = FreeRoom { devices: &devices, memory };
        match self.watch.judge(Instant::now(), &pipeline, &groups, &of.placement, &room) {
            WantVerdict::Present => Ok(StepOutcome::Unchanged),
            WantVerdict::Refused(refusal) => self.note_refusal(of, &want, &groups, &refusal).await,
            WantVerdict::Load(missing) => self.load(fleet, of, want, &missing).await,
        }
    }

    async fn load(
        &mut self,
        fleet: &Fleet,
        of: &TargetFacts,
        want: VariantWantRow,
        missing: &[u64],
    ) -> Result<StepOutcome, ApplyError> {
        let names = described(&of.groups(missing));
        let reason = format!("requests of {} need {names}", want.pipeline);
        let change = OnDemandChange::Load(missing.to_vec());
        match self.change_target(fleet, of, change, reason.clone(), vec![want.pipeline.clone()]).await {
            Ok(true) => {
                self.watch.loaded(Instant::now(), &want.pipeline, missing.len());
                self.note(&want.pipeline, &facts_of(&want, "loaded", &names, &reason)).await?;
                Ok(StepOutcome::TargetChanged)
            }
            Ok(false) => self.note_refusal(of, &want, missing, &WantRefusal::Room(names)).await,
            Err(ApplyError::Held(_)) => self.note_refusal(of, &want, missing, &WantRefusal::Held).await,
            Err(error @ ApplyError::Quota(_)) => {
                self.note_refusal(of, &want, missing, &WantRefusal::Quota(error.to_string())).await
            }
            Err(ApplyError::Stale(_)) => {
                self.postponed.push(want);
                Ok(StepOutcome::TargetChanged)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a target with another set of offers if the registered settings ask for it.
    async fn follow_settings(&mut self, fleet: &Fleet, of: &TargetFacts) -> Result<StepOutcome, ApplyError> {
        let wanted = |name: &String| Offering::of(of.settings.get(name));
        let is_other = |(name, spec): &(&String, &PipelineSpec)| {
            let tried = self.offered.get(*name).copied();
            Offering::of(spec.replan.as_ref()) != wanted(name) && tried != Some(wanted(name))
        };
        let others: Vec<String> = of.specs.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        if others.is_empty() {
            return Ok(StepOutcome::Unchanged);
        }
        let reason = format!("requests of {} may have other variants loaded", others.join(", "));
        match self.change_target(fleet, of, OnDemandChange::None, reason, Vec::new()).await {
            Ok(is_changed) => {
                let wanted: Vec<_> = others.into_iter().map(|name| (wanted(&name), name)).collect();
                self.offered.extend(wanted.into_iter().map(|(offering, name)| (name, offering)));
                Ok(if is_changed { StepOutcome::TargetChanged } else { StepOutcome::Unchanged })
            }
            Err(ApplyError::Stale(_)) => Ok(StepOutcome::TargetChanged),
            Err(error) => Err(error),
        }
    }

    async fn unload_idle(&mut self, fleet: &Fleet, of: &TargetFacts) -> Result<(), ApplyError> {
        let pipelines: Vec<&String> =
            of.specs.keys().filter(|name| loaded_for_requests(&of.placement, name).next().is_some()).collect();
        if pipelines.is_empty() {
            return Ok(());
        }
        let period = now().timestamp() / PERIOD_S;
        // A report may come a moment after its period.
        let rows = store::drifts::used_since(&mut *self.app.pool.acquire().await?, period - 1).await?;
        let is_used = |g: &&PlacedGroup| {
            let names = (&g.pipeline, &g.task, &g.variant, &g.hardware);
            rows.iter().any(|row| (&row.pipeline, &row.task, &row.variant, &row.hardware) == names)
        };
        let used: BTreeSet<u64> = of.placement.offered.iter().filter(is_used).map(|g| g.id).collect();
        for name in pipelines {
            let settings = of.on_demand(name).cloned().unwrap_or_default();
            let idle = self.watch.idle(Instant::now(), name, &settings, &of.placement, &used);
            if !idle.is_empty() {
                // After another target the others follow at the next look.
                if self.unload(fleet, of, name, &settings, &idle).await? == StepOutcome::TargetChanged {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn unload(
        &mut self,
        fleet: &Fleet,
        of: &TargetFacts,
        pipeline: &str,
        settings: &OnDemandSpec,
        idle: &[IdleReplica],
    ) -> Result<StepOutcome, ApplyError> {
        let groups: Vec<u64> = idle.iter().map(|replica| replica.group).collect();
        let names = described(&of.groups(&groups));
        let reason = format!("no request of {pipeline} has used {names} for {} s", settings.idle_s);
        let change = OnDemandChange::Unload(idle.iter().map(|replica| replica.replica).collect());
        match self.change_target(fleet, of, change, reason.clone(), vec![pipeline.to_owned()]).await {
            Ok(true) => {
                self.note(pipeline, &json!({"change": "unloaded", "groups": names, "reason": reason})).await?;
                Ok(StepOutcome::TargetChanged)
            }
            // The next look tries again.
            Err(ApplyError::Stale(_)) => Ok(StepOutcome::TargetChanged),
            Ok(false) | Err(ApplyError::Held(_)) => Ok(StepOutcome::Unchanged),
            Err(error) => Err(error),
        }
    }

    /// Makes the target in force anew with a change; returns whether it is another one.
    async fn change_target(
        &self,
        fleet: &Fleet,
        of: &TargetFacts,
        on_demand: OnDemandChange,
        reason: String,
        heeds_holds_of: Vec<String>,
    ) -> Result<bool, ApplyError> {
        let proposal = Proposal {
            plans: of.plans.clone(),
            duplicates: DuplicatePipelines::LastWins,
            replaces: Some(of.generation),
            missing_devices: MissingDevices::Allowed,
            specs: SpecSource::InForce,
            on_demand,
            reason,
            hold: None,
            heeds_holds_of,
            lease: Some(self.lease),
        };
        Ok(apply_to(&self.app, &proposal, Some(&fleet.numbers())).await?.changed)
    }

    async fn note_refusal(
        &mut self,
        of: &TargetFacts,
        want: &VariantWantRow,
        groups: &[u64],
        refusal: &WantRefusal,
    ) -> Result<StepOutcome, ApplyError> {
        if !self.watch.is_news(Instant::now(), &want.pipeline, groups, refusal) {
            return Ok(StepOutcome::Unchanged);
        }
        let (names, why) = (described(&of.groups(groups)), refusal.to_string());
        tracing::info!(pipeline = want.pipeline, groups = names, why, "requests want variants that are not loaded");
        self.note(&want.pipeline, &facts_of(want, "refused", &names, &why)).await?;
        Ok(StepOutcome::Unchanged)
    }

    async fn note(&self, pipeline: &str, facts: &serde_json::Value) -> Result<(), ApplyError> {
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        store::events::insert(&mut tx, ON_DEMAND_EVENT, pipeline, facts).await?;
        Ok(tx.commit().await?)
    }
}

/// The target after a want, or after a look at settings and idle replicas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepOutcome {
    /// Another one is in force.
    TargetChanged,
    /// The same one is.
    Unchanged,
}

/// The facts of an event about a want.
fn facts_of(want: &VariantWantRow, change: &str, groups: &str, reason: &str) -> serde_json::Value {
    let VariantWantRow { accuracy_min, latency_ms_max, variants, .. } = want;
    let asked = json!({"accuracy_min": accuracy_min, "latency_ms_max": latency_ms_max, "variants": variants});
    json!({"change": change, "groups": groups, "reason": reason, "asked": asked})
}
