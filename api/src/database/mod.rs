//! Which PostgreSQL keeps the service's data? One by URL, or a private one.

mod private;

pub use private::{PrivateDatabase, PrivateError};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");
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
    /// A newer release has changed the schema.
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
            .connect_with(options.application_name("apportion"))
            .await
            .map_err(|source| DatabaseError::Unreachable { place, source })?;
        migrate(&pool).await?;
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

async fn migrate(pool: &sqlx::PgPool) -> Result<(), DatabaseError> {
    MIGRATIONS.run(pool).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) | MigrateError::VersionTooNew(found, _) => {
            let known = MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0);
            DatabaseError::Newer { found, known }
        }
        other => DatabaseError::Migrate(other),
    })
}
