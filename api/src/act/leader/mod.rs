//! Which process leads, and what does the leader do in each turn?
//!
//! The process with the lease [`LEADER`] leads. The leader only writes the target; every process pushes the target to the
//! streams that it holds.

mod fleet;
mod load;
mod profiling;
mod schedules;

use super::apply::{ApplyError, fence};
use super::authorities;
use super::drift::{DriftNews, DriftWatch, measurements};
use super::lease::{Chain, LEADER, work_while_held};
use super::on_demand::OnDemandLoads;
use super::replan::ReplanRound;
use super::retention::delete_while_leading;
use super::round::{RoundSummary, run_round};
use super::times;
use super::wanted::note_wanted;
use crate::app::App;
use crate::app::agent_security::{AgentCertificateRule, LinksSetting};
use crate::app::parts::ServicePart;
use crate::decide::replan::{ReplanCause, ReplanInput};
use crate::store::{self, leases::HeldLease, link_settings::LinkSettingsRow, schedules::FiringRow};
use apportion_planning::FleetMemory;
use apportion_wire::FiringState;
use fleet::FleetWatch;
use load::{LoadWatch, ReplannedPipeline};
use opentelemetry::KeyValue;
use profiling::ProfilingWatch;
use schedules::{ScheduleWatch, ScheduledRound};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pause between two turns. A change of the fleet in this process ends it early.
const TURN_EVERY: Duration = Duration::from_millis(200);
/// Longest time of one turn. After it the connection to the database counts as lost, and the loop starts again.
const TURN_MAX: Duration = Duration::from_secs(30);
/// Pause between two comparisons of the files' times with the measured ones.
const COMPARE_TIMES_EVERY: Duration = Duration::from_secs(10);
/// Pause between two looks at the age of the fleet's secrets: the key for connections between agents, and the authority.
const LOOK_AT_SECRETS_EVERY: Duration = Duration::from_secs(10);
/// Seconds until the fleet gets another key. The one before it counts as long again.
const LINK_KEY_AGE_S: f64 = 24.0 * 3_600.0;

/// Leads whenever no other process does, until the service stops.
pub async fn run(app: App) {
    work_while_held(&app, LEADER, ServicePart::Leader, |lease| lead(&app, lease)).await;
}

async fn lead(app: &App, lease: HeldLease) -> Result<(), ApplyError> {
    tokio::select! {
        ended = take_turns(app, lease) => ended,
        () = delete_while_leading(app) => Ok(()),
    }
}

async fn take_turns(app: &App, lease: HeldLease) -> Result<(), ApplyError> {
    let mut leader = Leader::new(app.clone(), lease);
    loop {
        let turn = tokio::time::timeout(TURN_MAX, leader.take_turn()).await;
        turn.unwrap_or(Err(ApplyError::Database(store::Error::PoolTimedOut)))?;
        app.parts.note_alive(ServicePart::Leader);
        tokio::select! {
            () = app.fleet_changed.notified() => {}
            () = tokio::time::sleep(TURN_EVERY) => {}
        }
    }
}

type RoundResult = Result<RoundSummary, ApplyError>;

/// A round of replanning that runs in a task of its own. Dropping it stops the round.
struct RunningRound {
    task: JoinHandle<Option<RoundResult>>,
    cancel: Arc<AtomicBool>,
    /// The firing for which it is made. If the round is stopped, the firing waits for another one.
    firing: Option<FiringRow>,
}

