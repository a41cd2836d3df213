//! A test whose need is absent fails under continuous integration, unless the need is named.

use apportion_needs::{LOG_VARIABLE, Need, NeedError, SKIP_VARIABLE, Terms, counted, need};
use std::process::Command;

/// The variable that tells this program that it is the child of `absent_needs_fail_in_a_process_of_their_own`.
const CHILD: &str = "APPORTION_NEEDS_CHILD";

#[test]
fn absent_needs_fail_under_ci_unless_named() {
    let cases = [
        (None, None, true),
        (Some(""), None, true),
        (Some("false"), None, true),
        (Some("0"), None, true),
        (Some("true"), None, false),
        (Some("1"), None, false),
        (Some("true"), Some(""), false),
        (Some("true"), Some("clients,onnx"), false),
        (Some("true"), Some("data"), true),
        (Some("true"), Some("onnx, data"), true),
    ];
    for (ci, skip, may_skip) in cases {
        let said = Terms::read(ci, skip).expect("known words").absent(Need::Data, "no folder");
        assert_eq!(said.is_ok(), may_skip, "CI={ci:?} {SKIP_VARIABLE}={skip:?}: {said:?}");
        let text = said.unwrap_or_else(|error| error.to_string());
        assert!(text.contains("no folder") && text.contains("data"), "{text}");
    }
}

#[test]
fn unknown_words_are_refused() {
    let error = Terms::read(None, Some("data,onyx")).expect_err("no such need").to_string();
    assert!(error.contains("\"onyx\"") && error.contains("data, clients, onnx"), "{error}");
}

#[test]
#[should_panic(expected = "has no row")]
fn zero_rows_are_a_failure() {
    let _ = counted::<u8>(Need::Data, Vec::new());
}

/// Does nothing unless its parent asks: then it needs what is not there.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(need::<()>(Need::Clients, Err("no index")), None);
        assert_eq!(need(Need::Data, Ok::<_, NeedError>(7)), Some(7));
        assert_eq!(counted(Need::Data, vec![1, 2, 3]).len(), 3);
    }
}

#[test]
fn the_process_and_its_log_follow_the_rule() {
    let log = std::env::temp_dir().join(format!("apportion-needs-{}", std::process::id()));
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "child", "--nocapture"]).env_remove("CI").env_remove(SKIP_VARIABLE);
        command.env(CHILD, "yes").env(LOG_VARIABLE, &log).envs(variables.iter().copied()).env_remove("NEXTEST_TEST_NAME");
        let output = command.output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (variables, passes, says) in [
        (&[][..], true, "skipped: no index; run `scripts/setup tests`"),
        (&[("CI", "true")], false, "needs clients: no index. Under CI=true that is a failure"),
        (&[("CI", "true"), (SKIP_VARIABLE, "data")], false, "or set APPORTION_SKIP=clients"),
        (&[("CI", "true"), (SKIP_VARIABLE, "clients")], true, "skipped: no index (APPORTION_SKIP names clients)"),
        (&[(SKIP_VARIABLE, "client")], false, "names \"client\": expected some of data, clients"),
    ] {
        let (passed, output) = run(variables);
        assert_eq!(passed, passes, "{variables:?}: {output}");
        assert!(output.contains(says), "{variables:?} should say {says:?}: {output}");
    }
    let text = std::fs::read_to_string(&log).expect("a log");
    let _ = std::fs::remove_file(&log);
    assert_eq!(text.lines().filter(|line| line.starts_with("clients: ") && line.contains("skipped")).count(), 2, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("data: ") && line.ends_with("3 rows")).count(), 2, "{text}");
}
