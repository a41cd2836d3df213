//! Files survive reading and writing: problems into the domain, plans out of it and back, profiles into pipelines.

use apportion_domain::{
    Alternative, AlternativeKind, Assignment, BackupEntry, Binding, Change, CheckRound, Consequence, Constraint, Decision,
    Estimate, Explanation, Flow, GroupName, JudgedOn, JudgedPipeline, JudgedVerdict, LadderStep, ObjectiveStep,
    ObjectiveValue, PipelinePlan, Plan, PlanOutcome, PlanningReport, Price, Problem, Relaxation, Routing, RoutingEntry,
    RoutingTable, ScalingAction, ScalingOutcome, ScalingPlan, SecondsOf, ServingPolicy, Share, Shortfall, StopReason,
    TaskIndex,
};
use apportion_needs::{Need, counted};
use apportion_wire::{
    AnyPlan, PlanFile, ProblemFile, read_any_plan, read_pipeline_spec, read_plan, read_plan_for, read_problem,
    read_profile_set, read_scaling_plan_for,
};
use serde_json::{Value, json};
use std::path::PathBuf;

const PROBLEM: &str = r#"
version: 1
objective: {mode: hardware_then_accuracy, latency_rule: path, budget_per_hour: null}
hardware:
  - {name: gpu, price_per_hour: 0.9, count: 20, memory_mib: 11264}
  - {name: cpu}
pipelines:
  - name: traffic
    demand_qps: 560
    slo_ms: 250
    path_accuracy: {"detect:x>classify:y": 0.5}
    leaf_weights: {classify: 2.0}
    serving: {dropping: none}
    tasks:
      - name: detect
        variants:
          - name: x
            accuracy: 1.0
            fanout: 18.9
            fanout_counts: {classify: {0: 0.25, 12: 0.75}}
            profile:
              - {hardware: gpu, batch: 2, latency_ms: 60.2}
              - {hardware: gpu, batch: 1, latency_ms: 35.1, p99_ms: 35.9, share: 0.5}
      - name: classify
        variants: [{name: y, accuracy: 0.8, profile: [{hardware: cpu, batch: 1, latency_ms: 5}]}]
    edges:
      - {from: detect, to: classify, ratio: 0.94, map: {image: crops}}
deployed:
  - {pipeline: traffic, task: detect, variant: x, hardware: gpu, share: 0.5, batch: 1, replicas: 4}
switching: {weight: 0.5}
"#;

fn problem() -> Problem {
    match read_problem("p.yaml", PROBLEM).expect("valid") {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("an allocation"),
    }
}

#[test]
fn a_problem_file_becomes_the_problem_with_its_defaults() {
    let p = problem();
    assert_eq!((p.hardware[1].price_per_hour, p.hardware[1].count), (1.0, None));
    let pipeline = &p.pipelines[0];
    assert_eq!((pipeline.percentile, pipeline.queue_factor, pipeline.network_ms, pipeline.survive), (99.0, 2.0, 0.0, 0));
    assert_eq!(pipeline.leaf_weight(TaskIndex(1)), 1.0);
    assert!(pipeline.edges[0].primary);
    assert_eq!(pipeline.edges[0].map["image"], "crops");
    assert_eq!(pipeline.fanout(&pipeline.edges[0], apportion_domain::VariantIndex(0)), 9.0);
    assert_eq!(pipeline.path_accuracy.len(), 1);
    let rows: Vec<_> = pipeline.tasks[0].variants[0].profile.rows().iter().map(|r| (r.share.value(), r.batch)).collect();
    assert_eq!(rows, [(1.0, 2), (0.5, 1)]);
    assert_eq!((p.deployed.len(), p.deployed[0].replicas, p.switching_weight), (1, 4, 0.5));
}

