//! Where do autoscalers ask the service, by the arguments of `apportion serve`?

use apportion_api::{ScalersConfig, TlsFiles};
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
    #[arg(long, value_name = "FILE", requires = "scalers", requires = "scalers_key")]
    scalers_certificate: Option<PathBuf>,
    /// File with the key of this certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "scalers_certificate")]
    scalers_key: Option<PathBuf>,
    /// File with the authorities of the autoscalers' own certificates, as PEM. With it, others are refused.
    #[arg(long, value_name = "FILE", requires = "scalers_certificate")]
    scalers_client_ca: Option<PathBuf>,
}

impl ScalersArgs {
    /// The configuration, if there is such a port.
    pub fn read(self) -> Option<ScalersConfig> {
        let files = self.scalers_certificate.zip(self.scalers_key);
        let tls = files.map(|(certificate, key)| TlsFiles { certificate, key, client_authorities: self.scalers_client_ca });
        self.scalers.map(|address| ScalersConfig { address, tls })
    }
}
