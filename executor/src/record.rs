//! Where does a live agent write the record of its node's events and actions?
//!
//! The file holds the frames of [`apportion_node::record`]. [`replay`] gives the events to a fresh node, which must do
//! the same.

use apportion_node::greeting::without_link_keys;
use apportion_node::node::{Action, NodeEvent};
use apportion_node::record::{ReplayError, ReplayedRecord, actions_frame, begin_frame, event_frame, target_frame};
use apportion_protocol::v1;
use bytes::Bytes;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Largest record, in bytes. Later frames are not recorded.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("the record cannot be read")]
    Disk(#[from] std::io::Error),
    /// The node refuses a frame, or does something else.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// A record that is being written.
pub struct Recorder {
    file: BufWriter<File>,
    bytes_left: u64,
}

impl Recorder {
    /// Begins a record of `Node::new(agent, first_request)`.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn begin(path: &Path, agent: u64, first_request: u64) -> std::io::Result<Self> {
        let mut this = Self { file: BufWriter::new(File::create(path)?), bytes_left: RECORD_BYTES_MAX };
        this.write(begin_frame(agent, first_request));
        Ok(this)
    }

    /// Records a target that the node is about to get, without its keys.
    pub fn target(&mut self, now_ns: u64, target: &v1::Target) {
        self.write(target_frame(now_ns, &without_link_keys(target)));
    }

    /// Records an event that the node is about to get. Targets have a frame of their own: [`Recorder::target`].
    pub fn event(&mut self, now_ns: u64, event: &NodeEvent) {
        if let Some(frame) = event_frame(now_ns, event) {
            self.write(frame);
        }
    }

    /// Records the actions that the node has returned.
    pub fn actions(&mut self, actions: &[Action]) {
        self.write(actions_frame(actions));
    }

    /// Writes to the disk what was recorded so far.
    ///
    /// # Errors
    /// The disk's.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }

    fn write(&mut self, frame: impl IntoIterator<Item = Bytes>) {
        let frame: Vec<Bytes> = frame.into_iter().collect();
        let length: usize = frame.iter().map(Bytes::len).sum();
        let needed = length as u64 + 4;
        if needed > self.bytes_left {
            if self.bytes_left > 0 {
                tracing::warn!(RECORD_BYTES_MAX, "the record is full: nothing more is recorded");
            }
            self.bytes_left = 0;
            return;
        }
        self.bytes_left -= needed;
        let mut written = self.file.write_all(&(length as u32).to_le_bytes());
        for piece in &frame {
            written = written.and_then(|()| self.file.write_all(piece));
        }
        if let Err(error) = written {
            tracing::error!(%error, "the record ends here");
            self.bytes_left = 0;
        }
    }
}

/// Replays a record through a fresh node.
///
/// # Errors
/// [`RecordError`] if the file cannot be read, or at the first frame at which the node does something else.
pub fn replay(path: &Path) -> Result<ReplayedRecord, RecordError> {
    Ok(apportion_node::record::replay(std::fs::read(path)?.into())?)
}