#[test]
fn hops_grow_with_the_sizes_of_a_file() {
    let keys = "slo_ms: 250\n    network_ms: 0.5\n    ingress_ms: 1.5\n    ingress_kib_per_query: 6144\n";
    let sized = PROBLEM.replace("slo_ms: 250\n", keys).replace("ratio: 0.94,", "ratio: 0.94, kib_per_query: 256,");
    let timed = sized.replace("ingress_ms: 1.5\n", "ingress_ms: 1.5\n    network_ms_per_mib: 8\n");
    let [plain, sized, timed] = [PROBLEM, &sized, &timed].map(|text| match read_problem("p.yaml", text).expect("valid") {
        ProblemFile::Allocation(problem) => problem.pipelines[0].clone(),
        ProblemFile::Scaling(_) => panic!("an allocation"),
    });
    let hops = |of: &apportion_domain::Pipeline| [0, 1].map(|t| of.hop_ms(TaskIndex(t)));
    assert_eq!([hops(&plain), hops(&sized), hops(&timed)], [[0.0, 0.0], [2.0, 0.5], [50.0, 2.5]]);
    // a query that is sent again does not pass the ingress again
    assert_eq!([0, 1].map(|t| timed.transfer_ms(TaskIndex(t))), [48.5, 2.5]);
    assert_eq!([0, 1].map(|t| timed.hop_charge_ms(TaskIndex(t), 5.0)), [60.0, 12.5]);
}

fn group(task: &str, variant: &str, hardware: &str, share: f64) -> GroupName {
    GroupName {
        task: task.into(),
        variant: variant.into(),
        hardware: hardware.into(),
        share: Share::new(share).expect("a share"),
    }
}

fn plan() -> Plan {
    let (detect, classify) = (group("detect", "x", "gpu", 0.5), group("classify", "y", "cpu", 1.0));
    let assignment = |group: &GroupName| Assignment {
        group: group.clone(),
        batch: 4,
        replicas: 3,
        traffic_share: 1.0,
        latency_budget_ms: 70.2,
        utilisation: 0.75,
    };
    let table = |from: Option<&GroupName>, to: &GroupName| RoutingTable {
        from: from.cloned(),
        to_task: to.task.clone(),
        entries: vec![RoutingEntry { to: to.clone(), fraction: 1.0 }],
    };
    let pipeline = PipelinePlan {
        name: "traffic".into(),
        demand_qps: 560.0,
        accuracy: 0.5,
        serving: ServingPolicy::default(),
        assignments: vec![assignment(&detect), assignment(&classify)],
        flows: vec![Flow { path: vec![detect.clone(), classify.clone()], share: 1.0 }],
        routing: Routing {
            tables: vec![table(None, &detect), table(Some(&detect), &classify)],
            backup: vec![BackupEntry { group: classify.clone(), capacity_qps: 12.5 }],
        },
        ladder: vec![
            LadderStep { rate_qps: 644.0, replicas: vec![8, 9] },
            LadderStep { rate_qps: 740.6, replicas: vec![8, 11] },
        ],
    };
    Plan { pipelines: vec![pipeline], cost_per_hour: 4.8 }
}

fn report(objective: ObjectiveValue) -> PlanningReport {
    let judged_on = JudgedOn {
        verdict: JudgedVerdict::Misses,
        samples: 8,
        first_seed: 1 << 51,
        pipelines: vec![JudgedPipeline { pipeline: "traffic".into(), attainment_high: 0.97, ..JudgedPipeline::default() }],
        ..JudgedOn::default()
    };
    let round = CheckRound {
        round: 1,
        headroom: vec![("traffic/detect".into(), 1.1)],
        charge_ms: vec![("traffic/detect".into(), 3.0)],
        objective,
        replicas: 6,
        attainment: 0.9,
        p99_ms: f64::NAN,
        judged_on: Some(judged_on.clone()),
    };
    PlanningReport {
        planner: "milp".into(),
        objective,
        seconds: 0.5,
        seconds_of: SecondsOf { search: 0.25, replay: 0.125, shortfalls: 0.0, explanation: 0.125, ladder: 0.0 },
        rounds: vec![round],
        explanation: explanation(),
        estimate: Some(Estimate {
            seed: 1,
            requests: 10,
            ok: 9,
            late: 1,
            attainment: 0.9,
            judged_on: Some(judged_on),
            ..Estimate::default()
        }),
        warnings: vec!["pipeline traffic: network_ms is 0".into()],
    }
}

