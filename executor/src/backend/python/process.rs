//! How is the process of a stage started, asked and ended?
//!
//! Two threads read what it writes. One passes its answers on, so that a wait for them can end; the other one logs its
//! standard error. Both end with the process.

use super::error::StageError;
use super::protocol::{STAGE_BYTES_MAX, read_answer, read_greeting, write_batch};
use crate::backend::Signature;
use apportion_node::tensor::{Tensor, TensorSignature};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The program that the process runs; it loads the user's file.
const RUNNER: &str = include_str!("runner.py");
/// How long a stage may take to import its modules.
const START_WAIT_MAX: Duration = Duration::from_secs(120);
/// Longest line that a process answers with.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest line of its standard error that is logged; a longer one is cut into several.
const LOG_LINE_BYTES_MAX: u64 = 2_000;
/// Most lines of its standard error that are logged in one [`LOG_PERIOD`].
const LOG_LINES_MAX: u32 = 100;
/// The period of this bound.
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// Variables that the process gets from the agent. The others may be secrets, as the token is.
const KEPT_VARIABLES: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"];
/// Variables that tell NumPy's libraries how many threads they may have.
const THREAD_VARIABLES: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];
/// Where shared memory is a folder.
const SHARED_MEMORY: &str = "/dev/shm";

/// How stages in Python run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonSettings {
    /// The Python, which has NumPy.
    pub program: PathBuf,
    /// Longest time of a batch. Then its process is ended.
    pub timeout: Duration,
    /// Threads of NumPy's libraries.
    pub threads: usize,
}

/// A stage that has started.
pub(super) struct StartedStage {
    pub(super) process: StageProcess,
    pub(super) signature: Signature,
}

/// The process of a stage. Dropping it ends the process.
pub(super) struct StageProcess {
    child: Child,
    batches: ChildStdin,
    answers: mpsc::Receiver<Vec<u8>>,
    inputs: File,
    outputs: File,
    timeout: Duration,
    batch: u64,
    /// Whether it has been waited for.
    is_reaped: bool,
}

fn shared_file() -> Result<tempfile::NamedTempFile, StageError> {
    let shared = Path::new(SHARED_MEMORY);
    let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("apportion-stage-").tempfile_in(folder).map_err(StageError::Memory)
}

fn command(settings: &PythonSettings, inputs: &Path, outputs: &Path, file: &Path) -> Command {
    let mut command = Command::new(&settings.program);
    command.args(["-I", "-c", RUNNER]).arg(inputs).arg(outputs).arg(file).arg(STAGE_BYTES_MAX.to_string());
    command.env_clear();
    command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    command.envs(THREAD_VARIABLES.iter().map(|name| (*name, settings.threads.max(1).to_string())));
    // Of its own group: a terminal's Ctrl-C is for the agent, which ends it.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

impl StageProcess {
    /// Starts Python and waits until it has loaded the stage.
    pub(super) fn start(settings: &PythonSettings, file: &Path) -> Result<StartedStage, StageError> {
        let (inputs, outputs) = (shared_file()?, shared_file()?);
        let reopened = |file: &tempfile::NamedTempFile| file.reopen().map_err(StageError::Memory);
        let (batch_inputs, batch_outputs) = (reopened(&inputs)?, reopened(&outputs)?);
        let failed = |error| StageError::Start { program: settings.program.display().to_string(), error };
        let mut child = command(settings, inputs.path(), outputs.path(), file).spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (batches, answers, log) = (pipes.0.expect("a pipe"), pipes.1.expect("a pipe"), pipes.2.expect("a pipe"));
        let (lines, received) = mpsc::channel();
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // Their threads end when the process does, so an error here ends it too.
        let reader = std::thread::Builder::new().name("stage-answers".into()).spawn(move || pass_on(answers, &lines));
        let logger = std::thread::Builder::new().name("stage-log".into()).spawn(move || log_lines(log, &name));
        let timeout = settings.timeout;
        let mut started = Self {
            child,
            batches,
            answers: received,
            // Both ends have opened the files when the stage has started, and their names go.
            inputs: batch_inputs,
            outputs: batch_outputs,
            timeout,
            batch: 0,
            is_reaped: false,
        };
        reader.and(logger).map_err(failed)?;
        let greeting = started.answer(START_WAIT_MAX)?;
        let signature = read_greeting(&greeting)?;
        Ok(StartedStage { process: started, signature })
    }

    /// Its number in the system.
    #[cfg(test)]
    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of the process.
    fn answer(&mut self, wait: Duration) -> Result<Vec<u8>, StageError> {
        match self.answers.recv_timeout(wait) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(StageError::TimedOut(wait)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// How the process has ended. It has closed its output, so it ends at once or is made to.
    fn ended(&mut self) -> StageError {
        match self.end() {
            Ok(status) => StageError::Ended(status.to_string()),
            Err(error) => StageError::Ended(error.to_string()),
        }
    }

    /// Ends the process, and all that it has started: they are a group of their own.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        if !self.is_reaped {
            kill_group(&self.child);
        }
        // Of one that has been waited for, this is the status again.
        let status = self.child.wait();
        self.is_reaped = true;
        status
    }

    /// Runs a batch.
    pub(super) fn run(&mut self, inputs: &[Tensor], outputs: &[TensorSignature]) -> Result<Vec<Tensor>, StageError> {
        self.batch += 1;
        let message = write_batch(self.batch, inputs, &self.inputs)?;
        if self.batches.write_all(&message).and_then(|()| self.batches.flush()).is_err() {
            return Err(self.ended());
        }
        let line = self.answer(self.timeout)?;
        read_answer(&line, self.batch, outputs, &self.outputs)
    }
}

impl Drop for StageProcess {
    fn drop(&mut self) {
        let _status = self.end();
    }
}

/// Kills the group of a process that has not been waited for, so no other group has its number.
#[allow(unsafe_code)]
fn kill_group(leader: &Child) {
    if let Ok(number) = i32::try_from(leader.id()) {
        // SAFETY: the call takes two numbers.
        unsafe { libc::kill(-number, libc::SIGKILL) };
    }
}

/// The next line, at most so long; none at the end.
fn next_line(from: &mut impl BufRead, bytes_max: u64) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = from.take(bytes_max).read_until(b'\n', &mut line);
    read.is_ok_and(|bytes| bytes > 0).then_some(line)
}

/// Passes whole lines on. A line that is too long or cut off ends it, and with it the process.
fn pass_on(answers: impl Read, lines: &mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(answers);
    while let Some(line) = next_line(&mut reader, LINE_BYTES_MAX).filter(|line| line.ends_with(b"\n")) {
        if lines.send(line).is_err() {
            return;
        }
    }
}

fn log_lines(log: impl Read, stage: &str) {
    let mut reader = BufReader::new(log);
    let (mut begun, mut logged) = (Instant::now(), 0_u32);
    while let Some(line) = next_line(&mut reader, LOG_LINE_BYTES_MAX) {
        if begun.elapsed() >= LOG_PERIOD {
            if logged > LOG_LINES_MAX {
                tracing::warn!(stage, lines = logged - LOG_LINES_MAX, "lines of a Python stage were left out");
            }
            (begun, logged) = (Instant::now(), 0);
        }
        logged = logged.saturating_add(1);
        if logged <= LOG_LINES_MAX {
            tracing::info!(stage, "{}", String::from_utf8_lossy(&line).trim_end());
        }
    }
}
