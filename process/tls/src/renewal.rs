//! How does a server get a new certificate without a restart?

use crate::files::{ApplicationProtocol, ClientCertificates, TlsFiles, TlsFilesError, read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// Pause between two looks at the files. Certificates are renewed days before their end.
pub const LOOK_AT_FILES_EVERY: Duration = Duration::from_secs(10);

/// By which the contents of a file are known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified_at: SystemTime,
    bytes: u64,
}

/// The stamp of a file; none if it is not there.
fn stamp(path: &Path) -> Option<FileStamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(FileStamp { modified_at: found.modified().ok()?, bytes: found.len() })
}

fn stamps(files: &TlsFiles) -> Vec<Option<FileStamp>> {
    let authorities = files.client_authorities.iter();
    [&files.certificate, &files.key].into_iter().chain(authorities).map(|path| stamp(path)).collect()
}

/// What was read last.
struct LoadedFiles {
    acceptor: TlsAcceptor,
    /// Of the files when they were last read, with success or not.
    stamps: Vec<Option<FileStamp>>,
}

/// What a look at the files has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The files are the same.
    Unchanged,
    /// New connections get the new certificate.
    Renewed,
}

/// The certificate of a port. Clones share it.
#[derive(Clone)]
pub struct ServerTls(Arc<SharedTls>);

struct SharedTls {
    files: TlsFiles,
    protocols: Vec<ApplicationProtocol>,
    clients: ClientCertificates,
    loaded: Mutex<LoadedFiles>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerTls").field(&self.0.files).finish()
    }
}

impl ServerTls {
    /// Reads the files of a port. Its server speaks these protocols, the preferred one first.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open(files: TlsFiles, protocols: &[ApplicationProtocol]) -> Result<Self, TlsFilesError> {
        Self::open_for(files, protocols, ClientCertificates::AsFiles)
    }

    /// The same for a port that asks its clients for certificates. TLS begins with any of them, and with none: the server
    /// gets it from [`crate::ServerStream::peer_certificate`] and checks it. The client has proven its key by then.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open_asking(files: TlsFiles, protocols: &[ApplicationProtocol]) -> Result<Self, TlsFilesError> {
        Self::open_for(files, protocols, ClientCertificates::Asked)
    }

    fn open_for(
        files: TlsFiles,
        protocols: &[ApplicationProtocol],
        clients: ClientCertificates,
    ) -> Result<Self, TlsFilesError> {
        let stamps = stamps(&files);
        let acceptor = TlsAcceptor::from(Arc::new(read(&files, protocols, clients)?));
        let loaded = Mutex::new(LoadedFiles { acceptor, stamps });
        Ok(Self(Arc::new(SharedTls { files, protocols: protocols.to_vec(), clients, loaded })))
    }

    /// Begins TLS on the next connection, with the newest certificate.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }

    /// Reads the files again if one of them has changed since they were read. Connections that are up stay up.
    ///
    /// # Errors
    /// If the changed files cannot be used. The last certificate stays, and the next call says `Unchanged` until a file
    /// changes again.
    pub fn renew(&self) -> Result<Renewal, TlsFilesError> {
        // Before the files are read: a file that changes meanwhile is read again.
        let found = stamps(&self.0.files);
        {
            let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            if loaded.stamps == found {
                return Ok(Renewal::Unchanged);
            }
            loaded.stamps = found;
        }
        let config = read(&self.0.files, &self.0.protocols, self.0.clients)?;
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Renewal::Renewed)
    }

    /// Looks at the files again and again. The log says which certificate could not be renewed, and why. It never ends.
    pub async fn follow_files(self) {
        loop {
            tokio::time::sleep(LOOK_AT_FILES_EVERY).await;
            let (this, file) = (self.clone(), self.0.files.certificate.display());
            // The disk may be slow.
            match tokio::task::spawn_blocking(move || this.renew()).await {
                Ok(Ok(Renewal::Unchanged)) => {}
                Ok(Ok(Renewal::Renewed)) => tracing::info!(%file, "the certificate was read again"),
                Ok(Err(error)) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, ?cause, "a changed certificate cannot be used: the last one stays");
                }
                Err(error) => tracing::error!(%file, %error, "the certificate could not be looked at"),
            }
        }
    }
}
