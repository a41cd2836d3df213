//! Where do autoscalers ask the service, by the arguments of `apportion serve`?

use apportion_api::{ScalersConfig, TlsFiles};
use apportion_wire::BadInput;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The arguments of the autoscalers' port.
#[derive(Args, Debug)]
pub struct ScalersArgs {
    /// Address where KEDA and Kubernetes' HorizontalPodAutoscaler ask for the advised replicas [default: none].
    #[arg(long, env = "APPORTION_SCALERS", value_name = "ADDRESS")]
    scalers: Option<SocketAddr>,
    /// File with the certificate of this port and its chain, as PEM. Without it the port has no TLS.
    #[arg(long, value_name = "FILE")]
    scalers_certificate: Option<PathBuf>,
    /// File with the key of this certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    scalers_key: Option<PathBuf>,
    /// File with the authorities of the autoscalers' own certificates, as PEM. With it, others are refused.
    #[arg(long, value_name = "FILE")]
    scalers_client_ca: Option<PathBuf>,
}

impl ScalersArgs {
    /// The configuration, if there is such a port.
    ///
    /// # Errors
    /// If an argument lacks another one that it needs.
    pub fn read(self) -> Result<Option<ScalersConfig>, BadInput> {
        let alone = |flag: &str, other: &str| BadInput::one(flag, "", "a file", format!("{other} beside it"));
        let tls = match (self.scalers_certificate, self.scalers_key, self.scalers_client_ca) {
            (Some(certificate), Some(key), client_authorities) => Some(TlsFiles { certificate, key, client_authorities }),
            (Some(_), None, _) => return Err(alone("--scalers-certificate", "--scalers-key")),
            (None, Some(_), _) => return Err(alone("--scalers-key", "--scalers-certificate")),
            (None, None, Some(_)) => return Err(alone("--scalers-client-ca", "--scalers-certificate")),
            (None, None, None) => None,
        };
        match (self.scalers, tls) {
            (Some(address), tls) => Ok(Some(ScalersConfig { address, tls })),
            (None, Some(_)) => Err(alone("--scalers-certificate", "--scalers")),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: Option<&str>, [certificate, key, ca]: [Option<&str>; 3]) -> Result<Option<ScalersConfig>, BadInput> {
        let args = ScalersArgs {
            scalers: address.map(|address| address.parse().expect("an address")),
            scalers_certificate: certificate.map(PathBuf::from),
            scalers_key: key.map(PathBuf::from),
            scalers_client_ca: ca.map(PathBuf::from),
        };
        args.read()
    }

    #[test]
    fn a_certificate_has_a_key_and_a_port() {
        let port = Some("127.0.0.1:7072");
        assert!(read(None, [None; 3]).is_ok_and(|config| config.is_none()));
        assert!(read(port, [Some("c"), Some("k"), Some("a")]).is_ok_and(|config| config.is_some_and(|c| c.tls.is_some())));
        for (address, files, expected) in [
            (port, [Some("c"), None, None], "--scalers-certificate: a file: expected --scalers-key beside it"),
            (port, [None, Some("k"), None], "--scalers-key: a file: expected --scalers-certificate beside it"),
            (port, [None, None, Some("a")], "--scalers-client-ca: a file: expected --scalers-certificate beside it"),
            (None, [Some("c"), Some("k"), None], "--scalers-certificate: a file: expected --scalers beside it"),
        ] {
            assert_eq!(read(address, files).err().map(|refused| refused.to_string()).as_deref(), Some(expected));
        }
    }
}
