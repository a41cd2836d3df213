//! What does a new target change? Which replicas are loaded, kept and unloaded, and which capacity is left meanwhile?
//!
//! Example: `find` has two replicas on two devices, and the new target has three on three. Two are kept, one is loaded. The
//! capacity meanwhile is that of two replicas, until the third one has loaded.

use super::placement::{PlacedGroup, PlacedReplica, Placement};
use super::target::PipelineFacts;
use apportion_domain::{Assignment, GroupName, HardwareIndex, PipelinePlan, ProfileRow};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Capacities that differ by less than this share are equal.
const CAPACITY_TOLERANCE: f64 = 1e-9;

/// A target, as far as a change depends on it.
#[derive(Clone, Copy, Debug)]
pub struct DeployedPlans<'a> {
    /// The parts of its plans, one for each pipeline.
    pub parts: &'a [PipelinePlan],
    /// Replicas on devices.
    pub placement: &'a Placement,
}

/// The fate of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaFate {
    /// It stays on its device.
    Kept,
    /// It is new: its device loads it.
    Loaded,
    /// It goes.
    Unloaded,
}

/// One replica of the target before or after.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedReplica {
    /// Its number.
    pub replica: u64,
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// Fraction of a device.
    pub share: f64,
    /// The number of its agent.
    pub agent: u64,
    /// The device of that agent.
    pub device: u32,
    /// Its fate.
    pub fate: ReplicaFate,
}

/// The change of one task.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TaskChange {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// Replicas that stay.
    pub kept: u32,
    /// Replicas that are loaded.
    pub loaded: u32,
    /// Replicas that go.
    pub unloaded: u32,
    /// Queries per second that the old replicas can serve, in full batches; null if a profile is unknown.
    pub capacity_before_qps: Option<f64>,
    /// The same while the new replicas load. A replica that goes serves on until then if its device has room for all.
    pub capacity_meanwhile_qps: Option<f64>,
    /// The same once the new replicas are ready.
    pub capacity_after_qps: Option<f64>,
    /// Queries per second that the new plan has at this task.
    pub planned_qps: Option<f64>,
    /// Seconds until its last replica is ready: a device loads one replica after another.
    pub load_s: f64,
    /// Seconds with less capacity than the plan's load; null if a profile is unknown.
    pub short_s: Option<f64>,
}

/// What a new target changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct FleetChange {
    /// The tasks of all pipelines before and after.
    pub tasks: Vec<TaskChange>,
    /// The replicas of all pipelines before and after.
    pub replicas: Vec<ChangedReplica>,
}

/// The change from one target to the next. Pipelines without facts have unknown capacities and loading times of 0.
#[must_use]
pub fn change_between(
    before: DeployedPlans<'_>,
    after: DeployedPlans<'_>,
    facts: &BTreeMap<String, PipelineFacts>,
) -> FleetChange {
    let replicas = replica_changes(before.placement, after.placement);
    let change = Change { before, after, facts, replicas: &replicas };
    let names: BTreeSet<(&str, &str)> = replicas.iter().map(|r| (r.pipeline.as_str(), r.task.as_str())).collect();
    let tasks = names.into_iter().map(|(pipeline, task)| change.of_task(pipeline, task)).collect();
    FleetChange { tasks, replicas }
}

/// The replicas of both placements, by pipeline, task, fate and number.
fn replica_changes(before: &Placement, after: &Placement) -> Vec<ChangedReplica> {
    let old: BTreeSet<u64> = before.replicas.iter().map(|r| r.id).collect();
    let new: BTreeSet<u64> = after.replicas.iter().map(|r| r.id).collect();
    let fate = |r: &PlacedReplica| if old.contains(&r.id) { ReplicaFate::Kept } else { ReplicaFate::Loaded };
    let gone = before.replicas.iter().filter(|r| !new.contains(&r.id));
    let gone = gone.filter_map(|r| Some(described(before.group(r.group)?, r, ReplicaFate::Unloaded)));
    let there = after.replicas.iter().filter_map(|r| Some(described(after.group(r.group)?, r, fate(r))));
    let mut all: Vec<ChangedReplica> = there.chain(gone).collect();
    all.sort_by(|a, b| (&a.pipeline, &a.task, a.fate, a.replica).cmp(&(&b.pipeline, &b.task, b.fate, b.replica)));
    all
}

