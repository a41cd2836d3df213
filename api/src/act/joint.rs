//! Which one plan have pipelines of one mode together, where some of them go first?
//!
//! Example: `a` and `b` need six `x` each, there are eight, and `a` has the higher priority. The joint plan of both is
//! infeasible. So `a` alone is planned at its whole demand, and then `b` beside it at the highest part of its demand that
//! still leaves a plan.
//!
//! The parts of demands that are served are lexicographic: no pipeline of a lower level has a device that makes the part of
//! a higher level smaller. Within a level all demands are lowered by the same factor.

use crate::decide::device_pool::ProjectRoom;
use crate::decide::placement::Device;
use crate::decide::projects::{DeviceCounts, DevicePrices};
use crate::decide::replan::ReplanInput;
use crate::decide::shares::{devices_of, devices_together, joint_objective};
use crate::decide::switching::{ChangeTimes, HORIZON_S, accuracy_with_loads, cost_with_loads, loading_device_seconds};
use crate::decide::zone_promise::{RAISES_MAX, ZonePromise};
use crate::documents;
use crate::jobs::{self, PlanOptions, SolveError, SolveRequest};
use apportion_domain::{
    Assignment, Deployed, DeviceQuota, GroupName, Hardware, HardwareIndex, Invalids, Mode, PipelineIndex, PipelinePlan,
    Plan, PlanOutcome, ProblemDraft, VariantIndex,
};
use apportion_planning::FleetMemory;
use apportion_wire::{BadInput, HardwareSpec, ObjectiveSpec, PipelineSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Time limit of one joint plan, in seconds.
const TIME_LIMIT_S: f64 = 2.0;
/// No further joint plan of a division is begun after this time: the round waits.
const TIME_ALL: Duration = Duration::from_secs(15);
/// Gap at which the joint plan counts as optimal. A smaller one changes few shares.
const GAP: f64 = 1e-3;
/// Demands that the devices cannot serve are lowered by powers of this factor.
const LOWER_BY: f64 = 0.85;
/// The largest power: less than 1 % of the demand.
const LOWER_STEPS_MAX: i32 = 30;

/// One pipeline of a joint plan.
pub(super) struct JointMember<'a> {
    /// The pipeline.
    pub(super) wish: &'a ReplanInput,
    /// Its spec at its demand, with the corrected profile.
    pub(super) spec: PipelineSpec,
    /// Its level: those of level 0 have devices first.
    pub(super) level: usize,
}

/// A joint plan that is asked for.
pub(super) struct JointRequest<'a> {
    /// The pipelines.
    pub(super) members: Vec<JointMember<'a>>,
    /// The devices.
    pub(super) hardware: Vec<HardwareSpec>,
    /// The rest of quotas, by position of the members.
    pub(super) rooms: Vec<ProjectRoom>,
    /// The plans in force.
    pub(super) in_force: Vec<&'a PipelinePlan>,
    /// Seconds until a device of a type comes that is not there yet.
    pub(super) provision_s: BTreeMap<String, f64>,
    /// The devices that are there.
    pub(super) live: DeviceCounts,
    /// The devices on which plans would be placed.
    pub(super) devices: &'a [Device],
    /// How long it may take.
    pub(super) limits: JointLimits,
    /// Stops the plan when it is set.
    pub(super) cancel: Arc<AtomicBool>,
    /// What is remembered of joint plans on the same fleet at whole demands.
    pub(super) memory: Option<FleetMemory>,
}

/// How long joint plans may take.
#[derive(Clone, Copy)]
pub(super) struct JointLimits {
    /// When the first one began.
    pub(super) begun: Instant,
    /// No further joint plan is begun after this time: the round waits.
    pub(super) all: Duration,
    /// Time limit of each, in seconds.
    pub(super) each_s: f64,
}

impl Default for JointLimits {
    fn default() -> Self {
        Self { begun: Instant::now(), all: TIME_ALL, each_s: TIME_LIMIT_S }
    }
}

impl JointLimits {
    fn are_over(&self) -> bool {
        self.begun.elapsed() >= self.all
    }
}

/// A joint plan.
pub(super) struct JointAnswer {
    /// The plan of all members with a part above 0.
    pub(super) plan: Plan,
    /// By member, the part of its demand that the plan serves; 0 if it has no part in the plan.
    pub(super) parts: Vec<f64>,
    /// By member, whether it has a profile for each task on this hardware.
    pub(super) plannable: Vec<bool>,
}

/// Why there is no joint plan.
#[derive(Debug, thiserror::Error)]
pub(super) enum JointPlanError {
    #[error(transparent)]
    Document(#[from] BadInput),
    #[error(transparent)]
    Limits(#[from] Invalids),
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error("no pipeline can have a plan on these devices")]
    NotFound,
}

/// What a joint plan may do with the devices in force.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceMoves {
    /// Pipelines may take devices from each other.
    Allowed,
    /// No pipeline has a device more than its plan in force.
    Forbidden,
}

