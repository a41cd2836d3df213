//! What a test needs beyond the build, and the rule for a machine that lacks it.
//!
//! The rule: on a developer's machine such a test says that it skips. Under continuous integration (`CI=true`) it fails,
//! unless `APPORTION_SKIP` names the need. A test that goes through rows says how many, and none is a failure.
//!
//! What belongs here: the needs, how each is found, and this rule. What never does: a helper of another kind. The commonest
//! addition is a need: give it a variant of [`Need`], and call [`need`] in the tests that have it.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names the needs that may be absent under continuous integration, separated by commas.
pub const SKIP_VARIABLE: &str = "APPORTION_SKIP";
/// The variable that names a file. Each test appends a line there: its name, its need, and what came of it.
pub const LOG_VARIABLE: &str = "APPORTION_NEEDS_LOG";

/// What a machine may lack after the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The sample problems and traces in `../shared/data`, beside the repository.
    Data,
    /// The Python clients of `scripts/clients.txt`, in `.cache/venv`.
    Clients,
    /// ONNX Runtime's library.
    Onnx,
    /// Network namespaces, which root makes by `ip`.
    Namespaces,
    /// The library of Debian's package faketime, which gives a process a clock of its own.
    Faketime,
    /// Debian's `prometheus`, and `openssl` for its certificates.
    Prometheus,
    /// Chromium and its driver.
    Browser,
    /// A program that starts a real API of Kubernetes, and `openssl`.
    Kubernetes,
    /// What the kernel tells of processor time, in `/proc/stat` and `/proc/thread-self/schedstat`.
    ProcessorTimes,
    /// A program that starts a real Slurm.
    Slurm,
    /// Debian's `slurmrestd`, beside a real Slurm.
    Slurmrestd,
    /// A Python with `ray[serve]` and PyYAML.
    Ray,
    /// A Python with pytriton, whose wheel has a Triton.
    Triton,
    /// Debian's tools for packages, and a Python with pip.
    Packages,
    /// The wheels of `scripts/models.txt`, which have models inside, and a Python with pip and NumPy.
    Models,
    /// A Python with the converters of precision of `scripts/converters.txt`.
    Converters,
}

impl Need {
    /// All needs.
    pub const ALL: [Self; 16] = [
        Self::Data,
        Self::Clients,
        Self::Onnx,
        Self::Namespaces,
        Self::Faketime,
        Self::Prometheus,
        Self::Browser,
        Self::Kubernetes,
        Self::ProcessorTimes,
        Self::Slurm,
        Self::Slurmrestd,
        Self::Ray,
        Self::Triton,
        Self::Packages,
        Self::Models,
        Self::Converters,
    ];

    /// The word for it in `APPORTION_SKIP`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Clients => "clients",
            Self::Onnx => "onnx",
            Self::Namespaces => "namespaces",
            Self::Faketime => "faketime",
            Self::Prometheus => "prometheus",
            Self::Browser => "browser",
            Self::Kubernetes => "kubernetes",
            Self::ProcessorTimes => "processor-times",
            Self::Slurm => "slurm",
            Self::Slurmrestd => "slurmrestd",
            Self::Ray => "ray",
            Self::Triton => "triton",
            Self::Packages => "packages",
            Self::Models => "models",
            Self::Converters => "converters",
        }
    }

    /// All words for `APPORTION_SKIP`, separated by commas.
    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// What provides it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Data => "put the shared data at ../shared/data beside the repository",
            Self::Clients => "run `scripts/setup tests` where pip reaches an index",
            Self::Onnx => "run `make setup`, or name a library in ORT_DYLIB_PATH",
            Self::Namespaces => "run as root, where `scripts/setup tests` has installed iproute2",
            Self::Faketime => "run `scripts/setup tests`, which installs faketime",
            Self::Prometheus => "run `scripts/setup tests`, which installs prometheus and openssl",
            Self::Browser => "run `scripts/setup tests`, which installs chromium and chromium-driver",
            Self::Kubernetes => "name a program in APPORTION_KUBERNETES that starts it, and install openssl",
            Self::ProcessorTimes => "run on a Linux that counts them",
            Self::Slurm => "name a program in APPORTION_SLURM that starts it",
            Self::Slurmrestd => "run `scripts/setup tests`, which installs slurmrestd",
            Self::Ray | Self::Triton | Self::Models | Self::Converters => {
                "run `scripts/setup tests` where pip reaches an index"
            }
            Self::Packages => "run on Debian or Ubuntu, where `scripts/setup` has installed Python with pip",
        }
    }
}

/// Why a test must fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedError {
    /// The variable [`SKIP_VARIABLE`] has this word, which names no need.
    #[error("{SKIP_VARIABLE} names {0:?}: expected some of {known}, separated by commas", known = Need::names())]
    UnknownWord(String),
    /// A need is absent under continuous integration, and [`SKIP_VARIABLE`] does not name it.
    #[error(
        "this test needs {name}: {why}. Under CI=true that is a failure: {remedy}, or set {SKIP_VARIABLE}={name}",
        name = .need.name(),
        remedy = .need.remedy()
    )]
    Absent {
        /// The need.
        need: Need,
        /// Why it is absent.
        why: String,
    },
}

