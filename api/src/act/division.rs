//! Which of the devices does each pipeline of a round have?
//!
//! Example: there are four `t4` and four `a100`. One pipeline has a profile on `t4` alone and needs four, the other can run
//! on both types. One exact plan for both gives the first all `t4`. Devices that the joint plan leaves over are divided too
//! ([`with_spare`]): each pipeline is then planned on its part by itself, with a check on samples, and may need more.
//!
//! Where the devices do not suffice, pipelines of a higher priority go first ([`super::joint`]). The pipelines of a project
//! never have more together than its quota.
//!
//! Pipelines of different modes have no common goal. Then the levels choose one after the other, and within a level the
//! devices are divided among the modes by work.

use super::joint::{JointAnswer, JointLimits, JointMember, JointRequest};
use crate::decide::correction::Measurements;
use crate::decide::device_pool::{DevicePool, ProjectRoom};
use crate::decide::placement::Device;
use crate::decide::projects::{DeviceCounts, DevicePrices};
use crate::decide::replan::ReplanInput;
use crate::decide::shares::{
    AlternativePlan, JointPart, PipelineSize, PlannedSupply, devices_of, divide, least_work, pipelines_by_goal, with_spare,
};
use apportion_domain::PipelinePlan;
use apportion_planning::FleetMemory;
use apportion_wire::{HardwareSpec, ObjectiveSpec, PipelineSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Most pipelines that the note of one that yields names.
const NAMED_MAX: usize = 5;
/// No further alternative is planned after this time: the round waits, and the alternatives decide nothing.
const ALTERNATIVES_TIME: Duration = Duration::from_millis(500);

/// What the devices are divided for.
pub(super) struct DivisionInput<'a> {
    /// The pipelines.
    pub(super) wishes: Vec<&'a ReplanInput>,
    /// The devices.
    pub(super) hardware: &'a [HardwareSpec],
    /// The plans in force.
    pub(super) in_force: Vec<&'a PipelinePlan>,
    /// Projects, as they concern these pipelines.
    pub(super) teams: &'a Teams,
    /// The devices that are there; the others take their time to come.
    pub(super) live: &'a DeviceCounts,
    /// What agents measured.
    pub(super) measured: &'a Measurements,
    /// Stops the joint plan when it is set.
    pub(super) cancel: &'a Arc<AtomicBool>,
    /// The devices on which plans would be placed.
    pub(super) devices: &'a [Device],
    /// When the division began: its joint plans end in time.
    pub(super) begun: Instant,
    /// What is remembered of the joint plans of rounds on the same fleet.
    pub(super) memory: Option<&'a FleetMemory>,
}

/// Projects, as they concern the pipelines of a round, by position.
#[derive(Clone, Debug, Default)]
pub(super) struct Teams {
    /// The rest of each quota for these pipelines.
    pub(super) rooms: Vec<ProjectRoom>,
    /// The level of each pipeline: those of level 0 have devices first.
    pub(super) levels: Vec<usize>,
    /// Seconds until a device of a type comes that is not there yet.
    pub(super) provision_s: BTreeMap<String, f64>,
}

/// The devices of one pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PipelineShare {
    /// The devices that it is planned on.
    pub(super) devices: DeviceCounts,
    /// Why it has no more; empty if it has its whole demand.
    pub(super) note: String,
}

impl PipelineShare {
    /// The addition to the reason of a decision; empty for a pipeline that has all devices.
    pub(super) fn describe(&self, all: &DeviceCounts) -> String {
        let Self { devices, note } = self;
        if all.iter().all(|(name, count)| devices.get(name) == Some(count)) {
            return note.clone();
        }
        let of_type = |(name, count): (&String, &u32)| format!("{count} of {} {name}", all.get(name).unwrap_or(&0));
        let parts: Vec<String> = devices.iter().filter(|(_, count)| **count > 0).map(of_type).collect();
        match parts.is_empty() {
            true => format!("; it has no device{note}"),
            false => format!("; it has {}{note}", parts.join(", ")),
        }
    }
}

