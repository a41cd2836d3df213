//! Which message does every agent receive for a target?
//!
//! The message is composed of the plans, the facts about their pipelines, and the placement.

use super::child_counts::fanout;
use super::combinations::combinations;
use super::offers::numbered_offers;
use super::placement::{GroupKey, PlacedGroup, Placement, Spread, WantedGroup};
use super::target_hops::hops_ns;
use super::target_ladder::{ladder_target, missed_share_max};
use super::target_tables::tables;
use super::tensors::{TaskTensors, edge_target, provider_target, runtime_target, task_target};
use apportion_domain::{
    Assignment, Fence, GroupName, Hardware, HardwareIndex, Partial, Pipeline, PipelinePlan, RoutingPolicy, Task, TaskKind,
    TimeSpan, Variant, VariantExecution, VariantRuntime,
};
use apportion_protocol::v1;
use apportion_serving::most_accurate_first;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The facts about a pipeline that a target needs beyond its plan.
#[derive(Clone, Debug)]
pub struct PipelineFacts {
    /// Its graph and profiles.
    pub pipeline: Pipeline,
    /// The hardware types of its profiles.
    pub hardware: Vec<Hardware>,
    /// The tensors of each task, in the pipeline's order.
    pub tensors: Vec<TaskTensors>,
    /// SHA-256 of the model file by (task, variant).
    pub digests: BTreeMap<(String, String), String>,
    /// What runs the file, by (task, variant).
    pub runtimes: BTreeMap<(String, String), VariantRuntime>,
    /// What variants ask of their execution, by (task, variant).
    pub executions: BTreeMap<(String, String), VariantExecution>,
    /// Time of a batch beside neighbours over its time alone, of the shares for which it was measured.
    pub interference: BTreeMap<GroupName, f64>,
    /// Whether variants are loaded for requests.
    pub loads_on_demand: bool,
    /// Whether the misses move the headroom of its ladder: its plan names none.
    pub has_feedback: bool,
}

/// Why plans and pipelines do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// The pipeline is not registered.
    #[error("pipeline {0} is not registered")]
    Pipeline(String),
    /// The plan names a task, a variant or a profile that the pipeline does not have.
    #[error("pipeline {pipeline} has no {what}")]
    Unknown {
        /// The pipeline.
        pipeline: String,
        /// The missing thing.
        what: String,
    },
    /// Two plans have the same pipeline.
    #[error("pipeline {0} is in more than one of the plans")]
    Twice(String),
}

fn unknown(pipeline: &str, what: String) -> ComposeError {
    ComposeError::Unknown { pipeline: pipeline.to_string(), what }
}

/// The groups that these plans want, in the plans' order.
///
/// # Errors
/// If the pipeline of a plan is unknown, or two plans have the same pipeline.
pub fn wanted_groups(
    plans: &[PipelinePlan],
    facts: &BTreeMap<String, PipelineFacts>,
) -> Result<Vec<WantedGroup>, ComposeError> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for plan in plans {
        if !seen.insert(plan.name.as_str()) {
            return Err(ComposeError::Twice(plan.name.clone()));
        }
        let known = facts.get(&plan.name).ok_or_else(|| ComposeError::Pipeline(plan.name.clone()))?;
        let spread = if known.pipeline.survive > 0 { Spread::Even } else { Spread::New };
        let want = |a: &Assignment| WantedGroup { key: group_key(plan, known, &a.group), replicas: a.replicas, spread };
        all.extend(plan.assignments.iter().map(want));
    }
    Ok(all)
}

fn group_key(plan: &PipelinePlan, facts: &PipelineFacts, group: &GroupName) -> GroupKey {
    let digest = facts.digests.get(&(group.task.clone(), group.variant.clone())).cloned().unwrap_or_default();
    GroupKey { pipeline: plan.name.clone(), group: group.clone(), digest }
}