impl Drop for RunningRound {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// A round that does not wait for its period.
struct EarlyRound {
    why: String,
    cause: ReplanCause,
}

struct Leader {
    app: App,
    lease: HeldLease,
    fleet: FleetWatch,
    load: LoadWatch,
    schedules: ScheduleWatch,
    drift: DriftWatch,
    on_demand: OnDemandLoads,
    profiling: ProfilingWatch,
    /// Why the next round begins before the period is over.
    early: Option<EarlyRound>,
    round: Option<RunningRound>,
    /// What is remembered of the rounds' joint plans.
    memory: FleetMemory,
    /// When the files' times were compared with the measured ones.
    times_compared_at: Option<Instant>,
    secrets_looked_at: Option<Instant>,
}

impl Leader {
    fn new(app: App, lease: HeldLease) -> Self {
        Self {
            fleet: FleetWatch::new(app.clone(), lease, Instant::now()),
            load: LoadWatch::new(app.clone(), lease),
            schedules: ScheduleWatch::new(app.clone(), lease),
            drift: DriftWatch::new(app.clone(), lease),
            on_demand: OnDemandLoads::new(app.clone(), lease),
            profiling: ProfilingWatch::new(app.clone(), lease),
            app,
            lease,
            early: None,
            round: None,
            memory: FleetMemory::default(),
            times_compared_at: None,
            secrets_looked_at: None,
        }
    }

    async fn take_turn(&mut self) -> Result<(), ApplyError> {
        if let Some(why) = self.fleet.follow_changes().await? {
            self.round = None;
            self.replan_now(&why);
        }
        self.on_demand.follow(self.fleet.fleet()).await?;
        let pipelines = self.load.read_pipelines(&mut self.fleet).await?;
        if let Some(cause) = self.load.observe(&pipelines, self.fleet.reports()).await? {
            let why = if cause == ReplanCause::Misses { "requests miss" } else { "the load has changed" };
            self.early = Some(EarlyRound { why: why.into(), cause });
        }
        self.follow_drifts().await?;
        self.profiling.follow_jobs().await?;
        self.end_round().await?;
        self.schedules.fire_due().await?;
        self.begin_scheduled_round().await?;
        self.begin_round(pipelines);
        self.compare_times().await?;
        self.renew_secrets().await
    }

    fn replan_now(&mut self, why: &str) {
        self.early = Some(EarlyRound { why: why.into(), cause: ReplanCause::Change });
        self.load.make_all_due();
    }

    /// Makes the pipelines due with profiles that begin to drift, or cease to.
    async fn follow_drifts(&mut self) -> Result<(), ApplyError> {
        let news = self.drift.follow_changes().await?;
        let news: Vec<DriftNews> = news.into_iter().filter(|news| self.load.make_due(&news.pipeline)).collect();
        if !news.is_empty() {
            let drifts = news.into_iter().map(|news| news.why).collect::<Vec<_>>().join(", ");
            self.early = Some(match self.early.take() {
                Some(EarlyRound { why, cause }) => EarlyRound { why: format!("{why}; {drifts}"), cause },
                None => EarlyRound { why: drifts, cause: ReplanCause::Change },
            });
        }
        Ok(())
    }

    /// Takes the result of a round that has ended.
    async fn end_round(&mut self) -> Result<(), ApplyError> {
        let Some(mut round) = self.round.take_if(|round| round.task.is_finished()) else { return Ok(()) };
        match (&mut round.task).await {
            // The round panicked, and this is reported already.
            Ok(None) => {}
            Ok(Some(Ok(summary))) => {
                self.load.plans_changed(&summary.replaced, Instant::now());
                if let Some(firing) = &round.firing {
                    self.schedules.end_round(firing, &summary).await?;
                }
            }
            Ok(Some(Err(ApplyError::Held(_)))) => self.replan_now("a hold began"),
            Ok(Some(Err(ApplyError::Stale(_)))) => self.replan_now("another target came first"),
            Ok(Some(Err(error))) => {
                let why = Chain(&error).to_string();
                tracing::error!(error = why, "a round of replanning failed");
                if let Some(firing) = &round.firing {
                    self.schedules.settle(firing, FiringState::Failed, &why).await?;
                }
            }
            Err(error) => tracing::warn!(%error, "a round of replanning was stopped"),
        }
        Ok(())
    }