/// Divides all devices among the pipelines of a round, in their order.
pub(super) async fn divide_devices(input: &DivisionInput<'_>) -> Vec<PipelineShare> {
    let mut pool = input.pool();
    let specs = input.specs();
    let mut parts: Vec<JointPart> = (0..specs.len()).map(|at| input.unplanned(at, &specs[at])).collect();
    let mut notes = vec![String::new(); specs.len()];
    // one pipeline alone has all devices, unless a quota takes some of them
    if specs.len() > 1 || !input.teams.rooms.is_empty() {
        let mut before_level = pool.clone();
        for block in input.blocks(&parts) {
            if block.place == BlockPlace::FirstOfLevel {
                before_level = pool.clone();
            }
            let counts = block.counts_in(&before_level, &parts);
            let request = input.request(&block.members, &counts, &pool, &specs);
            match request.plan().await {
                Ok(answer) => {
                    for (&at, note) in block.members.iter().zip(input.notes(&block, &request, &answer).await) {
                        notes[at] = note;
                    }
                    block.note_plan(&answer, &specs, &mut parts);
                    block.members.iter().for_each(|&at| drop(pool.take_all(at, &parts[at].planned)));
                }
                Err(error) => {
                    // by work alone, so that a pipeline without a plan has devices too
                    block.members.iter().for_each(|&at| parts[at].in_force.clear());
                    let (pipelines, why) = (block.members.len(), error.to_string());
                    tracing::info!(pipelines, why, "without a joint plan the devices are divided by work");
                }
            }
        }
    }
    // with the parts of all blocks, the rest is divided once
    let shares = with_spare(&mut input.pool(), &parts);
    shares.into_iter().zip(notes).map(|(devices, note)| PipelineShare { devices, note }).collect()
}

/// Pipelines that one joint plan is made for.
struct PlanBlock {
    /// Their positions.
    members: Vec<usize>,
    /// Blocks of the same level divide the devices by work: the members of each, this block among them.
    beside: Vec<Vec<usize>>,
    /// Its place among the blocks of its level.
    place: BlockPlace,
}

/// The place of a block among those of its level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockPlace {
    FirstOfLevel,
    Further,
}

impl PlanBlock {
    /// The devices that the block is planned on.
    fn counts_in(&self, pool: &DevicePool, parts: &[JointPart]) -> DeviceCounts {
        let size = |members: &Vec<usize>| {
            let of = |sum: PipelineSize, &at: &usize| PipelineSize {
                least_work: sum.least_work + parts[at].size.least_work,
                tasks: sum.tasks + parts[at].size.tasks,
            };
            members.iter().fold(PipelineSize { least_work: 0.0, tasks: 0 }, of)
        };
        let sizes: Vec<PipelineSize> = self.beside.iter().map(size).collect();
        let own = self.beside.iter().position(|members| *members == self.members).unwrap_or(0);
        divide(pool.left(), &sizes).swap_remove(own)
    }

    /// Writes the parts of a joint plan.
    fn note_plan(&self, answer: &JointAnswer, specs: &[PipelineSpec], parts: &mut [JointPart]) {
        for ((&at, &served), &can_have) in self.members.iter().zip(&answer.parts).zip(&answer.plannable) {
            let part = answer.plan.pipeline(&specs[at].name).filter(|_| served > 0.0);
            parts[at].planned = part.map(devices_of).unwrap_or_default();
            parts[at].supply = if can_have && served < 1.0 { PlannedSupply::Short } else { PlannedSupply::Enough };
        }
    }
}

impl<'a> DivisionInput<'a> {
    /// All devices of the round.
    pub(super) fn all_devices(&self) -> DeviceCounts {
        self.hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect()
    }

    /// All devices of the round, with the rest of the quotas.
    pub(super) fn pool(&self) -> DevicePool {
        let prices: DevicePrices = self.hardware.iter().map(|h| (h.name.clone(), h.price_per_hour)).collect();
        DevicePool::new(self.all_devices(), self.teams.rooms.clone(), prices)
    }

    /// The level of a pipeline.
    pub(super) fn level(&self, at: usize) -> usize {
        self.teams.levels.get(at).copied().unwrap_or(0)
    }

