//! How is a change of machines carried out? It is written down first, so that a service that fails in between finds it.

use super::view::{MachinesView, SeenMachines};
use crate::act::apply::{ApplyError, check_holds, fence};
use crate::act::lease::Chain;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::machines::{
    AskReason, MachineChange, MachineEvent, MachineNote, MachineStage, ReturnReason, UNSEEN_MAX, WishEnd, zone_of_next,
};
use crate::store::machines::{MachineRow, StageChange};
use crate::store::{self, PgConnection, holds::FLEET, leases::HeldLease};
use apportion_substrates::{MachineRequest, ReleaseWay, SubstrateKind, Substrates};
use serde_json::{Value, json};
use uuid::Uuid;

/// The kinds of their events.
const ASKED: &str = "machine-asked";
const CAME: &str = "machine-came";
const LOST: &str = "machine-lost";
const RETURNED: &str = "machine-returned";
const EXPIRED: &str = "wish-expired";
/// Hexadecimal digits that tell machines apart: 48 bits.
const ID_CHARS: usize = 12;

/// A transaction that only the holder of the lease has.
type FencedTransaction = sqlx::Transaction<'static, sqlx::Postgres>;

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeOutcome {
    /// It is made, or under way.
    Made,
    /// A hold of the fleet is in force, so it is not made.
    Held,
    /// The substrate has not taken it.
    Refused,
}

/// Writes and calls for the machines of one substrate.
pub(super) struct MachineHands<'a> {
    pub(super) app: &'a App,
    pub(super) lease: HeldLease,
    pub(super) substrates: &'a Substrates,
    pub(super) kind: SubstrateKind,
    pub(super) seen: &'a SeenMachines,
}