    /// Begins the round of a schedule's firing, if one waits and no round runs.
    async fn begin_scheduled_round(&mut self) -> Result<(), ApplyError> {
        if self.round.is_some() {
            return Ok(());
        }
        if let Some(ScheduledRound { firing, wishes }) = self.schedules.next_round(&mut self.fleet).await? {
            let why = format!("schedule {}", firing.schedule);
            self.start_round(why, wishes, Some(firing));
        }
        Ok(())
    }

    /// Begins a round if a pipeline is due and no round runs. Every pipeline takes part, because they share the devices.
    fn begin_round(&mut self, pipelines: Vec<ReplannedPipeline>) {
        let at = Instant::now();
        let is_due = self.load.is_due(at);
        // Without any agent a round only says which machines are wanted.
        let may_begin = self.fleet.is_complete() || (self.fleet.has_no_agents() && self.app.substrates.is_some());
        if self.round.is_some() || !is_due || pipelines.is_empty() || !may_begin {
            return;
        }
        let on_time = || EarlyRound { why: "the period is over".into(), cause: ReplanCause::Period };
        let EarlyRound { why, cause } = self.early.take().unwrap_or_else(on_time);
        let wishes = self.load.begin_round(at, pipelines, cause);
        self.start_round(why, wishes, None);
    }

    fn start_round(&mut self, why: String, wishes: Vec<ReplanInput>, firing: Option<FiringRow>) {
        let cancel = Arc::new(AtomicBool::new(false));
        let (lease, stop) = (self.lease, cancel.clone());
        let (app, fleet, memory) = (self.app.clone(), self.fleet.fleet().clone(), self.memory.clone());
        let reason = KeyValue::new("apportion.reason", why.clone());
        let deploys = firing.is_some() || !fleet.is_empty();
        let work = async move {
            let measured = measurements(&mut *app.pool.acquire().await?).await?;
            let round = ReplanRound { why, cancel: stop, lease, measured, devices: fleet.devices(), memory };
            let deployed =
                if deploys { run_round(&app, &fleet, &wishes, &round).await } else { Ok(RoundSummary::default()) };
            if deployed.is_ok()
                && let Err(error) = note_wanted(&app, &fleet, &wishes, &round).await
            {
                tracing::warn!(error = %Chain(&error), "the devices that pipelines want are not noted");
            }
            deployed
        };
        let task = self.app.spawn(ServicePart::Round, self.app.spans.clone().during("round", reason, work));
        self.round = Some(RunningRound { task, cancel, firing });
    }

    async fn compare_times(&mut self) -> Result<(), ApplyError> {
        if self.times_compared_at.is_some_and(|last| last.elapsed() < COMPARE_TIMES_EVERY) {
            return Ok(());
        }
        self.times_compared_at = Some(Instant::now());
        times::note_differences(&mut *self.app.pool.acquire().await?, self.lease).await
    }

    /// Makes another key for the connections between agents, and another authority for their certificates, once the last
    /// ones are old. It stores how connections are protected. Every process pushes all of it.
    async fn renew_secrets(&mut self) -> Result<(), ApplyError> {
        if self.secrets_looked_at.is_some_and(|last| last.elapsed() < LOOK_AT_SECRETS_EVERY) {
            return Ok(());
        }
        self.secrets_looked_at = Some(Instant::now());
        let security = self.app.agent_security;
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        let is_new = store::link_keys::renew_after(&mut tx, LINK_KEY_AGE_S).await?;
        let has_certificates = security.certificates != AgentCertificateRule::Off;
        let is_authority_new = has_certificates && authorities::renew(&mut tx).await?;
        let links = LinkSettingsRow { tls: security.links == LinksSetting::Tls, ..LinkSettingsRow::default() };
        let are_links_new = store::link_settings::put(&mut tx, links).await?;
        tx.commit().await?;
        if is_new {
            tracing::info!("the fleet has a new key for connections between agents");
        }
        if is_authority_new {
            tracing::info!("the fleet has a new authority for certificates of agents");
        }
        if are_links_new {
            tracing::info!(links = ?security.links, "connections between agents are protected in another way");
        }
        Ok(())
    }
}
