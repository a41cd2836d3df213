//! Which PostgreSQL keeps the service's data? One by URL, or a private one.

mod private;

pub use private::{PrivateDatabase, PrivateError};

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgConnection};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Limits of every session: a statement that hangs ends, and the locks of a client that is gone are free again.
const SESSION_LIMITS: [(&str, &str); 6] = [
    ("statement_timeout", "30s"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "30s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
];
/// A process works with a schema that is so many versions newer than its own, so that processes are upgraded one by one.
/// Migrations add and never take away what the release before reads.
const VERSIONS_AHEAD_MAX: i64 = 1;
/// Most connections of one service process.
pub const CONNECTIONS_MAX: u32 = 16;
/// How long a request waits for a connection before it fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The URL is malformed.
    #[error("the database URL cannot be read; expected postgres://user:password@host:port/name")]
    Url(#[source] sqlx::Error),
    /// The server does not answer, or refuses the service.
    #[error("the database at {place} is not reachable")]
    Unreachable {
        /// Host and port, or socket folder; never the password.
        place: String,
        /// The error of the client.
        #[source]
        source: sqlx::Error,
    },
    /// The schema is more than one version newer than this program's.
    #[error("the database has schema version {found}, this program knows up to {known}; use a newer release")]
    Newer {
        /// Version found.
        found: i64,
        /// Newest version known.
        known: i64,
    },
    /// A migration failed.
    #[error("the database's schema could not be brought up to date")]
    Migrate(#[source] MigrateError),
    /// The private PostgreSQL did not start.
    #[error("the private PostgreSQL did not start")]
    Private(#[from] PrivateError),
}

/// A connected pool with the schema of this release.
pub struct Database {
    /// Connections.
    pub pool: sqlx::PgPool,
    private: Option<PrivateDatabase>,
}

impl Database {
    /// Connects to `url`, or starts the private PostgreSQL in `data_dir`, and brings the schema up to date.
    ///
    /// # Errors
    /// If it is not reachable, cannot be started, or has a newer schema.
    pub async fn open(url: Option<&str>, data_dir: &Path) -> Result<Self, DatabaseError> {
        let (options, private, place) = match url {
            Some(url) => {
                let options = PgConnectOptions::from_str(url).map_err(DatabaseError::Url)?;
                let place = format!("{}:{}", options.get_host(), options.get_port());
                (options, None, place)
            }
            None => {
                let dir = data_dir.join("postgres");
                let private = PrivateDatabase::start(&dir).await?;
                let place = private.socket_dir().display().to_string();
                (private.connect_options(), Some(private), place)
            }
        };
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.clone().application_name("apportion").options(SESSION_LIMITS))
            .await
            .map_err(|source| DatabaseError::Unreachable { place, source })?;
        // a migration of a large table may take longer than any other statement
        let mut unlimited = options.connect().await.map_err(|error| DatabaseError::Migrate(error.into()))?;
        migrate(&mut unlimited).await?;
        Ok(Self { pool, private })
    }

    /// Waits until the private PostgreSQL ends by itself; returns how it ended. Call it once.
    pub fn died(&mut self) -> impl Future<Output = String> + Send + use<> {
        let died = self.private.as_mut().and_then(PrivateDatabase::died);
        async move {
            match died {
                Some(died) => match died.await {
                    Ok(why) => why,
                    // The service has stopped it.
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        }
    }

    /// Closes the connections and stops the private PostgreSQL.
    pub async fn close(self) {
        if tokio::time::timeout(Duration::from_secs(3), self.pool.close()).await.is_err() {
            tracing::debug!("some database connections were still in use at the end");
        }
        if let Some(private) = self.private {
            private.stop().await;
        }
    }
}

async fn migrate(connection: &mut PgConnection) -> Result<(), DatabaseError> {
    let mut migrator = sqlx::migrate!("../migrations");
    migrator.set_ignore_missing(true);
    let known = migrator.iter().map(|m| m.version).max().unwrap_or(0);
    let found = newest_version(connection).await.map_err(|error| DatabaseError::Migrate(error.into()))?;
    if found > known + VERSIONS_AHEAD_MAX {
        return Err(DatabaseError::Newer { found, known });
    }
    if found > known {
        tracing::warn!(found, known, "the database has the schema of the next release: upgrade this process too");
    }
    migrator.run(connection).await.map_err(DatabaseError::Migrate)
}

/// The version of the schema; 0 before the first migration.
async fn newest_version(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let has_table: bool =
        sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    match has_table {
        true => sqlx::query_scalar("select coalesce(max(version), 0) from _sqlx_migrations").fetch_one(connection).await,
        false => Ok(0),
    }
}
