//! Agents with certificates of their control plane, and links with TLS.

use crate::support::agents::{Agent, output};
use crate::support::control::Control;
use crate::support::{Group, link_key, target, until};
use apportion_executor::greeting::{Dialling, GREETING, LinkEnds, NONCE_BYTES, PairKeys};
use apportion_executor::peers::SWITCH_MAX;
use apportion_executor::refused::ReachedLimit;
use apportion_protocol::v1::{self, target::Links};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NAMES: [&str; 3] = ["a1", "a2", "a3"];

struct Fleet {
    control: Control,
    agents: Vec<Agent>,
    numbers: Vec<u64>,
    target: v1::Target,
    folder: TempDir,
}

/// The first agent has the root, and the two others have the rest. Certificates count for this long.
async fn fleet(life: Duration) -> Fleet {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start_certifying(&["split", "sum"], life).await;
    let agents: Vec<Agent> = NAMES.iter().map(|name| Agent::start(name, &control.url, folder.path())).collect();
    for name in NAMES {
        until("it registers", || (!control.heard(name).registers.is_empty()).then_some(())).await;
    }
    let numbers: Vec<u64> = NAMES.iter().map(|name| control.heard(name).number).collect();
    let addresses: Vec<(u64, String)> = numbers.iter().copied().zip(agents.iter().map(|a| a.data.clone())).collect();
    let groups = [
        Group { id: 1, task: 0, variant: "split", agents: &numbers[..1] },
        Group { id: 2, task: 1, variant: "sum", agents: &numbers[1..] },
    ];
    let mut target = target(1, &addresses, &groups);
    target.set_links(Links::Tls);
    control.send(target.clone());
    for agent in &agents {
        agent.ready("toy").await;
    }
    Fleet { control, agents, numbers, target, folder }
}

async fn serves(agent: &Agent) {
    let (status, body) = agent.infer(&[[2.0, 5.0]]).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(output(&body, "s").1, &serde_json::json!([5.0, 6.0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_while_requests_are_served() {
    let fleet = fleet(Duration::from_secs(2)).await;
    let asked = |name: &str| fleet.control.heard(name).certificate_requests;
    // Each asks at half of the life, so three requests are longer than one life.
    let begun = std::time::Instant::now();
    while NAMES.iter().any(|name| asked(name) < 3) {
        for agent in &fleet.agents {
            serves(agent).await;
        }
        assert!(begun.elapsed() < crate::support::PATIENCE, "{:?}", NAMES.map(asked));
    }
    for (agent, number) in fleet.agents.iter().zip(&fleet.numbers) {
        let certificates = agent.handle.link_keys.certificates();
        until("the newest one counts", || certificates.link(*number).map(|_| ())).await;
    }
    let kept = fleet.folder.path().join("a1/certificates.bin");
    let bytes = std::fs::metadata(&kept).expect("they are kept").len();
    assert!(bytes > 500, "{bytes} bytes");
}

/// Whether an agent admits a greeting with the right key and without TLS.
async fn admits_plain(agent: &Agent, ends: LinkEnds) -> bool {
    let keys = PairKeys::read(&[link_key(ends.from, ends.to)]).expect("a key");
    let dialling = Dialling { ends, keys, nonce: [4; NONCE_BYTES] };
    let mut stream = TcpStream::connect(&agent.data).await.expect("connects");
    stream.write_all(&[&GREETING[..], &dialling.hello()].concat()).await.expect("a greeting");
    stream.read_exact(&mut [0; GREETING.len()]).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_follow_the_target_to_tls_and_back() {
    let fleet = fleet(Duration::from_secs(3_600)).await;
    // The number of an agent that is up: its own link stays, because the greeting is never confirmed.
    let ends = LinkEnds { from: fleet.numbers[1], to: fleet.numbers[0] };
    let before = ReachedLimit::PeerPlain.counted();
    assert!(!admits_plain(&fleet.agents[0], ends).await);
    assert!(ReachedLimit::PeerPlain.counted() > before);
    serves(&fleet.agents[0]).await;
    // The same target comes again with other links: all of them are made again, and plain ones are admitted.
    let mut plain = fleet.target.clone();
    plain.set_links(Links::Plain);
    fleet.control.send(plain);
    let begun = std::time::Instant::now();
    while !admits_plain(&fleet.agents[0], ends).await {
        assert!(begun.elapsed() < crate::support::PATIENCE, "plain links are never admitted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_serves(&fleet).await;
    // And back. For a while plain links are still admitted.
    fleet.control.send(fleet.target.clone());
    until_serves(&fleet).await;
    assert!(begun.elapsed() > SWITCH_MAX || admits_plain(&fleet.agents[0], ends).await);
}

/// Waits until each gateway serves: a request that is on a link when it ends may fail.
async fn until_serves(fleet: &Fleet) {
    let begun = std::time::Instant::now();
    for agent in &fleet.agents {
        while agent.infer(&[[2.0, 5.0]]).await.0 != 200 {
            assert!(begun.elapsed() < crate::support::PATIENCE, "no request is served");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
