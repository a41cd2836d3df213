//! Agents under load while one of them hangs, while their service refuses them, and while something else is on its port.

use crate::{chain, inputs, profile, seconds};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, Sent, summary};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const AGENTS: usize = 3;
/// Requests per second: three replicas of each task serve them with ease.
const RATE_QPS: f64 = 18.0;

/// Three agents that serve.
async fn served() -> (Cluster, Arc<Ingresses>) {
    let cluster = Cluster::start(AGENTS, 2).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 200.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    (cluster, ingresses)
}

/// The load, from now on.
fn load(ingresses: &Arc<Ingresses>, length: Duration) -> JoinHandle<Vec<Sent>> {
    let rates = vec![(Duration::ZERO, RATE_QPS)];
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates, length, seed: 1 };
    let ingresses = ingresses.clone();
    tokio::spawn(async move { load.run(ingresses, Instant::now()).await })
}

/// Every request was answered, in time or not.
fn check(what: &str, sent: &[Sent], is_excused: impl Fn(&Sent) -> bool) {
    let slowest = sent.iter().filter(|s| !is_excused(s)).map(|s| s.latency).max().unwrap_or_default();
    eprintln!("{what}: {} requests: {}; the slowest took {slowest:?}", sent.len(), summary(sent));
    assert!(sent.len() > 50, "{what}: the load came");
    for (number, s) in sent.iter().enumerate().filter(|(_, s)| !is_excused(s)) {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late), "{what}: request {number}: {s:?}");
    }
}

/// An agent hangs for the middle half of the load. What came in at its own gateway before hangs with it.
async fn hang(cluster: &mut Cluster, ingresses: &Arc<Ingresses>, what: &str) {
    let length = seconds(12);
    let (begun, running) = (Instant::now(), load(ingresses, length));
    tokio::time::sleep(length / 4).await;
    ingresses.set(1, false);
    cluster.pause_agent(1);
    let from = begun.elapsed();
    tokio::time::sleep(length / 2).await;
    cluster.resume_agent(1);
    let sent = running.await.expect("the load ends");
    ingresses.set(1, true);
    check(what, &sent, |s| s.ingress == 1 && s.at + s.latency >= from);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_agent_fails_no_request() {
    let (mut cluster, ingresses) = served().await;
    hang(&mut cluster, &ingresses, "with the service").await;
    cluster.live(AGENTS).await;
    cluster.ready("chain").await;
    cluster.kill_service();
    hang(&mut cluster, &ingresses, "without the service").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misbehaving_service_fails_no_request() {
    let (mut cluster, ingresses) = served().await;
    let processes: Vec<_> = (0..AGENTS).map(|at| cluster.process(at)).collect();
    let length = seconds(12);
    let running = load(&ingresses, length);
    cluster.restart_service(Some("another")).await;
    tokio::time::sleep(length / 3).await;
    cluster.kill_service();
    let impostor = std::net::TcpListener::bind(cluster.join_address()).expect("the service's port");
    let listening = impostor.try_clone().expect("a second handle");
    listening.set_nonblocking(true).expect("a socket");
    let until = Instant::now() + length / 3;
    let heard = tokio::task::spawn_blocking(move || {
        let (mut open, mut heard) = (Vec::new(), 0);
        while Instant::now() < until {
            if let Ok((mut stream, _)) = listening.accept() {
                heard += 1;
                let _answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                open.push(stream);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        heard
    });
    let heard = heard.await.expect("no panic");
    drop(impostor);
    assert!(heard > 0, "the agents have found the impostor");
    cluster.restart_service(None).await;
    let sent = running.await.expect("the load ends");
    check("refused, then an impostor", &sent, |_| false);
    cluster.live(AGENTS).await;
    assert_eq!((0..AGENTS).map(|at| cluster.process(at)).collect::<Vec<_>>(), processes, "the same processes");
    for at in 0..AGENTS {
        let ready = reqwest::get(format!("{}/v2/health/ready", cluster.ingress(at))).await.expect("it lives");
        assert!(ready.status().is_success(), "agent {at}");
    }
}
