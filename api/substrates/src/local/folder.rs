//! What is in the folder of a machine?

use super::process::AgentProcess;
use crate::failure::SubstrateError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of a machine that was given up is kept for this long, for its log.
const KEEP_ENDED: Duration = Duration::from_secs(86_400);

/// The folder of one machine: `agent.log`, `state/`, and files that say how far the machine is.
pub(super) struct MachineFolder {
    name: String,
    path: PathBuf,
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> SubstrateError {
    let path = path.to_path_buf();
    move |source| SubstrateError::File { path: path.clone(), source }
}

/// The folders of all machines; none before the first.
pub(super) fn folders_in(folder: &Path) -> Result<Vec<MachineFolder>, SubstrateError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file_error(folder))?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file_error(folder))?;
        if let Some(name) = entry.file_name().to_str().filter(|_| entry.path().is_dir()) {
            folders.push(MachineFolder { name: name.to_owned(), path: entry.path() });
        }
    }
    folders.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(folders)
}

impl MachineFolder {
    pub(super) fn create(parent: &Path, name: &str) -> Result<Self, SubstrateError> {
        let path = parent.join(name);
        fs::create_dir_all(&path).map_err(file_error(&path))?;
        Ok(Self { name: name.to_owned(), path })
    }

    /// The folder, if it is there.
    pub(super) fn open(parent: &Path, name: &str) -> Option<Self> {
        let path = parent.join(name);
        path.is_dir().then(|| Self { name: name.to_owned(), path })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.path.join("state")
    }

    pub(super) fn open_log(&self) -> Result<File, SubstrateError> {
        let path = self.path.join("agent.log");
        OpenOptions::new().create(true).append(true).open(&path).map_err(file_error(&path))
    }

    /// The error of something else that fails with this folder.
    pub(super) fn failed(&self) -> impl Fn(io::Error) -> SubstrateError {
        file_error(&self.path)
    }

    /// The process that was started last.
    pub(super) fn process(&self) -> Result<Option<AgentProcess>, SubstrateError> {
        Ok(self.read("process")?.as_deref().and_then(AgentProcess::parse))
    }

    pub(super) fn note_process(&self, process: &AgentProcess) -> Result<(), SubstrateError> {
        self.write("process", &process.to_string())
    }

    /// Whether the agent was told to end.
    pub(super) fn is_ending(&self) -> Result<bool, SubstrateError> {
        Ok(self.read("ending")?.is_some())
    }

    pub(super) fn note_ending(&self) -> Result<(), SubstrateError> {
        self.write("ending", "")
    }

    /// Why it was given up, if it was.
    pub(super) fn ended(&self) -> Result<Option<String>, SubstrateError> {
        self.read("ended")
    }

    pub(super) fn note_ended(&self, why: &str) -> Result<(), SubstrateError> {
        self.write("ended", why)
    }

    /// Whether a machine that was given up is kept; one that is not is removed.
    pub(super) fn is_kept(&self) -> Result<bool, SubstrateError> {
        let path = self.path.join("ended");
        let noted = fs::metadata(&path).and_then(|metadata| metadata.modified()).map_err(file_error(&path))?;
        let is_old = noted.elapsed().is_ok_and(|age| age > KEEP_ENDED);
        if is_old || self.is_ending()? {
            self.remove()?;
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn remove(&self) -> Result<(), SubstrateError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&self.path)(error)),
            _ => Ok(()),
        }
    }

    fn read(&self, file: &str) -> Result<Option<String>, SubstrateError> {
        let path = self.path.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error(&path)(error)),
        }
    }

    /// Writes a file beside its place first, so that no half of it is ever read.
    fn write(&self, file: &str, text: &str) -> Result<(), SubstrateError> {
        let (path, beside) = (self.path.join(file), self.path.join(format!("{file}.new")));
        fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path)).map_err(file_error(&path))
    }
}
