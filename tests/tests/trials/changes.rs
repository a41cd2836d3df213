//! Plans change every five seconds under load, on a full cluster.

use crate::{chain, inputs, profile, seconds};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, attainment, summary};
use serde_json::json;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(5);
const AGENTS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn plans_change_on_a_full_cluster_and_no_request_fails() {
    let length = seconds(60);
    let cluster = Cluster::start(AGENTS, 2).await;
    // Four devices. A plan with the accurate variants for 130 requests per second fills all of them. So does a plan with
    // the fast variants for more requests. So each change swaps every replica on a cluster without a spare device.
    let mut spec = chain(&["slow", "fast"], json!({}));
    cluster.register(&spec, &profile(&["slow", "fast"])).await;
    let mut plans = Vec::new();
    for (accuracy, demand_qps) in [(0.80, 150.0), (0.0, 320.0)] {
        spec["min_accuracy"] = json!(accuracy);
        cluster.put("/v1/pipelines/chain", &spec).await;
        plans.push(cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": demand_qps}]})).await);
    }
    for plan in &plans {
        let assignments = plan["plan"]["pipelines"][0]["assignments"].as_array().expect("assignments");
        let replicas: u64 = assignments.iter().filter_map(|a| a["replicas"].as_u64()).sum();
        assert_eq!(replicas, 4, "no device is spare: {plan}");
    }
    assert_ne!(plans[0]["plan"], plans[1]["plan"]);
    cluster.apply(&plans[0]).await;
    cluster.ready("chain").await;
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates: vec![(Duration::ZERO, 30.0)], length, seed: 1 };
    let start = Instant::now();
    let running = tokio::spawn({
        let load = load.clone();
        async move { load.run(ingresses, start).await }
    });
    let mut changes = 0;
    while start.elapsed() + EVERY < length {
        tokio::time::sleep(EVERY).await;
        changes += 1;
        cluster.apply(&plans[changes % 2]).await;
    }
    let sent = running.await.expect("the load ends");
    eprintln!("{changes} changes, {} requests: {}", sent.len(), summary(&sent));
    assert!(changes >= 3);
    for (number, s) in sent.iter().enumerate() {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late), "request {number}: {s:?}");
    }
    let kept = attainment(&sent);
    assert!(kept >= 0.97, "attainment {kept}");
}
