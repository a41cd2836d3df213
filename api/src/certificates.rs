//! Which ports of the service have a certificate, and how is it renewed?

use crate::app::App;
use crate::app::agent_security::{AgentCertificateRule, AgentsPort};
use crate::app::parts::ServicePart;
use apportion_tls::{ApplicationProtocol, ServerTls, TlsFiles, TlsFilesError};
use tokio::task::JoinHandle;

/// Why a port has no certificate.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of {port} cannot be used")]
pub struct CertificateError {
    port: &'static str,
    #[source]
    source: TlsFilesError,
}

/// Reads the certificate of a port, if it has one.
///
/// # Errors
/// If a file cannot be used.
pub fn open_certificate(
    port: &'static str,
    files: Option<TlsFiles>,
    protocols: &[ApplicationProtocol],
) -> Result<Option<ServerTls>, CertificateError> {
    let opened = files.map(|files| ServerTls::open(files, protocols)).transpose();
    opened.map_err(|source| CertificateError { port, source })
}

/// The certificates of the ports that agents and clients of HTTP use.
pub struct PortCertificates {
    /// Of HTTP; none: it has no TLS.
    pub http: Option<ServerTls>,
    /// Of the agents' port; none: it has no TLS.
    pub agents: Option<ServerTls>,
}

impl PortCertificates {
    /// Reads them.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open(
        http: Option<TlsFiles>,
        agents: Option<TlsFiles>,
        rule: AgentCertificateRule,
    ) -> Result<Self, CertificateError> {
        let http = open_certificate("HTTP", http, &[ApplicationProtocol::Http1])?;
        let protocols = &[ApplicationProtocol::Http2];
        let opened = agents.map(|files| match rule {
            AgentCertificateRule::Off => ServerTls::open(files, protocols),
            AgentCertificateRule::Accept | AgentCertificateRule::Require => ServerTls::open_asking(files, protocols),
        });
        let agents = opened.transpose().map_err(|source| CertificateError { port: "the agents' port", source })?;
        Ok(Self { http, agents })
    }

    /// Whether agents join over TLS.
    pub fn agents_port(&self) -> AgentsPort {
        if self.agents.is_some() { AgentsPort::Tls } else { AgentsPort::Plain }
    }

    /// How the URL of HTTP begins.
    pub fn http_scheme(&self) -> &'static str {
        if self.http.is_some() { "https" } else { "http" }
    }

    /// How the URL begins at which agents join.
    pub fn agents_scheme(&self) -> &'static str {
        if self.agents.is_some() { "https" } else { "http" }
    }
}

/// Renews a certificate with its files, until the service stops.
pub fn follow_files(app: &App, tls: ServerTls) -> JoinHandle<()> {
    let stopping = app.clone();
    app.run(ServicePart::Certificates, async move {
        tokio::select! {
            () = stopping.stopped() => {}
            () = tls.follow_files() => {}
        }
    })
}