    /// The plan in force of a pipeline.
    pub(super) fn plan_in_force(&self, at: usize) -> Option<&'a PipelinePlan> {
        self.in_force.iter().copied().find(|part| part.name == self.wishes[at].spec.name)
    }

    /// The pipelines at their demands, with corrected profiles.
    fn specs(&self) -> Vec<PipelineSpec> {
        let spec = |wish: &&ReplanInput| {
            let mut spec = PipelineSpec { demand_qps: wish.demand_qps, ..wish.spec.clone() };
            self.measured.fill(&mut spec);
            spec
        };
        self.wishes.iter().map(spec).collect()
    }

    /// A pipeline without a part in a joint plan.
    fn unplanned(&self, at: usize, spec: &PipelineSpec) -> JointPart {
        let rows = spec.tasks.iter().flat_map(|task| &task.variants).flat_map(|v| v.profile.iter().flatten());
        let usable: BTreeSet<String> = rows.map(|row| row.hardware.clone()).collect();
        JointPart {
            planned: DeviceCounts::new(),
            in_force: self.plan_in_force(at).map(devices_of).unwrap_or_default(),
            usable,
            level: self.level(at),
            supply: PlannedSupply::Enough,
            size: PipelineSize { least_work: least_work(spec, spec.demand_qps), tasks: spec.tasks.len() as u32 },
        }
    }

    /// The blocks in the order in which they choose. Pipelines of one mode are one block of all levels.
    fn blocks(&self, parts: &[JointPart]) -> Vec<PlanBlock> {
        let goals: Vec<ObjectiveSpec> = self.wishes.iter().map(|wish| wish.objective()).collect();
        if pipelines_by_goal(&goals).len() == 1 {
            let members: Vec<usize> = (0..self.wishes.len()).collect();
            return vec![PlanBlock { beside: vec![members.clone()], members, place: BlockPlace::FirstOfLevel }];
        }
        let levels: BTreeSet<usize> = parts.iter().map(|part| part.level).collect();
        let mut blocks = Vec::new();
        for &level in &levels {
            let own: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].level == level).collect();
            let goals: Vec<ObjectiveSpec> = own.iter().map(|&at| self.wishes[at].objective()).collect();
            let groups = pipelines_by_goal(&goals).into_iter();
            let beside: Vec<Vec<usize>> = groups.map(|group| group.into_iter().map(|i| own[i]).collect()).collect();
            let of_goal = |(i, members): (usize, &Vec<usize>)| PlanBlock {
                members: members.clone(),
                beside: beside.clone(),
                place: if i == 0 { BlockPlace::FirstOfLevel } else { BlockPlace::Further },
            };
            blocks.extend(beside.iter().enumerate().map(of_goal));
        }
        blocks
    }

    /// The joint plan of these pipelines on these devices.
    fn request(
        &self,
        members: &[usize],
        counts: &DeviceCounts,
        pool: &DevicePool,
        specs: &[PipelineSpec],
    ) -> JointRequest<'a> {
        let of_count = |h: &HardwareSpec| HardwareSpec { count: counts.get(&h.name).copied(), ..h.clone() };
        let member = |&at: &usize| JointMember { wish: self.wishes[at], spec: specs[at].clone(), level: self.level(at) };
        let room = |room: &ProjectRoom| {
            let own = (0..members.len()).filter(|&m| room.members.contains(&members[m])).collect();
            ProjectRoom { members: own, ..room.clone() }
        };
        JointRequest {
            members: members.iter().map(member).collect(),
            hardware: self.hardware.iter().map(of_count).filter(|h| h.count.unwrap_or(0) > 0).collect(),
            rooms: pool.rooms().iter().map(room).filter(|room| !room.members.is_empty()).collect(),
            in_force: self.in_force.clone(),
            provision_s: self.teams.provision_s.clone(),
            live: self.live.clone(),
            devices: self.devices,
            limits: JointLimits { begun: self.begun, ..JointLimits::default() },
            cancel: self.cancel.clone(),
            // the memory holds one fleet: that of a joint plan for all
            memory: self.memory.filter(|_| members.len() == self.wishes.len()).cloned(),
        }
    }

    /// Why members of a block have less than their demands: the pipelines that go first, and quotas.
    async fn notes(&self, block: &PlanBlock, request: &JointRequest<'_>, answer: &JointAnswer) -> Vec<String> {
        let is_short = |m: usize| answer.plannable[m] && answer.parts[m] < 1.0;
        let mut notes = vec![String::new(); block.members.len()];
        for m in (0..notes.len()).filter(|&m| is_short(m)) {
            let level = self.level(block.members[m]);
            let first = (0..self.wishes.len()).filter(|&other| self.level(other) < level);
            let names: Vec<&str> = first.map(|other| self.wishes[other].spec.name.as_str()).collect();
            if !names.is_empty() {
                let more = names.len().saturating_sub(NAMED_MAX);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let named = names[..names.len().min(NAMED_MAX)].join(", ");
                notes[m] = format!("; {named}{more} went first, by priority");
            }
        }
        for room in request.rooms.iter().filter(|room| room.members.iter().any(|&m| is_short(m))) {
            let Some(need) = request.need_of(room).await else { continue };
            let pool = self.pool();
            for breach in pool.breaches(room, &need) {
                room.members.iter().filter(|&&m| is_short(m)).for_each(|&m| notes[m] += &format!("; {breach}"));
            }
        }
        notes
    }

    /// The plan that each pipeline would have if all devices were its own, as far as its project's quota goes; `None` where
    /// there is none, for a pipeline alone, and after [`ALTERNATIVES_TIME`].
    pub(super) async fn alternatives(&self) -> Vec<Option<AlternativePlan>> {
        let (begun, pool, specs) = (Instant::now(), self.pool(), self.specs());
        let mut found = vec![None; specs.len()];
        if specs.len() < 2 {
            return found;
        }
        let all = self.all_devices();
        for (at, found) in found.iter_mut().enumerate() {
            if begun.elapsed() >= ALTERNATIVES_TIME {
                break;
            }
            let limits = JointLimits { begun, all: ALTERNATIVES_TIME, each_s: ALTERNATIVES_TIME.as_secs_f64() };
            let request = JointRequest { limits, ..self.request(&[at], &all, &pool, &specs) };
            *found = request.plan_alone().await.map(|plan| AlternativePlan::of(&plan));
        }
        found
    }
}

#[cfg(test)]
mod tests;
