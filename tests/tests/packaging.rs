//! The files in `packaging/` and the Dockerfile name real programs, commands and flags. The packages are built and
//! installed here. The images are not built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a unit's or an image's variables may be where a file leaves them to the administrator.
const GIVEN: [(&str, &str); 1] = [("APPORTION_JOIN", "http://127.0.0.1:7071")];

fn text(path: &str) -> String {
    let path = apportion_tests::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines of a file of which continued ones are one, without comments.
fn lines(text: &str) -> Vec<String> {
    let kept: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with('#')).collect();
    kept.join("\n").replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// The values of a unit's key, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let of = |line: String| line.strip_prefix(&format!("{key}=")).map(str::to_owned);
    lines(unit).into_iter().filter_map(of).collect()
}

/// Asserts that the program knows these arguments. With `--help` at their end it prints its help and does not run, but it
/// still refuses an unknown argument.
fn check(arguments: &[String], from: &str) {
    let program = Path::new(&arguments[0]).file_name().expect("a program's name");
    let output = Command::new(apportion_tests::programs().join(program))
        .args(&arguments[1..])
        .arg("--help")
        .env("APPORTION_TOKEN", "token")
        .output()
        .expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{from}: {arguments:?}: {err}");
    for flag in arguments.iter().filter(|a| a.starts_with("--")) {
        assert!(out.contains(flag.as_str()), "{from}: {flag} is not in the help of {arguments:?}:\n{out}");
    }
}

/// The command of a unit with its variables set.
fn command(unit: &str) -> Vec<String> {
    let mut variables: BTreeMap<String, String> = GIVEN.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    for line in values(unit, "Environment") {
        let set = line.split_whitespace().map(|one| one.split_once('=').expect("a variable and its value"));
        variables.extend(set.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }
    let start = values(unit, "ExecStart");
    assert_eq!(start.len(), 1, "one command");
    let fill = |word: &str| variables.iter().fold(word.to_owned(), |w, (k, v)| w.replace(&format!("${{{k}}}"), v));
    let words: Vec<String> = start[0].split_whitespace().map(fill).collect();
    assert!(words.iter().all(|w| !w.contains('$')), "all variables are set or given: {words:?}");
    words
}

#[test]
fn systemd_units_use_known_flags() {
    for (file, program) in [("apportion.service", "apportion"), ("apportion-agent.service", "apportion-agent")] {
        let unit = text(&format!("packaging/{file}"));
        let arguments = command(&unit);
        assert_eq!(arguments[0], format!("/usr/local/bin/{program}"), "{file}");
        check(&arguments, file);
        assert_eq!(values(&unit, "KillSignal"), ["SIGTERM"], "{file}: the signal that they stop on");
        assert_eq!(values(&unit, "Restart"), ["on-failure"], "{file}: what breaks is started again");
    }
}

#[test]
fn systemd_restarts_the_service_without_a_limit() {
    assert_eq!(values(&text("packaging/apportion.service"), "StartLimitIntervalSec"), ["0"]);
}

/// The words of a JSON array after an instruction.
fn words(line: &str) -> Vec<String> {
    let array = line.split_once(' ').expect("an instruction and its arguments").1;
    serde_json::from_str(array).unwrap_or_else(|e| panic!("{line}: {e}"))
}

#[test]
fn images_use_known_flags() {
    let file = text("Dockerfile");
    let mut images: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines(&file) {
        if line.starts_with("FROM ") {
            let name = line.split_whitespace().last().expect("a name").to_owned();
            images.push((name, Vec::new()));
        } else if line.starts_with("ENTRYPOINT ") || line.starts_with("CMD ") {
            images.last_mut().expect("a stage").1.extend(words(&line));
        }
    }
    let starting: Vec<_> = images.iter().filter(|(_, arguments)| !arguments.is_empty()).collect();
    let names: Vec<&str> = starting.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["service", "agent", "agent-cuda"]);
    for (name, arguments) in starting {
        check(arguments, name);
    }
}

#[test]
fn images_are_built_by_the_steps_of_make() {
    let (docker, makefile) = (text("Dockerfile"), text("Makefile"));
    assert!(docker.contains("RUN make build"), "make builds the programs");
    assert!(makefile.contains("\nbuild: setup\n") && makefile.contains("scripts/setup"), "which runs scripts/setup first");
    assert!(docker.contains("RUN scripts/setup cuda") && text("scripts/setup").contains("scripts/onnxruntime-cuda.txt"));
    let rust = text("rust-toolchain.toml");
    let version = rust.split('"').nth(1).expect("a version");
    let (major_minor, _) = version.rsplit_once('.').expect("three numbers");
    assert!(docker.contains(&format!("FROM rust:{major_minor}-")), "the image's compiler is the repository's: {version}");
    // The same release with and without CUDA.
    let pinned = |path: &str| text(path).split("==").nth(1).and_then(|t| t.split_whitespace().next().map(str::to_owned));
    assert_eq!(pinned("scripts/onnxruntime.txt"), pinned("scripts/onnxruntime-cuda.txt"));
    // The CUDA that the library was linked with is the image's.
    let cuda = text("scripts/onnxruntime-cuda.txt");
    let major = cuda.split("(CUDA ").nth(1).and_then(|t| t.split(',').next()).expect("the file says which CUDA");
    assert!(docker.contains(&format!("FROM nvidia/cuda:{major}.")), "the image has another CUDA than {major}");
}

