//! Arrivals of the pipeline `digits`, as an agent reports them.

use super::agent::Agent;
use apportion_protocol::v1::{self, agent_message};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The load of an agent, by tenths of a second.
#[derive(Default)]
pub struct Tenth {
    /// Requests that arrive.
    pub offered: AtomicU32,
    /// Requests of them that are late; the others are in time.
    pub late: AtomicU32,
}

/// Reports this many arrivals each tenth of a second, like an agent.
pub fn load(agent: &Agent, tenth: Arc<Tenth>) -> tokio::task::JoinHandle<()> {
    let outbox = agent.outbox.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        loop {
            let uptime_ms = begun.elapsed().as_millis() as u64;
            let offered = tenth.offered.load(Ordering::Relaxed);
            let late = tenth.late.load(Ordering::Relaxed);
            let part = v1::Arrivals {
                pipeline: "digits".into(),
                first_bin_ms: uptime_ms,
                bins: vec![offered],
                ok: u64::from(offered - late),
                late: u64::from(late),
                ..v1::Arrivals::default()
            };
            let report = v1::Report { uptime_ms, arrivals: vec![part], groups: vec![], ..Default::default() };
            let message = v1::AgentMessage { message: Some(agent_message::Message::Report(report)) };
            if outbox.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}
