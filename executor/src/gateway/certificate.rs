//! By which certificate are the gateway's two ports known?

use apportion_tls::{ApplicationProtocol, ServerTls, TlsFiles, TlsFilesError};

/// The certificate of the gateway, once for each port: they speak different protocols.
#[derive(Clone, Debug)]
pub struct GatewayTls {
    pub(super) http: ServerTls,
    pub(super) grpc: ServerTls,
}

impl GatewayTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsFilesError> {
        let http = ServerTls::open(files.clone(), &[ApplicationProtocol::Http1])?;
        Ok(Self { http, grpc: ServerTls::open(files, &[ApplicationProtocol::Http2])? })
    }

    /// Reads the files again whenever they change. It never ends.
    pub async fn follow_files(self) {
        tokio::join!(self.http.follow_files(), self.grpc.follow_files());
    }
}
