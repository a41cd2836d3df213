//! How does a stage of the user's own in Python run? In a process of its own, which is started again when it ends.
//!
//! Example: `run({"x": array})` of the user's file gets the rows of a batch as NumPy arrays that lie in shared memory. It
//! returns a dict of arrays, and may add `parent` as variants do. The process is the replica's: it starts when the replica
//! is loaded, and ends with it.

mod error;
mod process;
mod protocol;

pub use process::PythonSettings;

use super::batch::check_inputs;
use super::{Backend, BackendError, Signature};
use apportion_node::tensor::Tensor;
use error::StageError;
use process::{StageProcess, StartedStage};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a batch may take unless told otherwise.
pub const STAGE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Pause before the second start after a death; it doubles with each further death.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a start.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A batch waits this long for a start. Where the pause is longer, it fails at once.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A stage in a Python file, loaded.
pub struct PythonBackend {
    settings: PythonSettings,
    file: PathBuf,
    signature: Signature,
    /// None after it has died.
    process: Option<StageProcess>,
    /// Deaths since the last good batch.
    deaths: u32,
    died: Instant,
}

impl PythonBackend {
    /// Starts the process of the stage in `file`.
    ///
    /// # Errors
    /// [`BackendError::Load`] if Python does not start, or the file is no stage: it declares `INPUTS` and `OUTPUTS`, and
    /// has a function `run`.
    pub fn start(settings: PythonSettings, file: &Path) -> Result<Self, BackendError> {
        let refused = |e: StageError| BackendError::Load { file: file.display().to_string(), detail: e.to_string() };
        let StartedStage { process, signature } = StageProcess::start(&settings, file).map_err(refused)?;
        let (file, process, died) = (file.to_owned(), Some(process), Instant::now());
        Ok(Self { settings, file, signature, process, deaths: 0, died })
    }

    /// Starts the process again if it has died.
    fn revive(&mut self) -> Result<(), BackendError> {
        if self.process.is_none() {
            let left = pause(self.deaths).saturating_sub(self.died.elapsed());
            if left > WAIT_MAX {
                let (deaths, seconds) = (self.deaths, left.as_secs_f64());
                return Err(BackendError::Away(format!("its process died {deaths} times; next start in {seconds:.1} s")));
            }
            std::thread::sleep(left);
            let started = StageProcess::start(&self.settings, &self.file).and_then(|started| {
                let is_same = started.signature == self.signature;
                if is_same { Ok(started.process) } else { Err(StageError::OtherTensors) }
            });
            match started {
                Ok(process) => self.process = Some(process),
                Err(error) => {
                    self.note_death();
                    return Err(BackendError::Away(error.to_string()));
                }
            }
        }
        Ok(())
    }

    fn note_death(&mut self) {
        self.process = None;
        self.deaths = self.deaths.saturating_add(1);
        self.died = Instant::now();
    }
}

/// How long after the latest death the next start comes.
fn pause(deaths: u32) -> Duration {
    match deaths {
        0 | 1 => Duration::ZERO,
        more => PAUSE_MIN.saturating_mul(1 << (more - 2).min(16)).min(PAUSE_MAX),
    }
}

impl Backend for PythonBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        self.revive()?;
        let process = self.process.as_mut().expect("it lives");
        match process.run(inputs, &self.signature.outputs) {
            Ok(made) => {
                self.deaths = 0;
                Ok(made)
            }
            Err(error) => {
                if error.is_fatal() {
                    tracing::warn!(file = %self.file.display(), %error, "the process of a Python stage is ended");
                    self.note_death();
                }
                Err(BackendError::Run(error.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
