//! Which of the devices does each pipeline of a round have?
//!
//! Example: there are four `t4` and four `a100`. One pipeline has a profile on `t4` alone and needs four, the other can run
//! on both types. One exact plan for both gives the first all `t4`. Devices that the joint plan leaves over are divided too
//! ([`with_spare`]): each pipeline is then planned on its part by itself, with a check on samples, and may need more.
//!
//! Pipelines of different modes have no common goal. The devices are divided among the modes by work first.

use crate::decide::correction::Measurements;
use crate::decide::placement::Device;
use crate::decide::replan::{LOWER_MAX, ReplanInput};
use crate::decide::shares::{
    DeviceCounts, JointPart, PipelineSize, devices_of, divide, joint_objective, least_work, pipelines_by_goal, with_spare,
};
use crate::decide::zone_promise::ZonePromise;
use crate::documents;
use crate::jobs::{self, PlanOptions, SolveError, SolveRequest};
use apportion_domain::{PipelinePlan, Plan, PlanOutcome};
use apportion_planning::ExplanationDepth;
use apportion_wire::{BadInput, HardwareSpec, ObjectiveSpec, PipelineSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Time limit of the joint plan, in seconds.
const TIME_LIMIT_S: f64 = 2.0;
/// Gap at which the joint plan counts as optimal. A smaller one changes few shares.
const GAP: f64 = 1e-3;
/// Factor on all demands after the devices could not serve them.
const LOWER_BY: f64 = 0.85;

/// What the devices are divided for.
pub(super) struct DivisionInput<'a> {
    /// The pipelines.
    pub(super) wishes: Vec<&'a ReplanInput>,
    /// The devices.
    pub(super) hardware: &'a [HardwareSpec],
    /// The plans in force.
    pub(super) in_force: Vec<&'a PipelinePlan>,
    /// What agents measured.
    pub(super) measured: &'a Measurements,
    /// Stops the joint plan when it is set.
    pub(super) cancel: &'a Arc<AtomicBool>,
    /// The devices on which plans would be placed.
    pub(super) devices: &'a [Device],
}

/// The devices of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PipelineShare {
    /// The devices that it is planned on.
    pub(super) devices: DeviceCounts,
    /// The addition to the reason of a decision; empty for a pipeline that has all devices.
    pub(super) note: String,
}

/// Why there is no joint plan.
#[derive(Debug, thiserror::Error)]
enum JointPlanError {
    #[error(transparent)]
    Document(#[from] BadInput),
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error("none was found within {TIME_LIMIT_S} s")]
    NotFound,
    #[error("the devices cannot serve {least:.0} % of the demands", least = 100.0 * LOWER_BY.powi(LOWER_MAX as i32 - 1))]
    Infeasible,
}

/// Divides all devices among the pipelines of a round, in their order.
pub(super) async fn divide_devices(input: &DivisionInput<'_>) -> Vec<PipelineShare> {
    let all: DeviceCounts = input.hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect();
    let wishes = &input.wishes;
    if wishes.len() < 2 {
        return wishes.iter().map(|_| PipelineShare { devices: all.clone(), note: String::new() }).collect();
    }
    let goals: Vec<ObjectiveSpec> = wishes.iter().map(|wish| wish.objective()).collect();
    let groups = pipelines_by_goal(&goals);
    let size_of_group = |group: &Vec<usize>| {
        let sizes = group.iter().map(|&at| size(wishes[at]));
        sizes.fold(PipelineSize { least_work: 0.0, tasks: 0 }, |sum, of| PipelineSize {
            least_work: sum.least_work + of.least_work,
            tasks: sum.tasks + of.tasks,
        })
    };
    let sizes: Vec<PipelineSize> = groups.iter().map(size_of_group).collect();
    let mut shares = vec![PipelineShare { devices: DeviceCounts::new(), note: String::new() }; wishes.len()];
    for (group, counts) in groups.iter().zip(divide(&all, &sizes)) {
        let members: Vec<&ReplanInput> = group.iter().map(|&at| wishes[at]).collect();
        for (&at, devices) in group.iter().zip(input.divide_jointly(&members, &counts).await) {
            shares[at] = PipelineShare { note: describe(&devices, &all), devices };
        }
    }
    shares
}

fn size(wish: &ReplanInput) -> PipelineSize {
    PipelineSize { least_work: least_work(&wish.spec, wish.demand_qps), tasks: wish.spec.tasks.len() as u32 }
}

