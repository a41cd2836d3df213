//! Replicas that cannot be loaded: by the plan and beyond it, they end up where they can.

use crate::{chain, inputs, profile};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, attainment, summary};
use serde_json::json;
use std::time::{Duration, Instant};

const AGENTS: usize = 3;

/// Agent 0 loads nothing. The plan's replicas that were placed there go to the others, and the extra ones that a load step asks for too.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_loaded_at_one_agent_is_loaded_at_another() {
    let mut cluster = Cluster::start(AGENTS, 2).await;
    cluster.break_agent(0).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 48.0}]})).await;
    cluster.apply(&plan).await;
    // Every agent says so, the broken one too: all tasks can be reached.
    cluster.ready("chain").await;
    let begun = Instant::now();
    let settled = loop {
        let target = cluster.get("/v1/target").await;
        let agents = cluster.get("/v1/agents").await;
        let is_applied =
            |a: &serde_json::Value| a["ack"]["applied"] == true && a["ack"]["generation"] == target["generation"];
        if agents.as_array().is_some_and(|all| all.len() == AGENTS && all.iter().all(is_applied)) {
            break target;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{target}\n{agents}\n{}", cluster.log("service"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(settled["reason"].as_str().is_some_and(|r| r.contains("failed")), "it was repaired: {settled}");
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let rates = vec![(Duration::ZERO, 40.0), (Duration::from_secs(5), 100.0)];
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates, length: Duration::from_secs(25), seed: 3 };
    let sent = load.run(ingresses, Instant::now()).await;
    eprintln!("{}", summary(&sent));
    assert!(sent.iter().all(|s| matches!(s.ended, Ended::Ok | Ended::Late | Ended::Shed(..))));
    let after = attainment(sent.iter().filter(|s| s.at >= Duration::from_secs(12)));
    assert!(after >= 0.99, "attainment {after} with the extra replicas at the agents that can load them");
}
