//! A panic in a part of the agent ends its process, which says which part it was.

use apportion_executor::parts::{CallPanic, PANICKED, contained, end, end_on_panic, part};
use std::process::{Command, Output};

/// Set in the process that panics.
const VARIABLE: &str = "APPORTION_TEST_PANICS";

/// Runs this test again, in a process of its own.
fn again(test: &str, how: &str) -> Output {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(VARIABLE, how);
    command.output().expect("it starts")
}

fn panic_in_a_part(how: &str) -> ! {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    end_on_panic();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    if how == "thread" {
        let thread = std::thread::Builder::new().name("alarm".into());
        let _ended = thread.spawn(|| panic!("out of luck")).expect("a thread").join();
    } else if how == "contained" {
        let words = contained(|| panic!("out of luck"));
        end(if words == Err::<(), _>(CallPanic("out of luck".into())) { 0 } else { 1 });
    } else {
        let _ended = runtime.block_on(runtime.spawn(part("control", async { panic!("out of luck") })));
    }
    // Without the hook, this is where the agent would go on.
    end(0)
}

#[test]
fn a_panic_ends_the_process_and_its_part_is_named() {
    if let Ok(how) = std::env::var(VARIABLE) {
        panic_in_a_part(&how);
    }
    for (how, part) in [("future", "control"), ("thread", "alarm")] {
        let ended = again("a_panic_ends_the_process_and_its_part_is_named", how);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(PANICKED.into()), "{said}");
        let line = said.lines().find(|l| l.contains("a part of the agent has panicked")).unwrap_or_default();
        for word in [&format!("part=\"{part}\""), "panics.rs:", "out of luck"] {
            assert!(line.contains(word), "{word}: {said}");
        }
    }
}

#[test]
fn a_contained_panic_ends_nothing() {
    if let Ok(how) = std::env::var(VARIABLE) {
        panic_in_a_part(&how);
    }
    let ended = again("a_contained_panic_ends_nothing", "contained");
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}