/// Runs a command that must succeed; returns its stdout.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Packages of the built programs, in a folder of their own.
struct Packages {
    folder: tempfile::TempDir,
    debian: PathBuf,
    wheel: PathBuf,
}

impl Packages {
    /// Builds both, from copies of the programs without their debug information, which is most of their bytes.
    fn build() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        for program in ["apportion", "apportion-agent"] {
            let copy = bin.join(program);
            std::fs::copy(apportion_tests::programs().join(program), &copy).expect("room for a copy");
            // Without binutils the packages are large, and right all the same.
            let _stripped = Command::new("strip").arg(&copy).status();
        }
        let library = folder.path().join("libonnxruntime.so");
        std::fs::write(&library, "a library").expect("room");
        let build = apportion_tests::root().join("packaging/build");
        let mut command = Command::new(build);
        // A package that is compressed less takes a third of the time, and is installed all the same.
        command.env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
        let printed = run(command.arg(&bin).arg(folder.path().join("out")).arg(&library));
        let paths: Vec<PathBuf> = printed.lines().map(PathBuf::from).collect();
        let [debian, wheel] = &paths[..] else { panic!("two packages: {printed}") };
        Self { debian: debian.clone(), wheel: wheel.clone(), folder }
    }
}

/// The version that a program says.
fn version(program: &Path) -> String {
    run(Command::new(program).arg("--version"))
}

#[test]
fn packages_are_built_and_installed() {
    let Some(python) = apportion_needs::packages() else { return };
    let packages = Packages::build();
    let expected = version(&apportion_tests::programs().join("apportion"));
    installed_debian(&packages, &expected);
    installed_wheel(&packages, &python, &expected);
}

/// The Debian package installs programs, units, manual pages and completions.
fn installed_debian(packages: &Packages, expected: &str) {
    let root = packages.folder.path().join("root");
    // A machine without packages: dpkg asks for these folders. The script after the installation makes no user there.
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    let forces = ["--force-not-root", "--force-depends", "--force-bad-path", "--force-script-chrootless"];
    let mut dpkg = Command::new("dpkg");
    run(dpkg.arg(format!("--root={}", root.display())).args(forces).arg("--install").arg(&packages.debian));
    assert_eq!(version(&root.join("usr/bin/apportion")), expected);
    assert!(version(&root.join("usr/bin/apportion-agent")).starts_with("apportion-agent "));
    assert!(root.join("usr/lib/apportion/libonnxruntime.so").is_file(), "the agent's library");
    for unit in ["apportion.service", "apportion-agent.service"] {
        let text = std::fs::read_to_string(root.join("usr/lib/systemd/system").join(unit)).expect("a unit");
        assert!(!text.contains("/usr/local/bin/") && !text.contains("/usr/local/lib/"), "{unit}: {text}");
        let program = PathBuf::from(&command(&text)[0]);
        assert!(root.join(program.strip_prefix("/").expect("a whole path")).is_file(), "{unit} starts {program:?}");
    }
    for page in ["apportion", "apportion-plan-explain", "apportion-context-set", "apportion-serve"] {
        assert!(root.join(format!("usr/share/man/man1/{page}.1.gz")).is_file(), "there is no manual page {page}");
    }
    let completions = [
        "bash-completion/completions/apportion",
        "zsh/vendor-completions/_apportion",
        "fish/vendor_completions.d/apportion.fish",
    ];
    for file in completions {
        let text = std::fs::read_to_string(root.join("usr/share").join(file)).expect("completions");
        assert!(text.contains("rollback"), "{file}");
    }
    run(Command::new("bash").arg("-n").arg(root.join("usr/share").join(completions[0])));
}

/// `pip install` of the wheel puts both programs on the path of its environment.
fn installed_wheel(packages: &Packages, python: &Path, expected: &str) {
    let venv = packages.folder.path().join("venv");
    run(Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&venv));
    let arguments = ["-m", "pip", "--python"];
    let mut pip = Command::new(python);
    pip.args(arguments).arg(venv.join("bin/python")).args(["install", "--no-index", "--no-deps", "--no-input", "--quiet"]);
    run(pip.arg("--disable-pip-version-check").arg(&packages.wheel));
    assert_eq!(version(&venv.join("bin/apportion")), expected);
    assert!(version(&venv.join("bin/apportion-agent")).starts_with("apportion-agent "));
}
