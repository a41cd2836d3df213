//! How does the service run a private PostgreSQL? It is a child process on a unix socket, without TCP.
//!
//! PostgreSQL refuses to run as root. If the service is root, the files belong to user `postgres`, and the server runs as
//! that user. The server ends with the service: the kernel signals it when the *thread* ends that spawned it. So that
//! thread lives as long as the database.

use crate::hex::hex;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest time until the server accepts connections, with recovery after a crash.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest time of a fast shutdown. Then the server is killed.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Database role that owns everything.
const ROLE: &str = "apportion";

/// Why the private PostgreSQL did not start.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// There is no PostgreSQL on this machine.
    #[error(
        "no PostgreSQL server is installed (looked in /usr/lib/postgresql/*/bin, pg_config --bindir and PATH); \
         install one or give a database URL"
    )]
    NotInstalled,
    /// The service is root, and there is no user `postgres`.
    #[error("PostgreSQL refuses to run as root and there is no user postgres on this machine")]
    NoUser,
    /// User `postgres` cannot enter the folder.
    #[error("{0}: PostgreSQL runs as user postgres, who cannot enter it; choose another data directory")]
    Closed(PathBuf),
    /// A file operation failed.
    #[error("{what}")]
    Io {
        /// The operation.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// initdb failed.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended or never answered.
    #[error("PostgreSQL did not start: {0}")]
    NotUp(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> PrivateError {
    let what = what.into();
    move |source| PrivateError::Io { what, source }
}

/// The running server. Dropping it stops it.
pub struct PrivateDatabase {
    socket_dir: PathBuf,
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<std::thread::JoinHandle<()>>,
    died: Option<oneshot::Receiver<String>>,
}

#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl PrivateDatabase {
    /// Starts the server on the cluster in `dir`, creating it the first time.
    ///
    /// # Errors
    /// If it is not installed, cannot be created or does not come up.
    pub async fn start(dir: &Path) -> Result<Self, PrivateError> {
        let dir = dir.to_path_buf();
        tokio::task::spawn_blocking(move || Self::start_blocking(&dir)).await.expect("starting does not panic")
    }

    fn start_blocking(dir: &Path) -> Result<Self, PrivateError> {
        let bin = find_binaries().ok_or(PrivateError::NotInstalled)?;
        let user = service_user()?;
        let dir = prepare_folder(dir, user)?;
        if !dir.join("PG_VERSION").exists() {
            initialise(&bin, &dir, user)?;
        }
        let socket_dir = prepare_socket_folder(&dir, user)?;
        let (stop, stopped) = mpsc::channel();
        let (report, started) = mpsc::channel();
        let (dies, died) = oneshot::channel();
        let socket = socket_dir.clone();
        let keeper = std::thread::Builder::new()
            .name("postgres-keeper".into())
            .spawn(move || keep(&Server { bin, dir, socket, user }, &report, &stopped, dies))
            .map_err(io_error("starting a thread"))?;
        let up = started.recv().unwrap_or_else(|_| Err(PrivateError::NotUp("its keeper ended".into())));
        up.map(|()| Self { socket_dir, stop: Some(stop), keeper: Some(keeper), died: Some(died) })
    }

    /// Folder of its socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Receives how the server ended, if it ended by itself. Call it once.
    pub(super) fn died(&mut self) -> Option<oneshot::Receiver<String>> {
        self.died.take()
    }

    /// How to connect to it.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass().socket(&self.socket_dir).username(ROLE).database("postgres")
    }

    /// A URL for clients of this machine.
    #[must_use]
    pub fn url(&self) -> String {
        let path = self.socket_dir.display().to_string().replace('/', "%2F");
        format!("postgres://{ROLE}@{path}/postgres")
    }

    /// Shuts it down: clients are disconnected, everything is on disk.
    pub async fn stop(mut self) {
        let _ended = tokio::task::spawn_blocking(move || self.stop_blocking()).await;
    }

    fn stop_blocking(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _panicked = keeper.join();
        }
    }
}

