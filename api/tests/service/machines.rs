//! Machines: a service with a local substrate, whose agents are a program of bash and clients of the agents' protocol.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, config_on, new_database, open_dir, profiles, service, spec};
use apportion_api::{ServeError, SubstrateSettings, serve};
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// A service with these settings of machines.
async fn service_with(settings: &Value) -> Service {
    service_on(new_database().await, open_dir(), settings).await
}

async fn service_on(url: String, dir: tempfile::TempDir, settings: &Value) -> Service {
    let mut config = config_on(&url, &dir);
    config.machines = Some(serde_json::from_value::<SubstrateSettings>(settings.clone()).expect("settings"));
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    Service { running, base, client: reqwest::Client::new(), dir, url }
}

/// Settings with machines of two `demo` devices each, whose agents only sleep. A client of the test joins in their place.
fn sleepers(folder: &tempfile::TempDir) -> Value {
    let agent = folder.path().join("agent");
    // They end with the folder of the test.
    std::fs::write(&agent, "#!/bin/bash\nwhile [ -e \"$0\" ]; do sleep 0.2; done\n").expect("written");
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("set");
    json!({"idle_s": 1.0, "local": {"agent": agent, "hardware": {"demo": {"devices": 2}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hardware_type_names_a_substrate_that_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let s = service_with(&sleepers(&folder)).await;
    let with = |substrate: &str, provision_s: f64| json!({"price_per_hour": 1.0, "count_max": 4, "substrate": substrate, "provision_s": provision_s});
    assert_eq!(s.put("/v1/hardware/demo", &with("local", 20.0)).await.0, 201);
    let (_, document) = s.get("/v1/hardware/demo").await;
    assert_eq!((&document["substrate"], &document["provision_s"]), (&json!("local"), &json!(20.0)));
    assert_eq!(document["provision_measured_s"], Value::Null, "no machine has come");
    assert_eq!(s.put("/v1/hardware/demo", &document).await.0, 200, "what was read can be written");
    let refused = [
        ("demo", with("slurm", 1.0), "\"slurm\": expected one of the file of --machines: local"),
        ("t4", with("local", 1.0), "\"local\": expected /local/hardware/t4 in the file of --machines"),
        ("demo", with("local", -1.0), "-1: expected a number of at least 0, at most 604800"),
    ];
    for (name, document, expected) in refused {
        let (status, refusal) = s.put(&format!("/v1/hardware/{name}"), &document).await;
        let detail = refusal["errors"][0]["detail"].as_str().unwrap_or_default();
        assert_eq!((status, detail), (422, expected), "{refusal}");
    }
    s.running.stop().await;
    let without = service().await;
    let (status, refusal) = without.put("/v1/hardware/demo", &with("local", 1.0)).await;
    assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/substrate")));
    without.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_need_a_cluster() {
    let (url, dir) = (new_database().await, open_dir());
    let mut config = config_on(&url, &dir);
    let settings = json!({"kubernetes": {"image": "agent:1", "hardware": {"demo": {}}}});
    config.machines = Some(serde_json::from_value::<SubstrateSettings>(settings).expect("settings"));
    let Err(refused) = serve(config).await else { panic!("it starts without a cluster") };
    assert!(matches!(refused, ServeError::NoCluster), "{refused}");
    assert!(refused.to_string().contains("expected --kubernetes FILE"), "{refused}");
}

/// Registers the type `demo` and the pipeline `digits`, planned for at least this demand.
async fn registered(s: &Service, mode: &str, count_max: u32, min_qps: f64) {
    let hardware = json!({"price_per_hour": 1.0, "count_max": count_max, "substrate": "local", "provision_s": 0.1});
    let (status, answer) = s.put("/v1/hardware/demo", &hardware).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    let mut spec = spec();
    spec["replan"] = json!({"mode": mode, "period_s": 2.0, "min_qps": min_qps});
    let (status, answer) = s.put("/v1/pipelines/digits", &spec).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
}

/// Waits for an event of this kind that the check accepts, and returns its facts.
async fn event(s: &Service, kind: &str, check: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/v1/events?kind={kind}");
    let accepted = |list: &Value| list.as_array()?.iter().map(|event| &event["detail"]).find(|facts| check(facts)).cloned();
    s.until(&path, accepted).await
}

/// Joins as the agent of a machine that was asked for.
async fn come(s: &Service, asked: &Value, hardware: &str) -> Agent {
    let name = asked["machine"].as_str().expect("a name");
    let mut agent = attach(s, v1::Register { hardware: hardware.into(), ..register(s, name) }).await;
    agent.welcome().await;
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_asked_for_comes_and_goes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let s = service_with(&sleepers(&folder)).await;
    registered(&s, "apply", 2, 5.0).await;
    let asked = event(&s, "machine-asked", |_| true).await;
    assert_eq!((&asked["hardware"], &asked["devices"], &asked["reason"]), (&json!("demo"), &json!(2), &json!("wanted")));
    assert_eq!(s.get("/v1/target").await.1["generation"], 0, "nothing is deployed before it comes");
    let (_, wishes) = s.get("/v1/machines?state=coming&hardware=demo").await;
    let wish = &wishes[0];
    assert_eq!((&wish["name"], &wish["substrate"], &wish["devices"]), (&asked["machine"], &json!("local"), &json!(2)));
    assert_eq!((&wish["reason"], &wish["came_at"], &wish["returned_at"]), (&json!("wanted"), &json!(null), &json!(null)));
    let agent = come(&s, &asked, "demo").await;
    let _beat = agent.report();
    event(&s, "machine-came", |facts| facts["machine"] == asked["machine"]).await;
    let (_, alive) = s.get("/v1/machines?state=alive").await;
    assert_eq!(alive[0]["name"], asked["machine"], "{alive:#}");
    assert!(alive[0]["came_at"].is_string() && alive[0]["handle"] == alive[0]["name"], "{alive:#}");
    let measured = |hardware: &Value| hardware["provision_measured_s"].as_f64();
    assert!(s.until("/v1/hardware/demo", measured).await >= 0.0);
    let generation = s.until("/v1/target", |target| target["generation"].as_i64().filter(|number| *number > 0)).await;

    // While its replicas are in the target it stays, whatever is wanted.
    registered(&s, "advisory", 2, 5.0).await;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(s.get("/v1/events?kind=machine-returned").await.1, json!([]));
    let generation = s.get("/v1/target").await.1["generation"].as_i64().unwrap_or(generation);
    assert_eq!(s.put_target(generation, &json!([])).await.0, 200);
    let returned = event(&s, "machine-returned", |_| true).await;
    assert_eq!((&returned["machine"], &returned["reason"]), (&asked["machine"], &json!("idle")));
    let cordoned = |agents: &Value| agents.as_array()?.first()?["cordoned"].as_bool().filter(|is_cordoned| *is_cordoned);
    s.until("/v1/agents", cordoned).await;
    let gone =
        |metrics: &Value| metrics.as_str()?.contains("apportion_machines_leaving{hardware=\"demo\"} 0").then_some(());
    s.until("/metrics", gone).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_never_comes_expires_and_the_plan_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = sleepers(&folder);
    settings["wish_s"] = json!(1.0);
    let s = service_with(&settings).await;
    let mut own = attach(&s, register(&s, "own")).await;
    let number = own.welcome().await.agent;
    let _beat = own.report();
    registered(&s, "apply", 6, 200.0).await;
    s.until("/v1/target", |target| target["generation"].as_i64().filter(|number| *number > 0)).await;
    let asked = event(&s, "machine-asked", |_| true).await;
    let expired = event(&s, "wish-expired", |facts| facts["machine"] == asked["machine"]).await;
    let reason = expired["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("has not come within") && reason.contains("the substrate says: process"), "{expired}");
    let (_, target) = s.get("/v1/target").await;
    let replicas = target["placement"]["replicas"].as_array().expect("replicas");
    assert!(!replicas.is_empty() && replicas.iter().all(|replica| replica["agent"] == number), "{target:#}");
    let (_, metrics) = s.get("/metrics").await;
    let counted = metrics.as_str().expect("a text").lines().find_map(|line| {
        line.strip_prefix("apportion_machine_wishes_expired_total{hardware=\"demo\"} ")?.parse::<f64>().ok()
    });
    assert!(counted.is_some_and(|count| count >= 1.0), "{metrics}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_another_type_satisfies_no_wish() {
    let folder = tempfile::tempdir().expect("a folder");
    let s = service_with(&sleepers(&folder)).await;
    registered(&s, "apply", 2, 5.0).await;
    let asked = event(&s, "machine-asked", |_| true).await;
    let agent = come(&s, &asked, "other").await;
    let _beat = agent.report();
    let expired = event(&s, "wish-expired", |facts| facts["machine"] == asked["machine"]).await;
    assert_eq!(expired["reason"], "it came as other: expected demo");
    assert_eq!(s.get("/v1/events?kind=machine-came").await.1, json!([]));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_the_fleet_stops_wishes_until_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = sleepers(&folder);
    settings["changes_per_hour_max"] = json!(0);
    let s = service_with(&settings).await;
    registered(&s, "apply", 2, 5.0).await;
    let missing = |facts: &Value| facts["matter"] == "missing" && facts["state"] == "begun";
    let told = event(&s, "machines", missing).await;
    assert!(told["reason"].as_str().is_some_and(|words| words.contains("(changes_per_hour_max)")), "{told}");
    assert_eq!(s.put("/v1/hold", &json!({"reason": "a launch"})).await.0, 200);
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    let s = service_on(url, dir, &sleepers(&folder)).await;
    let held = event(&s, "machines", |facts| facts["matter"] == "held").await;
    assert_eq!(held["reason"], "ask for 1 of demo (wanted)");
    assert_eq!(s.get("/v1/events?kind=machine-asked").await.1, json!([]));
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    event(&s, "machine-asked", |_| true).await;
    event(&s, "machines", |facts| facts["matter"] == "held" && facts["state"] == "over").await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_its_changes_and_asks_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = sleepers(&folder);
    settings["dry_run"] = json!(true);
    let s = service_with(&settings).await;
    registered(&s, "apply", 2, 5.0).await;
    let told = event(&s, "machines", |facts| facts["matter"] == "dry_run").await;
    assert_eq!((&told["reason"], &told["state"]), (&json!("ask for 1 of demo (wanted)"), &json!("begun")));
    assert_eq!(s.get("/v1/events?kind=machine-asked").await.1, json!([]));
    s.running.stop().await;
}