impl MachineHands<'_> {
    /// Writes down what has happened to a machine, with its event. One that begins to end is told.
    pub(super) async fn store_note(&self, note: &MachineNote, row: &MachineRow) -> Result<(), ApplyError> {
        let EventWords { kind, reason } = described(&note.event, row);
        let mut tx = self.begin().await?;
        set_stage(&mut tx, &note.name, note.stage, &reason).await?;
        match &note.event {
            MachineEvent::Came { devices, after } => {
                store::machines::set_came(&mut tx, &note.name, i32::try_from(*devices).unwrap_or(i32::MAX), now()).await?;
                store::hardware::note_came(&mut tx, &note.hardware, after.as_secs_f64()).await?;
            }
            MachineEvent::Expired(_) => {
                let wait_s = self.substrates.settings().wish_s;
                store::hardware::note_expired(&mut tx, &note.hardware, now(), wait_s).await?;
            }
            MachineEvent::WaitsAgain(_) | MachineEvent::Lost(_) | MachineEvent::Ended => {}
        }
        if let Some(kind) = kind {
            tracing::info!(machine = note.name, kind, reason, "a machine");
            store::events::insert_for_fleet(&mut tx, kind, &detail(row, &reason)).await?;
        }
        tx.commit().await?;
        if note.stage == MachineStage::Ending && note.event != MachineEvent::Ended {
            self.release(&note.name, ReleaseWay::Drain).await;
        }
        Ok(())
    }

    /// Makes one change.
    pub(super) async fn carry_out(&self, change: &MachineChange, view: &MachinesView) -> Result<ChangeOutcome, ApplyError> {
        match change {
            MachineChange::Ask { hardware, count, why } => {
                for _ in 0..*count {
                    let outcome = self.ask(hardware, *why).await?;
                    if outcome != ChangeOutcome::Made {
                        return Ok(outcome);
                    }
                }
                Ok(ChangeOutcome::Made)
            }
            MachineChange::Reclaim { name } => {
                let mut tx = self.begin().await?;
                store::agents::reclaim(&mut tx, name).await?;
                set_stage(&mut tx, name, MachineStage::Alive, "it is wanted again").await?;
                tx.commit().await?;
                Ok(ChangeOutcome::Made)
            }
            MachineChange::Cordon { name, why } => {
                let mut tx = self.begin().await?;
                // What replaces a machine whose time is over keeps the fleet as it is.
                if *why != ReturnReason::EndsSoon && is_held(&mut tx).await? {
                    return Ok(ChangeOutcome::Held);
                }
                store::agents::cordon(&mut tx, name).await?;
                store::machines::set_returned(&mut tx, name, now()).await?;
                set_stage(&mut tx, name, MachineStage::Cordoned, why.name()).await?;
                tx.commit().await?;
                Ok(ChangeOutcome::Made)
            }
            MachineChange::Release { name } => {
                let why = view.row(name).map_or_else(String::new, |row| row.reason.clone());
                self.give_back(name, &why, view).await?;
                Ok(ChangeOutcome::Made)
            }
            MachineChange::Withdraw { name } => {
                if is_held(&mut *self.begin().await?).await? {
                    return Ok(ChangeOutcome::Held);
                }
                self.give_back(name, ReturnReason::Withdrawn.name(), view).await?;
                Ok(ChangeOutcome::Made)
            }
            MachineChange::Kill { name } => {
                let mut tx = self.begin().await?;
                set_stage(&mut tx, name, MachineStage::Ending, "it did not end by itself").await?;
                tx.commit().await?;
                self.release(name, ReleaseWay::Kill).await;
                Ok(ChangeOutcome::Made)
            }
        }
    }

    async fn begin(&self) -> Result<FencedTransaction, ApplyError> {
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        Ok(tx)
    }

    /// Asks for one machine. The wish is written down before the substrate hears of it.
    async fn ask(&self, hardware: &str, why: AskReason) -> Result<ChangeOutcome, ApplyError> {
        let id: String = Uuid::new_v4().simple().to_string().chars().take(ID_CHARS).collect();
        let mut tx = self.begin().await?;
        let zone = next_zone(&mut tx, hardware).await?;
        let request = MachineRequest { name: self.substrates.new_name(hardware, &id), hardware: hardware.to_owned(), zone };
        let row = self.wish_row(&request, why.name());
        if why != AskReason::Renewed && is_held(&mut tx).await? {
            return Ok(ChangeOutcome::Held);
        }
        store::machines::insert(&mut tx, &row).await?;
        store::events::insert_for_fleet(&mut tx, ASKED, &detail(&row, &row.reason)).await?;
        tx.commit().await?;
        tracing::info!(machine = row.name, why = why.name(), "a machine is asked for");
        let started = self.substrates.start(self.kind, &request).await;
        self.app.parts.note_alive(ServicePart::Machines);
        match started {
            Ok(handle) => {
                let mut db = self.app.pool.acquire().await?;
                store::machines::set_handle(&mut db, &row.name, &handle).await?;
                Ok(ChangeOutcome::Made)
            }
            Err(error) => {
                // The machine may come nevertheless. If it is not seen for a while, the wish expires with this reason.
                let said = Chain(&error).to_string();
                tracing::warn!(machine = row.name, said, "the substrate does not take the wish");
                let mut tx = self.begin().await?;
                set_stage(&mut tx, &row.name, MachineStage::Coming, &said).await?;
                let wait = chrono::Duration::from_std(UNSEEN_MAX).unwrap_or_default();
                store::hardware::set_retry(&mut tx, hardware, now() + wait).await?;
                tx.commit().await?;
                Ok(ChangeOutcome::Refused)
            }
        }
    }

    /// The row of a machine that has not come.
    fn wish_row(&self, request: &MachineRequest, reason: &str) -> MachineRow {
        let devices = self.substrates.devices_each(self.kind, &request.hardware).unwrap_or(1);
        MachineRow {
            name: request.name.clone(),
            hardware: request.hardware.clone(),
            substrate: self.kind.name().to_owned(),
            devices: i32::try_from(devices).unwrap_or(i32::MAX),
            stage: MachineStage::Coming.name().to_owned(),
            handle: None,
            reason: reason.to_owned(),
            asked_at: now(),
            stage_at: now(),
            came_at: None,
            returned_at: None,
            zone: request.zone.clone(),
        }
    }

    async fn give_back(&self, name: &str, why: &str, view: &MachinesView) -> Result<(), ApplyError> {
        let Some(row) = view.row(name) else { return Ok(()) };
        let mut tx = self.begin().await?;
        store::machines::set_returned(&mut tx, name, row.returned_at.unwrap_or_else(now)).await?;
        set_stage(&mut tx, name, MachineStage::Ending, why).await?;
        store::events::insert_for_fleet(&mut tx, RETURNED, &detail(row, why)).await?;
        tx.commit().await?;
        tracing::info!(machine = name, why, "a machine goes back");
        self.release(name, ReleaseWay::Drain).await;
        Ok(())
    }

    /// Tells a machine to end. One that does not is ended later.
    async fn release(&self, name: &str, way: ReleaseWay) {
        let Some(machine) = self.seen.machine(self.kind, name) else { return };
        let released = self.substrates.release(self.kind, machine, way).await;
        self.app.parts.note_alive(ServicePart::Machines);
        if let Err(error) = released {
            tracing::warn!(machine = name, error = %Chain(&error), "a machine could not be told to end");
        }
    }

    /// Takes machines that the database does not know: it was restored, or another service process has just asked. Those
    /// that have ended here are told to end. Returns how many rows were written.
    pub(super) async fn adopt(&self, view: &MachinesView) -> Result<usize, ApplyError> {
        use apportion_substrates::MachineState::{Ending, Lost};
        let mut written = 0;
        let shown = self.seen.of(self.kind).into_iter().flat_map(|machines| machines.values());
        for machine in shown.filter(|machine| !matches!(machine.state, Ending | Lost)) {
            if let Some(row) = view.row(&machine.name) {
                if row.handle.as_ref() != Some(&machine.handle) {
                    let mut db = self.app.pool.acquire().await?;
                    store::machines::set_handle(&mut db, &machine.name, &machine.handle).await?;
                    written += 1;
                }
                continue;
            }
            let mut tx = self.begin().await?;
            if store::machines::get(&mut tx, &machine.name).await?.is_some() {
                drop(tx);
                self.release(&machine.name, ReleaseWay::Drain).await;
                continue;
            }
            let (name, hardware) = (machine.name.clone(), machine.hardware.clone());
            let request = MachineRequest { name, hardware, zone: None };
            let wish = self.wish_row(&request, "it was found at the substrate");
            let row = MachineRow { handle: Some(machine.handle.clone()), ..wish };
            tracing::warn!(machine = row.name, "a machine is found that the database does not know");
            store::machines::insert(&mut tx, &row).await?;
            tx.commit().await?;
            written += 1;
        }
        Ok(written)
    }
}

