//! A relay to a database that can cut its connections, stop forwarding on them, or lose the answer to a commit.
//!
//! The tests of the service have this file as a module of their own, by its path.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The name that PostgreSQL's clients give to the socket of port 5432.
const SOCKET: &str = ".s.PGSQL.5432";

/// What a relay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelayState {
    Open,
    /// Connections are closed.
    Cut,
    /// Connections stay, and nothing comes through: a network that is parted. They are closed at its end.
    Parted,
}

/// Relays connections while it is open.
pub struct Relay {
    dir: TempDir,
    role: String,
    database: String,
    state: watch::Sender<RelayState>,
    lost: LostCommit,
}

/// The statement whose commit gets no answer, once; `None`: every commit gets one.
type LostCommit = Arc<Mutex<Option<String>>>;

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Copies both ways until one side ends. After the commit of the statement that `lost` names, the database's answer is read
/// and not passed on.
async fn copy_both_ways(client: &mut UnixStream, server: &mut UnixStream, lost: &LostCommit) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut has_statement = false;
    loop {
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                let named = lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
                has_statement |= named.as_ref().is_some_and(|text| contains(bytes, text));
                let is_lost = named.is_some() && has_statement && contains(bytes, "COMMIT");
                to_server.write_all(bytes).await?;
                if is_lost {
                    lost.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let _answer = from_server.read(&mut answered).await?;
                    return Ok(());
                }
            }
            read = from_server.read(&mut answered) => {
                let bytes = &answered[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                to_client.write_all(bytes).await?;
            }
        }
    }
}

impl Relay {
    /// A relay to the database at `url` (`postgres://ROLE@FOLDER/NAME`, the folder's slashes escaped).
    ///
    /// # Panics
    /// If the URL has another form, or if there is no room for a socket.
    #[must_use]
    pub fn to(url: &str) -> Self {
        let (role, rest) = url.split_once('@').expect("a role");
        let (folder, database) = rest.split_once('/').expect("a folder and a name");
        let server = PathBuf::from(folder.replace("%2F", "/")).join(SOCKET);
        let dir = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        let (sender, state) = watch::channel(RelayState::Open);
        let lost = LostCommit::default();
        let losing = lost.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut state, losing) = (server.clone(), state.clone(), losing.clone());
                if *state.borrow() == RelayState::Cut {
                    continue;
                }
                tokio::spawn(async move {
                    if *state.borrow() == RelayState::Parted {
                        let _ended = state.wait_for(|now| *now != RelayState::Parted).await;
                        return;
                    }
                    let Ok(mut server) = UnixStream::connect(server).await else { return };
                    tokio::select! {
                        _ended = copy_both_ways(&mut client, &mut server, &losing) => {}
                        _changed = state.wait_for(|now| *now != RelayState::Open) => {}
                    }
                    let _ended = state.wait_for(|now| *now != RelayState::Parted).await;
                });
            }
        });
        Self { dir, role: role.to_owned(), database: database.to_owned(), state: sender, lost }
    }

    /// The URL of the database through the relay.
    #[must_use]
    pub fn url(&self) -> String {
        let folder = self.dir.path().display().to_string().replace('/', "%2F");
        format!("{}@{folder}/{}", self.role, self.database)
    }

    /// Cuts every connection and refuses new ones, or relays them again.
    pub fn open(&self, is_open: bool) {
        self.state.send_replace(if is_open { RelayState::Open } else { RelayState::Cut });
    }

    /// Closes the next connection that commits this statement, after the database has answered: the client does not hear
    /// whether its transaction was committed.
    pub fn lose_commit_of(&self, statement: &str) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(statement.to_owned());
    }

    /// Whether the commit of [`Self::lose_commit_of`] was lost.
    #[must_use]
    pub fn has_lost_commit(&self) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Lets nothing through, and closes nothing, until it is opened again.
    pub fn part(&self) {
        self.state.send_replace(RelayState::Parted);
    }
}
