//! `scripts/check` finds, before anything is compiled, what would make the build fail; `scripts/strip` keeps what a
//! backtrace needs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// `scripts/check WORD`, with this program first on the PATH under that name: whether it passes, and what it says.
fn check(word: &str, program: &str, script: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let stub = folder.path().join(program);
    std::fs::write(&stub, format!("#!/bin/sh\n{script}\n")).expect("writes");
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).expect("can be run");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    run(&["scripts/check", word], &[("PATH", &path)])
}

fn run(command: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut command_line = Command::new(command[0]);
    command_line.args(&command[1..]).current_dir(apportion_tests::root()).envs(variables.iter().copied());
    let output = command_line.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.stdout.is_empty(), "only results go to stdout: {}", String::from_utf8_lossy(&output.stdout));
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn this_machine_passes_the_checks() {
    for word in ["rust", "compiler", "cmake", "postgres", "python"] {
        assert_eq!(run(&["scripts/check", word], &[("CI", "")]), (true, String::new()), "{word}");
    }
}

#[test]
fn a_machine_that_cannot_build_is_told_why() {
    let free = |mb: u32| format!("echo 'Filesystem 1M-blocks Used Available'; echo '/dev/x 9 9 {mb} 9% /'");
    let mut cases = vec![
        ("cmake", "cmake", "echo 'cmake version 3.10.2'".to_owned(), "cmake is 3.10.2: HiGHS needs 3.15"),
        ("cmake", "cmake", "echo boom; exit 1".to_owned(), "cmake does not run: boom"),
        (
            "rust",
            "rustc",
            "echo 'rustc 1.80.0 (051478957 2024-07-21)'".to_owned(),
            "rustc is 1.80.0: rust-toolchain.toml pins",
        ),
        ("rust", "rustc", "echo \"error: toolchain is not installed\"; exit 1".to_owned(), "toolchain is not installed"),
        ("rust", "cargo", "exit 127".to_owned(), "does not run"),
        (
            "compiler",
            "c++",
            "echo 'cc1plus: no such file'; exit 1".to_owned(),
            "c++ cannot make a program that runs: cc1plus",
        ),
        ("compiler", "cc", "echo 'ld: cannot find crt1.o'; exit 1".to_owned(), "cc cannot make a program that runs: ld"),
        ("disk", "df", free(100), "100 MB are free for"),
        ("compilers", "df", free(100), "there is no check compilers"),
    ];
    // Root's PostgreSQL runs as another user, through runuser.
    if std::fs::metadata("/proc/self").expect("Linux").uid() == 0 {
        cases.push((
            "postgres",
            "runuser",
            "echo 'initdb: error: no'; exit 1".to_owned(),
            "makes no database: initdb: error: no",
        ));
    }
    for (word, program, script, said) in cases {
        let (passes, text) = check(word, program, &script);
        assert!(!passes && text.contains(said), "{program} {script:?} should say {said:?}: {text}");
    }
}

#[test]
fn no_build_needs_libclang() {
    let lock = std::fs::read_to_string(apportion_tests::root().join("Cargo.lock")).expect("Cargo.lock");
    assert!(lock.contains("name = \"highs-sys\""), "the crate that would bring it");
    assert!(!lock.contains("name = \"clang-sys\""), "a crate of the lock file loads libclang");
    for script in ["scripts/setup", "Dockerfile"] {
        let text = std::fs::read_to_string(apportion_tests::root().join(script)).expect("a script");
        assert!(!text.contains("clang"), "{script} names clang");
    }
}

#[test]
fn a_stripped_program_has_backtraces_beside_its_debug_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("a.rs"), folder.path().join("a"));
    let code = "#[inline(never)]\nfn deep(n: usize) -> usize {\n    if n > 0 { panic!(\"boom\") }\n    n\n}\n\
                fn main() { println!(\"{}\", deep(std::env::args().count())) }\n";
    std::fs::write(&source, code).expect("writes");
    let mut compiler = Command::new("rustc");
    compiler.args(["-O", "-Cdebuginfo=line-tables-only"]).arg(&source).arg("-o").arg(&program);
    assert!(compiler.current_dir(apportion_tests::root()).status().expect("rustc runs").success());
    let size = |file: &Path| std::fs::metadata(file).expect("a file").len();
    let (before, path) = (size(&program), program.display().to_string());
    for again in [false, true] {
        assert_eq!(run(&["scripts/strip", &path], &[]), (true, String::new()), "again: {again}");
        assert!(size(&program) * 4 < before, "{} of {before} bytes are left", size(&program));
    }
    let frames = || {
        let output = Command::new(&program).env("RUST_BACKTRACE", "1").output().expect("runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = frames();
    assert!(text.contains("a::deep") && text.contains("a.rs:3"), "{text}");
    std::fs::remove_file(folder.path().join("a.debug")).expect("it lay beside the program");
    let text = frames();
    assert!(!text.contains("a::deep"), "the names come from the debug file: {text}");
}
