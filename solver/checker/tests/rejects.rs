//! One plan that the checker accepts, and for every rule a change of it that it must reject.

use apportion_checker::{check, rules};
use apportion_domain::{
    AccuracyModel, Assignment, DeviceQuota, Edge, FanoutCounts, Flow, GroupName, Hardware, HardwareIndex, LatencyRule,
    Mode, Objective, Partial, PathAccuracy, Pipeline, PipelineDraft, PipelineIndex, PipelinePlan, Plan, Problem,
    ProblemDraft, Profile, ProfileRow, Route, Routing, ServingPolicy, ServingWishes, Share, Task, TaskIndex, TaskKind,
    Variant, VariantIndex,
};
use std::collections::BTreeMap;

fn variant(name: &str, accuracy: f64, fanout: f64, latency_ms: f64) -> Variant {
    let row = |batch: u32, latency_ms: f64| ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, batch, latency_ms);
    Variant {
        name: name.into(),
        accuracy,
        fanout,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: Some(1000.0),
        profile: Profile::new(vec![row(1, latency_ms), row(2, 1.5 * latency_ms)]),
    }
}

fn task(name: &str, variants: Vec<Variant>) -> Task {
    Task { name: name.into(), kind: TaskKind::Batch, route: Route::All, min_replicas: 1, variants }
}

/// A root `a` with children `b` and `c`; at `a`, variant `blind` makes no queries at `b`.
fn draft() -> PipelineDraft {
    let edge = |to: usize| Edge::between(TaskIndex(0), TaskIndex(to));
    let mut blind = variant("blind", 0.5, 1.0, 5.0);
    blind.fanout_to.insert(TaskIndex(1), 0.0);
    PipelineDraft {
        name: "p".into(),
        demand_qps: 100.0,
        slo_ms: 100.0,
        percentile: 99.0,
        queue_factor: 2.0,
        network_ms: 1.0,
        weight: 1.0,
        min_accuracy: Some(0.5),
        accuracy_model: AccuracyModel::Product,
        path_accuracy: vec![],
        leaf_weights: BTreeMap::new(),
        survive: 0,
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks: vec![
            task("a", vec![variant("slow", 1.0, 2.0, 20.0), variant("fast", 0.8, 1.0, 10.0), blind]),
            task("b", vec![variant("b1", 0.9, 1.0, 10.0)]),
            task("c", vec![variant("c1", 1.0, 1.0, 10.0), variant("c2", 0.7, 1.0, 5.0)]),
        ],
        edges: vec![edge(1), edge(2)],
        ..PipelineDraft::default()
    }
}

fn problem_of(draft: PipelineDraft, change: impl FnOnce(&mut ProblemDraft)) -> Problem {
    let hardware = vec![Hardware { name: "gpu".into(), price_per_hour: 2.0, count: Some(10), memory_mib: Some(8000.0) }];
    let pipelines = vec![Pipeline::new(draft, &hardware, "").expect("a valid pipeline")];
    let objective = Objective { mode: Mode::MinCost, latency_rule: LatencyRule::TaskBudget, budget_per_hour: Some(20.0) };
    let mut problem = ProblemDraft { objective, hardware, pipelines, ..ProblemDraft::default() };
    change(&mut problem);
    Problem::new(problem).expect("a valid problem")
}

fn problem() -> Problem {
    problem_of(draft(), |_| {})
}

fn group(task: &str, variant: &str) -> GroupName {
    GroupName { task: task.into(), variant: variant.into(), hardware: "gpu".into(), share: Share::WHOLE }
}

fn flow(path: &[(&str, &str)], share: f64) -> Flow {
    Flow { path: path.iter().map(|&(t, v)| group(t, v)).collect(), share }
}