/// Whether quotas hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuotaRule {
    /// They do.
    Held,
    /// The plan shows the needs without them.
    Ignored,
}

/// Powers of [`LOWER_BY`] among which the least is sought that leaves a plan.
#[derive(Clone, Copy)]
struct PowerRange {
    /// It leaves no plan; -1 if none is known.
    too_high: i32,
    /// It leaves a plan, or is beyond the last.
    low_enough: i32,
}

/// The highest parts that were found.
struct RaisedParts {
    plan: Plan,
    parts: Vec<f64>,
    power: i32,
}

/// These parts, with one part for some members.
fn with_part(parts: &[f64], members: &[usize], part: f64) -> Vec<f64> {
    parts.iter().enumerate().map(|(m, &other)| if members.contains(&m) { part } else { other }).collect()
}

impl JointRequest<'_> {
    /// The joint plan.
    pub(super) async fn plan(&self) -> Result<JointAnswer, JointPlanError> {
        let plannable: Vec<bool> = self.members.iter().map(|member| self.is_plannable(member)).collect();
        let all: Vec<f64> = plannable.iter().map(|&can| if can { 1.0 } else { 0.0 }).collect();
        if let Some(plan) = self.solve(&all, DeviceMoves::Allowed, QuotaRule::Held).await? {
            let plan = self.without_small_gains(plan, &all).await;
            return Ok(JointAnswer { plan, parts: all, plannable });
        }
        let mut found: Option<Plan> = None;
        let mut parts = vec![0.0; self.members.len()];
        let levels: BTreeSet<usize> = self.members.iter().map(|member| member.level).collect();
        for level in levels {
            let own: Vec<usize> = (0..parts.len()).filter(|&m| plannable[m] && self.members[m].level == level).collect();
            let is_known = with_part(&parts, &own, 1.0) == all;
            let powers = PowerRange { too_high: if is_known { 0 } else { -1 }, low_enough: LOWER_STEPS_MAX + 1 };
            let Some(together) = self.raise(&own, &parts, powers).await? else { continue };
            let power = together.power;
            parts = together.parts;
            found = Some(together.plan);
            let units = self.units(&own);
            // what a quota takes from the pipelines of its project, others do not lose
            for unit in units.iter().filter(|_| power > 0 && units.len() > 1) {
                let powers = PowerRange { too_high: -1, low_enough: power };
                if let Some(alone) = self.raise(unit, &parts, powers).await? {
                    parts = alone.parts;
                    found = Some(alone.plan);
                }
            }
        }
        let plan = found.ok_or(JointPlanError::NotFound)?;
        Ok(JointAnswer { plan, parts, plannable })
    }

    /// The plan with the highest part of these members' demands, the least power within the range; the other parts stay.
    /// A lower demand never needs more devices. `None` if no power in the range leaves a plan.
    async fn raise(
        &self,
        members: &[usize],
        parts: &[f64],
        powers: PowerRange,
    ) -> Result<Option<RaisedParts>, JointPlanError> {
        let PowerRange { mut too_high, mut low_enough } = powers;
        let mut found = None;
        let mut next = if too_high < 0 { 0 } else { i32::midpoint(too_high, low_enough) };
        while too_high + 1 < low_enough && !self.limits.are_over() {
            let tried = with_part(parts, members, LOWER_BY.powi(next));
            match self.solve(&tried, DeviceMoves::Allowed, QuotaRule::Held).await? {
                Some(plan) => {
                    low_enough = next;
                    found = Some(RaisedParts { plan, parts: tried, power: next });
                }
                None => too_high = next,
            }
            next = i32::midpoint(too_high, low_enough).max(too_high + 1);
        }
        Ok(found)
    }

    /// These members, parted by the quotas that hold for them.
    fn units(&self, members: &[usize]) -> Vec<Vec<usize>> {
        let mut units: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for &m in members {
            let rooms = (0..self.rooms.len()).filter(|&room| self.rooms[room].members.contains(&m));
            units.entry(rooms.collect()).or_default().push(m);
        }
        units.into_values().collect()
    }

    /// The plan of all members at their whole demands; `None` if there is none.
    pub(super) async fn plan_alone(&self) -> Option<Plan> {
        let all = vec![1.0; self.members.len()];
        self.solve(&all, DeviceMoves::Allowed, QuotaRule::Held).await.ok().flatten()
    }

    /// The devices that the members of a room need at their whole demands, without the room's quota and without other
    /// pipelines. `None` if the devices do not suffice even so.
    pub(super) async fn need_of(&self, room: &ProjectRoom) -> Option<DeviceCounts> {
        if self.limits.are_over() {
            return None;
        }
        let part = |(m, member): (usize, &JointMember<'_>)| {
            if room.members.contains(&m) && self.is_plannable(member) { 1.0 } else { 0.0 }
        };
        let parts: Vec<f64> = self.members.iter().enumerate().map(part).collect();
        let plan = self.solve(&parts, DeviceMoves::Allowed, QuotaRule::Ignored).await.ok().flatten()?;
        Some(devices_together(&plan.pipelines))
    }

    /// Whether a pipeline has a profile for each task on this hardware. One without says so itself.
    fn is_plannable(&self, member: &JointMember<'_>) -> bool {
        documents::problem_document(member.wish.objective(), self.hardware.clone(), vec![member.spec.clone()]).is_ok()
    }

    /// The plan of the members with a part above 0, at these parts of their demands; `None` if none was found. Pipelines
    /// that promise to survive zones have the spare replicas for it.
    async fn solve(&self, parts: &[f64], moves: DeviceMoves, quotas: QuotaRule) -> Result<Option<Plan>, JointPlanError> {
        let chosen: Vec<usize> = (0..parts.len()).filter(|&m| parts[m] > 0.0).collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        let spec = |&m: &usize| {
            let spec = &self.members[m].spec;
            PipelineSpec { demand_qps: spec.demand_qps * parts[m], ..spec.clone() }
        };
        let mut specs: Vec<PipelineSpec> = chosen.iter().map(spec).collect();
        for _ in 0..RAISES_MAX {
            let plan = self.solve_specs(&chosen, specs.clone(), moves, quotas).await?;
            let is_raised = plan.as_ref().is_some_and(|plan| self.raise_for_zones(&chosen, plan, &mut specs));
            if !is_raised || self.limits.are_over() {
                return Ok(plan);
            }
        }
        self.solve_specs(&chosen, specs, moves, quotas).await
    }

    /// Gives pipelines more spare replicas where their promise about zones needs them; returns whether it does.
    fn raise_for_zones(&self, chosen: &[usize], plan: &Plan, specs: &mut [PipelineSpec]) -> bool {
        let mut is_raised = false;
        for (&m, spec) in chosen.iter().zip(specs) {
            let promise = ZonePromise::new(self.members[m].wish.spec.survive.unwrap_or(0), self.devices);
            let part = plan.pipeline(&spec.name);
            if let Some(more) = part.and_then(|part| promise.raised(&part.assignments, spec.survive.unwrap_or(0))) {
                spec.survive = Some(more);
                is_raised = true;
            }
        }
        is_raised
    }

    /// The plan of the chosen members with these specs; `None` if none was found.
    async fn solve_specs(
        &self,
        chosen: &[usize],
        specs: Vec<PipelineSpec>,
        moves: DeviceMoves,
        quotas: QuotaRule,
    ) -> Result<Option<Plan>, JointPlanError> {
        let demand_of = |m: usize| self.members[m].spec.demand_qps;
        let has_whole_demands = quotas == QuotaRule::Held
            && chosen.iter().zip(&specs).all(|(&m, spec)| spec.demand_qps.to_bits() == demand_of(m).to_bits());
        let goals: Vec<ObjectiveSpec> = chosen.iter().map(|&m| self.members[m].wish.objective()).collect();
        let objective = joint_objective(&goals.iter().collect::<Vec<_>>());
        let document = documents::problem_document(objective, self.hardware.clone(), specs)?;
        let problem = documents::problem(&document)?.changed(|draft| {
            if quotas == QuotaRule::Held {
                draft.quotas = self.rooms.iter().map(|room| quota_of_room(room, chosen, &draft.hardware)).collect();
            }
            self.add_in_force(draft, moves);
        })?;
        let options = PlanOptions { time_limit_s: self.limits.each_s, gap: GAP, ..PlanOptions::default() };
        let request = SolveRequest::unwatched(problem, options, Vec::new());
        let memory = self.memory.clone().filter(|_| has_whole_demands && moves == DeviceMoves::Allowed);
        let solved = jobs::solve(SolveRequest { cancel: self.cancel.clone(), memory, ..request });
        match solved.await?.outcome {
            PlanOutcome::Infeasible { .. } => Ok(None),
            outcome => Ok(outcome.plan().cloned()),
        }
    }

    /// Adds the plans in force: as the groups that run now, and as the most devices where none may move.
    fn add_in_force(&self, draft: &mut ProblemDraft, moves: DeviceMoves) {
        // a gain per hour pays for the loads within the horizon
        draft.switching_weight = 3_600.0 / HORIZON_S;
        for p in 0..draft.pipelines.len() {
            let name = draft.pipelines[p].name.clone();
            let Some(part) = self.in_force.iter().find(|part| part.name == name) else { continue };
            let deployed = part.assignments.iter().filter_map(|a| deployed_group(draft, p, a));
            let deployed: Vec<Deployed> = deployed.collect();
            draft.deployed.extend(deployed);
            if moves == DeviceMoves::Forbidden {
                let has = devices_of(part);
                let count = |h: &Hardware| Some(has.get(&h.name).copied().unwrap_or(0));
                draft.quotas.push(DeviceQuota {
                    name,
                    pipelines: vec![PipelineIndex(p)],
                    counts: draft.hardware.iter().map(count).collect(),
                    devices: None,
                    cost_per_hour: None,
                });
            }
        }
    }

    /// The plan that leaves every device where it is, if the other one gains less than its loads cost.
    async fn without_small_gains(&self, free: Plan, parts: &[f64]) -> Plan {
        if !self.moves_devices(&free) {
            return free;
        }
        let kept = self.solve(parts, DeviceMoves::Forbidden, QuotaRule::Held).await.ok().flatten();
        match kept {
            Some(kept) if self.value(&kept) >= self.value(&free) => kept,
            _ => free,
        }
    }

    /// Whether some pipeline of the plan has devices that another one would lose.
    fn moves_devices(&self, plan: &Plan) -> bool {
        let mut wanted = DeviceCounts::new();
        for member in &self.members {
            let name = &member.wish.spec.name;
            let in_force = self.in_force.iter().copied().find(|part| part.name == *name);
            let mut most = in_force.map(devices_of).unwrap_or_default();
            for (hardware, count) in plan.pipeline(name).map(devices_of).unwrap_or_default() {
                let entry = most.entry(hardware).or_default();
                *entry = count.max(*entry);
            }
            for (hardware, count) in most {
                *wanted.entry(hardware).or_default() += count;
            }
        }
        let is_over = |h: &HardwareSpec| wanted.get(&h.name).copied().unwrap_or(0) > h.count.unwrap_or(u32::MAX);
        self.hardware.iter().any(is_over)
    }

    /// The value of a plan by the objective with the price of its loads; more is better.
    fn value(&self, plan: &Plan) -> f64 {
        let member = |name: &str| self.members.iter().find(|member| member.spec.name == name);
        let load_s = |pipeline: &str, group: &GroupName| {
            let tasks = member(pipeline).into_iter().flat_map(|member| &member.spec.tasks);
            let variants = tasks.filter(|task| task.name == group.task).flat_map(|task| &task.variants);
            variants.filter(|v| v.name == group.variant).find_map(|v| v.load_ms).unwrap_or(0.0) / 1_000.0
        };
        let times = ChangeTimes { load_s: &load_s, provision_s: &self.provision_s, live: &self.live };
        let loading = loading_device_seconds(plan, &self.in_force, &times);
        let mode = self.members.first().map(|member| member.wish.objective().mode);
        if mode.as_deref() == Some(Mode::MinCost.name()) {
            let prices: DevicePrices = self.hardware.iter().map(|h| (h.name.clone(), h.price_per_hour)).collect();
            return -cost_with_loads(plan, &loading, &prices);
        }
        let weight = |part: &PipelinePlan| member(&part.name).and_then(|member| member.spec.weight).unwrap_or(1.0);
        accuracy_with_loads(plan, &loading, &plan.pipelines.iter().map(weight).collect::<Vec<_>>())
    }
}

