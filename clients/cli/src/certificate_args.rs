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
}

impl CertificateArgs {
    /// The files, if there are any.
    pub fn read(self) -> Option<TlsFiles> {
        let files = self.tls_cert.zip(self.tls_key);
        files.map(|(certificate, key)| TlsFiles { certificate, key, client_authorities: None })
    }
}