fn described(group: &PlacedGroup, replica: &PlacedReplica, fate: ReplicaFate) -> ChangedReplica {
    ChangedReplica {
        replica: replica.id,
        pipeline: group.pipeline.clone(),
        task: group.task.clone(),
        variant: group.variant.clone(),
        hardware: group.hardware.clone(),
        share: group.share,
        agent: replica.agent,
        device: replica.device,
        fate,
    }
}

/// A change between two targets.
struct Change<'a> {
    before: DeployedPlans<'a>,
    after: DeployedPlans<'a>,
    facts: &'a BTreeMap<String, PipelineFacts>,
    replicas: &'a [ChangedReplica],
}

impl Change<'_> {
    fn of_task(&self, pipeline: &str, task: &str) -> TaskChange {
        let mine: Vec<&ChangedReplica> =
            self.replicas.iter().filter(|r| r.pipeline == pipeline && r.task == task).collect();
        let count = |fate| mine.iter().filter(|r| r.fate == fate).count() as u32;
        let capacity = |serves: &dyn Fn(&ChangedReplica) -> bool| -> Option<f64> {
            mine.iter().filter(|r| serves(r)).map(|r| self.capacity_qps(r)).sum()
        };
        let after = capacity(&|r| r.fate != ReplicaFate::Unloaded);
        let meanwhile = capacity(&|r| match r.fate {
            ReplicaFate::Kept => true,
            ReplicaFate::Loaded => false,
            ReplicaFate::Unloaded => self.has_room_for_all(r),
        });
        let load_s = mine.iter().filter(|r| r.fate == ReplicaFate::Loaded).map(|r| self.load_s(r)).fold(0.0, f64::max);
        let planned = self.planned_qps(pipeline, task);
        TaskChange {
            pipeline: pipeline.to_owned(),
            task: task.to_owned(),
            kept: count(ReplicaFate::Kept),
            loaded: count(ReplicaFate::Loaded),
            unloaded: count(ReplicaFate::Unloaded),
            capacity_before_qps: capacity(&|r| r.fate != ReplicaFate::Loaded),
            capacity_meanwhile_qps: meanwhile,
            capacity_after_qps: after,
            planned_qps: planned,
            load_s,
            short_s: meanwhile.zip(planned).map(|(meanwhile, planned)| {
                let is_short = meanwhile < planned * (1.0 - CAPACITY_TOLERANCE);
                if is_short { load_s } else { 0.0 }
            }),
        }
    }

    /// The load of a task in the new plan: the used part of its groups' throughput. A task that goes has none.
    fn planned_qps(&self, pipeline: &str, task: &str) -> Option<f64> {
        let plan = self.after.parts.iter().find(|part| part.name == pipeline);
        let assignments = plan.into_iter().flat_map(|plan| &plan.assignments).filter(|a| a.group.task == task);
        let load = |a: &Assignment| {
            let row = self.row(pipeline, a)?;
            Some(a.utilisation * f64::from(a.replicas) * row.throughput_qps())
        };
        assignments.map(load).sum()
    }

    /// Queries per second of one replica. The batch is that of the plan that has its group; the newer plan counts first.
    fn capacity_qps(&self, replica: &ChangedReplica) -> Option<f64> {
        let plans = [self.after, self.before];
        let parts = plans.iter().flat_map(|plans| plans.parts).filter(|part| part.name == replica.pipeline);
        let assignment = parts.flat_map(|part| &part.assignments).find(|a| is_of(&a.group, replica))?;
        self.row(&replica.pipeline, assignment).map(ProfileRow::throughput_qps)
    }

    /// The profile row of a group at its batch size.
    fn row(&self, pipeline: &str, assignment: &Assignment) -> Option<&ProfileRow> {
        let (facts, group) = (self.facts.get(pipeline)?, &assignment.group);
        let task = facts.pipeline.task_named(&group.task)?;
        let variant = facts.pipeline.task(task).variants.iter().find(|v| v.name == group.variant)?;
        let hardware = facts.hardware.iter().position(|h| h.name == group.hardware).map(HardwareIndex)?;
        variant.profile.row(hardware, group.share, assignment.batch)
    }

    /// Whether the device of a replica can hold all its old and new replicas at once, by their shares.
    fn has_room_for_all(&self, replica: &ChangedReplica) -> bool {
        self.on_device_of(replica).map(|r| r.share).sum::<f64>() <= 1.0 + CAPACITY_TOLERANCE
    }

    /// Seconds until the device of a replica has loaded all its new replicas.
    fn load_s(&self, replica: &ChangedReplica) -> f64 {
        let loaded = self.on_device_of(replica).filter(|r| r.fate == ReplicaFate::Loaded);
        loaded.filter_map(|r| self.load_ms(r)).sum::<f64>() / 1e3
    }

    fn load_ms(&self, replica: &ChangedReplica) -> Option<f64> {
        let pipeline = &self.facts.get(&replica.pipeline)?.pipeline;
        let task = pipeline.task(pipeline.task_named(&replica.task)?);
        task.variants.iter().find(|v| v.name == replica.variant).map(|v| v.load_ms)
    }

    fn on_device_of(&self, replica: &ChangedReplica) -> impl Iterator<Item = &ChangedReplica> {
        let (agent, device) = (replica.agent, replica.device);
        self.replicas.iter().filter(move |r| r.agent == agent && r.device == device)
    }
}

