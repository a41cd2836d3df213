//! Agents and the control plane are killed, paused and started again at random under load.

use crate::{SLO_MS, chain, inputs, profile, seconds};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, Sent, attainment, summary};
use apportion_tests::resources;
use serde_json::json;
use std::time::{Duration, Instant};

const AGENTS: usize = 3;
/// After a fault, and after its end, attainment may take this long to recover.
const RECOVERY: Duration = Duration::from_secs(5);
/// Between two faults.
const QUIET: Duration = Duration::from_secs(9);
/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(2);
/// What a client on a busy machine may see later than its gateway.
const SLACK: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(usize),
    Pause(usize),
    Service,
}

/// Faults at random, one at a time; says when each began and ended.
async fn disturb(
    cluster: &mut Cluster,
    ingresses: &Ingresses,
    start: Instant,
    until: Duration,
) -> Vec<(Fault, Duration, Duration)> {
    let mut faults = Vec::new();
    let mut state = 7_u64;
    while start.elapsed() + QUIET < until {
        tokio::time::sleep(QUIET - FAULT).await;
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize % AGENTS;
        let fault = match faults.len() % 3 {
            0 => Fault::Kill(at),
            1 => Fault::Pause(at),
            _ => Fault::Service,
        };
        let begun = start.elapsed();
        match fault {
            Fault::Kill(at) => {
                cluster.kill_agent(at);
                ingresses.set(at, false);
                tokio::time::sleep(FAULT).await;
                cluster.start_agent(at);
            }
            Fault::Pause(at) => {
                cluster.pause_agent(at);
                ingresses.set(at, false);
                tokio::time::sleep(FAULT).await;
                cluster.resume_agent(at);
            }
            Fault::Service => {
                cluster.kill_service();
                tokio::time::sleep(FAULT).await;
                cluster.start_service().await;
            }
        }
        if let Fault::Kill(at) | Fault::Pause(at) = fault {
            // A load balancer sends nothing to an ingress before it says that it is ready.
            let url = format!("{}/v2/models/chain/ready", cluster.ingress(at));
            let client = reqwest::Client::new();
            while !client.get(&url).send().await.is_ok_and(|r| r.status().is_success()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            ingresses.set(at, true);
        }
        faults.push((fault, begun, start.elapsed()));
    }
    faults
}

/// Whether its own ingress was killed or paused while it was on its way.
fn is_excused(sent: &Sent, faults: &[(Fault, Duration, Duration)]) -> bool {
    faults.iter().any(|(fault, begun, ended)| match fault {
        Fault::Kill(at) | Fault::Pause(at) => *at == sent.ingress && sent.at <= *ended && sent.at + sent.latency >= *begun,
        Fault::Service => false,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_leave_each_request_one_answer() {
    let length = seconds(60);
    let mut cluster = Cluster::start(AGENTS, 2).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    // Three replicas of each task, of which one is enough.
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 200.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates: vec![(Duration::ZERO, 40.0)], length, seed: 1 };
    let all = |cluster: &Cluster| -> Vec<(f64, u64)> {
        (0..AGENTS).map(|at| cluster.process(at).and_then(resources).expect("it runs")).collect()
    };
    let before = all(&cluster);
    let start = Instant::now();
    let running = tokio::spawn({
        let (load, ingresses) = (load.clone(), ingresses.clone());
        async move { load.run(ingresses, start).await }
    });
    let faults = disturb(&mut cluster, &ingresses, start, length).await;
    let sent = running.await.expect("the load ends");
    eprintln!("{} requests: {}", sent.len(), summary(&sent));
    for (fault, begun, ended) in &faults {
        eprintln!("{fault:?} from {:.1} s to {:.1} s", begun.as_secs_f64(), ended.as_secs_f64());
    }
    for (before, after) in before.iter().zip(all(&cluster)) {
        assert!(after.0 < 1.5 * before.0 + 32.0, "memory in MiB, threads: {before:?} -> {after:?}");
        assert!(after.1 <= before.1 + 8, "memory in MiB, threads: {before:?} -> {after:?}");
    }
    assert_eq!(sent.len(), load.arrivals().len(), "each has an end");
    assert!(faults.len() >= 3, "each kind of fault happened: {faults:?}");
    for (number, s) in sent.iter().enumerate().filter(|(_, s)| !is_excused(s, &faults)) {
        assert!(!matches!(s.ended, Ended::Lost(_) | Ended::Failed(..) | Ended::Foreign(_)), "request {number}: {s:?}");
    }
    for (number, s) in sent.iter().enumerate().filter(|(_, s)| s.ended == Ended::Ok) {
        let is_paused = is_excused(s, &faults);
        assert!(is_paused || s.latency <= Duration::from_millis(SLO_MS) + SLACK, "request {number} came late as ok: {s:?}");
    }
    // From five seconds after each fault to the next one.
    let ends: Vec<Duration> = faults.iter().skip(1).map(|f| f.1).chain([length]).collect();
    for ((fault, begun, ended), next) in faults.iter().zip(ends) {
        let recovered = sent.iter().filter(|s| s.at > *begun + RECOVERY && s.at > *ended && s.at + FAULT / 4 < next);
        let recovered: Vec<&Sent> = recovered.collect();
        let kept = attainment(recovered.iter().copied());
        assert!(kept >= 0.99, "{kept} after {fault:?} at {begun:?}, of {}", recovered.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_threads_do_not_grow() {
    let cluster = Cluster::start(2, 2).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 100.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    let ingresses = Ingresses::new((0..2).map(|at| cluster.ingress(at)).collect());
    // More than is served, so that queues fill and empty.
    let load = |seed| Load {
        pipeline: "chain".into(),
        inputs: inputs(),
        rates: vec![(Duration::ZERO, 500.0), (Duration::from_secs(2), 50.0)],
        length: Duration::from_secs(5),
        seed,
    };
    let _warm = load(1).run(ingresses.clone(), Instant::now()).await;
    let all = || (0..2).map(|at| cluster.process(at).and_then(resources).expect("it runs")).collect::<Vec<_>>();
    let before = all();
    for seed in 2..5 {
        let _sent = load(seed).run(ingresses.clone(), Instant::now()).await;
    }
    for (before, after) in before.iter().zip(all()) {
        assert!(after.0 < 1.5 * before.0 + 16.0, "memory {before:?} -> {after:?}");
        assert!(after.1 <= before.1 + 8, "threads {before:?} -> {after:?}");
    }
}
