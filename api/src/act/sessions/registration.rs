//! Which agents may register, and under which identity?

use super::certificates::{ShownError, StreamAdmission, check_shown, with_authorities};
use crate::app::agent_security::AgentCertificateRule;
use crate::app::counts;
use crate::app::fleet_authorities::CertifiedAgent;
use crate::app::{App, now};
use crate::decide::heartbeat::SILENCE_MAX;
use crate::store::{self, PgConnection, agents::AgentRow, target::TargetRow};
use apportion_certificates::SigningRequest;
use apportion_domain::{Fence, Generation};
use apportion_protocol::v1::{self, refused::Reason};
use apportion_protocol::{DEVICES_MAX, PROTOCOL_VERSION, TEXT_BYTES_MAX};
use apportion_wire::AgentState;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio_rustls::rustls::pki_types::CertificateDer;
use uuid::Uuid;

/// How often agents report.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Why an agent was not registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    /// The service refuses it.
    #[error("{detail}")]
    Refused {
        /// The reason as the protocol names it.
        reason: Reason,
        /// The reason in words.
        detail: String,
    },
    /// The database's.
    #[error("the database does not answer")]
    Database(#[from] store::Error),
    /// Its certificate cannot be checked yet.
    #[error("the fleet has no authority for certificates yet")]
    NoAuthority,
}

impl From<ShownError> for RegisterError {
    fn from(error: ShownError) -> Self {
        match error {
            ShownError::Refused(refusal) => Self::Refused { reason: Reason::Certificate, detail: refusal.to_string() },
            ShownError::NoAuthority => Self::NoAuthority,
            ShownError::Database(error) => Self::Database(error),
        }
    }
}

fn refused<T>(reason: Reason, detail: impl Into<String>) -> Result<T, RegisterError> {
    Err(RegisterError::Refused { reason, detail: detail.into() })
}

/// A registered agent.
pub(super) struct RegisteredAgent {
    /// The identifier of its new stream.
    pub(super) session: Uuid,
    /// The service's answer.
    pub(super) welcome: v1::Welcome,
    /// To get certificates; `None` if it wants none.
    pub(super) certified: Option<CertifiedAgent>,
    /// What its stream may do.
    pub(super) admission: StreamAdmission,
}

/// Checks a registration and stores it. `shown` is the certificate of its connection.
pub(super) async fn register(
    app: &App,
    register: v1::Register,
    shown: Option<&CertificateDer<'static>>,
) -> Result<RegisteredAgent, RegisterError> {
    check_fields(app, &register)?;
    let request = certificate_request(app, &register)?;
    // The part that reads the authorities needs a connection to the database too, so none is held meanwhile.
    let shown = with_authorities(app, shown).await?;
    let mut tx = app.pool.begin().await?;
    check_name(app, &mut tx, &register).await?;
    let admission = check_shown(app, &mut tx, shown, &register.name).await?;
    if admission == StreamAdmission::CertificateOnly && request.is_none() {
        counts::WITHOUT_CERTIFICATE.increment();
        let detail = "this service requires certificates of agents, and this agent asks for none: use the same release";
        return refused(Reason::Certificate, detail);
    }
    check_fence(&store::target::get(&mut tx).await?, &register)?;
    let session = Uuid::now_v7();
    let number = store::agents::register(&mut tx, &agent_row(&register, session), app.heartbeats.process).await?;
    let identity = store::agents::identity(&mut tx, &register.name).await?;
    tx.commit().await?;
    app.heartbeats.open_stream(session);
    let welcome =
        v1::Welcome { agent: number as u64, report_ms: REPORT_EVERY.as_millis() as u32, files_url: app.files_url.clone() };
    let certified = identity.zip(request).map(|(identity, request)| CertifiedAgent {
        identity,
        name: register.name,
        data_address: register.data_address,
        request,
    });
    Ok(RegisteredAgent { session, welcome, certified, admission })
}

/// The request of an agent that wants certificates, where agents get some.
fn certificate_request(app: &App, register: &v1::Register) -> Result<Option<SigningRequest>, RegisterError> {
    let is_wanted = !register.certificate_request.is_empty();
    if !is_wanted || app.agent_security.certificates == AgentCertificateRule::Off {
        return Ok(None);
    }
    match SigningRequest::read(&register.certificate_request) {
        Ok(request) => Ok(Some(request)),
        Err(error) => refused(Reason::Invalid, format!("certificate_request: {error}")),
    }
}