fn is_of(group: &GroupName, replica: &ChangedReplica) -> bool {
    (&group.task, &group.variant, &group.hardware) == (&replica.task, &replica.variant, &replica.hardware)
        && group.share.value() == replica.share
}

#[cfg(test)]
mod tests {
    use super::super::placement::{Device, WantedGroup, place_replicas};
    use super::super::target::wanted_groups;
    use super::*;
    use apportion_domain::{
        Hardware, Pipeline, PipelineDraft, Profile, Route, Routing, ServingPolicy, Share, Task, TaskKind, Variant,
    };

    /// One task with a variant that takes 10 ms a query and 3 s to load, on whole devices.
    fn facts() -> BTreeMap<String, PipelineFacts> {
        let row = ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, 1, 10.0);
        let variant = Variant {
            name: "v".into(),
            accuracy: 0.9,
            fanout: 1.0,
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: 3_000.0,
            memory_mib: None,
            profile: Profile::new(vec![row]),
        };
        let task = |name: &str| Task {
            name: name.into(),
            kind: TaskKind::Batch,
            route: Route::All,
            min_replicas: 1,
            variants: vec![variant.clone()],
        };
        let hardware = vec![Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
        let pipeline = |name: &str| {
            let draft = PipelineDraft {
                name: name.into(),
                demand_qps: 10.0,
                slo_ms: 250.0,
                network_ms: 0.5,
                tasks: vec![task("t")],
                ..PipelineDraft::default()
            };
            let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
            PipelineFacts {
                pipeline,
                hardware: hardware.clone(),
                tensors: vec![],
                digests: BTreeMap::new(),
                runtimes: BTreeMap::new(),
                executions: BTreeMap::new(),
                interference: BTreeMap::new(),
                loads_on_demand: false,
                has_feedback: false,
            }
        };
        ["p", "q"].map(|name| (name.to_owned(), pipeline(name))).into()
    }