/// Half of the traffic through each of `slow` and `fast`: loads 50 and 50 at `a`, 150 at `b`, 150 at `c`.
fn plan() -> Plan {
    let assignment =
        |task: &str, variant: &str, batch: u32, replicas: u32, share: f64, budget: f64, used: f64| Assignment {
            group: group(task, variant),
            batch,
            replicas,
            traffic_share: share,
            latency_budget_ms: budget,
            utilisation: used,
        };
    let part = PipelinePlan {
        name: "p".into(),
        demand_qps: 100.0,
        accuracy: 0.5 * (0.9 * (0.5 + 0.4)) + 0.5 * (0.5 + 0.4),
        serving: ServingPolicy::default(),
        assignments: vec![
            assignment("a", "slow", 1, 1, 0.5, 41.0, 1.0),
            assignment("a", "fast", 1, 1, 0.5, 21.0, 0.5),
            assignment("b", "b1", 2, 2, 1.0, 31.0, 0.5625),
            assignment("c", "c1", 1, 2, 1.0, 21.0, 0.75),
        ],
        flows: vec![
            flow(&[("a", "slow"), ("b", "b1")], 0.5),
            flow(&[("a", "fast"), ("b", "b1")], 0.5),
            flow(&[("a", "slow"), ("c", "c1")], 0.5),
            flow(&[("a", "fast"), ("c", "c1")], 0.5),
        ],
        routing: Routing::default(),
        ladder: vec![],
    };
    Plan { pipelines: vec![part], cost_per_hour: 12.0 }
}

/// The plan without its claims and without flows.
fn bare() -> Plan {
    let mut plan = plan();
    plan.cost_per_hour = 0.0;
    let part = &mut plan.pipelines[0];
    part.accuracy = 0.0;
    part.flows.clear();
    for a in &mut part.assignments {
        (a.traffic_share, a.latency_budget_ms, a.utilisation) = (0.0, 0.0, 0.0);
    }
    plan
}

#[track_caller]
fn rejects(rule: &str, problem: &Problem, plan: &Plan) {
    let findings = check(problem, plan);
    assert!(findings.iter().any(|f| f.rule == rule), "{rule} was not found in {findings:?}");
    assert!(findings.iter().all(|f| !f.place.is_empty() && !f.evidence.is_empty()));
}

#[test]
fn accepts_a_good_plan() {
    assert_eq!(check(&problem(), &plan()), []);
}

#[test]
fn accepts_a_plan_without_claims_and_flows() {
    // in proportion to capacity 50 and 100 at `a`: 66.7 at the fast variant, 33.3 at the slow one
    assert_eq!(check(&problem(), &bare()), []);
}

#[test]
fn accepts_a_path_that_ends_where_no_queries_are_made() {
    let mut plan = bare();
    let part = &mut plan.pipelines[0];
    part.assignments.retain(|a| a.group.task == "c");
    part.assignments.insert(0, Assignment { group: group("a", "blind"), replicas: 1, ..plan_group(0) });
    part.flows = vec![flow(&[("a", "blind")], 1.0), flow(&[("a", "blind"), ("c", "c1")], 1.0)];
    // (0.5 for the sink that is never reached, 0.5 for the other) / 2
    part.accuracy = 0.5;
    let problem = problem_of(draft_with(|d| d.tasks[1].min_replicas = 0), |_| {});
    assert_eq!(check(&problem, &plan), []);
}

fn plan_group(i: usize) -> Assignment {
    bare().pipelines[0].assignments[i].clone()
}

fn draft_with(change: impl FnOnce(&mut PipelineDraft)) -> PipelineDraft {
    let mut draft = draft();
    change(&mut draft);
    draft
}

