//! The fleet serves on with the same replicas, and no request is lost, while the service fails: it is stopped, its database
//! stalls, its clock is set, another process takes over, or a backup is restored.

use crate::{chain, inputs, profile};
use apportion_needs::{Need, need};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, Sent, summary};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const AGENTS: usize = 3;
/// How long a pause lasts.
const PAUSE: Duration = Duration::from_secs(5);
/// After a pause: long enough for agents to be lost, and for what follows from that.
const AFTER: Duration = Duration::from_secs(6);

/// A fleet with a plan in force.
async fn in_force(mut prepare: impl FnMut(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::start(AGENTS, 2).await;
    prepare(&mut cluster);
    cluster.stop_service().await;
    cluster.start_service().await;
    cluster.live(AGENTS).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 100.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    cluster
}

/// What must not change: the generation, and the replicas with their numbers and places.
async fn target(cluster: &Cluster) -> (Value, Value) {
    let target = cluster.get("/v1/target").await;
    (target["generation"].clone(), target["placement"]["replicas"].clone())
}

fn load(cluster: &Cluster, length: Duration) -> tokio::task::JoinHandle<Vec<Sent>> {
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates: vec![(Duration::ZERO, 20.0)], length, seed: 3 };
    tokio::spawn(async move { load.run(ingresses, Instant::now()).await })
}

/// Only what a busy machine does too late may be without an answer.
fn is_lost(sent: &Sent) -> bool {
    match &sent.ended {
        Ended::Ok | Ended::Late => false,
        Ended::Shed(_, why) => !why.contains("missed its deadline"),
        Ended::Lost(_) | Ended::Failed(..) | Ended::Foreign(_) => true,
    }
}