    fn part(name: &str, replicas: u32, utilisation: f64) -> PipelinePlan {
        let group = GroupName { task: "t".into(), variant: "v".into(), hardware: "h".into(), share: Share::WHOLE };
        let assignment = Assignment { group, batch: 1, replicas, traffic_share: 1.0, latency_budget_ms: 0.0, utilisation };
        PipelinePlan {
            name: name.into(),
            demand_qps: 10.0,
            accuracy: 0.9,
            serving: ServingPolicy::default(),
            assignments: vec![assignment],
            flows: vec![],
            routing: Routing::default(),
            ladder: vec![],
        }
    }

    /// The placement of these parts after another one, on so many devices of one agent.
    fn placed(before: &Placement, parts: &[PipelinePlan], devices: u32) -> Placement {
        let devices: Vec<Device> = (0..devices).map(|device| Device::new(7, device, "h")).collect();
        let wanted: Vec<WantedGroup> = wanted_groups(parts, &facts()).expect("known pipelines");
        place_replicas(before, &wanted, &devices).placement
    }

    fn change(before: &[PipelinePlan], after: &[PipelinePlan], devices: u32) -> FleetChange {
        let old = placed(&Placement::default(), before, devices);
        let new = placed(&old, after, devices);
        let with = |parts, placement| DeployedPlans { parts, placement };
        change_between(with(before, &old), with(after, &new), &facts())
    }

    #[test]
    fn the_same_plan_changes_nothing() {
        let parts = [part("p", 2, 0.5)];
        let change = change(&parts, &parts, 3);
        assert!(change.replicas.iter().all(|r| r.fate == ReplicaFate::Kept) && change.replicas.len() == 2);
        let task = &change.tasks[0];
        assert_eq!((task.kept, task.loaded, task.unloaded, task.load_s, task.short_s), (2, 0, 0, 0.0, Some(0.0)));
        assert_eq!(task.capacity_before_qps, task.capacity_after_qps);
    }

    #[test]
    fn capacity_is_short_while_added_replicas_load() {
        let change = change(&[part("p", 1, 0.5)], &[part("p", 3, 0.9)], 3);
        let task = &change.tasks[0];
        assert_eq!((task.kept, task.loaded, task.unloaded), (1, 2, 0));
        assert_eq!((task.capacity_meanwhile_qps, task.capacity_after_qps), (Some(100.0), Some(300.0)));
        assert_eq!((task.planned_qps, task.load_s, task.short_s), (Some(270.0), 3.0, Some(3.0)));
    }

    #[test]
    fn capacity_suffices_while_a_spare_replica_loads() {
        let task = &change(&[part("p", 1, 0.5)], &[part("p", 2, 0.4)], 3).tasks[0];
        assert_eq!((task.planned_qps, task.load_s, task.short_s), (Some(80.0), 3.0, Some(0.0)));
    }

    #[test]
    fn a_replica_without_room_beside_it_leaves_first() {
        // Two devices: the second replica of p makes room for q, and no device can hold both at once.
        let change = change(&[part("p", 2, 0.5)], &[part("p", 1, 0.9), part("q", 1, 0.2)], 2);
        let of = |name: &str| change.tasks.iter().find(|t| t.pipeline == name).expect("the pipeline is there");
        assert_eq!((of("p").kept, of("p").unloaded, of("p").capacity_meanwhile_qps), (1, 1, Some(100.0)));
        assert_eq!((of("q").loaded, of("q").capacity_meanwhile_qps, of("q").short_s), (1, Some(0.0), Some(3.0)));
    }

    #[test]
    fn a_pipeline_without_facts_has_unknown_capacity() {
        let parts = [part("p", 1, 0.5)];
        let placement = placed(&Placement::default(), &parts, 1);
        let nothing = Placement::default();
        let before = DeployedPlans { parts: &[], placement: &nothing };
        let change = change_between(before, DeployedPlans { parts: &parts, placement: &placement }, &BTreeMap::new());
        let task = &change.tasks[0];
        assert_eq!((task.loaded, task.capacity_after_qps, task.short_s), (1, None, None));
        assert_eq!(task.capacity_before_qps, Some(0.0), "no replica was there");
    }
}
