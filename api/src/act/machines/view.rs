//! What is known of machines now, as the pure decisions take it?

use crate::act::apply::{ApplyError, load_plan};
use crate::act::wanted::since_epoch;
use crate::app::{App, now};
use crate::decide::machines::{
    HardwareFacts, MachineAgent, MachineRecord, MachineStage, PipelineDevices, PoolMachine, WishLimits, devices_needed,
    with_losses,
};
use crate::decide::placement::Placement;
use crate::decide::shares::devices_of;
use crate::store::{
    self, PgConnection, agents::AgentRow, hardware::HardwareRow, machines::MachineRow, machines::WantRow, target::TargetRow,
};
use apportion_domain::PipelinePlan;
use apportion_substrates::{ObservedMachine, SubstrateKind, Substrates};
use apportion_wire::{AgentState, ReplicaState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The expected time until a machine comes, where neither a setting nor a machine says it.
const PROVISION: Duration = Duration::from_secs(60);

/// The machines that each substrate shows, by name. A substrate that did not answer is absent.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenMachines(BTreeMap<SubstrateKind, BTreeMap<String, ObservedMachine>>);

impl SeenMachines {
    pub(super) fn add(&mut self, kind: SubstrateKind, machines: Vec<ObservedMachine>) {
        self.0.insert(kind, machines.into_iter().map(|machine| (machine.name.clone(), machine)).collect());
    }

    /// The machines of a substrate that answered.
    pub(super) fn of(&self, kind: SubstrateKind) -> Option<&BTreeMap<String, ObservedMachine>> {
        self.0.get(&kind)
    }

    /// A machine, if its substrate shows it.
    pub(super) fn machine(&self, kind: SubstrateKind, name: &str) -> Option<&ObservedMachine> {
        self.of(kind)?.get(name)
    }
}

/// The devices of the plans in force, read once for each target.
#[derive(Clone, Debug, Default)]
pub(super) struct InForceDevices {
    generation: i64,
    devices: Vec<PipelineDevices>,
}

impl InForceDevices {
    async fn follow(&mut self, db: &mut PgConnection, target: &TargetRow) -> Result<(), ApplyError> {
        if self.generation == target.generation {
            return Ok(());
        }
        let mut parts: Vec<PipelinePlan> = Vec::new();
        for plan in &target.plans {
            for part in load_plan(db, *plan).await? {
                parts.retain(|earlier| earlier.name != part.name);
                parts.push(part);
            }
        }
        let of_part = |part: &PipelinePlan| {
            let pipeline = part.name.clone();
            let devices = devices_of(part).into_iter();
            devices
                .map(|(hardware, devices)| PipelineDevices { pipeline: pipeline.clone(), hardware, devices })
                .collect::<Vec<_>>()
        };
        self.devices = parts.iter().flat_map(of_part).collect();
        self.generation = target.generation;
        Ok(())
    }
}

/// Everything that the database knows of machines.
pub(super) struct MachinesView {
    /// The moment of the look.
    pub(super) now: Duration,
    /// The machines that have not ended.
    pub(super) rows: Vec<MachineRow>,
    /// The agents with their names.
    pub(super) agents: BTreeMap<String, MachineAgent>,
    types: Vec<HardwareRow>,
    needed: BTreeMap<String, u32>,
    /// Devices of live agents without a machine, by type.
    others: BTreeMap<String, u32>,
    /// Devices of live agents that measure for profile jobs, by type: no plan has them.
    measuring: BTreeMap<String, u32>,
}

impl MachinesView {
    pub(super) async fn read(app: &App, in_force: &mut InForceDevices) -> Result<Self, ApplyError> {
        let mut db = app.pool.acquire().await?;
        let rows = store::machines::open(&mut db).await?;
        let agents = store::agents::list(&mut db).await?;
        let types = store::hardware::list(&mut db).await?;
        let wants: Vec<_> = store::machines::wants(&mut db).await?.into_iter().map(pipeline_devices).collect();
        let target = store::target::get(&mut db).await?;
        in_force.follow(&mut db, &target).await?;
        drop(db);
        let placed = placed_agents(&target);
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let mut others: BTreeMap<String, u32> = BTreeMap::new();
        for agent in agents.iter().filter(|agent| agent.state == AgentState::Live && !names.contains(agent.name.as_str())) {
            *others.entry(agent.hardware.clone()).or_default() += u32::try_from(agent.devices).unwrap_or(0);
        }
        let mut measuring: BTreeMap<String, u32> = BTreeMap::new();
        for agent in agents.iter().filter(|agent| agent.state == AgentState::Live) {
            *measuring.entry(agent.hardware.clone()).or_default() += agent.measured.len() as u32;
        }
        let ours = agents.iter().filter(|agent| names.contains(agent.name.as_str()));
        let agents = ours.map(|row| (row.name.clone(), machine_agent(row, &placed))).collect();
        let needed = devices_needed(&wants, &in_force.devices);
        Ok(Self { now: since_epoch(now()), rows, agents, types, needed, others, measuring })
    }

    /// The rows of a substrate's machines, as decisions take them.
    pub(super) fn records(&self, kind: SubstrateKind) -> Vec<MachineRecord> {
        self.rows.iter().filter(|row| row.substrate == kind.name()).map(machine_record).collect()
    }

    /// The row of a machine.
    pub(super) fn row(&self, name: &str) -> Option<&MachineRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// How long wishes are waited for.
    pub(super) fn wish_limits(&self, substrates: &Substrates) -> WishLimits {
        let twice = |row: &HardwareRow| (row.name.clone(), provision_of(row).saturating_mul(2));
        let wish_max = Duration::from_secs_f64(substrates.settings().wish_s);
        WishLimits { wish_max, by_hardware: self.types.iter().map(twice).collect() }
    }

    /// The hardware types of a substrate, and those of which it still has machines.
    pub(super) fn hardware_facts(&self, kind: SubstrateKind, substrates: &Substrates) -> Vec<HardwareFacts> {
        let is_of_kind = |row: &HardwareRow| row.substrate.as_deref() == Some(kind.name());
        let of_kind = self.types.iter().filter(|row| is_of_kind(row)).map(|row| row.name.clone());
        let mut names: BTreeSet<String> = of_kind.collect();
        names.extend(self.records(kind).into_iter().map(|record| record.hardware));
        let facts = |hardware: String| {
            let row = self.types.iter().find(|row| row.name == hardware).filter(|row| is_of_kind(row));
            let each = substrates.devices_each(kind, &hardware);
            // Of a type that the settings do not have, no machine can be asked for.
            let count_max = row.and_then(|row| u32::try_from(row.count_max?).ok()).filter(|_| each.is_some()).unwrap_or(0);
            let provision = row.map_or(PROVISION, provision_of);
            let hazard_per_hour = row.and_then(|row| row.hazard_per_hour).unwrap_or(0.0);
            let needed = self.needed.get(&hardware).copied().unwrap_or(0);
            HardwareFacts {
                wanted: with_losses(needed, hazard_per_hour, provision)
                    .saturating_add(self.measuring.get(&hardware).copied().unwrap_or(0)),
                others: self.others.get(&hardware).copied().unwrap_or(0),
                count_max,
                devices_each: each.unwrap_or(1),
                provision,
                retry_at: row.and_then(|row| row.retry_at).map(since_epoch),
                hardware,
            }
        };
        names.into_iter().map(facts).collect()
    }

    /// The machines of a substrate that answered.
    pub(super) fn pool_machines(&self, kind: SubstrateKind, seen: &BTreeMap<String, ObservedMachine>) -> Vec<PoolMachine> {
        let machine = |record: MachineRecord| {
            let (agent, shown) = (self.agents.get(&record.name), seen.get(&record.name));
            PoolMachine {
                is_live: agent.is_some_and(|agent| agent.is_live),
                is_used: agent.is_some_and(|agent| agent.is_used),
                left: shown.and_then(|machine| machine.left),
                limit: shown.and_then(|machine| machine.limit),
                record,
            }
        };
        self.records(kind).into_iter().map(machine).collect()
    }
}

/// As it was given, or as it was measured.
fn provision_of(row: &HardwareRow) -> Duration {
    let seconds = row.provision_s.or(row.provision_measured_s);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PROVISION)
}