/// Whether a hold of the fleet is in force. None begins before the transaction ends.
async fn is_held(tx: &mut PgConnection) -> Result<bool, ApplyError> {
    match check_holds(tx, &[FLEET.to_owned()]).await {
        Err(ApplyError::Held(_)) => Ok(true),
        other => other.map(|()| false),
    }
}

/// The zone in which the next machine of a type is asked for; `None`: in any.
async fn next_zone(tx: &mut PgConnection, hardware: &str) -> Result<Option<String>, ApplyError> {
    let zones = store::hardware::get(tx, hardware).await?.map(|row| row.zones).unwrap_or_default();
    if zones.is_empty() {
        return Ok(None);
    }
    let counts = store::machines::count_by_zone(tx, hardware).await?;
    Ok(zone_of_next(&zones, &counts).map(str::to_owned))
}

async fn set_stage(tx: &mut PgConnection, name: &str, stage: MachineStage, reason: &str) -> Result<(), ApplyError> {
    let change = StageChange { name, stage: stage.name(), reason, at: now() };
    Ok(store::machines::set_stage(tx, &change).await?)
}

/// An event as it is told.
struct EventWords {
    /// `None`: it was told when it began.
    kind: Option<&'static str>,
    reason: String,
}

fn described(event: &MachineEvent, row: &MachineRow) -> EventWords {
    let words = |kind, reason: String| EventWords { kind: Some(kind), reason };
    match event {
        MachineEvent::Came { after, .. } => words(CAME, format!("it came after {:.1} s", after.as_secs_f64())),
        MachineEvent::WaitsAgain(said) => words(LOST, format!("it waits again: {said}")),
        // The row of a wish that the substrate has not taken has its words.
        MachineEvent::Expired(WishEnd::Unknown) if row.handle.is_none() => {
            words(EXPIRED, format!("{}: {}", WishEnd::Unknown, row.reason))
        }
        MachineEvent::Expired(end) => words(EXPIRED, end.to_string()),
        MachineEvent::Lost(why) => words(LOST, why.clone()),
        MachineEvent::Ended => EventWords { kind: None, reason: row.reason.clone() },
    }
}

/// The facts of an event.
fn detail(row: &MachineRow, reason: &str) -> Value {
    json!({
        "machine": row.name, "hardware": row.hardware, "substrate": row.substrate, "devices": row.devices,
        "zone": row.zone, "reason": reason,
    })
}
