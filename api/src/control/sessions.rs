//! The agents' end of the protocol: one session for each stream.

use super::guests::Guest;
use crate::app::{App, now};
use crate::store::{self, agents::AgentRow, arrivals::ArrivalsRow};
use apportion_protocol::v1::{self, agent_message, control_message, control_server::Control, refused::Reason};
use apportion_protocol::{DEVICES_MAX, PROTOCOL_VERSION};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// An agent that was not heard of for so long is lost.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How often agents report.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long a new stream may take to register.
const REGISTER_MAX: Duration = Duration::from_secs(5);
/// Control messages waiting for one agent; more mean that its connection does not take them.
const OUTBOX_MAX: usize = 16;
/// Longest name or address in bytes.
const TEXT_MAX: usize = 256;
/// Most pipelines in one report, and bins in one pipeline's: an agent reports each second, in bins of 10 ms.
const REPORT_PIPELINES_MAX: usize = 1_024;
const REPORT_BINS_MAX: usize = 60_000;
/// Width of a report's bin.
const BIN_MS: u64 = 10;

/// The gRPC service.
pub struct Sessions(pub App);

type Outbox = mpsc::Sender<Result<v1::ControlMessage, Status>>;

#[tonic::async_trait]
impl Control for Sessions {
    type AttachStream = Pin<Box<ReceiverStream<Result<v1::ControlMessage, Status>>>>;

