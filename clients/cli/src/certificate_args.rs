//! By which certificate is the service known, by the arguments of `apportion serve`?

use apportion_api::TlsFiles;
use apportion_wire::BadInput;
use clap::Args;
use std::path::PathBuf;

/// The arguments about the service's own certificate.
#[derive(Args, Debug)]
pub struct CertificateArgs {
    /// File with the certificate of HTTP and its chain, as PEM. It is read again when it changes [default: HTTP has no
    /// TLS].
    #[arg(long, value_name = "FILE", env = "APPORTION_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// File with the key of this certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "APPORTION_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// The agents' port has TLS too, with the same certificate. Agents then join at https://.
    #[arg(long)]
    agents_tls: bool,
}

/// The files of each port.
#[derive(Debug)]
pub struct PortFiles {
    /// Of HTTP.
    pub http: Option<TlsFiles>,
    /// Of the agents' port.
    pub agents: Option<TlsFiles>,
}

impl CertificateArgs {
    /// The files of each port that has TLS.
    ///
    /// # Errors
    /// If an argument lacks another one that it needs.
    pub fn read(self) -> Result<PortFiles, BadInput> {
        let alone = |flag: &str, found: &str, other: &str| BadInput::one(flag, "", found, format!("{other} beside it"));
        let http = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key, client_authorities: None }),
            (Some(_), None) => return Err(alone("--tls-cert", "a file", "--tls-key")),
            (None, Some(_)) => return Err(alone("--tls-key", "a file", "--tls-cert")),
            (None, None) if self.agents_tls => return Err(alone("--agents-tls", "no certificate", "--tls-cert")),
            (None, None) => None,
        };
        Ok(PortFiles { agents: http.clone().filter(|_| self.agents_tls), http })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(certificate: Option<&str>, key: Option<&str>, agents_tls: bool) -> CertificateArgs {
        CertificateArgs { tls_cert: certificate.map(PathBuf::from), tls_key: key.map(PathBuf::from), agents_tls }
    }

    #[test]
    fn a_certificate_has_a_key() {
        assert!(args(None, None, false).read().is_ok_and(|files| files.http.is_none() && files.agents.is_none()));
        assert!(args(Some("c"), Some("k"), false).read().is_ok_and(|files| files.http.is_some() && files.agents.is_none()));
        assert!(args(Some("c"), Some("k"), true).read().is_ok_and(|files| files.http == files.agents));
        for (wrong, expected) in [
            (args(Some("c"), None, false), "--tls-cert: a file: expected --tls-key beside it"),
            (args(None, Some("k"), true), "--tls-key: a file: expected --tls-cert beside it"),
            (args(None, None, true), "--agents-tls: no certificate: expected --tls-cert beside it"),
        ] {
            assert_eq!(wrong.read().expect_err(expected).to_string(), expected);
        }
    }
}
