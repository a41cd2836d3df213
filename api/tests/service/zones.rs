//! Zones: agents say theirs, and plans with `survive` keep their promise when any one zone is lost.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, profiles, service, service_on_config, spec};
use apportion_api::SubstrateSettings;
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Agents with four devices each, named after their zones.
async fn join(s: &Service, zones: &[(&str, &str)]) -> Vec<Agent> {
    let mut agents = Vec::new();
    for (name, zone) in zones {
        let register = v1::Register { devices: 4, zone: (*zone).to_owned(), ..register(s, name) };
        let mut agent = attach(s, register).await;
        agent.welcome().await;
        agent.report();
        agents.push(agent);
    }
    agents
}

async fn registered(s: &Service, survive: u32) {
    let mut spec = spec();
    spec["survive"] = json!(survive);
    spec["replan"] = json!({"mode": "apply", "period_s": 1.0, "headroom": 1.0, "min_qps": 150.0});
    let (status, answer) = s.put("/v1/pipelines/digits", &spec).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
}

/// The reason of the last decision that deployed a plan, with this text in it.
async fn applied(s: &Service, text: &str) -> String {
    let reason = |all: &Value| {
        let of = |d: &&Value| d["decision"] == "applied" && d["reason"].as_str().is_some_and(|why| why.contains(text));
        Some(all.as_array()?.iter().find(of)?["reason"].as_str()?.to_owned())
    };
    s.until("/v1/decisions", reason).await
}

/// The zone of each agent, by its number.
async fn zones(s: &Service) -> BTreeMap<u64, String> {
    let (_, agents) = s.get("/v1/agents").await;
    let zone = |agent: &Value| Some((agent["number"].as_u64()?, agent["zone"].as_str()?.to_owned()));
    agents.as_array().expect("a list").iter().filter_map(zone).collect()
}

/// Replicas of each group outside each zone, beside the replicas that the group needs for its load.
async fn left_without(s: &Service, zone_of: &BTreeMap<u64, String>) -> Vec<(String, usize, usize)> {
    let (_, target) = s.get("/v1/target").await;
    let (_, plan) = s.get(&format!("/v1/plans/{}", target["plans"][0].as_str().expect("a plan"))).await;
    let survive = plan["problem"]["pipelines"][0]["survive"].as_u64().unwrap_or(0) as usize;
    let list = |name: &str| target["placement"][name].as_array().expect("a list").clone();
    let mut left = Vec::new();
    for group in list("groups") {
        let replicas: Vec<Value> = list("replicas").into_iter().filter(|r| r["group"] == group["id"]).collect();
        for zone in zone_of.values() {
            let stands = |r: &&Value| r["agent"].as_u64().and_then(|agent| zone_of.get(&agent)) != Some(zone);
            let outside = replicas.iter().filter(stands).count();
            left.push((format!("{} without {zone}", group["variant"]), outside, replicas.len() - survive));
        }
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_survives_the_loss_of_any_zone() {
    let s = service().await;
    let mut agents = join(&s, &[("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")]).await;
    registered(&s, 1).await;
    let why = applied(&s, "survives the loss of any one zone").await;
    assert!(!why.contains("does not"), "{why}");
    let zone_of = zones(&s).await;
    assert_eq!(zone_of.values().map(String::as_str).collect::<Vec<_>>(), ["a", "a", "b", "b"]);
    let two = left_without(&s, &zone_of).await;
    assert!(two.len() > 2, "{two:?}");
    for (what, left, needed) in &two {
        assert!(*needed > 0 && left >= needed, "{what}: {left} replicas, {needed} are needed");
    }
    // A third zone comes: fewer spare replicas do.
    agents.extend(join(&s, &[("c1", "c"), ("c2", "c")]).await);
    let generation = s.get("/v1/target").await.1["generation"].as_i64().expect("a generation");
    s.until("/v1/target", |t| (t["generation"].as_i64()? > generation).then_some(())).await;
    let zone_of = zones(&s).await;
    for (what, left, needed) in left_without(&s, &zone_of).await {
        assert!(left >= needed, "{what}: {left} replicas, {needed} are needed");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_known_zones_replicas_count() {
    let s = service().await;
    let _agents = join(&s, &[("a1", "a"), ("a2", ""), ("b1", "b")]).await;
    registered(&s, 1).await;
    let why = applied(&s, "").await;
    assert!(!why.contains("zone"), "{why}");
    let (_, target) = s.get("/v1/target").await;
    let (_, plan) = s.get(&format!("/v1/plans/{}", target["plans"][0].as_str().expect("a plan"))).await;
    assert_eq!(plan["problem"]["pipelines"][0]["survive"], 1);
    let (_, agents) = s.get("/v1/agents").await;
    assert_eq!((&agents[0]["zone"], &agents[1]["zone"]), (&json!("a"), &Value::Null));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_asked_for_in_zones_that_the_substrate_has() {
    let zones = json!({"a": {"constraint": "rack1"}, "b": {"partition": "far"}});
    let settings = json!({"slurm": {"commands": "/nonexistent", "hardware": {"demo": {"zones": zones}}}});
    let settings: SubstrateSettings = serde_json::from_value(settings).expect("settings");
    let s = service_on_config(|config| config.machines = Some(settings)).await;
    let with = |more: Value| {
        let mut document = json!({"price_per_hour": 1.0, "count_max": 4, "substrate": "slurm"});
        document.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        document
    };
    let whole = with(json!({"zones": ["a", "b"], "spot": {"hazard_per_hour": 0.25}}));
    assert_eq!(s.put("/v1/hardware/demo", &whole).await.0, 201);
    let (_, document) = s.get("/v1/hardware/demo").await;
    assert_eq!((&document["zones"], &document["spot"]), (&whole["zones"], &whole["spot"]));
    assert_eq!(s.put("/v1/hardware/demo", &document).await.0, 200, "what was read can be written");
    let known = "one of /slurm/hardware/demo/zones in the file of --machines: [a, b]";
    let many: Vec<String> = (0..65).map(|at| format!("z{at}")).collect();
    for (more, pointer, expected) in [
        (json!({"zones": ["a", "c"]}), "/zones/1", format!("\"c\": expected {known}")),
        (json!({"zones": ["a", "a"]}), "/zones/1", "\"a\": expected each zone once".to_owned()),
        (json!({"zones": many}), "/zones", "65 zones: expected at most 64".to_owned()),
        (
            json!({"zones": ["a"], "substrate": null}),
            "/zones/0",
            "\"a\": expected a substrate, which is asked for machines there, or no zones".to_owned(),
        ),
        (
            json!({"spot": {"hazard_per_hour": 61.0}}),
            "/spot/hazard_per_hour",
            "61: expected a number of at least 0, at most 60".to_owned(),
        ),
    ] {
        let (status, refusal) = s.put("/v1/hardware/demo", &with(more)).await;
        let error = &refusal["errors"][0];
        assert_eq!((status, &error["pointer"], &error["detail"]), (422, &json!(pointer), &json!(expected)), "{refusal}");
    }
    let plain = with(json!({}));
    assert_eq!(s.put("/v1/hardware/demo", &plain).await.0, 200);
    let (_, document) = s.get("/v1/hardware/demo").await;
    assert_eq!((document.get("zones"), document.get("spot")), (None, None));
    s.running.stop().await;
}
