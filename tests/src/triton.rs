//! A real Triton: the server program of pytriton's wheel, with its Python backend.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// The backend's helper, which is built for one version of Python.
const STUB: &str = "triton_python_backend_stub";

/// The program `tritonserver` in a folder of its own, ready to be called by its name.
pub struct TritonProgram {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl TritonProgram {
    /// Makes the program from the packages of this Python, `ENVIRONMENT/bin/python`.
    ///
    /// # Panics
    /// If the environment has no pytriton.
    #[must_use]
    pub fn new(python: &Path) -> Self {
        let environment = python.ancestors().nth(2).expect("ENVIRONMENT/bin/python");
        let libraries = environment.join("lib").read_dir().expect("libraries").flatten();
        let mut versions = libraries.filter_map(|e| Some(e.file_name().to_str()?.strip_prefix("python")?.to_owned()));
        let version = versions.next().expect("lib/pythonX.Y");
        let packages = environment.join(format!("lib/python{version}/site-packages"));
        let server = packages.join("pytriton/tritonserver");
        let folder = tempfile::tempdir().expect("a folder");
        let backend = folder.path().join("backends/python");
        std::fs::create_dir_all(&backend).expect("a folder");
        for entry in server.join("backends/python").read_dir().expect("the backend").flatten() {
            if entry.file_name() != STUB {
                symlink(entry.path(), backend.join(entry.file_name())).expect("a link");
            }
        }
        let stub = server.join("python_backend_stubs").join(&version).join(STUB);
        assert!(stub.is_file(), "pytriton has no backend for Python {version}");
        symlink(stub, backend.join(STUB)).expect("a link");
        let this = Self { folder, python: python.to_owned() };
        this.write_program(&packages, &server);
        this
    }

    /// Several servers on a machine must not share the names of their shared memory.
    fn write_program(&self, packages: &Path, server: &Path) {
        let bin = self.bin();
        std::fs::create_dir_all(&bin).expect("a folder");
        let [packages, server, root] = [packages, server, self.folder.path()].map(|path| path.display().to_string());
        let own = self.python.parent().expect("a folder").display().to_string();
        let script = format!(
            "#!/bin/sh\nexport LD_LIBRARY_PATH='{packages}/nvidia_pytriton.libs' PATH='{own}':\"$PATH\"\n\
             export PYTHONDONTWRITEBYTECODE=1\nexec '{server}/bin/tritonserver' --backend-directory '{root}/backends' \
             --backend-config python,shm-region-prefix-name=apportion$$ \"$@\"\n"
        );
        let program = bin.join("tritonserver");
        std::fs::write(&program, script).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    }

    /// The folder for the PATH.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Starts `tritonserver` with these words after its name, in this folder, on free ports.
    ///
    /// # Panics
    /// If it is not ready in time.
    #[must_use]
    pub fn start(&self, folder: &Path, arguments: &[&str]) -> TritonProcess {
        let ports = Ports::free();
        let mut command = Command::new(self.bin().join("tritonserver"));
        command.args(arguments).current_dir(folder);
        for (option, port) in [("--http-port", ports.http), ("--grpc-port", ports.grpc), ("--metrics-port", ports.metrics)]
        {
            command.args([option, &port.to_string()]);
        }
        TritonProcess::start(command, ports, "/v2/health/ready")
    }

    /// Starts a Python program that serves by pytriton. Its arguments are its ports for HTTP, gRPC and metrics.
    ///
    /// # Panics
    /// If its model `model` is not ready in time.
    #[must_use]
    pub fn start_python(&self, program: &Path, model: &str) -> TritonProcess {
        let ports = Ports::free();
        let mut command = Command::new(&self.python);
        command.arg(program).args([ports.http, ports.grpc, ports.metrics].map(|port| port.to_string()));
        command.env("PYTRITON_HOME", self.folder.path().join("pytriton"));
        TritonProcess::start(command, ports, &format!("/v2/models/{model}/ready"))
    }
}

/// The ports of a server.
#[derive(Clone, Copy, Debug)]
struct Ports {
    http: u16,
    grpc: u16,
    metrics: u16,
}

impl Ports {
    fn free() -> Self {
        let port = crate::machine::free_port;
        Self { http: port(), grpc: port(), metrics: port() }
    }
}

/// A server; dropping it ends it with its helpers.
pub struct TritonProcess {
    child: Child,
    ports: Ports,
    log: tempfile::NamedTempFile,
}

impl TritonProcess {
    fn start(mut command: Command, ports: Ports, path: &str) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a log");
        let out = log.reopen().expect("the log");
        let err = out.try_clone().expect("the log");
        // A group of its own: its helpers end with it.
        let child = command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("it starts");
        let mut this = Self { child, ports, log };
        let (url, begun) = (format!("{}{path}", this.url()), Instant::now());
        while !Command::new("curl").args(["-sf", "-o", "/dev/null", &url]).status().expect("curl").success() {
            let ended = this.child.try_wait().expect("a child");
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{url}: {ended:?}\n{}", this.log());
            std::thread::sleep(Duration::from_millis(200));
        }
        this
    }

    /// Its URL for HTTP, without an end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.http)
    }

    /// Its address for gRPC.
    #[must_use]
    pub fn grpc(&self) -> String {
        format!("127.0.0.1:{}", self.ports.grpc)
    }

    /// What it has written.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Sends a signal to the server and its helpers.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let _sent = Command::new("kill").args([name, "--", &group]).status();
    }
}

impl Drop for TritonProcess {
    fn drop(&mut self) {
        self.signal("-INT");
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.signal("-KILL");
        let _ended = self.child.wait();
    }
}