/// The quota of a room for the chosen members, which are the pipelines of the problem in this order.
fn quota_of_room(room: &ProjectRoom, chosen: &[usize], hardware: &[Hardware]) -> DeviceQuota {
    let positions = chosen.iter().enumerate().filter(|(_, member)| room.members.contains(member));
    DeviceQuota {
        name: room.project.clone(),
        pipelines: positions.map(|(p, _)| PipelineIndex(p)).collect(),
        counts: hardware.iter().map(|h| room.quota.hardware.get(&h.name).copied()).collect(),
        devices: room.quota.devices,
        cost_per_hour: room.quota.cost_per_hour,
    }
}

/// A group of a plan in force as a group of the problem; `None` if the problem does not have it.
fn deployed_group(draft: &ProblemDraft, p: usize, a: &Assignment) -> Option<Deployed> {
    let pipeline = &draft.pipelines[p];
    let task = pipeline.task_named(&a.group.task)?;
    let variant = pipeline.task(task).variants.iter().position(|v| v.name == a.group.variant)?;
    let hardware = draft.hardware.iter().position(|h| h.name == a.group.hardware)?;
    Some(Deployed {
        pipeline: PipelineIndex(p),
        task,
        variant: VariantIndex(variant),
        hardware: HardwareIndex(hardware),
        share: a.group.share,
        batch: a.batch,
        replicas: a.replicas,
    })
}
