//! A relay to a database that can cut its connections.

use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The name that PostgreSQL's clients give to the socket of port 5432.
const SOCKET: &str = ".s.PGSQL.5432";

/// Relays connections while it is open.
pub struct Relay {
    dir: TempDir,
    role: String,
    database: String,
    is_open: watch::Sender<bool>,
}

impl Relay {
    /// A relay to the database at `url` (`postgres://ROLE@FOLDER/NAME`, the folder's slashes escaped).
    pub fn to(url: &str) -> Self {
        let (role, rest) = url.split_once('@').expect("a role");
        let (folder, database) = rest.split_once('/').expect("a folder and a name");
        let server = PathBuf::from(folder.replace("%2F", "/")).join(SOCKET);
        let dir = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        let (is_open, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut state) = (server.clone(), state.clone());
                if !*state.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = UnixStream::connect(server).await else { return };
                    tokio::select! {
                        _ended = copy_bidirectional(&mut client, &mut server) => {}
                        _cut = state.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { dir, role: role.to_owned(), database: database.to_owned(), is_open }
    }

    /// The URL of the database through the relay.
    pub fn url(&self) -> String {
        let folder = self.dir.path().display().to_string().replace('/', "%2F");
        format!("{}@{folder}/{}", self.role, self.database)
    }

    /// Cuts every connection and refuses new ones, or relays them again.
    pub fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}