#[test]
fn rejects_each_broken_plan_by_its_rule() {
    type Break = fn(&mut Plan);
    let broken: Vec<(&str, Break)> = vec![
        (rules::UNKNOWN_PIPELINE, |p| p.pipelines[0].name = "q".into()),
        (rules::MISSING_PIPELINE, |p| p.pipelines.clear()),
        (rules::DUPLICATE_PIPELINE, |p| p.pipelines.push(p.pipelines[0].clone())),
        (rules::UNKNOWN_TASK, |p| p.pipelines[0].assignments[0].group.task = "z".into()),
        (rules::UNKNOWN_VARIANT, |p| p.pipelines[0].assignments[0].group.variant = "z".into()),
        (rules::UNKNOWN_HARDWARE, |p| p.pipelines[0].assignments[0].group.hardware = "z".into()),
        (rules::DUPLICATE_GROUP, |p| p.pipelines[0].assignments.push(plan_group(0))),
        (rules::BATCH, |p| p.pipelines[0].assignments[0].batch = 3),
        (rules::REPLICAS, |p| p.pipelines[0].assignments[1].replicas = 0),
        (rules::CAPACITY, |p| p.pipelines[0].assignments[3].replicas = 1),
        (rules::DEVICES, |p| p.pipelines[0].assignments[2].replicas = 9),
        (rules::BUDGET, |p| p.pipelines[0].assignments[2].replicas = 8),
        (rules::FLOW_SHARES, |p| p.pipelines[0].flows[0].share = 0.4),
        (rules::FLOW_PREFIX, |p| {
            p.pipelines[0].flows[0].share = 0.4;
            p.pipelines[0].flows[1].share = 0.6;
        }),
        (rules::FLOW_PATH, |p| p.pipelines[0].flows[0].path[1].variant = "z".into()),
        (rules::FLOW_PATH, |p| p.pipelines[0].flows[0].path.truncate(1)),
        (rules::FLOW_PATH, |p| p.pipelines[0].flows[0].share = f64::NAN),
        (rules::CLAIMED_ACCURACY, |p| p.pipelines[0].accuracy = 0.9),
        (rules::CLAIMED_COST, |p| p.cost_per_hour = 10.0),
        (rules::CLAIMED_TRAFFIC, |p| p.pipelines[0].assignments[0].traffic_share = 0.6),
        (rules::CLAIMED_LATENCY, |p| p.pipelines[0].assignments[0].latency_budget_ms = 40.0),
        (rules::CLAIMED_UTILISATION, |p| p.pipelines[0].assignments[0].utilisation = 0.9),
    ];
    for (rule, breaking) in broken {
        let mut plan = plan();
        breaking(&mut plan);
        rejects(rule, &problem(), &plan);
    }
}

#[test]
fn rejects_a_good_plan_under_each_stricter_problem() {
    type Stricter = fn(&mut PipelineDraft);
    let stricter: Vec<(&str, Stricter)> = vec![
        (rules::MIN_REPLICAS, |d| d.tasks[1].min_replicas = 3),
        (rules::MEMORY, |d| d.tasks[1].variants[0].memory_mib = Some(9000.0)),
        (rules::ACCURACY, |d| d.min_accuracy = Some(0.9)),
        (rules::CAPACITY, |d| d.survive = 1),
        (rules::CAPACITY, |d| d.demand_qps = 101.0),
        (rules::LATENCY, |d| d.slo_ms = 71.0),
    ];
    for (rule, change) in stricter {
        rejects(rule, &problem_of(draft_with(change), |_| {}), &plan());
    }
}

#[test]
fn rejects_a_good_plan_over_a_quota() {
    let of = |change: fn(&mut DeviceQuota)| {
        let unlimited =
            DeviceQuota { name: "team".into(), pipelines: vec![], counts: vec![None], devices: None, cost_per_hour: None };
        let mut quota = DeviceQuota { pipelines: vec![PipelineIndex(0)], ..unlimited };
        change(&mut quota);
        problem_of(draft(), |p| p.quotas.push(quota))
    };
    // six devices of price 2
    type Change = fn(&mut DeviceQuota);
    let kept: [Change; 4] = [|_| {}, |q| q.counts[0] = Some(6), |q| q.devices = Some(6), |q| q.cost_per_hour = Some(12.0)];
    kept.into_iter().for_each(|change| assert_eq!(check(&of(change), &plan()), []));
    assert_eq!(check(&of(|q| (q.counts[0], q.pipelines) = (Some(0), vec![])), &plan()), [], "a quota of others");
    let broken: [Change; 3] = [|q| q.counts[0] = Some(5), |q| q.devices = Some(5), |q| q.cost_per_hour = Some(11.0)];
    broken.into_iter().for_each(|change| rejects(rules::QUOTA, &of(change), &plan()));
}

#[test]
fn rejects_a_task_with_queries_and_no_group() {
    let mut plan = bare();
    plan.pipelines[0].assignments.remove(2);
    rejects(rules::MISSING_TASK, &problem_of(draft_with(|d| d.tasks[1].min_replicas = 0), |_| {}), &plan);
}