/// A pipeline's devices beside all of them.
fn describe(devices: &DeviceCounts, all: &DeviceCounts) -> String {
    let of_type = |(name, count): (&String, &u32)| format!("{count} of {} {name}", all.get(name).unwrap_or(&0));
    let parts: Vec<String> = devices.iter().filter(|(_, count)| **count > 0).map(of_type).collect();
    match parts.is_empty() {
        true => "; it has no device".to_owned(),
        false => format!("; it has {}", parts.join(", ")),
    }
}

impl DivisionInput<'_> {
    /// Divides these devices among pipelines of one mode.
    async fn divide_jointly(&self, wishes: &[&ReplanInput], counts: &DeviceCounts) -> Vec<DeviceCounts> {
        if wishes.len() == 1 {
            return vec![counts.clone()];
        }
        let planned = match self.plan_jointly(wishes, counts).await {
            Ok(plan) => plan.pipelines.iter().map(|part| (part.name.clone(), devices_of(part))).collect(),
            Err(error) => {
                let why = error.to_string();
                tracing::info!(pipelines = wishes.len(), why, "without a joint plan the devices are divided by work");
                BTreeMap::new()
            }
        };
        let part = |wish: &&ReplanInput| {
            let in_force = self.in_force.iter().find(|part| part.name == wish.spec.name);
            JointPart {
                planned: planned.get(&wish.spec.name).cloned().unwrap_or_default(),
                in_force: in_force.map(|part| devices_of(part)).unwrap_or_default(),
                size: size(wish),
            }
        };
        let parts: Vec<JointPart> = wishes.iter().map(part).collect();
        if planned.is_empty() {
            return divide(counts, &parts.iter().map(|part| part.size).collect::<Vec<_>>());
        }
        with_spare(counts, &parts)
    }

    /// One plan for all of these pipelines that can be planned on this hardware. Where the devices cannot serve the
    /// demands, all are lowered by the same factor.
    async fn plan_jointly(&self, wishes: &[&ReplanInput], counts: &DeviceCounts) -> Result<Plan, JointPlanError> {
        let of_count = |h: &HardwareSpec| HardwareSpec { count: counts.get(&h.name).copied(), ..h.clone() };
        let hardware: Vec<HardwareSpec> = self.hardware.iter().map(of_count).filter(|h| h.count.unwrap_or(0) > 0).collect();
        let goals: Vec<ObjectiveSpec> = wishes.iter().map(|wish| wish.objective()).collect();
        let objective = joint_objective(&goals.iter().collect::<Vec<_>>());
        let spec = |wish: &&ReplanInput| {
            let mut spec = PipelineSpec { demand_qps: wish.demand_qps, ..wish.spec.clone() };
            self.measured.fill(&mut spec);
            // A pipeline that cannot be planned on this hardware says so itself.
            let alone = documents::problem_document(objective.clone(), hardware.clone(), vec![spec.clone()]);
            alone.is_ok().then_some(spec)
        };
        let mut specs: Vec<PipelineSpec> = wishes.iter().filter_map(spec).collect();
        for turn in 0..LOWER_MAX {
            let document = documents::problem_document(objective.clone(), hardware.clone(), specs.clone())?;
            let problem = documents::problem(&document)?;
            let solved = jobs::solve(SolveRequest {
                problem,
                options: PlanOptions { time_limit_s: TIME_LIMIT_S, gap: GAP, ..PlanOptions::default() },
                traces: Vec::new(),
                cancel: self.cancel.clone(),
                explain: ExplanationDepth::Brief,
                listener: None,
            });
            match solved.await?.outcome {
                PlanOutcome::Infeasible { .. } => specs.iter_mut().for_each(|spec| spec.demand_qps *= LOWER_BY),
                outcome => {
                    let plan = outcome.plan().ok_or(JointPlanError::NotFound)?;
                    let is_raised = raise_for_zones(&mut specs, wishes, plan, self.devices);
                    if !is_raised || turn + 1 == LOWER_MAX {
                        return Ok(plan.clone());
                    }
                }
            }
        }
        Err(JointPlanError::Infeasible)
    }
}