/// Why there are no Python packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum AbsentPackages {
    /// The environment has none.
    #[error(".cache/{0} has no Python packages")]
    Nothing(&'static str),
    /// The environment was made from another list.
    #[error(".cache/{0} is not what scripts/{1} names")]
    Other(&'static str, &'static str),
}

/// What the environment says about absent needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Whether an absent need is a failure.
    pub is_ci: bool,
    /// The needs that may be absent nevertheless.
    pub skipped: Vec<Need>,
}

impl Terms {
    /// Reads the values of `CI` and `APPORTION_SKIP`.
    ///
    /// # Errors
    /// [`NeedError::UnknownWord`].
    pub fn read(ci: Option<&str>, skip: Option<&str>) -> Result<Self, NeedError> {
        let words = skip.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
        let unknown = |word: &str| NeedError::UnknownWord(word.to_owned());
        let known = |word: &str| Need::ALL.into_iter().find(|need| need.name() == word).ok_or_else(|| unknown(word));
        let is_ci = !matches!(ci.unwrap_or_default().trim(), "" | "0" | "false");
        Ok(Self { is_ci, skipped: words.map(known).collect::<Result<_, _>>()? })
    }

    /// The words of a test that skips because a need is absent, for the reason `why`.
    ///
    /// # Errors
    /// [`NeedError::Absent`] if the test must fail.
    pub fn absent(&self, need: Need, why: &str) -> Result<String, NeedError> {
        let name = need.name();
        match (self.skipped.contains(&need), self.is_ci) {
            (true, _) => Ok(format!("skipped: {why} ({SKIP_VARIABLE} names {name})")),
            (false, false) => Ok(format!("skipped: {why}; {}", need.remedy())),
            (false, true) => Err(NeedError::Absent { need, why: why.to_owned() }),
        }
    }
}

/// What was found of a need, or `None` where the test may be skipped; it has then said so.
///
/// # Panics
/// If the need is absent and the environment does not allow that.
#[must_use]
pub fn need<T>(need: Need, found: Result<T, impl Display>) -> Option<T> {
    let terms = Terms::read(variable("CI").as_deref(), variable(SKIP_VARIABLE).as_deref());
    let terms = terms.unwrap_or_else(|error| panic!("{error}"));
    match found {
        Ok(found) => {
            log(need, "there");
            Some(found)
        }
        Err(why) => {
            let said = terms.absent(need, &why.to_string()).unwrap_or_else(|error| panic!("{error}"));
            log(need, &said);
            None
        }
    }
}

/// The rows that a test goes through, after it has said how many they are.
///
/// # Panics
/// If there is none: what the test needs is there, so rows of its kind must be.
#[must_use]
pub fn counted<T>(need: Need, rows: Vec<T>) -> Vec<T> {
    assert!(!rows.is_empty(), "{} is there and has no row for this test", need.name());
    log(need, &format!("{} rows", rows.len()));
    rows
}

/// The folder of the shared data.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn data() -> Option<PathBuf> {
    let folder = root().join("../shared/data");
    need(Need::Data, if folder.is_dir() { Ok(folder) } else { Err("there is no folder ../shared/data") })
}

/// The Python that has the clients of `scripts/clients.txt`.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn clients() -> Option<PathBuf> {
    need(Need::Clients, installed_python("venv", "clients.txt"))
}

/// The path of the Python that [`clients`] looks for, whether it is there or not. Agents of tests run stages by it.
#[must_use]
pub fn clients_python() -> PathBuf {
    root().join(".cache/venv/bin/python")
}

/// The Python in the environment `.cache/ENVIRONMENT`, where it has what `scripts/REQUIREMENTS` names.
fn installed_python(environment: &'static str, requirements: &'static str) -> Result<PathBuf, AbsentPackages> {
    let (venv, wanted) = (root().join(".cache").join(environment), root().join("scripts").join(requirements));
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    match read(&venv.join("installed")) {
        None => Err(AbsentPackages::Nothing(environment)),
        Some(installed) if Some(&installed) != read(&wanted).as_ref() => {
            Err(AbsentPackages::Other(environment, requirements))
        }
        Some(_) => Ok(venv.join("bin/python")),
    }
}

/// The server program of Prometheus, where `openssl` is there too.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn prometheus() -> Option<PathBuf> {
    let found = match (on_path("prometheus"), on_path("openssl")) {
        (Some(server), Some(_)) => Ok(server),
        (None, _) => Err("there is no prometheus on the PATH"),
        (_, None) => Err("there is no openssl on the PATH"),
    };
    need(Need::Prometheus, found)
}

