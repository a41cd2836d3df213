//! The agents' end of the protocol: one session for each stream.

use super::guests::Guest;
use super::hand_out;
use super::heard::Over;
use super::liveness::SILENCE_MAX;
use super::uptime::Uptime;
use crate::app::{App, now};
use crate::parts::Part;
use crate::store::{self, agents::AgentRow, arrivals::ArrivalsRow, target::TargetRow};
use apportion_protocol::v1::{self, agent_message, control_message, control_server::Control, refused::Reason};
use apportion_protocol::{DEVICES_MAX, PROTOCOL_VERSION};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

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
/// Most answers of one kind in a report that are believed.
const COUNT_MAX: u64 = u32::MAX as u64;
/// Width of a report's bin.
const BIN_MS: u64 = 10;

/// The gRPC service.
pub struct Sessions(pub App);

type Outbox = mpsc::Sender<Result<v1::ControlMessage, Status>>;

#[tonic::async_trait]
impl Control for Sessions {
    type AttachStream = Pin<Box<ReceiverStream<Result<v1::ControlMessage, Status>>>>;
    type FetchStream = hand_out::Chunks;

    async fn fetch(&self, request: Request<v1::FileRequest>) -> Result<Response<Self::FetchStream>, Status> {
        hand_out::fetch(&self.0, request.into_inner()).await
    }