#[test]
fn rejects_a_slow_path_with_traffic_under_rule_path() {
    let path =
        |slo_ms: f64| problem_of(draft_with(|d| d.slo_ms = slo_ms), |p| p.objective.latency_rule = LatencyRule::Path);
    assert_eq!(check(&path(72.0), &plan()), []);
    rejects(rules::LATENCY, &path(71.0), &plan());
    let mut fast_only = bare();
    fast_only.pipelines[0].assignments[1].replicas = 2;
    let all = [flow(&[("a", "fast"), ("b", "b1")], 1.0), flow(&[("a", "fast"), ("c", "c1")], 1.0)];
    fast_only.pipelines[0].flows = all.to_vec();
    assert_eq!(check(&path(52.0), &fast_only), []);
    rejects(rules::LATENCY, &problem_of(draft_with(|d| d.slo_ms = 52.0), |_| {}), &fast_only);
}

#[test]
fn fractions_of_devices_are_summed_before_they_are_rounded() {
    let half = Share::new(0.5).expect("a share");
    let halve = |d: &mut PipelineDraft| {
        let profile = &mut d.tasks[2].variants[0].profile;
        let row = ProfileRow { share: half, ..profile.rows()[0].clone() };
        *profile = Profile::new(profile.rows().iter().cloned().chain([row]).collect());
    };
    let mut plan = bare();
    let c = &mut plan.pipelines[0].assignments[3];
    (c.group.share, c.replicas) = (half, 3);
    plan.cost_per_hour = 12.0;
    assert_eq!(check(&problem_of(draft_with(halve), |_| {}), &plan), []);
    plan.cost_per_hour = 11.0;
    rejects(rules::CLAIMED_COST, &problem_of(draft_with(halve), |_| {}), &plan);
}

/// `c` waits for `b` as well, over an edge that makes no queries.
fn join() -> PipelineDraft {
    let late = Edge { primary: false, ..Edge::between(TaskIndex(1), TaskIndex(2)) };
    draft_with(|d| d.edges.push(late))
}

#[test]
fn delaying_edges_count_for_task_budgets_only() {
    let at = |slo_ms: f64, rule| {
        let mut draft = join();
        draft.slo_ms = slo_ms;
        problem_of(draft, |p| p.objective.latency_rule = rule)
    };
    // a 41, b 31, c 21: c waits for b
    assert_eq!(check(&at(93.0, LatencyRule::TaskBudget), &plan()), []);
    rejects(rules::LATENCY, &at(92.0, LatencyRule::TaskBudget), &plan());
    assert_eq!(check(&at(72.0, LatencyRule::Path), &plan()), []);
    rejects(rules::LATENCY, &at(71.0, LatencyRule::Path), &plan());
}

#[test]
fn sizes_and_the_ingress_count_under_both_rules() {
    let at = |slo_ms: f64, rule| {
        let mut draft = join();
        (draft.slo_ms, draft.network_ms_per_mib) = (slo_ms, 8.0);
        (draft.ingress_ms, draft.ingress_kib_per_query) = (2.0, 256.0);
        (draft.edges[0].kib_per_query, draft.edges[2].kib_per_query) = (128.0, 512.0);
        problem_of(draft, |p| p.objective.latency_rule = rule)
    };
    let mut flowing = bare();
    flowing.pipelines[0].flows = plan().pipelines[0].flows.clone();
    // a 41 + 2 + 2, b 31 + 1, c 21 + 4: of the edges into c the one that brings the most counts
    for plan in [bare(), flowing] {
        assert_eq!(check(&at(102.0, LatencyRule::TaskBudget), &plan), []);
        rejects(rules::LATENCY, &at(101.0, LatencyRule::TaskBudget), &plan);
        assert_eq!(check(&at(77.0, LatencyRule::Path), &plan), []);
        rejects(rules::LATENCY, &at(76.0, LatencyRule::Path), &plan);
    }
    // the claims are those of hops without sizes
    rejects(rules::CLAIMED_LATENCY, &at(102.0, LatencyRule::TaskBudget), &plan());
}