pub(crate) fn nothing_is_lost(what: &str, sent: &[Sent]) {
    eprintln!("{what}: {} requests: {}", sent.len(), summary(sent));
    assert!(!sent.is_empty(), "{what}: nothing was sent");
    let lost: Vec<&Sent> = sent.iter().filter(|s| is_lost(s)).collect();
    assert!(lost.is_empty(), "{what}: {} of {} requests: {:?}", lost.len(), sent.len(), lost[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stopped_for_five_seconds_changes_nothing() {
    let cluster = in_force(|_| ()).await;
    let before = target(&cluster).await;
    let running = load(&cluster, 3 * (PAUSE + AFTER));
    for round in 1..=3 {
        cluster.pause_service();
        tokio::time::sleep(PAUSE).await;
        cluster.resume_service();
        tokio::time::sleep(AFTER).await;
        assert_eq!(target(&cluster).await, before, "after pause {round}:\n{}", cluster.log("service"));
    }
    nothing_is_lost("service stopped for 5 s, three times", &running.await.expect("the load ends"));
    cluster.live(AGENTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stalls_for_five_seconds_changes_nothing() {
    let cluster = in_force(|_| ()).await;
    let before = target(&cluster).await;
    let running = load(&cluster, 2 * (PAUSE + AFTER));
    for round in 1..=2 {
        cluster.stall_database();
        tokio::time::sleep(PAUSE).await;
        cluster.resume_database();
        tokio::time::sleep(AFTER).await;
        assert_eq!(target(&cluster).await, before, "after stall {round}:\n{}", cluster.log("service"));
    }
    nothing_is_lost("database stopped for 5 s, twice", &running.await.expect("the load ends"));
}

/// Whether a service can have a clock of its own; where it cannot, the trial says that it is skipped.
fn has_clock(is_there: bool) -> bool {
    need(Need::Faketime, is_there.then_some(()).ok_or("libfaketime is not there")).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_changes_nothing() {
    let mut is_there = false;
    let cluster = in_force(|cluster| is_there = cluster.with_clock()).await;
    if !has_clock(is_there) {
        return;
    }
    let before = target(&cluster).await;
    let running = load(&cluster, Duration::from_secs(28));
    for offset in ["+10", "-20", "+3600", "+0"] {
        cluster.set_clock(offset);
        tokio::time::sleep(AFTER).await;
        assert_eq!(target(&cluster).await, before, "clock at {offset}:\n{}", cluster.log("service"));
    }
    nothing_is_lost("clock set to +10, -20, +3600 and +0 s", &running.await.expect("the load ends"));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_ten_seconds_apart_work_together() {
    let mut cluster = in_force(|_| ()).await;
    if !has_clock(cluster.with_clock()) {
        return;
    }
    // The first process leads; the agents come to the second, which is slow, and later fast.
    cluster.set_clock("-10");
    cluster.start_second_service();
    (0..AGENTS).for_each(|at| {
        cluster.kill_agent(at);
        cluster.start_agent(at);
    });
    let is_held = |list: &Value| list.as_array()?.iter().all(|a| a["ack"]["applied"] == true).then_some(());
    cluster.until("/v1/agents", is_held).await;
    cluster.ready("chain").await;
    let before = target(&cluster).await;
    let running = load(&cluster, 3 * AFTER);
    for offset in ["-10", "+10"] {
        cluster.set_clock(offset);
        tokio::time::sleep(AFTER + AFTER / 2).await;
        assert_eq!(target(&cluster).await, before, "clock at {offset}:\n{}", cluster.log("service"));
        cluster.live(AGENTS).await;
    }
    nothing_is_lost("two processes 10 s apart", &running.await.expect("the load ends"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_service_process_changes_nothing() {
    let mut cluster = in_force(|_| ()).await;
    let before = target(&cluster).await;
    let running = load(&cluster, 2 * (Duration::from_secs(4) + 2 * AFTER));
    for kill in [true, false] {
        if kill {
            cluster.kill_service();
        } else {
            cluster.stop_service().await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.start_service().await;
        // Longer than a new leader is patient.
        tokio::time::sleep(2 * AFTER).await;
        assert_eq!(target(&cluster).await, before, "killed {kill}:\n{}", cluster.log("service"));
    }
    nothing_is_lost("service killed, then stopped, and started again", &running.await.expect("the load ends"));
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(done.success(), "{} cannot be copied", from.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_restore_takes_the_fleet_over() {
    let mut cluster = in_force(|_| ()).await;
    cluster.stop_service().await;
    let data = cluster.data_dir();
    let backup = data.with_file_name("backup");
    copy(&data.join("postgres"), &backup);
    cluster.start_service().await;
    cluster.live(AGENTS).await;
    // The fleet goes on.
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 60.0}]})).await;
    cluster.apply(&plan).await;
    let ahead = cluster.get("/v1/target").await;
    cluster.ready("chain").await;
    let running = load(&cluster, Duration::from_secs(20));
    cluster.stop_service().await;
    std::fs::remove_dir_all(data.join("postgres")).expect("our own folder");
    copy(&backup, &data.join("postgres"));
    let finish = Command::new(apportion_tests::programs().join("apportion"))
        .args(["restore-finish", "--data-dir"])
        .arg(&data)
        .env_remove("APPORTION_DATABASE_URL")
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&finish.stdout).into_owned() + &String::from_utf8_lossy(&finish.stderr);
    assert!(finish.status.success() && said.contains("incarnation"), "{said}");
    cluster.start_service().await;
    cluster.live(AGENTS).await;
    let restored = cluster.get("/v1/target").await;
    assert!(restored["incarnation"].as_i64() > ahead["incarnation"].as_i64(), "{restored:#}");
    let has_obeyed =
        |agent: &Value| agent["ack"]["incarnation"] == restored["incarnation"] && agent["ack"]["applied"] == true;
    let all = |list: &Value| list.as_array()?.iter().all(has_obeyed).then_some(());
    cluster.until("/v1/agents", all).await;
    let sent = running.await.expect("the load ends");
    nothing_is_lost("database restored from a backup", &sent);
}