/// Composes the message.
///
/// # Errors
/// If a plan names a task, variant or profile that its pipeline does not have.
pub fn compose(
    fence: Fence,
    agents: Vec<v1::Peer>,
    plans: &[PipelinePlan],
    facts: &BTreeMap<String, PipelineFacts>,
    placement: &Placement,
) -> Result<v1::Target, ComposeError> {
    let part = |plan: &PipelinePlan| {
        let known = facts.get(&plan.name).ok_or_else(|| ComposeError::Pipeline(plan.name.clone()))?;
        pipeline_target(plan, known, placement)
    };
    let pipelines = plans.iter().map(part).collect::<Result<_, _>>()?;
    Ok(v1::Target { fence: Some(fence.into()), agents, pipelines, ..Default::default() })
}

fn pipeline_target(
    plan: &PipelinePlan,
    facts: &PipelineFacts,
    placement: &Placement,
) -> Result<v1::PipelineTarget, ComposeError> {
    let pipeline = &facts.pipeline;
    let plan = &*with_tables(plan, facts)?;
    let ids: BTreeMap<GroupKey, u64> = placement
        .groups
        .iter()
        .filter(|g| g.pipeline == plan.name)
        .filter_map(|g: &PlacedGroup| Some((g.key()?, g.id)))
        .collect();
    let id = |group: &GroupName| ids.get(&group_key(plan, facts, group)).copied();
    let groups = plan.assignments.iter().filter_map(|a| Some((a, id(&a.group)?)));
    let mut groups: Vec<_> = groups.map(|(a, id)| group_target(plan, facts, a, id)).collect::<Result<_, _>>()?;
    let planned = groups.len();
    for offer in numbered_offers(pipeline, &facts.hardware, placement) {
        let group = group_target(plan, facts, &offer.assignment, offer.id)?;
        groups.push(v1::GroupTarget { offered: true, ..group });
    }
    let replicas: Vec<_> = placement
        .replicas
        .iter()
        .filter(|r| groups.iter().any(|g| g.group == r.group))
        .map(|r| v1::ReplicaTarget { replica: r.id, group: r.group, agent: r.agent, device: r.device })
        .collect();
    let with_replicas: BTreeSet<u64> = replicas.iter().map(|r| r.group).collect();
    Ok(v1::PipelineTarget {
        name: plan.name.clone(),
        slo_ns: TimeSpan::from_millis(pipeline.slo_ms).as_nanos(),
        network_ns: TimeSpan::from_millis(pipeline.network_ms).as_nanos(),
        serving: Some(serving_target(plan)),
        tasks: pipeline.tasks.iter().zip(&facts.tensors).map(|(task, tensors)| task_target(task, tensors)).collect(),
        root: pipeline.root().0 as u32,
        edges: pipeline.edges.iter().map(|edge| edge_target(edge, pipeline, &facts.tensors)).collect(),
        tables: tables(plan, pipeline, &|g| id(g).filter(|i| with_replicas.contains(i))),
        backup: plan.routing.backup.iter().filter(|b| b.capacity_qps > 0.0).filter_map(|b| id(&b.group)).collect(),
        partial: pipeline.partial == Partial::Allow,
        queue_factor: pipeline.queue_factor,
        demand_qps: plan.demand_qps,
        choices: combinations(pipeline, &groups, &with_replicas),
        ladder: ladder_target(plan, groups.len() - planned, |a| id(&a.group).is_some()),
        loads_on_demand: facts.loads_on_demand,
        hops_ns: hops_ns(pipeline),
        missed_share_max: missed_share_max(plan, facts.has_feedback.then_some(pipeline.percentile)),
        groups,
        replicas,
    })
}

fn serving_target(plan: &PipelinePlan) -> v1::Serving {
    v1::Serving {
        queueing: plan.serving.queueing.name().into(),
        batching: plan.serving.batching.name().into(),
        routing: plan.serving.routing.name().into(),
        dropping: plan.serving.dropping.name().into(),
    }
}

