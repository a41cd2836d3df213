//! A relay to a database that can cut its connections, or stop forwarding on them.

use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
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
}

impl Relay {
    /// A relay to the database at `url` (`postgres://ROLE@FOLDER/NAME`, the folder's slashes escaped).
    pub fn to(url: &str) -> Self {
        let (role, rest) = url.split_once('@').expect("a role");
        let (folder, database) = rest.split_once('/').expect("a folder and a name");
        let server = PathBuf::from(folder.replace("%2F", "/")).join(SOCKET);
        let dir = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        let (sender, state) = watch::channel(RelayState::Open);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut state) = (server.clone(), state.clone());
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
                        _ended = copy_bidirectional(&mut client, &mut server) => {}
                        _changed = state.wait_for(|now| *now != RelayState::Open) => {}
                    }
                    let _ended = state.wait_for(|now| *now != RelayState::Parted).await;
                });
            }
        });
        Self { dir, role: role.to_owned(), database: database.to_owned(), state: sender }
    }

    /// The URL of the database through the relay.
    pub fn url(&self) -> String {
        let folder = self.dir.path().display().to_string().replace('/', "%2F");
        format!("{}@{folder}/{}", self.role, self.database)
    }

    /// Cuts every connection and refuses new ones, or relays them again.
    pub fn open(&self, is_open: bool) {
        self.state.send_replace(if is_open { RelayState::Open } else { RelayState::Cut });
    }

    /// Lets nothing through, and closes nothing, until it is opened again.
    pub fn part(&self) {
        self.state.send_replace(RelayState::Parted);
    }
}