fn explanation() -> Explanation {
    let binding = Binding { constraint: Constraint::Capacity, place: "gpu".into(), used: 4.0, limit: 4.0 };
    let change = Change { replicas: -1, cost_per_hour: -0.9, accuracy: -0.02 };
    let alternative = |kind, to: &str, consequence| Alternative { kind, to: to.into(), consequence };
    let decision = Decision {
        what: "traffic/detect/x/gpu".into(),
        why: "the most accurate variant".into(),
        binding: vec![binding.clone()],
        alternatives: vec![
            alternative(AlternativeKind::Batch, "8", Consequence::MissesSlo { by_ms: 14.0 }),
            alternative(AlternativeKind::Variant, "z", Consequence::Plan(change)),
        ],
    };
    let price = Price {
        place: "gpu".into(),
        unit: "1 device".into(),
        change: Relaxation { pointer: "/hardware/0/count".into(), from: 4.0, to: 5.0 },
        gain: Some(0.01),
        buys: Change { replicas: 1, cost_per_hour: 0.9, accuracy: 0.01 },
    };
    let left_out = vec!["2 alternatives and prices that take a search each: time was up".into()];
    Explanation { decisions: vec![decision], binding: vec![binding], shortfalls: vec![], prices: vec![price], left_out }
}

#[test]
fn a_plan_is_printed_with_every_key_and_read_again() {
    let objective = ObjectiveValue { step: Some(ObjectiveStep::Hardware), value: Some(6.0), bound: Some(6.0) };
    let outcome = PlanOutcome::Feasible { plan: plan(), stopped: StopReason::TimeLimit };
    let text = PlanFile::from_outcome(&problem(), &outcome, &report(objective)).to_json();
    assert_eq!(read_plan("plan.json", &text).expect("our own file"), plan());
    let tree: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(tree["objective"]["gap"], json!(0.0));
    assert_eq!((&tree["status"], &tree["planner"]["stopped"]), (&json!("feasible"), &json!("time_limit")));
    assert_eq!(tree["replicas"], json!(6));
    let path = &tree["pipelines"][0]["flows"][0]["path"];
    assert_eq!(*path, json!([["detect", "x", "gpu", 0.5], ["classify", "y", "cpu"]]));
    assert_eq!(tree["pipelines"][0]["routing"]["tables"][0]["from"], Value::Null);
    assert_eq!(tree["pipelines"][0]["routing"]["tables"][1]["from"]["share"], json!(0.5));
    assert_eq!(tree["planner"]["rounds"][0]["p99_ms"], Value::Null);
    assert_eq!(tree["planner"]["rounds"][0]["headroom"], json!({"traffic/detect": 1.1}));
    assert_eq!(tree.get("scaling"), None);
    let alternatives = &tree["explanation"]["decisions"][0]["alternatives"];
    assert_eq!(
        (&alternatives[0]["change"], &alternatives[0]["effect"]),
        (&Value::Null, &json!("misses the SLO by 14.0 ms"))
    );
    let effect = json!("-1 replica, -0.90 per hour, -0.0200 accuracy");
    assert_eq!((&alternatives[1]["change"]["replicas"], &alternatives[1]["effect"]), (&json!(-1), &effect));
    assert_eq!(tree["explanation"]["prices"][0]["buys"]["accuracy"], json!(0.01));
    let again: PlanFile = serde_json::from_str(&text).expect("the same types read it");
    assert_eq!(again.to_json(), text);
}

