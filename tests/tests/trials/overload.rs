//! Four times what the cluster can serve.

use crate::{chain, inputs, profile, seconds};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, summary};
use apportion_tests::resources;
use serde_json::json;
use std::time::{Duration, Instant};

const AGENTS: usize = 2;
/// Two replicas of each task, full batches of four in 35 ms.
const CAPACITY_QPS: f64 = 2.0 * 4.0 / 0.035;

#[tokio::test(flavor = "multi_thread")]
async fn goodput_and_memory_hold_at_four_times_the_capacity() {
    let length = seconds(20);
    let cluster = Cluster::start(AGENTS, 2).await;
    let serving = json!({"serving": {"batching": "forming", "dropping": "pard"}});
    cluster.register(&chain(&["v"], serving), &profile(&["v"])).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 0.95 * CAPACITY_QPS}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let load = |length, seed| Load {
        pipeline: "chain".into(),
        inputs: inputs(),
        rates: vec![(Duration::ZERO, 4.0 * CAPACITY_QPS)],
        length,
        seed,
    };
    let _warm = load(Duration::from_secs(5), 1).run(ingresses.clone(), Instant::now()).await;
    let all = || (0..AGENTS).map(|at| cluster.process(at).and_then(resources).expect("it runs").0).collect::<Vec<_>>();
    let before = all();
    let sent = load(length, 2).run(ingresses, Instant::now()).await;
    let ok = sent.iter().filter(|s| s.ended == Ended::Ok).count();
    let goodput = ok as f64 / length.as_secs_f64();
    eprintln!("{goodput:.0} of at most {CAPACITY_QPS:.0} requests/s: {}", summary(&sent));
    for (number, s) in sent.iter().enumerate() {
        let is_told = matches!(&s.ended, Ended::Ok | Ended::Late)
            || matches!(&s.ended, Ended::Shed(_, why) if why.contains("reason"));
        assert!(is_told, "request {number}: {s:?}");
    }
    assert!(goodput >= 0.9 * CAPACITY_QPS, "goodput {goodput} of {CAPACITY_QPS}");
    for (before, after) in before.iter().zip(all()) {
        assert!(after < 1.25 * before + 16.0, "memory {before:.0} -> {after:.0} MiB");
    }
}