#[test]
fn an_edge_that_only_delays_carries_no_flow() {
    let mut broken = plan();
    broken.pipelines[0].flows[2] = flow(&[("a", "slow"), ("b", "b1"), ("c", "c1")], 0.5);
    rejects(rules::FLOW_PATH, &problem_of(join(), |_| {}), &broken);
}

#[test]
fn one_of_halves_the_load_of_each_child() {
    let routed = |ratio: f64| {
        draft_with(|d| {
            d.tasks[0].route = Route::OneOf;
            (d.edges[0].ratio, d.edges[1].ratio) = (ratio, 1.0 - ratio);
        })
    };
    // 150 queries made per second: with three quarters at `c` (112.5) the two replicas of 100 still do
    let mut unclaimed = bare();
    unclaimed.pipelines[0].flows = plan().pipelines[0].flows.clone();
    assert_eq!(check(&problem_of(routed(0.25), |_| {}), &unclaimed), []);
    unclaimed.pipelines[0].assignments[3].replicas = 1;
    assert_eq!(check(&problem_of(routed(0.5), |_| {}), &unclaimed), []);
    rejects(rules::CAPACITY, &problem_of(routed(0.25), |_| {}), &unclaimed);
}

#[test]
fn accuracy_models_tables_and_weights_have_their_sums() {
    type Change = fn(&mut PipelineDraft);
    // shares of a half: slow 1 and fast 0.8 at `a`, 0.9 at `b`, 1 at `c`
    let models: Vec<(f64, Change)> = vec![
        (0.5 * (0.5 * 0.95 + 0.5 * 0.85) + 0.5 * (0.5 * 1.0 + 0.5 * 0.9), |d| d.accuracy_model = AccuracyModel::Mean),
        ((0.9 + 0.9 + 1.0) / 3.0, |d| d.accuracy_model = AccuracyModel::TaskMean),
        (0.9 * 0.9, |d| d.leaf_weights = BTreeMap::from([(TaskIndex(1), 5.0), (TaskIndex(2), 0.0)])),
        (0.5 * (0.5 * 0.6 + 0.5 * 0.72) + 0.5 * (0.5 * 1.0 + 0.5 * 0.8), |d| {
            let path = vec![(TaskIndex(0), VariantIndex(0)), (TaskIndex(1), VariantIndex(0))];
            d.path_accuracy = vec![PathAccuracy { path, accuracy: 0.6 }];
        }),
    ];
    for (accuracy, change) in models {
        let problem = problem_of(draft_with(change), |_| {});
        let mut claiming = plan();
        claiming.pipelines[0].accuracy = accuracy;
        assert_eq!(check(&problem, &claiming), []);
        claiming.pipelines[0].accuracy = accuracy - 1e-4;
        rejects(rules::CLAIMED_ACCURACY, &problem, &claiming);
    }
}

#[test]
fn a_mean_of_counts_replaces_the_fanout() {
    let counted = |most: u32| {
        draft_with(|d| {
            let counts = FanoutCounts(vec![(0, 0.5), (most, 0.5)]);
            d.tasks[0].variants.iter_mut().for_each(|v| drop(v.fanout_counts.insert(TaskIndex(2), counts.clone())));
        })
    };
    let mut unclaimed = bare();
    unclaimed.pipelines[0].flows = plan().pipelines[0].flows.clone();
    // 100 queries per second make 200 at a mean of 2, as many as the two replicas of `c` serve
    assert_eq!(check(&problem_of(counted(4), |_| {}), &unclaimed), []);
    rejects(rules::CAPACITY, &problem_of(counted(5), |_| {}), &unclaimed);
}

#[test]
fn a_loss_is_survived_by_each_group_on_its_own() {
    let survive = problem_of(draft_with(|d| d.survive = 1), |_| {});
    let mut spared = bare();
    spared.pipelines[0].flows = plan().pipelines[0].flows.clone();
    for a in &mut spared.pipelines[0].assignments {
        a.replicas += 1;
    }
    assert_eq!(check(&survive, &spared), []);
    spared.pipelines[0].assignments[0].replicas = 1;
    rejects(rules::CAPACITY, &survive, &spared);
}
