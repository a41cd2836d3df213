//! How does the fleet get the machines that its plans want, and give idle ones back?
//!
//! Each two seconds the process with the lease looks at the substrates and the database. It notes what has happened
//! ([`crate::decide::machines::reconcile()`]), decides ([`crate::decide::machines::MachinePool`]) and carries the changes
//! out. INFaaS looks as often (section 5): longer pauses were too slow in its load spikes.

mod hands;
mod view;

use super::apply::{ApplyError, fence};
use super::lease::{Chain, work_while_held};
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::machines::{MachineChange, MachinePool, MachineStage, MachineTurn, PoolLimits, reconcile};
use crate::store::{self, leases::HeldLease};
use apportion_substrates::{SubstrateKind, Substrates};
use hands::{ChangeOutcome, MachineHands};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use view::{InForceDevices, MachinesView, SeenMachines};

/// The lease of the process that asks for machines.
const MACHINES: &str = "machines";
/// The kind of events about what hinders machines.
const MACHINES_EVENT: &str = "machines";
/// Pause between two looks.
const TURN_EVERY: Duration = Duration::from_secs(2);
/// A substrate that has not answered for this long makes an event.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// Asks for machines and gives them back whenever no other process does, until the service stops.
pub async fn run(app: App) {
    work_while_held(&app, MACHINES, ServicePart::Machines, |lease| keep_machines(&app, lease)).await;
}

async fn keep_machines(app: &App, lease: HeldLease) -> Result<(), ApplyError> {
    // Without substrates this part is not started.
    let Some(substrates) = &app.substrates else { return std::future::pending().await };
    let mut keeper = MachineKeeper {
        app,
        lease,
        substrates,
        pools: BTreeMap::new(),
        in_force: InForceDevices::default(),
        silent_since: BTreeMap::new(),
        told: BTreeMap::new(),
    };
    loop {
        keeper.take_turn().await?;
        app.parts.note_alive(ServicePart::Machines);
        tokio::time::sleep(TURN_EVERY).await;
    }
}

/// A matter of which people are told when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Matter {
    /// The substrate does not answer.
    Silence,
    /// Devices stay missing.
    Missing,
    /// Changes wait for the end of a hold.
    Hold,
    /// Changes are only told.
    DryRun,
}

impl Matter {
    const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silent",
            Self::Missing => "missing",
            Self::Hold => "held",
            Self::DryRun => "dry_run",
        }
    }
}

struct MachineKeeper<'a> {
    app: &'a App,
    lease: HeldLease,
    substrates: &'a Substrates,
    pools: BTreeMap<SubstrateKind, MachinePool>,
    in_force: InForceDevices,
    /// Substrates that do not answer, since when.
    silent_since: BTreeMap<SubstrateKind, Instant>,
    /// What was told last of each matter.
    told: BTreeMap<(SubstrateKind, Matter), String>,
}

