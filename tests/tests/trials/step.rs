//! A step of the load that the cluster can serve, with the control plane there and away.

use crate::{chain, inputs, profile};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, Sent, attainment, summary};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const AGENTS: usize = 3;
const BASE_QPS: f64 = 40.0;
/// Over what the plan's replicas serve, below what all devices do.
const STEP_QPS: f64 = 150.0;
const STEP: Duration = Duration::from_secs(10);
const LENGTH: Duration = Duration::from_secs(30);
/// The variant's load time and two seconds.
const BACK: Duration = Duration::from_millis(2_200);

/// Starts a cluster that serves the base load. Its rounds make plans with this ladder and objective.
async fn start_cluster(ladder: Option<f64>, objective: Option<&str>) -> Cluster {
    let cluster = Cluster::start(AGENTS, 2).await;
    let objective = objective.map(|mode| json!({"mode": mode}));
    let replan = json!({
        "mode": "apply", "period_s": 10.0, "headroom": 1.2, "min_qps": 48.0, "ladder": ladder, "objective": objective});
    cluster.register(&chain(&["v"], json!({"replan": replan})), &profile(&["v"])).await;
    let demand = json!({
        "pipelines": [{"name": "chain", "demand_qps": 1.2 * BASE_QPS}], "ladder": ladder, "objective": objective});
    let plan = cluster.plan(&demand).await;
    let steps = plan["plan"]["pipelines"][0]["ladder"].as_array().map_or(0, Vec::len);
    assert_eq!(steps > 1, ladder.is_some(), "{plan}");
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    cluster
}

async fn play_step(cluster: &Cluster) -> Vec<Sent> {
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let rates = vec![(Duration::ZERO, BASE_QPS), (STEP, STEP_QPS)];
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates, length: LENGTH, seed: 1 };
    load.run(ingresses, Instant::now()).await
}

/// Whether the service runs during the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlPlane {
    Running,
    Away,
}

async fn step_on_new_cluster(control_plane: ControlPlane, ladder: Option<f64>) -> Vec<Sent> {
    let mut cluster = start_cluster(ladder, None).await;
    if control_plane == ControlPlane::Away {
        cluster.kill_service();
    }
    play_step(&cluster).await
}

fn judge(sent: &[Sent], what: &str) {
    let by_second = |from: u64| {
        let of = |s: &&Sent| s.at >= Duration::from_secs(from) && s.at < Duration::from_secs(from + 1);
        attainment(sent.iter().filter(of))
    };
    let series: Vec<String> = (0..LENGTH.as_secs()).map(|s| format!("{:.2}", by_second(s))).collect();
    eprintln!("{what}: {}\nattainment by second: {}", summary(sent), series.join(" "));
    assert!(sent.iter().all(|s| matches!(s.ended, Ended::Ok | Ended::Late | Ended::Shed(..))), "{what}");
    let back = attainment(sent.iter().filter(|s| s.at >= STEP + BACK));
    assert!(back >= 0.99, "{what}: attainment {back} from {BACK:?} after the step");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_served_two_seconds_later() {
    judge(&step_on_new_cluster(ControlPlane::Running, None).await, "with the control plane");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_served_without_the_control_plane() {
    judge(&step_on_new_cluster(ControlPlane::Away, None).await, "without the control plane");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_served_by_the_ladder_alone() {
    judge(&step_on_new_cluster(ControlPlane::Away, Some(6.0)).await, "on the plan's ladder, without the control plane");
}

/// The system "ours" of `reproduce headline`, with real agents: least cost, a ladder, and a control plane that weighs each
/// change. Only missed requests replace a plan at any price: the step is steep, so they may.
#[tokio::test(flavor = "multi_thread")]
async fn rounds_at_least_cost_weigh_the_change() {
    let cluster = start_cluster(Some(6.0), Some("min_cost")).await;
    judge(&play_step(&cluster).await, "at least cost, on the plan's ladder");
    let decisions = cluster.get("/v1/decisions").await;
    let price = |d: &Value, of: &str| d["costs"][of].as_f64();
    let (mut weighed, mut risen) = (0, 0);
    for decision in decisions.as_array().expect("a list") {
        let reason = decision["reason"].as_str().expect("a reason");
        eprintln!("{}: {reason}", decision["decision"]);
        let is_risen = decision["demand_qps"].as_f64() > Some(2.0 * BASE_QPS);
        risen += u32::from(is_risen);
        let misses = reason.starts_with("requests miss");
        let paid =
            price(decision, "new_per_hour").zip(price(decision, "change_per_hour")).map(|(new, change)| new + change);
        match paid.zip(price(decision, "in_force_per_hour")) {
            Some((paid, in_force)) if !misses => {
                weighed += 1;
                assert_eq!(paid < in_force, decision["decision"] == "applied", "{decision:#}");
            }
            _ => assert!(misses || !is_risen, "{decision:#}"),
        }
    }
    assert!(weighed > 0 && risen > 0, "{decisions:#}");
}
