//! The files in `packaging/` and the Dockerfile name real programs, commands and flags. Their images are not built here.

use std::collections::BTreeMap;
use std::path::Path;
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
