//! Replanning: a fleet appears, its load doubles and falls, an agent dies.

use crate::support::agent::{Agent, attach, register};
use crate::support::traffic::{Tenth, load};
use crate::support::{PATIENCE, Service, profiles, service, spec};
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

async fn with_mode(mode: &str) -> Service {
    let s = service().await;
    registered(&s, &json!({"mode": mode, "period_s": 2.0, "headroom": 1.2, "min_qps": 5.0}), &profiles()).await;
    s
}

async fn registered(s: &Service, replan: &Value, profiles: &Value) {
    let mut spec = spec();
    spec["replan"] = replan.clone();
    let (status, answer) = s.put("/v1/pipelines/digits", &spec).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", profiles).await.0, 200);
}

/// Three agents that have joined.
async fn three_agents(s: &Service) -> Vec<Agent> {
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let mut agent = attach(s, register(s, name)).await;
        agent.welcome().await;
        agents.push(agent);
    }
    agents
}

/// Waits until `check` accepts the demand of the plan in force.
async fn until_demand(s: &Service, check: impl Fn(f64) -> bool) -> (Value, u64) {
    let begin = Instant::now();
    loop {
        let target = s.get("/v1/target").await.1;
        let (demand, replicas) = in_force(s, &target).await;
        if check(demand) {
            return (target, replicas);
        }
        assert!(begin.elapsed() < PATIENCE, "the plan is still for {demand}: {:#}", s.get("/v1/decisions").await.1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Demand and replicas of the plan in force.
async fn in_force(s: &Service, target: &Value) -> (f64, u64) {
    let id = target["plans"][0].as_str().expect("a plan");
    let (_, plan) = s.get(&format!("/v1/plans/{id}")).await;
    (
        plan["problem"]["pipelines"][0]["demand_qps"].as_f64().expect("a demand"),
        plan["plan"]["replicas"].as_u64().expect("replicas"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_follows_the_load_and_the_fleet() {
    let s = with_mode("apply").await;
    let mut agents = three_agents(&s).await;
    let tenth = Arc::new(Tenth { offered: AtomicU32::new(2), ..Tenth::default() });
    let beats: Vec<_> = agents.iter().skip(1).map(Agent::report).collect();
    let traffic = load(&agents[0], tenth.clone());

    let first = s.until("/v1/target", |t| (t["generation"].as_i64()? > 0).then(|| t.clone())).await;
    let (_, before) = in_force(&s, &first).await;
    tenth.offered.store(8, Ordering::Relaxed);
    let risen = until_demand(&s, |demand| demand > 50.0).await;
    assert!(risen.1 > before, "{before} replicas became {}", risen.1);
    assert!(risen.0["reason"].as_str().is_some_and(|r| r.contains("digits")), "{}", risen.0);

    let (_, list) = s.get("/v1/agents").await;
    let number = list[2]["number"].as_u64().expect("a number");
    beats[1].abort();
    drop(agents.pop());
    s.until("/v1/target", |t| {
        let gone = t["placement"]["replicas"].as_array()?.iter().all(|r| r["agent"].as_u64() != Some(number));
        (gone && t["generation"].as_i64() > risen.0["generation"].as_i64()).then_some(())
    })
    .await;
    let why = |d: &Value| d["reason"].as_str().is_some_and(|r| r.starts_with("the fleet has changed"));
    s.until("/v1/decisions", |all| all.as_array()?.iter().any(why).then_some(())).await;

    tenth.offered.store(2, Ordering::Relaxed);
    until_demand(&s, |demand| demand < 40.0).await;
    traffic.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_requests_bring_a_larger_plan_and_an_event() {
    let s = with_mode("apply").await;
    let agents = three_agents(&s).await;
    let tenth = Arc::new(Tenth { offered: AtomicU32::new(3), ..Tenth::default() });
    let _beats: Vec<_> = agents.iter().skip(1).map(Agent::report).collect();
    let traffic = load(&agents[0], tenth.clone());
    let demand_of = |d: &Value| d["demand_qps"].as_f64().unwrap_or_default();
    let is_known = |d: &Value| (30.0..43.0).contains(&demand_of(d));
    s.until("/v1/decisions", |all| all.as_array()?.iter().any(is_known).then_some(())).await;
    // The load stays, and the estimator knows of nothing wrong: only the answers are late.
    tenth.late.store(2, Ordering::Relaxed);
    let reason_of = |d: &Value| d["reason"].as_str().unwrap_or_default().to_owned();
    let is_for_misses = |d: &Value| reason_of(d).starts_with("requests miss") && demand_of(d) > 45.0;
    let decision = s.until("/v1/decisions", |all| all.as_array()?.iter().find(|d| is_for_misses(d)).cloned()).await;
    assert!(!reason_of(&decision).contains("still holds"), "{decision:#}");
    let alert = s.until("/v1/events?kind=budget", |all| all.as_array()?.first().cloned()).await;
    assert_eq!(alert["pipeline"], "digits", "{alert:#}");
    assert!(["fast_burn", "spent"].contains(&alert["detail"]["alert"].as_str().unwrap_or_default()), "{alert:#}");
    assert!(alert["detail"]["left_ratio"].as_f64().is_some_and(|left| left < 1.0), "{alert:#}");
    let (_, metrics) = s.get("/metrics").await;
    let metrics = metrics.as_str().expect("a text");
    let rate = metrics.lines().find_map(|l| l.strip_prefix("apportion_error_budget_fast_burn_rate{pipeline=\"digits\"} "));
    assert!(rate.is_some_and(|rate| rate.parse::<f64>().is_ok_and(|rate| rate > 1.0)), "{metrics}");
    traffic.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_is_stored_and_nothing_is_deployed() {
    let s = with_mode("advisory").await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let _beat = agent.report();
    let advice = s.until("/v1/decisions", |all| all.as_array()?.first().cloned()).await;
    assert_eq!(advice["decision"], "advised", "{advice:#}");
    let plan = advice["plan"].as_str().expect("a plan");
    assert_eq!(s.get(&format!("/v1/plans/{plan}")).await.1["state"], "succeeded");
    assert_eq!(s.get("/v1/target").await.1["generation"], 0);
    s.running.stop().await;
}

/// The measurements, also on a hardware type that is four times as fast.
fn on_two_types() -> Value {
    let mut profiles = profiles();
    let rows = profiles["rows"].as_array_mut().expect("rows");
    let fast = rows.clone().into_iter().map(|mut row| {
        row["hardware"] = "fast".into();
        row["latency_ms"] = (row["latency_ms"].as_f64().expect("a time") / 4.0).into();
        row
    });
    rows.extend(fast.collect::<Vec<_>>());
    profiles
}

/// Hardware types of a plan's groups.
fn hardware_of(plan: &Value) -> Vec<&str> {
    let groups = plan["plan"]["pipelines"][0]["assignments"].as_array().expect("assignments");
    groups.iter().map(|group| group["hardware"].as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_cost_uses_cheaper_hardware() {
    let s = service().await;
    for (name, price) in [("demo", 1.0), ("fast", 10.0)] {
        assert_eq!(s.put(&format!("/v1/hardware/{name}"), &json!({"price_per_hour": price})).await.0, 201);
    }
    let mut agents = Vec::new();
    for (name, hardware) in [("a", "demo"), ("b", "fast")] {
        let devices = 8;
        let mut agent = attach(&s, v1::Register { hardware: hardware.into(), devices, ..register(&s, name) }).await;
        agent.welcome().await;
        agents.push(agent);
    }
    let _beats: Vec<_> = agents.iter().map(Agent::report).collect();
    // The advised plan for each objective; the second asks for a ladder.
    let mut advised = Vec::new();
    let least_cost = json!({"objective": {"mode": "min_cost"}, "ladder": 2.0, "ladder_headroom": 1.25});
    for settings in [json!({}), least_cost] {
        let mut replan = json!({"mode": "advisory", "period_s": 1.0, "min_qps": 60.0});
        replan.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        registered(&s, &replan, &on_two_types()).await;
        let asked = settings["objective"]["mode"].as_str().unwrap_or("hardware_then_accuracy");
        let (mut seen, begin) = (Vec::new(), Instant::now());
        let plan = loop {
            let (_, decisions) = s.get("/v1/decisions").await;
            assert!(begin.elapsed() < PATIENCE, "no plan for {asked}: {decisions:#}");
            let plans = decisions.as_array().expect("a list").iter().filter_map(|d| d["plan"].as_str());
            let new: Vec<String> = plans.filter(|id| !seen.contains(&(*id).to_owned())).map(str::to_owned).collect();
            let mut found = None;
            for id in new {
                let (_, plan) = s.get(&format!("/v1/plans/{id}")).await;
                let mode = plan["problem"]["objective"]["mode"].as_str().unwrap_or_default();
                found = found.or((mode == asked).then_some(plan));
                seen.push(id);
            }
            if let Some(plan) = found {
                break plan;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        advised.push(plan);
    }
    let cost = |plan: &Value| plan["plan"]["cost_per_hour"].as_f64().expect("a cost");
    assert!(hardware_of(&advised[0]).contains(&"fast"), "{:?}", hardware_of(&advised[0]));
    assert!(hardware_of(&advised[1]).iter().all(|h| *h == "demo"), "{:?}", hardware_of(&advised[1]));
    assert!(cost(&advised[1]) < cost(&advised[0]), "{} and {}", cost(&advised[1]), cost(&advised[0]));
    let part = |plan: &Value| plan["plan"]["pipelines"][0].clone();
    assert_eq!(part(&advised[0])["ladder"], Value::Null);
    let dropping = |plan: &Value| part(plan)["serving"]["dropping"].clone();
    assert_eq!([&advised[0], &advised[1]].map(dropping), ["naive", "pard"], "by default");
    let ladder = part(&advised[1])["ladder"].as_array().expect("a ladder").clone();
    // Twice the demand, divided by the ladder's headroom.
    let ends = ladder.last().and_then(|step| step["rate_qps"].as_f64()).expect("a rate");
    assert!(ladder.len() > 1 && ends <= 60.0 * 1.15 * 2.0 / 1.25, "{ends}");
    s.running.stop().await;
}

/// Puts a plan for this rate of queries per second in force.
async fn in_force_for(s: &Service, qps: f64, objective: &Value) -> f64 {
    let ask = json!({"pipelines": [{"name": "digits", "demand_qps": qps}], "objective": objective});
    let (status, plan) = s.post("/v1/plans", &ask).await;
    assert_eq!((status, plan["state"].as_str()), (200, Some("succeeded")), "{plan:#}");
    let generation = s.get("/v1/target").await.1["generation"].as_i64().expect("a generation");
    assert_eq!(s.put_target(generation, &json!([plan["id"]])).await.0, 200);
    plan["plan"]["cost_per_hour"].as_f64().expect("a cost")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_replaced_only_if_savings_exceed_the_change() {
    let s = service().await;
    let off = json!({"mode": "off"});
    registered(&s, &off, &profiles()).await;
    let mut agent = attach(&s, v1::Register { devices: 32, ..register(&s, "a") }).await;
    agent.welcome().await;
    let _beat = agent.report();
    let objective = json!({"mode": "min_cost"});
    let decided = |decision: &'static str| {
        move |all: &Value| {
            let of = |d: &&Value| d["decision"] == decision && d["costs"]["seconds"].as_u64().is_some_and(|s| s > 0);
            all.as_array()?.iter().find(of).cloned()
        }
    };
    let numbers = |decision: &Value| {
        ["in_force_per_hour", "new_per_hour", "change_per_hour"]
            .map(|name| decision["costs"][name].as_f64().expect("a number"))
    };

    // A little dearer than the plan of a round: the change would cost more.
    let dearer = in_force_for(&s, 1_100.0, &objective).await;
    let replan = json!({"mode": "apply", "period_s": 1.0, "headroom": 1.0, "min_qps": 900.0, "objective": objective});
    registered(&s, &replan, &profiles()).await;
    let kept = s.until("/v1/decisions", decided("kept")).await;
    let [in_force, new, change] = numbers(&kept);
    assert_eq!(in_force, dearer, "{kept:#}");
    assert!(new < in_force && in_force <= new + change, "{kept:#}");
    let reason = kept["reason"].as_str().expect("a reason");
    assert!(reason.contains(&format!("{new:.4} per hour")) && reason.contains(&format!("{in_force:.4}")), "{reason}");

    // More than twice as dear: it is replaced, and the decision has the costs.
    registered(&s, &off, &profiles()).await;
    let dear = in_force_for(&s, 2_500.0, &objective).await;
    registered(&s, &replan, &profiles()).await;
    let applied = s.until("/v1/decisions", decided("applied")).await;
    let [in_force, now, change] = numbers(&applied);
    assert_eq!((in_force, now), (dear, new), "{applied:#}");
    assert!(now + change < in_force, "{applied:#}");
    let plan = applied["plan"].as_str().expect("a plan").to_owned();
    let target = s.until("/v1/target", |t| (t["plans"][0] == plan.as_str()).then(|| t.clone())).await;
    assert!(target["reason"].as_str().is_some_and(|r| r.contains("digits")), "{target:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_the_ladder_serves_changes_no_plan() {
    let s = service().await;
    let objective = json!({"mode": "min_cost"});
    let replan =
        json!({"mode": "apply", "period_s": 1.0, "headroom": 1.0, "min_qps": 20.0, "ladder": 4.0, "objective": objective});
    registered(&s, &replan, &profiles()).await;
    let mut agent = attach(&s, v1::Register { devices: 8, ..register(&s, "a") }).await;
    agent.welcome().await;
    let tenth = Arc::new(Tenth { offered: AtomicU32::new(2), ..Tenth::default() });
    let traffic = load(&agent, tenth.clone());
    let first = s.until("/v1/target", |t| t["plans"][0].as_str().map(str::to_owned)).await;
    let (_, plan) = s.get(&format!("/v1/plans/{first}")).await;
    let ladder = plan["plan"]["pipelines"][0]["ladder"].as_array().expect("a ladder").clone();
    assert!(ladder.last().and_then(|step| step["rate_qps"].as_f64()).is_some_and(|ends| ends >= 80.0), "{ladder:?}");
    tenth.offered.store(6, Ordering::Relaxed);
    let risen = |all: &Value| {
        let of = |d: &&Value| d["costs"]["seconds"].as_u64() > Some(0) && d["demand_qps"].as_f64() > Some(50.0);
        all.as_array()?.iter().find(of).cloned()
    };
    let decision = s.until("/v1/decisions", risen).await;
    assert_eq!(decision["decision"], "kept", "{decision:#}");
    assert_eq!(s.get("/v1/target").await.1["plans"], json!([first]));
    traffic.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_objective_is_refused_by_name() {
    let s = service().await;
    let mut asked = spec();
    for (replan, pointer, said) in [
        (json!({"objective": {"mode": "cheapest"}}), "/replan/objective/mode", "min_cost"),
        (
            json!({"objective": {"mode": "max_accuracy", "budget_per_hour": -2.0}}),
            "/replan/objective/budget_per_hour",
            "-2",
        ),
        (
            json!({"objective": {"mode": "min_cost", "latency_rule": "tail"}}),
            "/replan/objective/latency_rule",
            "task_budget",
        ),
        (json!({"ladder_headroom": 1.5}), "/replan/ladder_headroom", "`ladder`"),
    ] {
        asked["replan"] = replan;
        let (status, refusal) = s.put("/v1/pipelines/digits", &asked).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{refusal:#}");
        assert!(refusal["errors"][0]["detail"].as_str().is_some_and(|d| d.contains(said)), "{refusal:#}");
    }
    s.running.stop().await;
}