    async fn attach(&self, request: Request<Streaming<v1::AgentMessage>>) -> Result<Response<Self::AttachStream>, Status> {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        let guest = request.extensions().get::<Guest>().cloned();
        let session = session(self.0.clone(), request.into_inner(), outbox, guest);
        self.0.spawn(Part::Session, session);
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
    let ended = match send(&outbox, control_message::Message::Welcome(welcome)).await {
        true => converse(&app, session, &mut inbox, &outbox).await,
        false => Ended::Broken,
    };
    tracing::info!(agent = name, ?ended, "agent's stream ended");
    end(&app, session, ended, &outbox).await;
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The agent leaves on purpose.
    Left,
    /// The connection is gone; the agent may be there.
    Broken,
    /// This process has ended it.
    Over(Over),
    /// The service stops; the agent keeps serving and comes back.
    Stopping,
}

async fn end(app: &App, session: Uuid, ended: Ended, outbox: &Outbox) {
    match ended {
        Ended::Stopping => {}
        // Not lost yet: it is waited for.
        Ended::Broken => app.heard.break_off(session),
        Ended::Over(over) => {
            app.heard.forget(session);
            if over == Over::Replaced {
                // The older stream is told why it ends: its agent has not left.
                let why = "a newer stream of this agent has replaced this one";
                refuse(outbox, Reason::NameTaken, why).await;
            }
        }
        Ended::Left => {
            app.heard.forget(session);
            let result = async { store::agents::end(&mut *app.pool.acquire().await?, session, "left").await }.await;
            if let Err(error) = result {
                tracing::error!(%error, "that an agent left could not be recorded");
            }
            app.fleet_changed.notify_one();
        }
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
        let is_there = heard && !app.heard.is_broken(known.session);
        if known.state == "live" && is_there && !is_same_agent(&known.process_id, &register) {
            let detail = format!("an agent named {} is in the fleet and alive; give this one another name", register.name);
            return Err(Refusal::Reason(Reason::NameTaken, detail));
        }
    }
    check_fence(&store::target::get(&mut tx).await?, &register)?;
    let session = Uuid::now_v7();
    let row = AgentRow {
        number: i64::try_from(register.number).unwrap_or(0),
        name: register.name.clone(),
        hardware: register.hardware.clone(),
        devices: register.devices as i32,
        ingress_http: register.ingress_http.clone(),
        ingress_grpc: register.ingress_grpc.clone(),
        data_address: register.data_address.clone(),
        process_id: stored_process(&register),
        session,
        state: "live".into(),
        registered_at: at,
        seen_at: at,
        ack: None,
        device_use: None,
        load_failures: json!([]),
    };
    let number = store::agents::register(&mut tx, &row, app.heard.process).await?;
    tx.commit().await?;
    app.heard.begin(session);
    let welcome =
        v1::Welcome { agent: number as u64, report_ms: REPORT_EVERY.as_millis() as u32, files_url: app.files_url.clone() };
    Ok((session, welcome))
}

/// Refuses an agent that is ahead of this database: it would take no target from here.
fn check_fence(target: &TargetRow, register: &v1::Register) -> Result<(), Refusal> {
    let Some(fence) = register.fence.filter(|fence| fence.incarnation > 0) else { return Ok(()) };
    let (theirs, ours) = ((fence.incarnation, fence.generation), (target.incarnation as u64, target.generation as u64));
    if theirs > ours {
        let detail = format!(
            "this agent has obeyed target {}.{}, but the service's is {}.{}: its database is older than the fleet. If it was \
             restored, run `apportion restore-finish`",
            theirs.0, theirs.1, ours.0, ours.1
        );
        return Err(Refusal::Reason(Reason::Stale, detail));
    }
    if theirs.0 < ours.0 && target.generation == 0 {
        let (agent, target) = (&register.name, format!("{}.{}", theirs.0, theirs.1));
        tracing::warn!(agent, target, "the agent serves the target of another database; it does so until one is made here");
    }
    Ok(())
}

/// A process as it is stored: after its agent's id, if it has told one.
fn stored_process(register: &v1::Register) -> String {
    if register.agent_id.is_empty() {
        register.process_id.clone()
    } else {
        format!("{}/{}", register.agent_id, register.process_id)
    }
}

/// Whether who registers is the agent whose process is stored: the same process, or another one with its state directory, which
/// two processes cannot have at a time.
fn is_same_agent(stored: &str, register: &v1::Register) -> bool {
    let agent = stored.split_once('/').map(|(agent, _)| agent);
    stored == stored_process(register) || (agent.is_some() && agent == Some(register.agent_id.as_str()))
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
    let optional = [("ingress_grpc", &register.ingress_grpc), ("agent_id", &register.agent_id)];
    if let Some((key, text)) = optional.iter().find(|(_, text)| text.len() > TEXT_MAX) {
        return refuse(Reason::Invalid, format!("{key}: {} bytes: expected at most {TEXT_MAX}", text.len()));
    }
    match texts.iter().find(|(_, text)| text.is_empty() || text.len() > TEXT_MAX) {
        Some((key, text)) => refuse(Reason::Invalid, format!("{key}: {} bytes: expected 1 to {TEXT_MAX}", text.len())),
        None => Ok(()),
    }
}

/// The life of a registered stream. What is heard and what is pushed do not wait for each other.
async fn converse(app: &App, session: Uuid, inbox: &mut Streaming<v1::AgentMessage>, outbox: &Outbox) -> Ended {
    tokio::select! {
        () = app.stopped() => Ended::Stopping,
        () = push_targets(app, outbox) => Ended::Broken,
        over = app.heard.over(session) => Ended::Over(over),
        ended = hear(app, session, inbox) => ended,
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

/// Takes in what an agent says, until its stream ends. Nothing here waits for the database, so an agent is heard of while it stalls.
async fn hear(app: &App, session: Uuid, inbox: &mut Streaming<v1::AgentMessage>) -> Ended {
    let mut uptime = Uptime::default();
    loop {
        let Ok(Some(message)) = inbox.message().await else { return Ended::Broken };
        app.heard.note(session);
        match message.message {
            Some(agent_message::Message::Leaving(_)) => return Ended::Left,
            Some(agent_message::Message::Ack(ack)) => app.records.ack(session, ack),
            Some(agent_message::Message::Report(report)) => {
                let late = uptime.late_by(Instant::now(), report.uptime_ms);
                let sent = now() - late;
                let devices = (!report.devices.is_empty()).then(|| devices_json(&report.devices));
                app.records.report(session, devices, arrivals(&report, sent.timestamp_millis()));
            }
            Some(agent_message::Message::Register(_)) | None => {}
        }
    }
}

pub(super) fn ack_json(ack: &v1::Ack) -> serde_json::Value {
    let fence = ack.fence.unwrap_or_default();
    let replica = |r: &v1::ReplicaState| json!({"replica": r.replica, "state": r.state().as_str_name().to_lowercase(), "error": storable(&r.error), "interfered": r.interfered, "slowness": r.slowness});
    json!({
        "incarnation": fence.incarnation,
        "generation": fence.generation,
        "applied": ack.applied,
        "error": storable(&ack.error),
        "replicas": ack.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

/// PostgreSQL's texts have no NUL.
fn storable(text: &str) -> String {
    text.replace('\0', "")
}

/// What is not known is null.
fn devices_json(devices: &[v1::DeviceStats]) -> serde_json::Value {
    let one = |d: &v1::DeviceStats| {
        json!({"device": d.device, "uuid": storable(&d.uuid).chars().take(TEXT_MAX).collect::<String>(), "memory_used": d.memory_used,
               "memory_total": d.memory_total, "utilisation": d.utilisation.filter(|u| u.is_finite())})
    };
    devices.iter().take(DEVICES_MAX as usize).map(one).collect()
}

/// Rows by pipeline and second: a bin's place on our clock is as long before `sent_ms` as its agent's uptime says. A pipeline
/// that no one can have registered is left out.
fn arrivals(report: &v1::Report, sent_ms: i64) -> Vec<ArrivalsRow> {
    let mut rows: BTreeMap<(String, i64), ArrivalsRow> = BTreeMap::new();
    let is_name = |name: &str| !name.is_empty() && name.len() <= TEXT_MAX && !name.contains('\0');
    for part in report.arrivals.iter().take(REPORT_PIPELINES_MAX).filter(|part| is_name(&part.pipeline)) {
        let row = |second: i64| ArrivalsRow { pipeline: part.pipeline.clone(), second, ..ArrivalsRow::default() };
        for (i, &count) in part.bins.iter().take(REPORT_BINS_MAX).enumerate().filter(|(_, count)| **count > 0) {
            let at = part.first_bin_ms.saturating_add(i as u64 * BIN_MS);
            let ago = report.uptime_ms.saturating_sub(at).min(REPORT_BINS_MAX as u64 * BIN_MS) as i64;
            let second = (sent_ms - ago).div_euclid(1_000);
            rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second)).offered += i64::from(count);
        }
        let [ok, late, dropped, failed] =
            [part.ok, part.late, part.dropped, part.failed].map(|count| count.min(COUNT_MAX) as i64);
        if ok + late + dropped + failed > 0 {
            let second = sent_ms.div_euclid(1_000);
            let row = rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second));
            row.ok += ok;
            row.late += late;
            row.dropped += dropped;
            row.failed += failed;
        }
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_the_same_agent_and_another_process_is_not() {
        let of = |agent_id: &str, process_id: &str| v1::Register {
            agent_id: agent_id.into(),
            process_id: process_id.into(),
            ..Default::default()
        };
        let first = of("agent", "1");
        for (other, is_same) in
            [(of("agent", "1"), true), (of("agent", "2"), true), (of("other", "1"), false), (of("", "1"), false)]
        {
            assert_eq!(is_same_agent(&stored_process(&first), &other), is_same, "{other:?}");
        }
        let nameless = of("", "1");
        assert!(is_same_agent(&stored_process(&nameless), &nameless));
        assert!(!is_same_agent(&stored_process(&nameless), &of("", "2")) && !is_same_agent("", &of("", "2")));
    }

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

    #[test]
    fn counts_and_names_that_no_database_takes_are_bounded() {
        let part = |pipeline: &str| v1::Arrivals { pipeline: pipeline.into(), ok: u64::MAX, ..Default::default() };
        let long = "x".repeat(TEXT_MAX + 1);
        let arrivals_of = ["p", "a\0b", "", &long].map(part).to_vec();
        let report = v1::Report { arrivals: arrivals_of, ..Default::default() };
        let rows = arrivals(&report, 100_020);
        assert_eq!(rows.iter().map(|r| (r.pipeline.as_str(), r.ok)).collect::<Vec<_>>(), [("p", i64::from(u32::MAX))]);
        let ack = v1::Ack { error: "a\0b".into(), ..Default::default() };
        assert_eq!(ack_json(&ack)["error"], "ab");
    }
}