impl MachineKeeper<'_> {
    async fn take_turn(&mut self) -> Result<(), ApplyError> {
        for kind in self.substrates.kinds() {
            let seen = self.observe(kind).await?;
            self.app.parts.note_alive(ServicePart::Machines);
            let view = self.note_news(kind, &seen).await?;
            if seen.of(kind).is_some() {
                self.change(kind, &seen, &view).await?;
            }
            self.app.parts.note_alive(ServicePart::Machines);
        }
        Ok(())
    }

    /// What the substrate shows. One that does not answer proves nothing.
    async fn observe(&mut self, kind: SubstrateKind) -> Result<SeenMachines, ApplyError> {
        let mut seen = SeenMachines::default();
        match self.substrates.observe(kind).await {
            Ok(machines) => {
                seen.add(kind, machines);
                self.silent_since.remove(&kind);
                self.tell(kind, Matter::Silence, String::new()).await?;
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                tracing::warn!(
                    substrate = kind.name(),
                    why,
                    "the substrate does not answer; its machines stay as they are"
                );
                let since = *self.silent_since.entry(kind).or_insert_with(Instant::now);
                if since.elapsed() >= SILENT_AFTER {
                    self.tell(kind, Matter::Silence, why).await?;
                }
            }
        }
        Ok(seen)
    }

    fn hands<'h>(&'h self, kind: SubstrateKind, seen: &'h SeenMachines) -> MachineHands<'h> {
        MachineHands { app: self.app, lease: self.lease, substrates: self.substrates, kind, seen }
    }

    /// Notes what has happened to the machines since the last look. Returns what is known of them then. The database is
    /// read again only if something was noted, and most looks note nothing.
    async fn note_news(&mut self, kind: SubstrateKind, seen: &SeenMachines) -> Result<MachinesView, ApplyError> {
        let view = MachinesView::read(self.app, &mut self.in_force).await?;
        let noted = self.store_news(kind, seen, &view).await?;
        match noted {
            0 => Ok(view),
            _ => MachinesView::read(self.app, &mut self.in_force).await,
        }
    }

    /// Writes down what has happened to the machines of a view. Returns how many rows this concerns.
    async fn store_news(&self, kind: SubstrateKind, seen: &SeenMachines, view: &MachinesView) -> Result<usize, ApplyError> {
        let hands = self.hands(kind, seen);
        let is_dry_run = self.substrates.settings().dry_run;
        let mut noted = if is_dry_run { 0 } else { hands.adopt(view).await? };
        let limits = view.wish_limits(self.substrates);
        let notes = reconcile(&view.records(kind), &view.agents, seen.of(kind), &limits, view.now);
        // A dry run tells no machine to end.
        for note in notes.iter().filter(|note| !is_dry_run || note.stage != MachineStage::Ending) {
            if let Some(row) = view.row(&note.name) {
                hands.store_note(note, row).await?;
                noted += 1;
            }
        }
        Ok(noted)
    }

    /// Decides what changes, and does it.
    async fn change(&mut self, kind: SubstrateKind, seen: &SeenMachines, view: &MachinesView) -> Result<(), ApplyError> {
        let Some(shown) = seen.of(kind) else { return Ok(()) };
        let limits = self.read_limits().await?;
        let types = view.hardware_facts(kind, self.substrates);
        let machines = view.pool_machines(kind, shown);
        let MachineTurn { changes, obstacles } =
            self.pools.entry(kind).or_default().decide(view.now, &types, &machines, limits);
        let obstacles: Vec<_> = obstacles.iter().map(ToString::to_string).collect();
        self.tell(kind, Matter::Missing, obstacles.join("; ")).await?;
        if self.substrates.settings().dry_run {
            return self.tell(kind, Matter::DryRun, joined(&changes)).await;
        }
        let mut held = Vec::new();
        for change in changes {
            if self.hands(kind, seen).carry_out(&change, view).await? == ChangeOutcome::Held {
                held.push(change);
            }
            self.app.parts.note_alive(ServicePart::Machines);
        }
        self.tell(kind, Matter::Hold, joined(&held)).await
    }

    async fn read_limits(&self) -> Result<PoolLimits, ApplyError> {
        let settings = self.substrates.settings();
        let hour_ago = now() - chrono::Duration::hours(1);
        let made = store::machines::changes_since(&mut *self.app.pool.acquire().await?, hour_ago).await?;
        let changes_left = settings.changes_per_hour_max.saturating_sub(u32::try_from(made).unwrap_or(u32::MAX));
        Ok(PoolLimits { idle: Duration::from_secs_f64(settings.idle_s), changes_left })
    }

    /// Makes an event if there is something else to say of a matter; nothing: it is over.
    async fn tell(&mut self, kind: SubstrateKind, matter: Matter, words: String) -> Result<(), ApplyError> {
        let old = self.told.insert((kind, matter), words.clone()).unwrap_or_default();
        if old == words {
            return Ok(());
        }
        let state = if words.is_empty() { "over" } else { "begun" };
        tracing::info!(substrate = kind.name(), matter = matter.name(), state, words, "machines");
        let detail = json!({"substrate": kind.name(), "matter": matter.name(), "state": state, "reason": words});
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        store::events::insert_for_fleet(&mut tx, MACHINES_EVENT, &detail).await?;
        Ok(tx.commit().await?)
    }
}

fn joined(changes: &[MachineChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