    async fn attach(&self, request: Request<Streaming<v1::AgentMessage>>) -> Result<Response<Self::AttachStream>, Status> {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        let guest = request.extensions().get::<Guest>().cloned();
        tokio::spawn(session(self.0.clone(), request.into_inner(), outbox, guest));
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

async fn session(app: App, mut inbox: Streaming<v1::AgentMessage>, outbox: Outbox, guest: Option<Guest>) {
    let first = tokio::time::timeout(REGISTER_MAX, inbox.message()).await;
    let register = match first {
        Ok(Ok(Some(v1::AgentMessage { message: Some(agent_message::Message::Register(register)) }))) => register,
        _ => return refuse(&outbox, Reason::Invalid, "the first message of a stream must be Register").await,
    };
    let name = register.name.clone();
    let (session, welcome) = match admit(&app, register).await {
        Ok(admitted) => admitted,
        Err(Refusal::Reason(reason, detail)) => {
            tracing::warn!(agent = name, ?reason, detail, "an agent was refused");
            return refuse(&outbox, reason, &detail).await;
        }
        Err(Refusal::Database(error)) => {
            tracing::error!(agent = name, %error, "an agent could not be registered");
            let _gone = outbox.send(Err(Status::unavailable("the database does not answer"))).await;
            return;
        }
    };
    tracing::info!(agent = name, number = welcome.agent, "agent registered");
    guest.iter().for_each(Guest::admit);
    app.fleet_changed.notify_one();
    if send(&outbox, control_message::Message::Welcome(welcome)).await {
        let left = converse(&app, session, &mut inbox, &outbox).await;
        tracing::info!(agent = name, left, "agent's stream ended");
        end(&app, session, if left { "left" } else { "lost" }).await;
    } else {
        end(&app, session, "lost").await;
    }
    app.fleet_changed.notify_one();
}

async fn end(app: &App, session: Uuid, state: &str) {
    if app.is_stopping() {
        // It is we who leave; the agent keeps serving and comes back.
        return;
    }
    app.heard.forget(session).await;
    let result = async { store::agents::end(&mut *app.pool.acquire().await?, session, state).await }.await;
    if let Err(error) = result {
        tracing::error!(%error, "an agent's end could not be recorded; its silence will be noticed");
    }
}

async fn send(outbox: &Outbox, message: control_message::Message) -> bool {
    outbox.send(Ok(v1::ControlMessage { message: Some(message) })).await.is_ok()
}

async fn refuse(outbox: &Outbox, reason: Reason, detail: &str) {
    let refused = v1::Refused { reason: reason.into(), detail: detail.to_string() };
    let _gone = send(outbox, control_message::Message::Refused(refused)).await;
}

enum Refusal {
    Reason(Reason, String),
    Database(store::Error),
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        Self::Database(error)
    }
}

/// Checks a registration and stores it.
async fn admit(app: &App, register: v1::Register) -> Result<(Uuid, v1::Welcome), Refusal> {
    check(app, &register)?;
    let mut tx = app.pool.begin().await?;
    let at = now();
    if let Some(known) = store::agents::lock(&mut tx, &register.name).await? {
        let heard = (at - known.seen_at).to_std().unwrap_or_default() < SILENCE_MAX;
        if known.state == "live" && heard && known.process_id != register.process_id {
            let detail = format!("an agent named {} is in the fleet and alive; give this one another name", register.name);
            return Err(Refusal::Reason(Reason::NameTaken, detail));
        }
    }
    let target = store::target::get(&mut tx).await?;
    if let Some(fence) = register.fence {
        let ours = (target.incarnation as u64, target.generation as u64);
        if (fence.incarnation, fence.generation) > ours {
            let detail = format!(
                "this agent has obeyed target {}.{}, but the service's is {}.{}: its database is older than the fleet",
                fence.incarnation, fence.generation, ours.0, ours.1
            );
            return Err(Refusal::Reason(Reason::Stale, detail));
        }
    }
    let session = Uuid::now_v7();
    let row = AgentRow {
        number: 0,
        name: register.name,
        hardware: register.hardware,
        devices: register.devices as i32,
        ingress_http: register.ingress_http,
        ingress_grpc: register.ingress_grpc,
        data_address: register.data_address,
        process_id: register.process_id,
        session,
        state: "live".into(),
        registered_at: at,
        seen_at: at,
        ack: None,
        device_use: None,
        load_failures: json!([]),
    };
    let number = store::agents::register(&mut tx, &row).await?;
    tx.commit().await?;
    let welcome =
        v1::Welcome { agent: number as u64, report_ms: REPORT_EVERY.as_millis() as u32, files_url: app.files_url.clone() };
    Ok((session, welcome))
}

fn check(app: &App, register: &v1::Register) -> Result<(), Refusal> {
    let refuse = |reason, detail: String| Err(Refusal::Reason(reason, detail));
    // Digests are compared, so that the time taken says nothing about the token.
    if Sha256::digest(register.token.as_bytes()) != Sha256::digest(app.token.as_bytes()) {
        return refuse(Reason::Token, "the token is not the service's".into());
    }
    if register.protocol_version != PROTOCOL_VERSION {
        let versions = format!("{}, the service {PROTOCOL_VERSION}", register.protocol_version);
        return refuse(Reason::Version, format!("the agent speaks protocol version {versions}; use the same release"));
    }
    if register.devices == 0 || register.devices > DEVICES_MAX {
        return refuse(Reason::Invalid, format!("devices: {}: expected 1 to {DEVICES_MAX}", register.devices));
    }
    let texts = [
        ("name", &register.name),
        ("hardware", &register.hardware),
        ("ingress_http", &register.ingress_http),
        ("data_address", &register.data_address),
        ("process_id", &register.process_id),
    ];
    // An agent of an older release has none.
    if register.ingress_grpc.len() > TEXT_MAX {
        let bytes = register.ingress_grpc.len();
        return refuse(Reason::Invalid, format!("ingress_grpc: {bytes} bytes: expected at most {TEXT_MAX}"));
    }
    match texts.iter().find(|(_, text)| text.is_empty() || text.len() > TEXT_MAX) {
        Some((key, text)) => refuse(Reason::Invalid, format!("{key}: {} bytes: expected 1 to {TEXT_MAX}", text.len())),
        None => Ok(()),
    }
}

/// The life of a registered stream; answers whether the agent left on purpose. What is recorded and what is pushed do not wait for each
/// other.
async fn converse(app: &App, session: Uuid, inbox: &mut Streaming<v1::AgentMessage>, outbox: &Outbox) -> bool {
    tokio::select! {
        () = app.stopped() => false,
        () = push_targets(app, outbox) => false,
        () = app.heard.replaced(session) => replaced(outbox).await,
        left = hear(app, session, inbox, outbox) => left,
    }
}

/// Sends the target in force and each later one, until the agent takes no more.
async fn push_targets(app: &App, outbox: &Outbox) {
    let mut target = app.target.subscribe();
    target.mark_changed();
    while target.changed().await.is_ok() {
        let message = target.borrow_and_update().clone();
        if let Some(message) = message
            && !send(outbox, control_message::Message::Target((*message).clone())).await
        {
            return;
        }
    }
}

/// An agent's older stream is told why it ends: the agent has not left.
async fn replaced(outbox: &Outbox) -> bool {
    refuse(outbox, Reason::NameTaken, "a newer stream of this agent has replaced this one").await;
    false
}

/// Takes in what an agent says, until it is silent or gone; answers whether it left on purpose.
async fn hear(app: &App, session: Uuid, inbox: &mut Streaming<v1::AgentMessage>, outbox: &Outbox) -> bool {
    loop {
        match tokio::time::timeout(SILENCE_MAX, inbox.message()).await {
            Ok(Ok(Some(v1::AgentMessage { message: Some(agent_message::Message::Leaving(_)) }))) => return true,
            Ok(Ok(Some(v1::AgentMessage { message: Some(message) }))) => match record(app, session, message).await {
                Ok(true) => {}
                Ok(false) => return replaced(outbox).await,
                Err(error) => tracing::warn!(%error, "an agent's message could not be recorded"),
            },
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None) | Err(_)) | Err(_) => return false,
        }
    }
}

