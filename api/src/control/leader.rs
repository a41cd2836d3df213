//! The loop that watches the fleet and the load, and changes the target. One process leads, by an advisory lock of the
//! database; it only writes the target, and every process pushes it to the streams that it holds.

use super::apply::{ApplyError, Proposal, Specs, apply, describe};
use super::demand::Demand;
use super::fleet::{Fleet, Signature};
use super::reconcile::GroupKey;
use super::replan::{Round, Wish, round};
use super::sessions::SILENCE_MAX;
use crate::app::{App, now};
use crate::documents;
use crate::store;
use apportion_wire::{PipelineSpec, ReplanSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Key of the advisory lock that makes a leader.
const LOCK_KEY: i64 = 0x6170_706f_7274;
/// How often fleet and load are looked at; a change of the fleet in this process wakes the loop at once.
const TICK: Duration = Duration::from_millis(200);
/// After a restart, agents get so long to come back before they count as lost: they keep serving meanwhile.
const GRACE: Duration = Duration::from_secs(6);
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
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tracing::info!("leading the fleet");
    let mut leader = Leader::new(app.clone());
    let mut last_alive = Instant::now();
    loop {
        leader.tick().await?;
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
    begin: Instant,
    fleet: Fleet,
    signature: Option<(Signature, BTreeSet<u64>)>,
    /// Variants of which no replica could be loaded on any device of a hardware type, and since when that is known.
    broken: BTreeMap<GroupKey, Instant>,
    watched: BTreeMap<String, Watched>,
    why: Option<String>,
    running: Option<(JoinHandle<RoundResult>, Arc<AtomicBool>)>,
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
            begin: Instant::now(),
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
        let mut db = self.app.pool.acquire().await?;
        if self.begin.elapsed() > GRACE {
            for name in store::agents::lose_silent(&mut db, now() - SILENCE_MAX).await? {
                tracing::warn!(agent = name, "agent is silent and counts as lost");
            }
        }
        let fleet = Fleet::new(store::agents::list(&mut db).await?);
        let has_target = store::target::get(&mut db).await?.generation > 0;
        drop(db);
        let signature = (fleet.signature(), fleet.failed());
        if self.signature.as_ref() == Some(&signature) {
            return Ok(());
        }
        let first = self.signature.is_none();
        let is_failure = self.signature.as_ref().is_some_and(|(known, _)| *known == signature.0);
        let why = if is_failure { "replicas have failed, or come up again" } else { "the fleet has changed" };
        self.fleet = fleet;
        let mut broken_now: Vec<String> = Vec::new();
        if has_target {
            let plans = store::target::get(&mut *self.app.pool.acquire().await?).await?.plans;
            let proposal = Proposal {
                plans,
                last_wins: true,
                replaces: None,
                partial: true,
                specs: Specs::InForce,
                reason: why.into(),
            };
            let applied = apply(&self.app, &proposal).await?;
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
            let watched = self.watched.entry(row.name.clone()).or_default();
            if watched.version != row.version {
                watched.version = row.version;
                watched.due_at = None;
            }
            let replan = spec.replan.clone().unwrap_or_default();
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
            Ok(Ok(replaced)) => {
                for name in replaced {
                    if let Some(watched) = self.watched.get_mut(&name) {
                        watched.changed_at = Some(Instant::now());
                    }
                }
            }
            Ok(Err(ApplyError::Stale(_))) => self.hurry("another target came first"),
            Ok(Err(error)) => tracing::error!(error = %Chain(&error), "a round of replanning failed"),
            Err(error) => tracing::error!(%error, "a round of replanning broke down"),
        }
    }

    /// Begins a round if a pipeline is due and none is running. Every pipeline takes part, for they share the devices.
    fn begin_round(&mut self, pipelines: Vec<(PipelineSpec, ReplanSpec)>) {
        let at = Instant::now();
        let due = self.watched.values().any(|w| w.due_at.is_none_or(|due| due <= at));
        if self.running.is_some() || !due || pipelines.is_empty() || self.fleet.is_empty() {
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
            watched.due_at = Some(at + Duration::from_secs_f64(replan.period_s.clamp(0.5, 86_400.0)));
            let old_enough = watched.changed_at.is_none_or(|changed| changed.elapsed() >= IMPROVE_AFTER);
            let may_improve = why.is_some() || old_enough;
            let (apply, loads) = (replan.mode == "apply", watched.demand.loads());
            wishes.push(Wish { spec, demand_qps, keep_qps, loads, apply, may_improve });
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let this = Round { why: why.unwrap_or_else(|| "the period is over".into()), cancel: cancel.clone() };
        let (app, fleet) = (self.app.clone(), self.fleet.clone());
        let running = tokio::spawn(async move { round(&app, &fleet, &wishes, &this).await });
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
        store::decisions::forget(&mut db, now() - chrono::Duration::days(KEEP_DECISIONS_DAYS)).await?;
        Ok(())
    }
}
