//! How does a program of the user judge answers?

use crate::files::CommandRule;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of the program's output that are kept.
const PRINTED_BYTES_MAX: u64 = 4_096;
/// Most characters of it that an error repeats, its last ones.
const REPEATED_MAX: usize = 400;
/// How often the program is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// How long its output may stay open after its end, by a process that it started.
const AFTER_END: Duration = Duration::from_secs(1);

/// Why a program has not judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JudgeError {
    #[error("the command {program} cannot be run: {why}")]
    Run { program: String, why: io::Error },
    #[error("the command {program} ended with {status}: expected 0; it said {said:?}")]
    Failed { program: String, status: String, said: String },
    #[error("the command {program} printed {printed:?}: expected one number from 0 to 1, and nothing else")]
    Printed { program: String, printed: String },
    #[error("the command {program} ran for more than {seconds} s: expected an answer by then, or a larger timeout_s")]
    TimeOut { program: String, seconds: f64 },
}

/// The number that the program of the rule prints when it reads `lines` on its standard input.
///
/// # Errors
/// If it cannot be started, ends with another status than 0, prints anything but a number from 0 to 1, or takes too long.
/// It is ended then.
pub(crate) fn judged(rule: &CommandRule, lines: Vec<u8>) -> Result<f64, JudgeError> {
    let program = || rule.command.join(" ");
    let run = |why| JudgeError::Run { program: program(), why };
    let (name, arguments) = rule.command.split_first().expect("a rule has a program");
    let folder = if rule.folder.as_os_str().is_empty() { Path::new(".") } else { rule.folder.as_path() };
    let mut command = Command::new(name);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let deadline = Instant::now() + rule.time_max;
    let mut child = command.spawn().map_err(run)?;
    let mut input = child.stdin.take().expect("it is piped");
    // A program may end without reading everything.
    thread::spawn(move || input.write_all(&lines));
    let printed = read_aside(child.stdout.take().expect("it is piped"));
    let said = read_aside(child.stderr.take().expect("it is piped"));
    let status = loop {
        if let Some(status) = child.try_wait().map_err(run)? {
            break status;
        }
        if Instant::now() >= deadline {
            end(&mut child);
            return Err(JudgeError::TimeOut { program: program(), seconds: rule.time_max.as_secs_f64() });
        }
        thread::sleep(POLL);
    };
    if !status.success() {
        return Err(JudgeError::Failed { program: program(), status: status.to_string(), said: text_of(&said) });
    }
    let printed = text_of(&printed);
    let number = printed.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| JudgeError::Printed { program: program(), printed })
}

fn end(child: &mut Child) {
    // An error says that it has ended by itself.
    let _ended = child.kill();
    let _ended = child.wait();
}

/// Reads an output to its end. The first bytes of it arrive at the receiver.
fn read_aside(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut kept = Vec::new();
        // What has arrived is worth as much after an error.
        let _read = output.by_ref().take(PRINTED_BYTES_MAX).read_to_end(&mut kept);
        let _drained = io::copy(&mut output, &mut io::sink());
        let _received = sender.send(kept);
    });
    receiver
}

/// The last characters of an output, without the space around them.
fn text_of(output: &Receiver<Vec<u8>>) -> String {
    let bytes = output.recv_timeout(AFTER_END).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    text.chars().skip(text.chars().count().saturating_sub(REPEATED_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(script: &str, time_max: Duration, lines: &[u8]) -> Result<f64, JudgeError> {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let rule = CommandRule { command, outputs: vec!["y".to_owned()], folder: Path::new("").into(), time_max };
        judged(&rule, lines.to_vec())
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_program_reads_lines_and_prints_a_number() {
        assert_eq!(judge("echo 0.25", LONG, b"").expect("a number"), 0.25);
        assert_eq!(judge("wc -l | tr -d ' '", LONG, b"{}\n").expect("a number"), 1.0);
        let unread = vec![b'x'; 4 << 20];
        assert_eq!(judge("echo 1", LONG, &unread).expect("a number"), 1.0, "a program may read nothing");
    }

    #[test]
    fn programs_that_do_not_judge_are_refused() {
        let cases = [
            ("echo sorry >&2; exit 3", "exit status: 3: expected 0; it said \"sorry\""),
            ("echo 1.5", "printed \"1.5\": expected one number from 0 to 1"),
            ("echo nan", "printed \"nan\""),
            ("echo 0.5 0.5", "printed \"0.5 0.5\""),
            ("true", "printed \"\""),
        ];
        for (script, said) in cases {
            let refused = judge(script, LONG, b"").expect_err(script).to_string();
            assert!(refused.contains(said), "{refused} should say {said:?}");
        }
    }

    #[test]
    fn a_slow_program_is_ended() {
        let refused = judge("exec sleep 1000", Duration::from_millis(50), b"").expect_err("too slow").to_string();
        assert!(refused.contains("ran for more than 0.05 s"), "{refused}");
        let rule = CommandRule {
            command: vec!["no-such-program-anywhere".to_owned()],
            outputs: Vec::new(),
            folder: Path::new("").into(),
            time_max: LONG,
        };
        let refused = judged(&rule, Vec::new()).expect_err("not there").to_string();
        assert!(refused.contains("no-such-program-anywhere cannot be run"), "{refused}");
    }
}