/// The plan with the tables that the estimator adds, too. A plan without tables gets those of `most_accurate_first` if it
/// asks for that routing, and the backup table if its dropping policy reroutes queries.
fn with_tables<'p>(plan: &'p PipelinePlan, facts: &PipelineFacts) -> Result<Cow<'p, PipelinePlan>, ComposeError> {
    let asks = plan.serving.routing == RoutingPolicy::MostAccurateFirst;
    let needs_backup = plan.serving.dropping.reroutes() && plan.routing.backup.is_empty();
    if !plan.routing.tables.is_empty() || !(asks || needs_backup) {
        return Ok(Cow::Borrowed(plan));
    }
    let routing = most_accurate_first(&facts.pipeline, &facts.hardware, &plan.assignments, plan.demand_qps);
    let mut routing = routing.map_err(|e| unknown(&plan.name, e.to_string()))?;
    if !asks {
        routing.tables.clear();
    }
    Ok(Cow::Owned(PipelinePlan { routing, ..plan.clone() }))
}

fn group_target(
    plan: &PipelinePlan,
    facts: &PipelineFacts,
    a: &Assignment,
    id: u64,
) -> Result<v1::GroupTarget, ComposeError> {
    let (pipeline, group) = (&facts.pipeline, &a.group);
    let task = pipeline.task_named(&group.task).ok_or_else(|| unknown(&plan.name, format!("task {}", group.task)))?;
    let variant = pipeline.task(task).variants.iter().find(|v| v.name == group.variant);
    let variant =
        variant.ok_or_else(|| unknown(&plan.name, format!("variant {} of task {}", group.variant, group.task)))?;
    let hardware = facts.hardware.iter().position(|h| h.name == group.hardware).map(HardwareIndex);
    let rows = hardware.map(|h| variant.profile.on(h, group.share)).unwrap_or_default();
    if rows.is_empty() {
        return Err(unknown(&plan.name, format!("profile of {group}")));
    }
    let place = (group.task.clone(), group.variant.clone());
    let runtime = facts.runtimes.get(&place).copied();
    let asked = facts.executions.get(&place).copied().unwrap_or_default();
    let point = |r: &apportion_domain::ProfileRow| v1::ServicePoint {
        batch: r.batch,
        latency_ns: TimeSpan::from_millis(r.latency_ms).as_nanos(),
        p99_ns: TimeSpan::from_millis(r.p99_ms.unwrap_or(r.latency_ms)).as_nanos(),
    };
    Ok(v1::GroupTarget {
        group: id,
        task: task.0 as u32,
        variant: group.variant.clone(),
        hardware: group.hardware.clone(),
        share: group.share.value(),
        batch: a.batch,
        accuracy: variant.accuracy,
        file_digest: group_key(plan, facts, group).digest,
        service: rows.iter().map(point).collect(),
        memory_mib: variant.memory_mib.unwrap_or(0.0),
        device_memory_mib: hardware.and_then(|h| facts.hardware[h.0].memory_mib).unwrap_or(0.0),
        price_per_hour: hardware.map_or(0.0, |h| facts.hardware[h.0].price_per_hour * group.share.value()),
        fanout: pipeline.children(task).map(|edge| fanout(pipeline.task(task).route, edge, variant)).collect(),
        offered: false,
        load_ns: TimeSpan::from_millis(variant.load_ms).as_nanos(),
        runtime: runtime_target(runtime.unwrap_or_default()),
        threads: asked.threads.unwrap_or(0),
        provider: provider_target(asked.provider),
        slot_p99_ns: slot_p99_ns(pipeline.task(task), variant, hardware, a),
        interference: facts.interference.get(group).copied().unwrap_or(0.0),
    })
}

/// The 99th percentile of a query's time in a slot of a continuous task; 0 where queries run in batches.
fn slot_p99_ns(task: &Task, variant: &Variant, hardware: Option<HardwareIndex>, a: &Assignment) -> u64 {
    let is_continuous = task.kind == TaskKind::Continuous;
    let p99 = hardware.filter(|_| is_continuous).and_then(|h| variant.profile.service_p99(h, a.group.share, a.batch));
    p99.map_or(0, TimeSpan::as_nanos)
}

