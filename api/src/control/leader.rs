//! The loop that watches the fleet and the load, and changes the target. One process leads, by an advisory lock of the
//! database; it only writes the target, and every process pushes it to the streams that it holds.

use super::apply::{Applied, ApplyError, Proposal, Specs, apply_to, describe};
use super::demand::Demand;
use super::fleet::{Fleet, Signature};
use super::liveness::{Patience, Processes};
use super::reconcile::GroupKey;
use super::removal::{Disruption, Members, Removals, Standing};
use super::replan::{Round, Wish, round};
use super::seconds::Seconds;
use crate::app::{App, now};
use crate::documents;
use crate::parts::Part;
use crate::store::{self, agents::AgentRow, target::TargetRow};
use apportion_protocol::v1;
use apportion_wire::{PipelineSpec, ReplanSpec};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Key of the advisory lock that makes a leader.
const LOCK_KEY: i64 = 0x6170_706f_7274;
/// How often fleet and load are looked at; a change of the fleet in this process wakes the loop at once.
const TICK: Duration = Duration::from_millis(200);
/// A database that takes longer than this for one turn has lost the connection: the loop begins again.
const TICK_MAX: Duration = Duration::from_secs(30);
/// What agents report is missing if one of them was not heard of for so long: the seconds meanwhile are not known.
const REPORT_LATE: Duration = Duration::from_secs(2);
/// A second's arrivals count once it is over for so long: agents report each second, and a report takes a moment.
const REPORTED_AFTER_MS: i64 = 1_150;
/// A plan in force that still holds is not improved on before it is so old: a load that has just fallen may be back, and
/// InferLine's tuner scales down after 15 s without a change (section 5).
const IMPROVE_AFTER: Duration = Duration::from_secs(15);
/// Plans are made with all of the headroom and stay while they hold with this much of it: a band in which the load may
/// move without a change of plan.
const KEEP_HEADROOM: f64 = 0.5;
/// A large change that moves the demand to plan for by less than this share changes no plan (the demand may have a floor).
const DEMAND_MOVES: f64 = 0.1;
/// A variant that could not be loaded anywhere is planned with again after so long: memory may have become free.
const BROKEN_FOR: Duration = Duration::from_secs(600);
/// How long arrivals and decisions are kept.
const KEEP_ARRIVALS_S: i64 = 24 * 3_600;
/// Days that decisions are kept.
const KEEP_DECISIONS_DAYS: i64 = 30;