/// The driver of Chromium, where `chromium` is there too.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn browser() -> Option<PathBuf> {
    let found = match (on_path("chromedriver"), on_path("chromium")) {
        (Some(driver), Some(_)) => Ok(driver),
        (None, _) => Err("there is no chromedriver on the PATH"),
        (_, None) => Err("there is no chromium on the PATH"),
    };
    need(Need::Browser, found)
}

/// The program that starts and stops a real API of Kubernetes, where `openssl` is there too: the one that
/// `APPORTION_KUBERNETES` names, or `../shared/tools/kubernetes/control-plane` beside the repository.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn kubernetes() -> Option<PathBuf> {
    let beside = || root().join("../shared/tools/kubernetes/control-plane");
    let program = variable("APPORTION_KUBERNETES").map_or_else(beside, PathBuf::from);
    let found = match (program.is_file(), on_path("openssl")) {
        (false, _) => Err(format!("there is no {}", program.display())),
        (true, None) => Err("there is no openssl on the PATH".to_owned()),
        (true, Some(_)) => Ok(program),
    };
    need(Need::Kubernetes, found)
}

/// The program that starts and stops a real Slurm: the one that `APPORTION_SLURM` names, or
/// `../shared/tools/slurm/cluster` beside the repository.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn slurm() -> Option<PathBuf> {
    let beside = || root().join("../shared/tools/slurm/cluster");
    let program = variable("APPORTION_SLURM").map_or_else(beside, PathBuf::from);
    need(Need::Slurm, if program.is_file() { Ok(program) } else { Err(format!("there is no {}", program.display())) })
}

/// Starts a cluster by a program that installs what it needs at its first start. Until one start has succeeded on this
/// machine, tests start it one after the other: two installations at once fail. `name` is that of the program.
///
/// # Panics
/// If there is no folder for temporary files.
pub fn start_installing<T>(name: &str, start: impl FnOnce() -> T) -> T {
    let path = std::env::temp_dir().join(format!("apportion-tests-{name}-started"));
    let mut marker = File::options().create(true).append(true).open(&path).expect("a file for temporary use");
    let is_empty = |marker: &File| marker.metadata().is_ok_and(|of| of.len() == 0);
    if is_empty(&marker) {
        marker.lock().expect("a lock of a file");
        if !is_empty(&marker) {
            // Another test has started it meanwhile.
            marker.unlock().expect("a lock of a file");
        }
    }
    let started = start();
    if is_empty(&marker) {
        marker.write_all(b"started\n").expect("a file for temporary use");
    }
    started
}

/// Debian's `slurmrestd`.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn slurmrestd() -> Option<PathBuf> {
    let found = [on_path("slurmrestd"), Some("/usr/sbin/slurmrestd".into())];
    let program = found.into_iter().flatten().find(|program| program.is_file());
    need(Need::Slurmrestd, program.ok_or("there is no slurmrestd"))
}

/// The Python that has Ray Serve, by `scripts/ray.txt`.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn ray() -> Option<PathBuf> {
    need(Need::Ray, installed_python("ray", "ray.txt"))
}

/// The Python that has pytriton and a real Triton, by `scripts/triton.txt`.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn triton() -> Option<PathBuf> {
    need(Need::Triton, installed_python("triton", "triton.txt"))
}

/// The Python that installs wheels, where `dpkg` and `dpkg-deb` are there too.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn packages() -> Option<PathBuf> {
    let has_pip = |python: &PathBuf| {
        let run = Command::new(python).args(["-c", "import pip, venv"]).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    let mut pythons = [Some(PathBuf::from("/usr/bin/python3")), on_path("python3")].into_iter().flatten();
    let found = match (on_path("dpkg"), on_path("dpkg-deb"), pythons.find(has_pip)) {
        (Some(_), Some(_), Some(python)) => Ok(python),
        (_, _, None) => Err("no Python here has pip and venv"),
        _ => Err("there is no dpkg, or no dpkg-deb"),
    };
    need(Need::Packages, found)
}

/// The folder of an environment of Python with pip and NumPy. In its folder `wheels` is what `scripts/models.txt` names.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn models() -> Option<PathBuf> {
    need(Need::Models, installed_python("models", "models.txt").map(|_| root().join(".cache/models")))
}

/// The Python that has the converters of precision, by `scripts/converters.txt`.
///
/// # Panics
/// As [`need`].
#[must_use]
pub fn converters() -> Option<PathBuf> {
    need(Need::Converters, installed_python("converters", "converters.txt"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let paths = variable("PATH").unwrap_or_default();
    std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/needs lies in the repository").to_owned()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reports whether a need is met, in the test's output and in the file that `APPORTION_NEEDS_LOG` names.
fn log(need: Need, said: &str) {
    let thread = std::thread::current();
    let test = variable("NEXTEST_TEST_NAME").unwrap_or_else(|| thread.name().unwrap_or("a thread").to_owned());
    let line = format!("{}: {test}: {said}", need.name());
    eprintln!("{line}");
    if let Some(path) = variable(LOG_VARIABLE) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{LOG_VARIABLE} names {path}: {error}"));
    }
}