#[test]
fn an_infeasible_outcome_is_printed_with_its_shortfalls() {
    let relax = Some(Relaxation { pointer: "/pipelines/0/slo_ms".into(), from: 10.0, to: 80.4 });
    let shortfall = Shortfall { constraint: Constraint::Latency, place: "traffic".into(), asked: 10.0, best: 80.4, relax };
    let outcome = PlanOutcome::Infeasible { shortfalls: vec![shortfall] };
    let objective = ObjectiveValue { step: None, value: None, bound: None };
    let text = PlanFile::from_outcome(&problem(), &outcome, &report(objective)).to_json();
    let tree: Value = serde_json::from_str(&text).expect("json");
    assert_eq!((&tree["status"], &tree["pipelines"]), (&json!("infeasible"), &json!([])));
    assert!(tree["objective"]["value"].is_null() && tree["cost_per_hour"].is_null());
    let found = &tree["explanation"]["shortfalls"][0];
    assert_eq!((&found["where"], &found["relax"]["to"]), (&json!("traffic"), &json!(80.4)));
    let refused = read_plan("plan.json", &text).expect_err("there is no plan").to_string();
    assert!(refused.starts_with("plan.json: /status: \"infeasible\""), "{refused}");
}

#[test]
fn a_plan_written_by_hand_needs_only_its_assignments() {
    let text = "version: 1\npipelines:\n  - name: p\n    assignments:\n      - {task: a, variant: v, hardware: h, batch: 2, replicas: 3}\n";
    let plan = read_plan("plan.yaml", text).expect("short form");
    let p = &plan.pipelines[0];
    assert_eq!((p.assignments[0].group.share, p.assignments[0].replicas), (Share::WHOLE, 3));
    assert_eq!(p.serving, ServingPolicy::default());
    assert!(p.flows.is_empty() && p.routing.tables.is_empty());
    let text = "version: 1\npipelines:\n  - name: traffic\n    assignments:\n      - {task: detect, variant: x, hardware: gpu, batch: 2, replicas: 3}\n";
    let plan = read_plan_for(&problem(), "plan.yaml", text).expect("short form");
    assert!((plan.cost_per_hour - 2.7).abs() < 1e-12, "{}", plan.cost_per_hour);
    assert_eq!(plan.pipelines[0].demand_qps, 560.0);
}

#[test]
fn broken_ladders_are_refused_with_their_place() {
    let part = |ladder: &str| {
        let assignment = "{task: a, variant: v, hardware: h, batch: 2, replicas: 3}";
        format!("version: 1\npipelines:\n  - {{name: p, assignments: [{assignment}], ladder: [{ladder}]}}\n")
    };
    let step = "{rate_qps: 10, replicas: [3]}";
    let read =
        read_plan("p.yaml", &part(&format!("{{rate_qps: 6, replicas: [1]}}, {step}, {{rate_qps: 12, replicas: [4]}}")))
            .expect("valid");
    let counts: Vec<_> = read.pipelines[0].ladder.iter().map(|s| s.replicas[0]).collect();
    assert_eq!(counts, [1, 3, 4]);
    for (wrong, expected) in [
        (format!("{step}, {step}"), "/pipelines/0/ladder/1/rate_qps: 10: expected a rate above 10"),
        ("{rate_qps: 10, replicas: []}".into(), "/pipelines/0/ladder/0/replicas: a list of 0: expected 1 counts"),
        ("{rate_qps: 10, replicas: [0]}".into(), "/pipelines/0/ladder/0/replicas/0: 0: expected at least 1 replica of"),
        ("{rate_qps: 10, counts: [3]}".into(), "/pipelines/0/ladder/0"),
    ] {
        let refused = read_plan("p.yaml", &part(&wrong)).expect_err("not a ladder").to_string();
        assert!(refused.contains(expected), "{wrong}: {refused}");
    }
}