/// Refuses an agent whose name another live agent has; the name is locked until the transaction ends.
async fn check_name(app: &App, tx: &mut PgConnection, register: &v1::Register) -> Result<(), RegisterError> {
    let Some(known) = store::agents::lock(tx, &register.name).await? else { return Ok(()) };
    let is_recent = (now() - known.seen_at).to_std().unwrap_or_default() < SILENCE_MAX;
    let is_connected = is_recent && !app.heartbeats.is_disconnected(known.session);
    if known.state == AgentState::Live && is_connected && !is_same_agent(&known.process_id, register) {
        let detail = format!("an agent named {} is in the fleet and alive; give this one another name", register.name);
        return refused(Reason::NameTaken, detail);
    }
    Ok(())
}

fn agent_row(register: &v1::Register, session: Uuid) -> AgentRow {
    let at = now();
    AgentRow {
        number: i64::try_from(register.number).unwrap_or(0),
        name: register.name.clone(),
        hardware: register.hardware.clone(),
        devices: register.devices as i32,
        ingress_http: register.ingress_http.clone(),
        ingress_grpc: register.ingress_grpc.clone(),
        data_address: register.data_address.clone(),
        process_id: stored_process(register),
        session,
        state: AgentState::Live,
        registered_at: at,
        seen_at: at,
        ack: None,
        device_use: None,
        load_failures: json!([]),
        cordoned: false,
        hops: None,
        load_times: json!([]),
        zone: register.zone.clone(),
        backend: register.backend.clone(),
        measured: Vec::new(),
    }
}

/// Refuses an agent that has a later target than this database: it would take no target from here.
fn check_fence(target: &TargetRow, register: &v1::Register) -> Result<(), RegisterError> {
    let Some(fence) = register.fence.filter(|fence| fence.incarnation > 0) else { return Ok(()) };
    let theirs = Fence::from(fence);
    let ours = Fence { incarnation: target.incarnation as u64, generation: Generation(target.generation as u64) };
    let shown = |fence: Fence| format!("{}.{}", fence.incarnation, fence.generation.0);
    if theirs > ours {
        let detail = format!(
            "this agent has obeyed target {}, but the service's is {}: its database is older than the fleet. \
             If it was restored, run `apportion restore-finish`",
            shown(theirs),
            shown(ours)
        );
        return refused(Reason::Stale, detail);
    }
    if theirs.incarnation < ours.incarnation && target.generation == 0 {
        let (agent, target) = (&register.name, shown(theirs));
        tracing::warn!(agent, target, "the agent serves the target of another database; it does so until one is made here");
    }
    Ok(())
}

/// The text under which a process is stored: `agent_id/process_id`, or the process alone if the agent has sent no id.
fn stored_process(register: &v1::Register) -> String {
    if register.agent_id.is_empty() {
        register.process_id.clone()
    } else {
        format!("{}/{}", register.agent_id, register.process_id)
    }
}

/// Whether the agent that registers is the stored one: it is the same process, or another process with the same state
/// directory. Two processes cannot have one state directory at a time.
fn is_same_agent(stored: &str, register: &v1::Register) -> bool {
    let agent = stored.split_once('/').map(|(agent, _)| agent);
    stored == stored_process(register) || (agent.is_some() && agent == Some(register.agent_id.as_str()))
}

/// Refuses a wrong token, a wrong version, and fields that are out of their bounds.
fn check_fields(app: &App, register: &v1::Register) -> Result<(), RegisterError> {
    // Digests are compared, so that the duration reveals nothing about the token.
    if Sha256::digest(register.token.as_bytes()) != Sha256::digest(app.token.as_bytes()) {
        return refused(Reason::Token, "the token is not the service's");
    }
    if register.protocol_version != PROTOCOL_VERSION {
        let versions = format!("{}, the service {PROTOCOL_VERSION}", register.protocol_version);
        return refused(Reason::Version, format!("the agent speaks protocol version {versions}; use the same release"));
    }
    if register.devices == 0 || register.devices > DEVICES_MAX {
        return refused(Reason::Invalid, format!("devices: {}: expected 1 to {DEVICES_MAX}", register.devices));
    }
    let texts = [
        ("name", &register.name),
        ("hardware", &register.hardware),
        ("ingress_http", &register.ingress_http),
        ("data_address", &register.data_address),
        ("process_id", &register.process_id),
    ];
    // Agents of older releases do not send these.
    let optional = [
        ("ingress_grpc", &register.ingress_grpc),
        ("agent_id", &register.agent_id),
        ("zone", &register.zone),
        ("backend", &register.backend),
    ];
    if let Some((key, text)) = optional.iter().find(|(_, text)| text.len() > TEXT_BYTES_MAX) {
        return refused(Reason::Invalid, format!("{key}: {} bytes: expected at most {TEXT_BYTES_MAX}", text.len()));
    }
    match texts.iter().find(|(_, text)| text.is_empty() || text.len() > TEXT_BYTES_MAX) {
        Some((key, text)) => {
            refused(Reason::Invalid, format!("{key}: {} bytes: expected 1 to {TEXT_BYTES_MAX}", text.len()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_agent_is_recognised() {
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
}