/// Leads whenever nobody else does, until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        let result = tokio::select! {
            () = app.stopped() => return,
            result = lead(&app) => result,
        };
        if let Err(error) = result {
            tracing::error!(error = %Chain(&error), "the control loop broke off; it begins again");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

async fn lead(app: &App) -> Result<(), ApplyError> {
    // The lock lives as long as this connection, which goes back to no pool.
    let mut lock = app.pool.acquire().await?.detach();
    loop {
        let got: bool = sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK_KEY).fetch_one(&mut lock).await?;
        if got {
            break;
        }
        app.parts.sign(Part::Leader);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tracing::info!("leading the fleet");
    let mut leader = Leader::new(app.clone());
    let mut last_alive = Instant::now();
    loop {
        let turn = tokio::time::timeout(TICK_MAX, leader.tick()).await;
        turn.unwrap_or(Err(ApplyError::Database(store::Error::PoolTimedOut)))?;
        app.parts.sign(Part::Leader);
        if last_alive.elapsed() > Duration::from_secs(1) {
            sqlx::query("select 1").execute(&mut lock).await?;
            last_alive = Instant::now();
        }
        tokio::select! {
            () = app.fleet_changed.notified() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// What the leader remembers of a pipeline.
#[derive(Default)]
struct Watched {
    demand: Demand,
    /// Everything before this unix second was observed.
    observed_until: i64,
    due_at: Option<Instant>,
    changed_at: Option<Instant>,
    planned_qps: f64,
    version: i64,
}

type RoundResult = Result<Vec<String>, ApplyError>;

struct Leader {
    app: App,
    patience: Patience,
    processes: Processes,
    removals: Removals,
    members: Members,
    /// Pipelines of the target that the last leader left: they are not planned for before there was time to see their load.
    inherited: BTreeSet<String>,
    seconds: Seconds,
    /// Whether reports may be missing.
    is_blind: bool,
    fleet: Fleet,
    signature: Option<(Signature, BTreeSet<u64>)>,
    /// Variants of which no replica could be loaded on any device of a hardware type, and since when that is known.
    broken: BTreeMap<GroupKey, Instant>,
    watched: BTreeMap<String, Watched>,
    why: Option<String>,
    running: Option<(JoinHandle<Option<RoundResult>>, Arc<AtomicBool>)>,
    tidied: Option<Instant>,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.stop_round();
    }
}

impl Leader {
    fn new(app: App) -> Self {
        Self {
            app,
            patience: Patience::long(Instant::now()),
            processes: Processes::default(),
            removals: Removals::default(),
            members: Members::default(),
            inherited: BTreeSet::new(),
            seconds: Seconds::default(),
            is_blind: true,
            fleet: Fleet::default(),
            signature: None,
            broken: BTreeMap::new(),
            watched: BTreeMap::new(),
            why: None,
            running: None,
            tidied: None,
        }
    }

    async fn tick(&mut self) -> Result<(), ApplyError> {
        self.look_at_fleet().await?;
        let pipelines = self.replanned_pipelines().await?;
        self.observe(&pipelines).await?;
        self.end_round().await;
        self.begin_round(pipelines);
        self.tidy().await
    }

    /// Notices who is lost and who has come, and places what is in force on who is there now.
    async fn look_at_fleet(&mut self) -> Result<(), ApplyError> {
        let at = Instant::now();
        let may_judge = !self.patience.look(at);
        let mut db = self.app.pool.acquire().await?;
        let alive = self.processes.look(at, &store::processes::beats(&mut db).await?);
        if may_judge {
            for name in store::agents::lose_unheld(&mut db, &alive).await? {
                tracing::warn!(
                    agent = name,
                    "the process that heard of this agent is gone, and it came to no other: it is lost"
                );
            }
        }
        let agents = store::agents::list(&mut db).await?;
        let target = store::target::get(&mut db).await?;
        drop(db);
        self.decide_members(at, &agents, &target);
        let fleet = Fleet::of(agents, &self.members.agents);
        self.is_blind = self.patience.is_gap() || fleet.oldest_word(now()) > REPORT_LATE;
        let signature = (fleet.signature(), fleet.failed());
        if self.signature.as_ref() == Some(&signature) {
            return Ok(());
        }
        self.follow_fleet(fleet, signature, target).await
    }

    /// Who counts as part of the fleet.
    fn decide_members(&mut self, at: Instant, agents: &[AgentRow], target: &TargetRow) {
        if self.signature.is_none() {
            self.members.agents = agents_of(target);
            self.inherited = pipelines_of(target);
        }
        let standings: Vec<_> = agents.iter().map(|a| (a.number as u64, Standing::of(&a.state))).collect();
        let members = self.removals.look(at, &standings, &self.members.agents);
        if members.disruption != self.members.disruption {
            let (disruption, members, kept) = (members.disruption, members.agents.len(), members.kept);
            match disruption {
                Disruption::None => tracing::info!(members, "enough agents are back: lost ones are removed as usual"),
                Disruption::Partial => tracing::warn!(members, kept, "most agents are lost: nobody is removed for a while"),
                Disruption::Full => tracing::warn!(members, "all agents are lost: the target stays as it is"),
            }
        }
        self.members = members;
    }

    /// Places what is in force on a fleet that has changed, and has it planned for again.
    async fn follow_fleet(
        &mut self,
        fleet: Fleet,
        signature: (Signature, BTreeSet<u64>),
        target: TargetRow,
    ) -> Result<(), ApplyError> {
        let (first, has_target) = (self.signature.is_none(), target.generation > 0);
        let is_failure = self.signature.as_ref().is_some_and(|(known, _)| *known == signature.0);
        let why = if is_failure { "replicas have failed, or come up again" } else { "the fleet has changed" };
        self.fleet = fleet;
        let mut broken_now: Vec<String> = Vec::new();
        if has_target && !self.fleet.is_empty() {
            let applied = self.place(target.plans, why).await?;
            let broken = applied.shortages.iter().filter(|s| s.placed == 0 && s.refused > 0).map(|s| s.key.clone());
            let newly = broken.filter(|key| self.broken.insert(key.clone(), Instant::now()).is_none());
            broken_now = newly.map(|key| format!("{}/{}", key.pipeline, key.group)).collect();
            if !applied.shortages.is_empty() {
                tracing::warn!(missing = describe(&applied.shortages), "the target is not complete");
            }
            if is_failure && broken_now.is_empty() {
                // Other devices have taken over what failed: the plan is as good as it was.
                self.signature = Some(signature);
                return Ok(());
            }
        }
        self.signature = Some(signature);
        if !first || !has_target {
            self.stop_round();
            let cannot = format!("a variant cannot be loaded: {}", broken_now.join(", "));
            self.hurry(if is_failure { &cannot } else { why });
        }
        Ok(())
    }

    /// The plans in force on the fleet as it is.
    async fn place(&self, plans: Vec<uuid::Uuid>, why: &str) -> Result<Applied, ApplyError> {
        let (specs, reason) = (Specs::InForce, why.to_owned());
        let proposal = Proposal { plans, last_wins: true, replaces: None, partial: true, specs, reason };
        apply_to(&self.app, &proposal, Some(&self.fleet.numbers())).await
    }

    /// Registered pipelines that are to be replanned and can be: those with a profile.
    async fn replanned_pipelines(&mut self) -> Result<Vec<(PipelineSpec, ReplanSpec)>, ApplyError> {
        let rows = store::pipelines::list(&mut *self.app.pool.acquire().await?).await?;
        let mut pipelines = Vec::new();
        for row in rows.iter().filter(|r| r.spec["replan"]["mode"].as_str().is_some_and(|m| m != "off")) {
            let spec = match documents::measured(row) {
                Ok(spec) => spec,
                Err(error) => {
                    tracing::warn!(pipeline = row.name, %error, "not replanned: spec and profile do not fit");
                    continue;
                }
            };
            if spec.tasks.iter().any(|t| t.variants.iter().all(|v| v.profile.as_ref().is_none_or(Vec::is_empty))) {
                continue;
            }
            let spec = self.without_broken(spec);
            let replan = spec.replan.clone().unwrap_or_default();
            let watched = self.watched.entry(row.name.clone()).or_default();
            if watched.version != row.version {
                watched.version = row.version;
                watched.due_at = None;
                if self.inherited.remove(&row.name) {
                    watched.due_at = Some(Instant::now() + period(&replan));
                    watched.changed_at = Some(Instant::now());
                }
            }
            pipelines.push((spec, replan));
        }
        self.watched.retain(|name, _| pipelines.iter().any(|(spec, _)| &spec.name == name));
        Ok(pipelines)
    }

    /// The spec without what cannot be loaded, as long as each task has something left: better a plan that fails in part than none.
    fn without_broken(&mut self, spec: PipelineSpec) -> PipelineSpec {
        self.broken.retain(|_, since| since.elapsed() < BROKEN_FOR);
        let mut kept = spec.clone();
        for task in &mut kept.tasks {
            for variant in &mut task.variants {
                let digest = variant.model_digest.clone().unwrap_or_default();
                let is_broken = |hardware: &str, share: f64| {
                    self.broken.keys().any(|key| {
                        let of = &key.group;
                        let names = (&key.pipeline, &of.task, &of.variant, of.hardware.as_str(), &key.digest);
                        names == (&spec.name, &task.name, &variant.name, hardware, &digest)
                            && (of.share.value() - share).abs() < 1e-9
                    })
                };
                if let Some(rows) = &mut variant.profile {
                    rows.retain(|row| !is_broken(&row.hardware, row.share.unwrap_or(1.0)));
                }
            }
            task.variants.retain(|v| v.profile.as_ref().is_none_or(|rows| !rows.is_empty()));
        }
        if kept.tasks.iter().any(|task| task.variants.is_empty()) {
            return spec;
        }
        let names = |of: &PipelineSpec| -> BTreeSet<String> {
            let of_task = |t: &apportion_wire::spec::TaskSpec| {
                t.variants.iter().map(|v| format!("{}:{}", t.name, v.name)).collect::<Vec<_>>()
            };
            of.tasks.iter().flat_map(of_task).collect()
        };
        let known = names(&kept);
        // The table's keys are `task:variant>task:variant`.
        kept.path_accuracy.retain(|path, _| path.split('>').all(|stage| known.contains(stage)));
        kept
    }

    /// Takes the seconds into account that are complete by now.
    async fn observe(&mut self, pipelines: &[(PipelineSpec, ReplanSpec)]) -> Result<(), ApplyError> {
        let complete = (now().timestamp_millis() - REPORTED_AFTER_MS).div_euclid(1_000);
        let is_known = self.seconds.look(Instant::now(), complete);
        if self.is_blind || !is_known {
            // What nobody could report is not a load of zero.
            self.watched.values_mut().for_each(|w| w.observed_until = complete);
            return Ok(());
        }
        let first = self.watched.values().map(|w| w.observed_until).min().unwrap_or(complete).max(complete - 60);
        if first >= complete {
            return Ok(());
        }
        let rows = store::arrivals::between(&mut *self.app.pool.acquire().await?, None, first, complete).await?;
        for (spec, replan) in pipelines {
            let Some(watched) = self.watched.get_mut(&spec.name) else { continue };
            if watched.observed_until == 0 {
                // What was before we came is not a load of zero.
                watched.observed_until = rows.iter().find(|r| r.pipeline == spec.name).map_or(complete, |r| r.second);
            }
            for second in watched.observed_until.max(first)..complete {
                let row = rows.iter().find(|r| r.pipeline == spec.name && r.second == second);
                let changed = watched.demand.observe(row.map_or(0, |r| r.offered.max(0) as u64));
                let demand_qps = watched.demand.to_plan_for(replan.headroom, replan.min_qps);
                let moved = (demand_qps - watched.planned_qps).abs() > DEMAND_MOVES * watched.planned_qps;
                if changed && moved {
                    let rate = watched.demand.rate_qps();
                    tracing::info!(pipeline = spec.name, rate, planned = watched.planned_qps, "large change of the load");
                    watched.due_at = Some(Instant::now());
                    self.why = Some("the load has changed".into());
                }
            }
            watched.observed_until = complete;
        }
        Ok(())
    }

    fn hurry(&mut self, why: &str) {
        self.why = Some(why.into());
        self.watched.values_mut().for_each(|w| w.due_at = None);
    }

    fn stop_round(&mut self) {
        if let Some((running, cancel)) = self.running.take() {
            cancel.store(true, Ordering::Relaxed);
            running.abort();
        }
    }

    async fn end_round(&mut self) {
        if !self.running.as_ref().is_some_and(|(running, _)| running.is_finished()) {
            return;
        }
        let (running, _) = self.running.take().expect("it was just there");
        match running.await {
            // It broke down, and has said so.
            Ok(None) => {}
            Ok(Some(Ok(replaced))) => {
                for name in replaced {
                    if let Some(watched) = self.watched.get_mut(&name) {
                        watched.changed_at = Some(Instant::now());
                    }
                }
            }
            Ok(Some(Err(ApplyError::Stale(_)))) => self.hurry("another target came first"),
            Ok(Some(Err(error))) => tracing::error!(error = %Chain(&error), "a round of replanning failed"),
            Err(error) => tracing::warn!(%error, "a round of replanning was stopped"),
        }
    }

    /// Begins a round if a pipeline is due and none is running. Every pipeline takes part, for they share the devices.
    fn begin_round(&mut self, pipelines: Vec<(PipelineSpec, ReplanSpec)>) {
        let at = Instant::now();
        let due = self.watched.values().any(|w| w.due_at.is_none_or(|due| due <= at));
        // Lost agents that may come back are no reason to plan with less.
        let is_whole = self.members.kept == 0 && !self.fleet.is_empty();
        if self.running.is_some() || !due || pipelines.is_empty() || !is_whole {
            return;
        }
        let why = self.why.take();
        let mut wishes = Vec::with_capacity(pipelines.len());
        for (spec, replan) in pipelines {
            let Some(watched) = self.watched.get_mut(&spec.name) else { continue };
            let demand_qps = watched.demand.to_plan_for(replan.headroom, replan.min_qps);
            let keep_qps = watched.demand.to_plan_for(1.0 + (replan.headroom - 1.0) * KEEP_HEADROOM, replan.min_qps);
            watched.planned_qps = demand_qps;
            watched.demand.planned_for(demand_qps / replan.headroom.max(1.0));
            watched.due_at = Some(at + period(&replan));
            let old_enough = watched.changed_at.is_none_or(|changed| changed.elapsed() >= IMPROVE_AFTER);
            let may_improve = why.is_some() || old_enough;
            let (apply, loads) = (replan.mode == "apply", watched.demand.loads());
            wishes.push(Wish { spec, demand_qps, keep_qps, loads, apply, may_improve });
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let this = Round { why: why.unwrap_or_else(|| "the period is over".into()), cancel: cancel.clone() };
        let (app, fleet) = (self.app.clone(), self.fleet.clone());
        let running = self.app.spawn(Part::Round, async move { round(&app, &fleet, &wishes, &this).await });
        self.running = Some((running, cancel));
    }

    async fn tidy(&mut self) -> Result<(), ApplyError> {
        const EVERY: Duration = Duration::from_secs(600);
        if self.tidied.is_some_and(|last| last.elapsed() < EVERY) {
            return Ok(());
        }
        self.tidied = Some(Instant::now());
        let mut db = self.app.pool.acquire().await?;
        store::arrivals::forget(&mut db, now().timestamp() - KEEP_ARRIVALS_S).await?;
        store::processes::forget(&mut db).await?;
        store::decisions::forget(&mut db, now() - chrono::Duration::days(KEEP_DECISIONS_DAYS)).await?;
        Ok(())
    }
}

/// From one round to the next.
fn period(replan: &ReplanSpec) -> Duration {
    Duration::from_secs_f64(replan.period_s.clamp(0.5, 86_400.0))
}

/// The agents that a target was made for.
fn agents_of(target: &TargetRow) -> BTreeSet<u64> {
    let composed = v1::Target::decode(target.composed.as_slice());
    let composed = composed.inspect_err(|error| tracing::error!(%error, "the stored target cannot be read"));
    composed.unwrap_or_default().agents.iter().map(|agent| agent.agent).collect()
}

/// The pipelines that a target serves.
fn pipelines_of(target: &TargetRow) -> BTreeSet<String> {
    target.specs.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}