#[cfg(test)]
mod tests {
    use super::super::placement::{Device, PlacementOutcome, place_replicas};
    use super::*;
    use apportion_domain::{
        Dropping, Edge, Generation, LadderStep, PipelineDraft, Profile, ProfileRow, Provider, Route, Routing, RoutingEntry,
        RoutingTable, ServingPolicy, Share, TaskIndex,
    };

    fn variant(name: &str, latency_ms: f64) -> Variant {
        let row = |batch: u32| ProfileRow {
            p99_ms: (batch == 1).then_some(3.0 * latency_ms),
            ..ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, batch, latency_ms * f64::from(batch))
        };
        Variant {
            name: name.into(),
            accuracy: 0.9,
            fanout: 2.0,
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: 0.0,
            memory_mib: None,
            profile: Profile::new(vec![row(1), row(4)]),
        }
    }

    fn facts() -> PipelineFacts {
        let task = |name: &str, variants: Vec<Variant>| Task {
            name: name.into(),
            kind: TaskKind::Batch,
            route: Route::All,
            min_replicas: 1,
            variants,
        };
        let hardware = vec![Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
        let draft = PipelineDraft {
            name: "p".into(),
            demand_qps: 10.0,
            slo_ms: 250.0,
            network_ms: 0.5,
            tasks: vec![
                task("find", vec![variant("f", 10.0)]),
                task("read", vec![variant("slow", 8.0), variant("fast", 2.0)]),
            ],
            edges: vec![Edge {
                from: TaskIndex(0),
                to: TaskIndex(1),
                ratio: 1.0,
                primary: true,
                kib_per_query: 0.0,
                map: [("image".to_string(), "crops".to_string())].into(),
            }],
            ..PipelineDraft::default()
        };
        let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
        let digests = [(("find".to_string(), "f".to_string()), "ab".repeat(32))].into();
        let tensors = vec![TaskTensors::default(); 2];
        let runtimes = [(("read".to_string(), "slow".to_string()), VariantRuntime::Python)].into();
        let asked = VariantExecution { threads: Some(2), provider: Some(Provider::Cpu) };
        let executions = [(("read".to_string(), "fast".to_string()), asked)].into();
        let interference = [(group("read", "slow"), 1.5)].into();
        PipelineFacts {
            pipeline,
            hardware,
            tensors,
            digests,
            runtimes,
            executions,
            interference,
            loads_on_demand: false,
            has_feedback: false,
        }
    }

    fn group(task: &str, variant: &str) -> GroupName {
        GroupName { task: task.into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE }
    }

    fn plan() -> PipelinePlan {
        let assignment = |task: &str, variant: &str, traffic_share| Assignment {
            group: group(task, variant),
            batch: 4,
            replicas: 1,
            traffic_share,
            latency_budget_ms: 0.0,
            utilisation: 0.0,
        };
        PipelinePlan {
            name: "p".into(),
            demand_qps: 10.0,
            accuracy: 0.81,
            serving: ServingPolicy::default(),
            assignments: vec![
                assignment("find", "f", 1.0),
                assignment("read", "slow", 0.25),
                assignment("read", "fast", 0.75),
            ],
            flows: vec![],
            routing: Routing::default(),
            ladder: vec![],
        }
    }

    fn composed(plan: &PipelinePlan, devices: u32) -> v1::PipelineTarget {
        let facts: BTreeMap<_, _> = [("p".to_string(), facts())].into();
        let devices: Vec<_> = (0..devices).map(|device| Device::new(7, device, "h")).collect();
        let wanted = wanted_groups(std::slice::from_ref(plan), &facts).expect("a known pipeline");
        let PlacementOutcome { placement, .. } = place_replicas(&Placement::default(), &wanted, &devices);
        let fence = Fence { incarnation: 5, generation: Generation(2) };
        let target = compose(fence, vec![], std::slice::from_ref(plan), &facts, &placement).expect("a target");
        assert_eq!(target.fence, Some(v1::Fence { incarnation: 5, generation: 2 }));
        target.pipelines.into_iter().next().expect("one pipeline")
    }

    fn fractions(target: &v1::PipelineTarget, table: usize) -> Vec<(String, f64)> {
        let name = |id| target.groups.iter().find(|g| g.group == id).expect("a group of the target").variant.clone();
        target.tables[table].entries.iter().map(|e| (name(e.group), e.fraction)).collect()
    }

    #[test]
    fn tables_follow_traffic_shares_by_default() {
        let target = composed(&plan(), 3);
        assert_eq!(target.slo_ns, 250_000_000);
        assert_eq!(target.groups[0].file_digest, "ab".repeat(32));
        let runtimes: Vec<_> = target.groups.iter().map(|g| (g.variant.as_str(), g.runtime.as_str())).collect();
        assert_eq!(runtimes, [("f", ""), ("slow", "python"), ("fast", "")]);
        let asked: Vec<_> = target.groups.iter().map(|g| (g.threads, g.provider.as_str())).collect();
        assert_eq!(asked, [(0, ""), (0, ""), (2, "cpu")]);
        assert_eq!(target.groups.iter().map(|g| g.interference).collect::<Vec<_>>(), [0.0, 1.5, 0.0]);
        assert_eq!(
            target.groups[0].service,
            [(1, 10, 30), (4, 40, 40)].map(|(batch, ms, p99_ms)| v1::ServicePoint {
                batch,
                latency_ns: ms * 1_000_000,
                p99_ns: p99_ms * 1_000_000
            })
        );
        assert_eq!(target.edges[0].map["image"], "crops");
        assert_eq!((target.tables[0].from, target.tables[0].to_task), (None, 0));
        assert_eq!(fractions(&target, 1), [("slow".to_string(), 0.25), ("fast".to_string(), 0.75)]);
        assert_eq!(target.tables[1].from, Some(target.groups[0].group));
    }

    #[test]
    fn requests_choose_among_combinations_of_groups_with_replicas() {
        let target = composed(&plan(), 3);
        let [f, slow, fast] = ["f", "slow", "fast"]
            .map(|v| target.groups.iter().find(|g| g.variant == v).map(|g| g.group).expect("a group of the target"));
        let seen: Vec<_> = target.choices.iter().map(|c| c.groups.clone()).collect();
        assert_eq!(seen, [vec![f, slow], vec![f, fast]]);
        assert!(target.choices.iter().all(|c| (c.accuracy - 0.81).abs() < 1e-9), "the product of 0.9 and 0.9");
        assert!(target.groups.iter().all(|g| g.price_per_hour == 1.0));
        assert_eq!(composed(&plan(), 2).choices.len(), 1, "a group without replicas is no choice");
        assert_eq!(composed(&plan(), 0).choices, []);
    }

    #[test]
    fn offered_groups_are_choices_without_traffic_or_steps() {
        let mut plan = plan();
        plan.assignments.truncate(2);
        plan.ladder = vec![LadderStep { rate_qps: 10.0, replicas: vec![1, 1] }];
        let offering = PipelineFacts { loads_on_demand: true, has_feedback: true, ..facts() };
        let facts: BTreeMap<_, _> = [("p".to_string(), offering)].into();
        let wanted = wanted_groups(std::slice::from_ref(&plan), &facts).expect("a known pipeline");
        let devices: Vec<_> = (0..2).map(|device| Device::new(7, device, "h")).collect();
        let PlacementOutcome { mut placement, .. } = place_replicas(&Placement::default(), &wanted, &devices);
        let fast = GroupKey { pipeline: "p".into(), group: group("read", "fast"), digest: String::new() };
        placement.offered.push(super::super::placement::placed_group(99, &fast));
        let plans = std::slice::from_ref(&plan);
        let target = compose(Fence::default(), vec![], plans, &facts, &placement).expect("a target").pipelines.remove(0);
        let offer = target.groups.iter().find(|g| g.offered).expect("one group is offered");
        assert_eq!((offer.group, offer.variant.as_str(), offer.batch, target.loads_on_demand), (99, "fast", 4, true));
        assert!(target.choices.iter().any(|c| c.groups.contains(&99)), "{:?}", target.choices);
        assert!(target.tables.iter().all(|t| t.entries.iter().all(|e| e.group != 99)), "no traffic of the plan");
        assert_eq!(target.ladder[0].replicas, [1, 1, 0]);
        assert!((target.missed_share_max - 0.01).abs() < 1e-12, "99 % are promised where nothing is said");
    }

    #[test]
    fn tables_of_the_plan_have_precedence() {
        let mut plan = plan();
        let entries = [("slow", 0.4), ("fast", 0.6)].map(|(v, fraction)| RoutingEntry { to: group("read", v), fraction });
        plan.routing.tables.push(RoutingTable {
            from: Some(group("find", "f")),
            to_task: "read".into(),
            entries: entries.into(),
        });
        assert_eq!(fractions(&composed(&plan, 3), 1), [("slow".to_string(), 0.4), ("fast".to_string(), 0.6)]);
    }

    #[test]
    fn a_group_without_replicas_gets_no_traffic() {
        let target = composed(&plan(), 2);
        assert_eq!(target.replicas.len(), 2);
        assert_eq!(fractions(&target, 1), [("slow".to_string(), 1.0)]);
    }

    #[test]
    fn unknown_names_are_named_in_errors() {
        let facts: BTreeMap<_, _> = [("p".to_string(), facts())].into();
        let mut plan = plan();
        plan.assignments[0].group.variant = "gone".into();
        let wanted_list = wanted_groups(std::slice::from_ref(&plan), &facts).expect("only names are looked at");
        let devices: Vec<_> = (0..3).map(|device| Device::new(1, device, "h")).collect();
        let PlacementOutcome { placement, .. } = place_replicas(&Placement::default(), &wanted_list, &devices);
        let error = compose(Fence::default(), vec![], std::slice::from_ref(&plan), &facts, &placement)
            .expect_err("no such variant");
        assert_eq!(error.to_string(), "pipeline p has no variant gone of task find");
        let twice = [plan.clone(), plan];
        assert_eq!(wanted_groups(&twice, &facts), Err(ComposeError::Twice("p".into())));
    }

    #[test]
    fn policies_and_joins_are_those_of_the_plan() {
        let mut plan = plan();
        plan.serving.dropping = Dropping::Reroute;
        plan.assignments[1].replicas = 9;
        let target = composed(&plan, 11);
        // At 10 queries a second of which 2 children each, the slow group serves all and the fast one has capacity to
        // spare.
        let name = |id: &u64| target.groups.iter().find(|g| g.group == *id).expect("a group").variant.as_str();
        assert_eq!(target.backup.iter().map(name).collect::<BTreeSet<_>>(), ["f", "slow", "fast"].into());
        assert_eq!((target.partial, target.queue_factor), (false, 2.0));
        assert!(!target.edges[0].delays && !target.tasks[0].one_of);
        let counts = &target.groups[0].fanout[0];
        assert_eq!((counts.to_task, &counts.counts), (1, &vec![v1::FanoutCount { children: 2, probability: 1.0 }]));
        let halves = fanout(
            Route::All,
            &Edge { ratio: 0.75, map: BTreeMap::new(), ..facts().pipeline.edges[0].clone() },
            &variant("f", 1.0),
        );
        let half = |children| v1::FanoutCount { children, probability: 0.5 };
        assert_eq!(halves.counts, [half(1), half(2)]);
    }

    #[test]
    fn only_slots_have_a_percentile() {
        let row = ProfileRow { p99_ms: Some(30.0), ..ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, 4, 10.0) };
        let of = Variant { profile: Profile::new(vec![row]), ..variant("f", 10.0) };
        let assignment = plan().assignments.remove(0);
        let p99_ns = |kind| {
            let task = Task { kind, ..facts().pipeline.tasks[0].clone() };
            slot_p99_ns(&task, &of, Some(HardwareIndex(0)), &assignment)
        };
        assert_eq!([TaskKind::Continuous, TaskKind::Batch].map(p99_ns), [30_000_000, 0]);
    }
}
