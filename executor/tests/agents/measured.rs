//! Agents measure how long hops, loads and batches take, and report it.

use crate::support::agents::Agent;
use crate::support::control::{Control, Heard};
use crate::support::{Group, target, until};
use apportion_protocol::v1;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The delay of the slow link, one way.
const DELAY: Duration = Duration::from_millis(200);
/// Most parts that are on the way; the sender then waits.
const PARTS_MAX: usize = 1_024;

/// Both tasks at agent 1. Each batch of `sum` sleeps for 50 ms.
const SLOW_SUM: [Group<'static>; 2] =
    [Group { id: 1, task: 0, variant: "split", agents: &[1] }, Group { id: 2, task: 1, variant: "sum 50", agents: &[1] }];

/// Passes all that comes on one end to the other, each part after [`DELAY`].
async fn pass_on(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin + Send + 'static) {
    let (parts, mut waiting) = mpsc::channel::<(Instant, Vec<u8>)>(PARTS_MAX);
    tokio::spawn(async move {
        while let Some((due, part)) = waiting.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
    });
    let mut part = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        if parts.send((Instant::now() + DELAY, part[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

/// A slow way to this address.
async fn slow_way_to(address: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let own = listener.local_addr().expect("its address").to_string();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&address).await else { continue };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(pass_on(near_in, far_out));
            tokio::spawn(pass_on(far_in, near_out));
        }
    });
    own
}

/// Agents `a1 ..` by this start, numbered from 1 in this order.
async fn agents(control: &Control, folder: &Path, count: u64, start: fn(&str, &str, &Path) -> Agent) -> Vec<Agent> {
    let mut all = Vec::new();
    for n in 1..=count {
        let name = format!("a{n}");
        all.push(start(&name, &control.url, folder));
        until("it registers", || (control.heard(&name).number == n).then_some(())).await;
    }
    all
}

/// The reported time of a hop to an agent, in milliseconds.
fn hop_ms(heard: &Heard, to: u64) -> Option<f64> {
    heard.hops.iter().find(|hop| hop.agent == to).map(|hop| hop.hop_ms)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_link_is_measured_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "sum"]).await;
    let agents = agents(&control, folder.path(), 3, Agent::start).await;
    // All that is sent to agent 2 takes the slow way. Its answers do not.
    let slow = slow_way_to(agents[1].data.clone()).await;
    let addresses = [(1, agents[0].data.clone()), (2, slow), (3, agents[2].data.clone())];
    let groups = [
        Group { id: 1, task: 0, variant: "split", agents: &[1] },
        Group { id: 2, task: 1, variant: "sum", agents: &[2, 3] },
    ];
    control.send(target(1, &addresses, &groups));
    let known = |heard: &Heard| Some((hop_ms(heard, 2)?, hop_ms(heard, 3)?));
    let half_ms = 500.0 * DELAY.as_secs_f64();
    let (slow_ms, fast_ms) = until("a hop to each is reported, and the delayed one takes longer", || {
        known(&control.heard("a1")).filter(|(slow_ms, fast_ms)| fast_ms < slow_ms)
    })
    .await;
    assert!(slow_ms >= half_ms, "half of the time there and back: {slow_ms} ms, and {fast_ms} ms without a delay");
    assert!(fast_ms > 0.0);
    let of = control.heard("a1").hops;
    assert!(of.iter().all(|hop| hop.samples >= 5), "{of:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_of_each_replica_is_reported_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "sum 50"]).await;
    let agents = agents(&control, folder.path(), 1, Agent::start).await;
    control.send(target(1, &[(1, agents[0].data.clone())], &SLOW_SUM));
    control.applied("a1", 1).await;
    let loads = until("both loads are reported", || Some(control.heard("a1").loads).filter(|l| l.len() >= 2)).await;
    let of = |task: &str| loads.iter().find(|l| l.task == task).unwrap_or_else(|| panic!("no load of {task}: {loads:?}"));
    let sum = of("sum");
    assert_eq!((sum.pipeline.as_str(), sum.variant.as_str()), ("toy", "sum 50"));
    // Its warm-up batch sleeps for so long.
    assert!(sum.start_ms >= 50.0, "{sum:?}");
    assert!(of("split").download_ms > 0.0, "its file came over a connection");
    let before = control.heard("a1").reports;
    until("two more reports", || (control.heard("a1").reports >= before + 2).then_some(())).await;
    assert_eq!(control.heard("a1").loads.len(), 2, "each load once");
}

#[tokio::test(flavor = "multi_thread")]
async fn emulated_replicas_report_no_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&[]).await;
    let start = |name: &str, join: &str, state: &Path| Agent::start_recorded(name, join, state, 1);
    let agents = agents(&control, folder.path(), 1, start).await;
    let groups =
        [Group { id: 1, task: 0, variant: "split", agents: &[1] }, Group { id: 2, task: 1, variant: "sum", agents: &[1] }];
    control.send(target(1, &[(1, agents[0].data.clone())], &groups));
    control.applied("a1", 1).await;
    let before = control.heard("a1").reports;
    until("two more reports", || (control.heard("a1").reports >= before + 2).then_some(())).await;
    assert_eq!(control.heard("a1").loads, []);
}

/// The sums of all reports about a task's groups.
fn summed(control: &Control, task: &str) -> v1::GroupStats {
    let reported = control.heard("a1").groups.into_iter().filter(|of| of.task == task);
    reported.fold(v1::GroupStats::default(), |sum, of| v1::GroupStats {
        ended_batches: sum.ended_batches + of.ended_batches,
        ended_ms: sum.ended_ms + of.ended_ms,
        expected_ms: sum.expected_ms + of.expected_ms,
        ended_queries: sum.ended_queries + of.ended_queries,
        children: sum.children.into_iter().chain(of.children).collect(),
        variant: of.variant,
        ..v1::GroupStats::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_reported_beside_their_profile() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "sum 50"]).await;
    let agents = agents(&control, folder.path(), 1, Agent::start).await;
    control.send(target(1, &[(1, agents[0].data.clone())], &SLOW_SUM));
    agents[0].ready("toy").await;
    // Two children.
    let (status, answer) = agents[0].infer(&[[2.0, 7.0]]).await;
    assert_eq!(status, 200, "{answer}");
    let sum =
        until("both queries of sum are reported", || Some(summed(&control, "sum")).filter(|sum| sum.ended_queries == 2))
            .await;
    // A batch takes 1 ms by the profile, and it sleeps for 50 ms.
    let batches = sum.ended_batches as f64;
    assert!(batches > 0.0 && (sum.expected_ms - batches).abs() < 1e-9, "{sum:?}");
    assert!(sum.ended_ms >= 50.0 * batches && sum.variant == "sum 50", "{sum:?}");
    let split = summed(&control, "split");
    assert_eq!((split.ended_batches, split.ended_queries), (1, 1));
    assert_eq!(split.children, [v1::ChildCount { task: "sum".into(), queries: 2 }]);
}