impl Drop for PrivateDatabase {
    fn drop(&mut self) {
        self.stop_blocking();
    }
}

/// The folders and the user of a server.
struct Server {
    bin: PathBuf,
    dir: PathBuf,
    socket: PathBuf,
    user: Option<User>,
}

/// Spawns the server, reports its start, and waits for the order to stop. It runs on a thread of its own: see the module's
/// documentation.
fn keep(
    server: &Server,
    report: &mpsc::Sender<Result<(), PrivateError>>,
    stopped: &mpsc::Receiver<()>,
    dies: oneshot::Sender<String>,
) {
    let mut child = match start_server(&server.bin, &server.dir, &server.socket, server.user) {
        Ok(child) => child,
        Err(error) => {
            let _nobody = report.send(Err(error));
            return;
        }
    };
    if report.send(Ok(())).is_ok() {
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(500)) {
            if let Ok(Some(status)) = child.try_wait() {
                let why =
                    format!("the private PostgreSQL ended by itself ({status}); see postgres.log in the data directory");
                let _nobody = dies.send(why);
                return;
            }
        }
    }
    shut_down(&mut child);
    // Only an empty folder is removed: another server may use it by now.
    let _in_use = fs::remove_dir(&server.socket);
}

/// Spawns the server and waits until its socket answers. The server of a killed service gets time to end.
fn start_server(bin: &Path, dir: &Path, socket: &Path, user: Option<User>) -> Result<Child, PrivateError> {
    let begin = Instant::now();
    loop {
        let mut child = spawn_server(bin, dir, socket, user)?;
        let ended = loop {
            if std::os::unix::net::UnixStream::connect(socket.join(".s.PGSQL.5432")).is_ok()
                && pid_file_is_ready(dir, child.id())
            {
                return Ok(child);
            }
            match child.try_wait() {
                Ok(Some(_)) => break true,
                _ if begin.elapsed() > START_MAX => break false,
                _ => std::thread::sleep(Duration::from_millis(15)),
            }
        };
        if !ended {
            shut_down(&mut child);
        }
        // A server that still ends writes into the same log, so the reason may not be in its last lines.
        let log = log(dir);
        let left_behind = log.contains("postmaster.pid") || log.contains("shared memory block");
        if !left_behind || begin.elapsed() > START_MAX / 4 {
            return Err(PrivateError::NotUp(last_lines(&log)));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// `postmaster.pid` holds the server's pid in its first line and its state in its eighth.
fn pid_file_is_ready(dir: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(dir.join("postmaster.pid")) else { return false };
    let mut lines = text.lines();
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6).is_some_and(|state| state.trim() == "ready")
}

fn spawn_server(bin: &Path, dir: &Path, socket: &Path, user: Option<User>) -> Result<Child, PrivateError> {
    let log_path = log_path(dir);
    let log = fs::File::create(&log_path).map_err(io_error(format!("creating {}", log_path.display())))?;
    let mut command = Command::new(bin.join("postgres"));
    command.arg("-D").arg(dir).arg("-k").arg(socket);
    for setting in ["listen_addresses=", "max_connections=64", "shared_buffers=32MB", "port=5432"] {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    run_as(&mut command, user, dir);
    die_with_parent(&mut command);
    command.spawn().map_err(io_error("starting postgres"))
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches no memory of this process between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // SIGINT is PostgreSQL's fast shutdown.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}

#[allow(unsafe_code)]
fn shut_down(child: &mut Child) {
    let pid = i32::try_from(child.id()).expect("a pid fits an i32");
    // SAFETY: the child was not waited for, so its pid belongs to no other process.
    unsafe {
        libc::kill(pid, libc::SIGINT);
    }
    let begin = Instant::now();
    while begin.elapsed() < STOP_MAX {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    tracing::error!("the private PostgreSQL did not stop in time and was killed");
    let _gone = child.kill();
    let _gone = child.wait();
}

fn run_as(command: &mut Command, user: Option<User>, dir: &Path) {
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    // The caller's own working directory may be closed to that user.
    command.current_dir(dir);
}

fn initialise(bin: &Path, dir: &Path, user: Option<User>) -> Result<(), PrivateError> {
    let mut command = Command::new(bin.join("initdb"));
    command.arg("-D").arg(dir).args(["-U", ROLE, "-E", "UTF8", "--locale=C", "--auth=trust", "--no-instructions"]);
    run_as(&mut command, user, dir);
    let output = command.stdin(Stdio::null()).output().map_err(io_error("starting initdb"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(PrivateError::Initdb(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

fn log_path(dir: &Path) -> PathBuf {
    dir.with_file_name("postgres.log")
}

/// The log since the last start.
fn log(dir: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log_path(dir)).unwrap_or_default()).replace('\0', "")
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

/// Where `postgres` and `initdb` are: the newest of Debian's folders, `pg_config`, then `PATH`.
fn find_binaries() -> Option<PathBuf> {
    let complete = |dir: &PathBuf| dir.join("postgres").exists() && dir.join("initdb").exists();
    let version = |dir: &PathBuf| dir.parent()?.file_name()?.to_str()?.parse::<f64>().ok();
    let mut debian: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten().map(|e| e.path().join("bin")).collect();
    debian.sort_by(|a, b| version(b).unwrap_or(0.0).total_cmp(&version(a).unwrap_or(0.0)));
    let config = Command::new("pg_config").arg("--bindir").output().ok();
    let config = config.map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian.into_iter().chain(config).chain(std::env::split_paths(&path)).find(complete)
}

/// The user of the server: `postgres` if the service is root, else `None`.
fn service_user() -> Result<Option<User>, PrivateError> {
    let own = fs::metadata("/proc/self").map_err(io_error("reading /proc/self"))?.uid();
    if own != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(io_error("reading /etc/passwd"))?;
    let user = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == "postgres").then_some(())?;
        Some(User { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    });
    user.map(Some).ok_or(PrivateError::NoUser)
}

fn prepare_folder(dir: &Path, user: Option<User>) -> Result<PathBuf, PrivateError> {
    fs::create_dir_all(dir).map_err(io_error(format!("creating {}", dir.display())))?;
    let dir = dir.canonicalize().map_err(io_error(format!("finding {}", dir.display())))?;
    give_to(&dir, user)?;
    if user.is_some() {
        let closed = dir.ancestors().skip(1).find(|a| fs::metadata(a).is_ok_and(|m| m.mode() & 0o001 == 0));
        if let Some(closed) = closed {
            return Err(PrivateError::Closed(closed.to_path_buf()));
        }
    }
    Ok(dir)
}

fn give_to(dir: &Path, user: Option<User>) -> Result<(), PrivateError> {
    if let Some(user) = user {
        std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid))
            .map_err(io_error(format!("giving {} to user postgres", dir.display())))?;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(io_error(format!("closing {} to others", dir.display())))
}

/// A folder with a short name, because socket paths have at most 107 bytes. The name is made from the cluster's path, so it
/// is unique.
fn prepare_socket_folder(dir: &Path, user: Option<User>) -> Result<PathBuf, PrivateError> {
    let digest = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    let name: String = hex(&digest[..6]);
    let socket = PathBuf::from(format!("/tmp/apportion-{name}"));
    match fs::create_dir(&socket) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // A folder of another user, or a link, could lead clients to another server.
            let meta = fs::symlink_metadata(&socket).map_err(io_error(format!("reading {}", socket.display())))?;
            let own = fs::metadata("/proc/self").map_err(io_error("reading /proc/self"))?.uid();
            if !meta.is_dir() || (meta.uid() != own && Some(meta.uid()) != user.map(|u| u.uid)) {
                return Err(PrivateError::NotUp(format!("{} belongs to somebody else", socket.display())));
            }
        }
        Err(e) => return Err(io_error(format!("creating {}", socket.display()))(e)),
    }
    give_to(&socket, user)?;
    Ok(socket)
}