/// Stores what an agent says; answers whether its stream is still the newest.
async fn record(app: &App, session: Uuid, message: agent_message::Message) -> store::Result<bool> {
    if matches!(&message, agent_message::Message::Report(r) if r.arrivals.is_empty() && r.devices.is_empty()) {
        app.heard.note(session, now());
        return Ok(true);
    }
    let mut tx = app.pool.begin().await?;
    match message {
        agent_message::Message::Ack(ack) => {
            super::failures::note(&mut tx, session, &ack, now()).await?;
            store::agents::acknowledge(&mut tx, session, &ack_json(&ack)).await?;
        }
        agent_message::Message::Report(report) => {
            for row in arrivals(&report, now().timestamp_millis()) {
                store::arrivals::add(&mut tx, &row).await?;
            }
            if !report.devices.is_empty() {
                store::agents::devices(&mut tx, session, &devices_json(&report.devices)).await?;
            }
        }
        agent_message::Message::Register(_) | agent_message::Message::Leaving(_) => {}
    }
    let newest = store::agents::seen(&mut tx, session, now()).await?;
    tx.commit().await?;
    Ok(newest)
}

fn ack_json(ack: &v1::Ack) -> serde_json::Value {
    let fence = ack.fence.unwrap_or_default();
    // No column takes U+0000.
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    let replica = |r: &v1::ReplicaState| json!({"replica": r.replica, "state": r.state().as_str_name().to_lowercase(), "error": text(&r.error), "interfered": r.interfered, "slowness": r.slowness});
    json!({
        "incarnation": fence.incarnation,
        "generation": fence.generation,
        "applied": ack.applied,
        "error": text(&ack.error),
        "replicas": ack.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

/// What is not known is null.
fn devices_json(devices: &[v1::DeviceStats]) -> serde_json::Value {
    let one = |d: &v1::DeviceStats| {
        json!({"device": d.device, "uuid": d.uuid.chars().take(TEXT_MAX).collect::<String>(), "memory_used": d.memory_used,
               "memory_total": d.memory_total, "utilisation": d.utilisation.filter(|u| u.is_finite())})
    };
    devices.iter().take(DEVICES_MAX as usize).map(one).collect()
}

/// Rows by pipeline and second: a bin's place on our clock is as long ago as its agent's uptime says. Rows come in the
/// order of their keys, so that two agents' transactions never wait for each other in a circle.
fn arrivals(report: &v1::Report, now_ms: i64) -> Vec<ArrivalsRow> {
    let mut rows: BTreeMap<(String, i64), ArrivalsRow> = BTreeMap::new();
    for part in report.arrivals.iter().take(REPORT_PIPELINES_MAX) {
        let row = |second: i64| ArrivalsRow { pipeline: part.pipeline.clone(), second, ..ArrivalsRow::default() };
        for (i, &count) in part.bins.iter().take(REPORT_BINS_MAX).enumerate().filter(|(_, count)| **count > 0) {
            let at = part.first_bin_ms + i as u64 * BIN_MS;
            let ago = report.uptime_ms.saturating_sub(at).min(60_000) as i64;
            let second = (now_ms - ago).div_euclid(1_000);
            rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second)).offered += i64::from(count);
        }
        if part.ok + part.late + part.dropped + part.failed > 0 {
            let second = now_ms.div_euclid(1_000);
            let row = rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second));
            row.ok += part.ok as i64;
            row.late += part.late as i64;
            row.dropped += part.dropped as i64;
            row.failed += part.failed as i64;
        }
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_laid_out_over_the_seconds_in_which_its_queries_arrived() {
        let part = v1::Arrivals {
            pipeline: "p".into(),
            first_bin_ms: 4_980,
            bins: vec![1, 2, 0, 5],
            ok: 3,
            late: 1,
            dropped: 0,
            failed: 0,
        };
        // The agent has run for 5.02 s and it is second 100.02 here: the first two bins fell into second 99.
        let report = v1::Report { uptime_ms: 5_020, arrivals: vec![part], groups: vec![], ..Default::default() };
        let rows = arrivals(&report, 100_020);
        let seen: Vec<_> = rows.iter().map(|r| (r.second, r.offered, r.ok, r.late)).collect();
        assert_eq!(seen, [(99, 3, 0, 0), (100, 5, 3, 1)]);
    }
}
