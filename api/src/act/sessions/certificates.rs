//! Which certificates does an agent get on its stream, and which does it have to show?

use super::outbox::{Outbox, send};
use crate::app::agent_security::AgentCertificateRule;
use crate::app::counts;
use crate::app::fleet_authorities::{CertificateRefusal, CertifiedAgent, FleetAuthorities};
use crate::app::{App, now};
use crate::store::{self, PgConnection};
use apportion_certificates::SigningRequest;
use apportion_protocol::v1::{self, control_message};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// How long a stream waits for the fleet's first authority, which the leader makes.
const AUTHORITY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause after a certificate: however many an agent asks for, one costs little.
const ISSUE_PAUSE: Duration = Duration::from_millis(100);

/// How much a stream may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamAdmission {
    /// All.
    Whole,
    /// It gets a certificate and ends.
    CertificateOnly,
}

/// Why the certificate of a stream could not be checked, or is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShownError {
    /// It is refused.
    #[error(transparent)]
    Refused(#[from] CertificateRefusal),
    /// There is no authority yet.
    #[error("the fleet has no authority yet")]
    NoAuthority,
    /// The database's.
    #[error(transparent)]
    Database(#[from] store::Error),
}

/// The certificate of a connection, with the authorities that judge it.
pub(super) struct ShownCertificate<'a> {
    certificate: &'a CertificateDer<'static>,
    authorities: Arc<FleetAuthorities>,
}

/// The certificate of a connection, once there are authorities that judge it; `None` if there is none, or none counts.
///
/// # Errors
/// [`ShownError::NoAuthority`].
pub(super) async fn with_authorities<'a>(
    app: &App,
    shown: Option<&'a CertificateDer<'static>>,
) -> Result<Option<ShownCertificate<'a>>, ShownError> {
    match shown.filter(|_| app.agent_security.certificates != AgentCertificateRule::Off) {
        Some(certificate) => {
            let authorities = wait_for_authorities(app).await.ok_or(ShownError::NoAuthority)?;
            Ok(Some(ShownCertificate { certificate, authorities }))
        }
        None => Ok(None),
    }
}

/// What a stream may do that shows this certificate for the agent with this name.
///
/// # Errors
/// If the certificate is refused, or the database does not answer.
pub(super) async fn check_shown(
    app: &App,
    db: &mut PgConnection,
    shown: Option<ShownCertificate<'_>>,
    name: &str,
) -> Result<StreamAdmission, ShownError> {
    let Some(ShownCertificate { certificate, authorities }) = shown else {
        return Ok(match app.agent_security.certificates {
            AgentCertificateRule::Require => StreamAdmission::CertificateOnly,
            AgentCertificateRule::Accept | AgentCertificateRule::Off => StreamAdmission::Whole,
        });
    };
    let agent = store::agents::identity(db, name).await?;
    let checked = authorities.check(certificate, agent.as_ref(), now());
    checked.inspect_err(|refusal| refusal.count().increment())?;
    Ok(StreamAdmission::Whole)
}

/// The authorities, once there are some.
async fn wait_for_authorities(app: &App) -> Option<Arc<FleetAuthorities>> {
    let mut authorities = app.authorities.subscribe();
    let found = tokio::time::timeout(AUTHORITY_WAIT_MAX, authorities.wait_for(Option::is_some)).await;
    found.ok()?.ok()?.clone()
}

/// Sends a certificate to an agent whose stream ends then; the agent comes again and shows it.
pub(super) async fn send_one(app: &App, certified: &CertifiedAgent, outbox: &Outbox) {
    if let Some(authorities) = wait_for_authorities(app).await
        && let Some(issued) = issue(app, &authorities, certified)
    {
        let last = v1::IssuedCertificate { come_again: true, ..issued };
        let _gone = send(outbox, control_message::Message::Certificate(last)).await;
    }
}

/// Sends certificates until the agent takes no more: the first at once, and others when the agent asks or the authorities
/// change. It sends none to an agent that wants none.
pub(super) async fn push(
    app: &App,
    certified: Option<CertifiedAgent>,
    mut asked: watch::Receiver<Option<SigningRequest>>,
    outbox: &Outbox,
) {
    let Some(mut certified) = certified else { return std::future::pending().await };
    let mut authorities = app.authorities.subscribe();
    authorities.mark_changed();
    loop {
        let changed = tokio::select! {
            changed = authorities.changed() => changed,
            changed = asked.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if let Some(request) = asked.borrow_and_update().clone() {
            certified.request = request;
        }
        let Some(known) = authorities.borrow_and_update().clone() else { continue };
        if let Some(issued) = issue(app, &known, &certified)
            && !send(outbox, control_message::Message::Certificate(issued)).await
        {
            return;
        }
        tokio::time::sleep(ISSUE_PAUSE).await;
    }
}

fn issue(app: &App, authorities: &FleetAuthorities, certified: &CertifiedAgent) -> Option<v1::IssuedCertificate> {
    let life = app.agent_security.certificate_life;
    let issued = authorities.issue(certified, life, now());
    let issued = issued.inspect_err(|error| {
        tracing::error!(agent = certified.name, %error, "an agent gets no certificate");
    });
    let certificate = issued.ok()?;
    counts::CERTIFICATES.increment();
    Some(v1::IssuedCertificate {
        agent: certified.identity.number.unsigned_abs(),
        certificate,
        authorities: authorities.certificates(),
        life_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
        come_again: false,
    })
}