#[test]
fn measurements_complete_a_registered_pipeline() {
    let spec = read_pipeline_spec(
        "p.yaml",
        "name: p\nslo_ms: 100\ntasks:\n  - {name: a, variants: [{name: v, model_digest: aa}]}\n  - {name: b, variants: [{name: w, accuracy: 0.5, profile: [{hardware: h, batch: 1, latency_ms: 9}]}]}\nedges: [{from: a, to: b}]\n",
    )
    .expect("valid");
    let measured = json!({
        "rows": [
            {"task": "a", "variant": "v", "hardware": "h", "batch": 1, "latency_ms": 2.0, "p99_ms": 2.5},
            {"task": "a", "variant": "v", "hardware": "other", "batch": 1, "latency_ms": 1.0},
        ],
        "variants": [{"task": "a", "variant": "v", "accuracy": 0.75, "load_ms": 5.0, "fanout_counts": {"b": {"0": 0.5, "10": 0.5}}}],
        "path_accuracy": {"a:v>b:w": 0.25},
        "tasks": [{"name": "a", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "outputs": []}],
    });
    let profiles = read_profile_set("m.json", &measured.to_string()).expect("valid");
    let text = serde_json::to_string(&profiles).expect("json");
    assert_eq!(read_profile_set("m.json", &text).expect("our own"), profiles);
    let merged = spec.with_profiles(&profiles);
    assert_eq!(merged.tasks[0].inputs.as_ref().map(Vec::len), Some(1));
    let only_h = [apportion_domain::Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
    let pipeline = spec.planned_on(&profiles, &only_h, "").expect("complete");
    let v = &pipeline.tasks[0].variants[0];
    assert_eq!((v.accuracy, v.load_ms, v.profile.rows().len()), (0.75, 5.0, 1));
    assert_eq!(v.fanout_counts[&TaskIndex(1)].mean(), 5.0);
    assert_eq!(pipeline.demand_qps, 0.0);
    let path = pipeline.path_accuracy.first().expect("the table").accuracy;
    assert_eq!(path, 0.25);
    let missing = spec.planned_on(&Default::default(), &only_h, "").expect_err("not measured").to_string();
    assert!(missing.starts_with("/tasks/0/variants/0/accuracy: missing"), "{missing}");
}

#[test]
fn latencies_by_shape_reach_the_domain() {
    let text = "name: p\nslo_ms: 100\ntasks: [{name: a, variants: [{name: v, accuracy: 1}]}]\n";
    let spec = read_pipeline_spec("p.yaml", text).expect("valid");
    let measured = |latency_ms: f64| {
        let shape =
            |tokens: u32, share: f64, ms: f64| json!({"shape": {"ids": [tokens]}, "share": share, "latency_ms": ms});
        let by_shape = [shape(512, 0.25, 40.0), shape(128, 0.75, 10.0)];
        let row = json!({"task": "a", "variant": "v", "hardware": "h", "batch": 1, "latency_ms": latency_ms,
            "measured": {"by_shape": by_shape}});
        read_profile_set("m.json", &json!({"rows": [row]}).to_string()).expect("valid")
    };
    let profiles = measured(17.5);
    let written = serde_json::to_string(&profiles).expect("json");
    assert_eq!(read_profile_set("m.json", &written).expect("our own"), profiles);
    let mut kept = profiles.clone();
    kept.merge(profiles.clone());
    assert_eq!(kept, profiles);
    let only_h = [apportion_domain::Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
    let pipeline = spec.planned_on(&profiles, &only_h, "").expect("complete");
    let row = &pipeline.tasks[0].variants[0].profile.rows()[0];
    let shapes: Vec<(f64, f64)> = row.by_shape.iter().map(|shape| (shape.share, shape.median * row.latency_ms)).collect();
    assert_eq!((row.latency_ms, row.p99_ms, shapes.len()), (17.5, Some(40.0), 2));
    for ((share, ms), expected) in shapes.into_iter().zip([(0.75, 10.0), (0.25, 40.0)]) {
        assert!(share == expected.0 && (ms - expected.1).abs() < 1e-9, "{share} and {ms} ms, expected {expected:?}");
    }
    // The median of the batches is 10 ms, and the row says it: too little for a device.
    let refused = spec.planned_on(&measured(10.0), &only_h, "").expect_err("a contradiction").to_string();
    assert!(refused.starts_with("/tasks/0/variants/0/profile/0/latency_ms: 10: expected 17.500000"), "{refused}");
}

#[test]
fn the_digits_example_is_a_valid_pipeline() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/pipeline.yaml");
    let text = std::fs::read_to_string(path).expect("the example is in the repository");
    let spec = read_pipeline_spec("pipeline.yaml", &text).expect("valid");
    assert_eq!(spec.validation.expect("labels").matching.value.as_deref(), Some("label"));
}

#[test]
fn every_sample_problem_is_read() {
    let Some(folder) = apportion_needs::data() else { return };
    let entries = std::fs::read_dir(folder.join("problems")).expect("a folder that can be read");
    let paths = entries.map(|entry| entry.expect("a folder that can be read").path());
    let problems: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    for path in counted(Need::Data, problems) {
        let text = std::fs::read_to_string(&path).expect("a file that can be read");
        read_problem(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn the_plan_of_a_scaling_problem_lists_every_variant() {
    let text = r#"{"version": 1, "scaling": {"lambda": 0.1, "resources": {"cpu": 4}, "applications": [
        {"name": "a", "load_qps": 10, "slo_ms": 100, "variants": [
            {"name": "v", "saturation_qps": 5, "latency_ms": 20, "cost_per_s": 1, "resources": {"cpu": 1}, "running": 3},
            {"name": "w", "saturation_qps": 9, "latency_ms": 20, "cost_per_s": 1}]}]}}"#;
    let ProblemFile::Scaling(problem) = read_problem("s.json", text).expect("valid") else { panic!("a scaling problem") };
    assert_eq!((problem.applications[0].variants[0].running, problem.applications[0].slack_qps), (3, 0.0));
    let report = PlanningReport {
        planner: "milp".into(),
        objective: ObjectiveValue { step: None, value: Some(-1.0), bound: Some(-1.0) },
        seconds: 0.1,
        seconds_of: SecondsOf::default(),
        rounds: vec![],
        explanation: Explanation::default(),
        estimate: None,
        warnings: vec![],
    };
    let action =
        |variant: &str, running, delta| ScalingAction { application: "a".into(), variant: variant.into(), running, delta };
    let plan = ScalingPlan { actions: vec![action("v", 2, -1), action("w", 0, 0)], value: -1.0 };
    let file = PlanFile::from_scaling(&problem, &ScalingOutcome::Optimal(plan.clone()), &report).to_json();
    assert_eq!(read_any_plan("p.json", &file), Ok(AnyPlan::Scaling(plan.clone())));
    let bare = r#"{"version": 1, "scaling": [{"application": "a", "variant": "v", "running": 2, "delta": -1},
        {"application": "a", "variant": "w", "running": 0, "delta": 0}]}"#;
    assert_eq!(read_scaling_plan_for(&problem, "p.json", bare), Ok(plan), "the value follows from the actions");
    let twice = bare.replace("\"w\"", "\"v\"");
    let found = read_any_plan("p.json", &twice).expect_err("twice").to_string();
    assert_eq!(found, "p.json: /scaling/1: a/v: expected each variant once");
    let infeasible = bare.replace("\"version\": 1", "\"version\": 1, \"status\": \"infeasible\"");
    assert!(read_any_plan("p.json", &infeasible).expect_err("no plan").to_string().contains("/status: \"infeasible\""));
    let tree: Value = serde_json::from_str(&file).expect("json");
    assert_eq!((&tree["objective"]["mode"], &tree["objective"]["value"]), (&json!("scaling"), &json!(-1.0)));
    assert_eq!((&tree["replicas"], &tree["cost_per_hour"]), (&json!(2), &json!(7200.0)));
    assert_eq!(
        tree["scaling"],
        json!([{"application": "a", "variant": "v", "running": 2, "delta": -1},
               {"application": "a", "variant": "w", "running": 0, "delta": 0}])
    );
    let wrong = text.replace(r#""resources": {"cpu": 1}"#, r#""resources": {"cpus": 1}"#).replace("10,", "-10,");
    let found = read_problem("s.json", &wrong).expect_err("two errors").to_string();
    assert!(found.contains("/scaling/applications/0/load_qps: -10: expected a number of at least 0"), "{found}");
    assert!(
        found.contains("/variants/0/resources/cpus: unknown resource \"cpus\": expected the resource \"cpu\""),
        "{found}"
    );
}