/// Gives pipelines more spare replicas where their promise about zones needs them; returns whether it does.
fn raise_for_zones(specs: &mut [PipelineSpec], wishes: &[&ReplanInput], plan: &Plan, devices: &[Device]) -> bool {
    let mut is_raised = false;
    for spec in specs {
        let survive = |spec: &PipelineSpec| spec.survive.unwrap_or(0);
        let promised = wishes.iter().find(|wish| wish.spec.name == spec.name).map_or(0, |wish| survive(&wish.spec));
        let part = plan.pipelines.iter().find(|part| part.name == spec.name);
        let promise = ZonePromise::new(promised, devices);
        if let Some(more) = part.and_then(|part| promise.raised(&part.assignments, survive(spec))) {
            spec.survive = Some(more);
            is_raised = true;
        }
    }
    is_raised
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::replan::OnBetterPlan;
    use serde_json::json;

    /// A pipeline of one task of 10 ms on these hardware types.
    fn wish(name: &str, demand_qps: f64, mode: &str, hardware: &[&str]) -> ReplanInput {
        let rows: Vec<_> = hardware.iter().map(|name| json!({"hardware": name, "batch": 1, "latency_ms": 10.0})).collect();
        let spec: PipelineSpec = serde_json::from_value(json!({
            "name": name, "slo_ms": 200.0, "replan": {"objective": {"mode": mode}},
            "tasks": [{"name": "t", "variants": [{"name": "v", "accuracy": 0.9, "profile": rows}]}]
        }))
        .expect("a spec");
        let wish = ReplanInput::for_seen_demand(spec, demand_qps);
        ReplanInput { demand_qps, on_better_plan: OnBetterPlan::Apply, ..wish }
    }

    fn hardware(counts: &[(&str, u32)]) -> Vec<HardwareSpec> {
        let of = |&(name, count): &(&str, u32)| HardwareSpec {
            name: name.to_owned(),
            price_per_hour: 1.0,
            count: Some(count),
            memory_mib: None,
        };
        counts.iter().map(of).collect()
    }

    async fn shares(wishes: &[ReplanInput], counts: &[(&str, u32)]) -> Vec<PipelineShare> {
        shares_in_zones(wishes, counts, &[]).await
    }

    async fn shares_in_zones(wishes: &[ReplanInput], counts: &[(&str, u32)], devices: &[Device]) -> Vec<PipelineShare> {
        let (hardware, measured, cancel) = (&hardware(counts), &Measurements::default(), &Arc::default());
        let (wishes, in_force) = (wishes.iter().collect(), Vec::new());
        divide_devices(&DivisionInput { wishes, hardware, in_force, measured, cancel, devices }).await
    }

    #[tokio::test]
    async fn a_pipeline_that_survives_zones_has_devices_for_it() {
        let mode = "hardware_then_accuracy";
        let mut wishes = [wish("plain", 350.0, mode, &["x"]), wish("safe", 350.0, mode, &["x"])];
        wishes[1].spec.survive = Some(1);
        let zone = |device: u32| if device % 2 == 0 { "a" } else { "b" };
        let device = |at: u32| Device { zone: zone(at).to_owned(), ..Device::new(1, at, "x") };
        // Four devices carry the load of each. Of `safe`, either zone must have four.
        let shares = shares_in_zones(&wishes, &[("x", 12)], &(0..12).map(device).collect::<Vec<_>>()).await;
        assert_eq!((shares[0].devices["x"], shares[1].devices["x"]), (4, 8), "{shares:?}");
    }

    #[tokio::test]
    async fn a_pipeline_with_one_choice_has_the_devices_that_others_can_spare() {
        let mode = "hardware_then_accuracy";
        // Each needs four devices: at most 100/s of a device of 10 ms.
        let wishes = [wish("picky", 350.0, mode, &["x"]), wish("free", 350.0, mode, &["x", "y"])];
        let shares = shares(&wishes, &[("x", 4), ("y", 4)]).await;
        assert_eq!(shares[0].devices["x"], 4, "{shares:?}");
        assert_eq!(shares[1].devices["y"], 4, "{shares:?}");
        assert_eq!(shares[0].note, "; it has 4 of 4 x");
    }

    #[tokio::test]
    async fn too_few_devices_are_divided_at_lower_demands() {
        let mode = "hardware_then_accuracy";
        let wishes = [wish("a", 600.0, mode, &["x"]), wish("b", 300.0, mode, &["x"])];
        let shares = shares(&wishes, &[("x", 6)]).await;
        assert_eq!((shares[0].devices["x"], shares[1].devices["x"]), (4, 2), "{shares:?}");
    }

    #[tokio::test]
    async fn pipelines_of_different_modes_divide_by_work() {
        let wishes = [wish("a", 300.0, "min_cost", &["x"]), wish("b", 100.0, "max_accuracy", &["x"])];
        let shares = shares(&wishes, &[("x", 10)]).await;
        assert_eq!(shares.iter().map(|share| share.devices["x"]).collect::<Vec<_>>(), [7, 3]);
    }

    #[tokio::test]
    async fn a_pipeline_without_a_profile_takes_nothing_from_the_joint_plan() {
        let mode = "min_cost";
        let wishes = [wish("a", 350.0, mode, &["x"]), wish("b", 350.0, mode, &["absent"])];
        let shares = shares(&wishes, &[("x", 4)]).await;
        assert_eq!((shares[0].devices["x"], shares[1].devices["x"]), (4, 0), "{shares:?}");
    }
}
