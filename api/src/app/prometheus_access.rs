//! Which Prometheus servers may the service ask, and with which token?
//!
//! Pipelines name servers, and clients register pipelines. Without this list a client could make the service call any
//! address that the service reaches. Tokens are named here only, so no pipeline holds one.

use apportion_prometheus::limits::{CA_BYTES_MAX, TOKEN_BYTES_MAX};
use apportion_prometheus::{BearerToken, PrometheusClient, PrometheusServer, ServerError, origin};
use apportion_wire::PrometheusQuerySpec;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// A file. It is read at each query, because tokens of Kubernetes are replaced every hour.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

/// A Prometheus that the service may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedPrometheus {
    /// Its URL; scheme, host and port count.
    pub url: String,
    /// Where the token of its requests is.
    pub token: Option<TokenPlace>,
    /// File with the authorities that vouch for it, as PEM; without it those of this machine.
    pub authorities: Option<PathBuf>,
}

/// Why a Prometheus cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The list does not have it.
    #[error("{url}: expected a server that the service may ask ({listed}): `apportion serve --prometheus URL` lists one")]
    NotListed {
        /// The server.
        url: String,
        /// The listed origins.
        listed: String,
    },
    /// The token or the authorities cannot be read.
    #[error("{place} cannot be read: {why}")]
    Unreadable {
        /// The file or the variable.
        place: String,
        /// Why not.
        why: String,
    },
    /// The server cannot be used.
    #[error("{url}: {why}")]
    Server {
        /// The URL.
        url: String,
        /// Why not.
        why: ServerError,
    },
}

/// The servers that the service may ask, by origin.
#[derive(Clone, Debug, Default)]
pub struct PrometheusAccess(BTreeMap<String, AllowedPrometheus>);

impl PrometheusAccess {
    /// Reads the list, and each token and authority once, so that a wrong one is found at the start.
    ///
    /// # Errors
    /// If an entry cannot be used.
    pub async fn new(servers: Vec<AllowedPrometheus>) -> Result<Self, AccessError> {
        let mut access = Self::default();
        for server in servers {
            let origin = origin(&server.url).map_err(|why| AccessError::Server { url: server.url.clone(), why })?;
            access.0.insert(origin, server);
        }
        for server in access.0.values() {
            access.client(&server.url, Duration::from_secs(1)).await?;
        }
        Ok(access)
    }

    /// A client for a query.
    ///
    /// # Errors
    /// If its server is not listed, or its token or authorities cannot be used.
    pub async fn client_for(&self, query: &PrometheusQuerySpec) -> Result<PrometheusClient, AccessError> {
        self.client(&query.url, Duration::from_secs_f64(query.timeout_s.clamp(0.1, 10.0))).await
    }

    async fn client(&self, url: &str, timeout: Duration) -> Result<PrometheusClient, AccessError> {
        let wrong = |why| AccessError::Server { url: url.to_owned(), why };
        let allowed = self.0.get(&origin(url).map_err(wrong)?).ok_or_else(|| self.not_listed(url))?;
        let token = match &allowed.token {
            Some(place) => Some(BearerToken::parse(&read_token(place).await?).map_err(wrong)?),
            None => None,
        };
        let authorities = match &allowed.authorities {
            Some(path) => Some(read_file(path, CA_BYTES_MAX).await?),
            None => None,
        };
        PrometheusClient::new(PrometheusServer { url: url.to_owned(), token, authorities, timeout }).map_err(wrong)
    }

    fn not_listed(&self, url: &str) -> AccessError {
        let listed = self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let listed = if listed.is_empty() { "none is listed".to_owned() } else { listed };
        AccessError::NotListed { url: url.to_owned(), listed }
    }
}

async fn read_token(place: &TokenPlace) -> Result<String, AccessError> {
    match place {
        TokenPlace::File(path) => Ok(String::from_utf8_lossy(&read_file(path, TOKEN_BYTES_MAX).await?).into_owned()),
        TokenPlace::Variable(name) => std::env::var(name)
            .map_err(|error| AccessError::Unreadable { place: format!("the variable {name}"), why: error.to_string() }),
    }
}

/// A file up to one byte beyond its bound, which its reader then refuses.
async fn read_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, AccessError> {
    let read = async {
        let mut bytes = Vec::new();
        tokio::fs::File::open(path).await?.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    };
    read.await.map_err(|error| AccessError::Unreadable { place: path.display().to_string(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str, token: Option<TokenPlace>) -> AllowedPrometheus {
        AllowedPrometheus { url: url.to_owned(), token, authorities: None }
    }

    #[tokio::test]
    async fn only_listed_origins_are_asked() {
        let access = PrometheusAccess::new(vec![allowed("http://p:9090", None)]).await.expect("a list");
        let ask = async |url: &str| access.client(url, Duration::from_secs(1)).await.map(|_| ()).map_err(|e| e.to_string());
        assert_eq!(ask("http://P:9090/prometheus").await, Ok(()));
        for other in ["https://p:9090", "http://p", "http://p:9091", "http://p.evil:9090", "http://169.254.169.254"] {
            let said = ask(other).await.expect_err(other);
            assert!(said.contains(other) && said.contains("http://p:9090") && said.contains("--prometheus"), "{said}");
        }
        let none = PrometheusAccess::default().not_listed("http://p").to_string();
        assert!(none.contains("none is listed"), "{none}");
    }

    #[tokio::test]
    async fn unreadable_tokens_are_found_at_the_start() {
        let at_start = async |place| PrometheusAccess::new(vec![allowed("http://p", Some(place))]).await.map(|_| ());
        let said = at_start(TokenPlace::File("/none/token".into())).await.expect_err("no file").to_string();
        assert!(said.contains("/none/token cannot be read"), "{said}");
        let said = at_start(TokenPlace::Variable("NO_SUCH_TOKEN".into())).await.expect_err("no variable").to_string();
        assert!(said.contains("the variable NO_SUCH_TOKEN"), "{said}");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "abc\n").expect("written");
        at_start(TokenPlace::File(file.clone())).await.expect("a token");
        std::fs::write(&file, "x".repeat(TOKEN_BYTES_MAX + 9)).expect("written");
        assert!(at_start(TokenPlace::File(file)).await.is_err());
    }
}