fn pipeline_devices(row: WantRow) -> PipelineDevices {
    let devices = u32::try_from(row.devices).unwrap_or(0);
    PipelineDevices { pipeline: row.pipeline, hardware: row.hardware, devices }
}

fn machine_record(row: &MachineRow) -> MachineRecord {
    MachineRecord {
        name: row.name.clone(),
        hardware: row.hardware.clone(),
        devices: u32::try_from(row.devices).unwrap_or(0),
        stage: MachineStage::stored(&row.stage),
        since: since_epoch(row.stage_at),
    }
}

/// The agents with replicas in the target in force.
fn placed_agents(target: &TargetRow) -> BTreeSet<u64> {
    let placement: Placement = serde_json::from_value(target.placement.clone()).unwrap_or_default();
    placement.replicas.iter().map(|replica| replica.agent).collect()
}

fn machine_agent(row: &AgentRow, placed: &BTreeSet<u64>) -> MachineAgent {
    let replicas = row.ack.as_ref().and_then(|ack| ack["replicas"].as_array()).into_iter().flatten();
    let has_replicas = replicas.filter(|replica| replica["state"] != ReplicaState::Failed.name()).count() > 0;
    let is_live = row.state == AgentState::Live;
    MachineAgent {
        hardware: row.hardware.clone(),
        devices: u32::try_from(row.devices).unwrap_or(0),
        is_live,
        silent_for: if is_live { Duration::ZERO } else { (now() - row.seen_at).to_std().unwrap_or_default() },
        // What a lost agent said last says nothing.
        is_used: placed.contains(&(row.number as u64)) || (is_live && (has_replicas || !row.measured.is_empty())),
    }
}
