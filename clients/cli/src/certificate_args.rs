//! By which certificate is the service known, by the arguments of `apportion serve`?

use apportion_api::TlsFiles;
use clap::Args;
use std::path::PathBuf;

/// The arguments about the service's own certificate.
#[derive(Args, Debug)]
pub struct CertificateArgs {
    /// File with the certificate of HTTP and its chain, as PEM. It is read again when it changes [default: HTTP has no TLS].
    #[arg(long, value_name = "FILE", env = "APPORTION_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the key of this certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "APPORTION_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The agents' port has TLS too, with the same certificate. Agents then join at https://.
    #[arg(long, requires = "tls_cert")]
    agents_tls: bool,
}

/// The files of each port.
pub struct PortFiles {
    /// Of HTTP.
    pub http: Option<TlsFiles>,
    /// Of the agents' port.
    pub agents: Option<TlsFiles>,
}

impl CertificateArgs {
    /// The files of each port that has TLS.
    pub fn read(self) -> PortFiles {
        let files = self.tls_cert.zip(self.tls_key);
        let http = files.map(|(certificate, key)| TlsFiles { certificate, key, client_authorities: None });
        PortFiles { agents: http.clone().filter(|_| self.agents_tls), http }
    }
}
