//! How does a replica that the node wants loaded get its slot? First its file is fetched, then its thread starts.

use super::AgentCommand;
use super::loop_state::Loop;
use crate::backend::ReplicaVariant;
use crate::files::FileError;
use crate::parts::part;
use crate::slot::Slot;
use apportion_node::node::{NodeEvent, RenumberedReplica};
use apportion_node::replica_event::ReplicaEvent;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a replica has no slot.
#[derive(Debug, thiserror::Error)]
enum SlotError {
    /// Its model file is not here.
    #[error(transparent)]
    File(#[from] Arc<FileError>),
    /// The system has no thread for it.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
}

impl Loop {
    pub(super) fn fetch(&mut self, replica: u64, digest: String) {
        self.last_loading += 1;
        let loading = self.last_loading;
        self.loadings.insert(loading, replica);
        let files = self.options.files.clone();
        let (commands, needed) = (self.handle.commands.clone(), self.options.loader.needs_file());
        tokio::spawn(part("loading", async move {
            let file = if needed { files.get(&digest).await.map(Some) } else { Ok(None) };
            let _stopping = commands.send(AgentCommand::File(loading, file)).await;
        }));
    }

    /// Fetches files for replicas that may come. A replica that needs a missing file asks again.
    pub(super) fn prefetch(&self, digests: Vec<String>) {
        let files = self.options.files.clone();
        if !self.options.loader.needs_file() {
            return;
        }
        tokio::spawn(part("prefetching", async move {
            for digest in digests {
                if let Err(error) = files.try_get(&digest).await {
                    tracing::debug!(digest, %error, "a file is not fetched ahead");
                }
            }
        }));
    }

    pub(super) fn open_slot(&mut self, loading: u64, file: Result<Option<PathBuf>, Arc<FileError>>) {
        let Some(replica) = self.loadings.get(&loading).copied() else { return };
        let Some(wanted) = self.node.replicas().find(|r| r.id == replica) else { return };
        let (task, group, device) = (wanted.task().clone(), wanted.group.clone(), wanted.device);
        let events = self.handle.events.clone();
        let report = move |event| {
            let _stopping = events.blocking_send(NodeEvent::Replica { replica: loading, event });
        };
        let (name, loader) = (format!("replica-{replica}"), self.options.loader.clone());
        let started = file.map_err(SlotError::from).and_then(|file| {
            let wanted = ReplicaVariant { file, task, group, device };
            Ok(Slot::start(name, wanted, loader, report)?)
        });
        match started {
            Ok(slot) => {
                self.slots.insert(replica, slot);
            }
            Err(error) => {
                let event = ReplicaEvent::Failed(error.to_string());
                self.feed(NodeEvent::Replica { replica: loading, event });
            }
        }
    }

    pub(super) fn unload(&mut self, replica: u64) {
        self.slots.remove(&replica);
        self.loadings.retain(|_, of| *of != replica);
    }

    /// Replicas have other numbers from now on: their threads and what these have said meanwhile stay theirs.
    pub(super) fn renumber(&mut self, renumbered: &[RenumberedReplica]) {
        let slots = renumbered.iter().filter_map(|pair| Some((pair.to, self.slots.remove(&pair.from)?)));
        let slots: Vec<_> = slots.collect();
        self.slots.extend(slots);
        for of in self.loadings.values_mut() {
            if let Some(pair) = renumbered.iter().find(|pair| pair.from == *of) {
                *of = pair.to;
            }
        }
    }
}
