//! From a replica that the node wants loaded to its slot: the file first, then the thread.

use super::{Command, Loop};
use crate::backend::Wanted;
use crate::node::Event;
use crate::slot::{Happened, Slot};
use std::path::PathBuf;
use std::time::Duration;

/// How often a file is asked for before its replica has failed, and how long between.
const FETCHES: u32 = 10;
const FETCH_AGAIN: Duration = Duration::from_secs(1);

impl Loop {
    pub(super) fn fetch(&self, replica: u64, digest: String) {
        let (files, url) = (self.options.files.clone(), self.files_url.clone());
        let (commands, needed) = (self.handle.commands.clone(), self.options.loader.needs_file());
        tokio::spawn(async move {
            let mut result = Ok(None);
            for _ in 0..if needed { FETCHES } else { 0 } {
                result = files.get(&digest, &url).await.map(Some).map_err(|e| e.to_string());
                let Err(error) = &result else { break };
                tracing::warn!(replica, error, "the replica's file is not there; trying again");
                tokio::time::sleep(FETCH_AGAIN).await;
            }
            let _stopping = commands.send(Command::File(replica, result)).await;
        });
    }

    /// Fetches files for replicas that may come; whoever needs one that is not there yet asks again.
    pub(super) fn prefetch(&self, digests: Vec<String>) {
        let (files, url) = (self.options.files.clone(), self.files_url.clone());
        if !self.options.loader.needs_file() || url.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for digest in digests {
                if let Err(error) = files.get(&digest, &url).await {
                    tracing::debug!(digest, %error, "a file is not fetched ahead");
                }
            }
        });
    }

    pub(super) fn open_slot(&mut self, replica: u64, file: Result<Option<PathBuf>, String>) {
        let Some(wanted) = self.node.replicas().find(|r| r.id == replica) else { return };
        let (task, group, device) = (wanted.task().clone(), wanted.group.clone(), wanted.device);
        let events = self.handle.events.clone();
        let report = move |happened| {
            let _stopping = events.blocking_send(Event::Slot(replica, happened));
        };
        let (name, loader) = (format!("replica-{replica}"), self.options.loader.clone());
        let started = file.and_then(|file| {
            let wanted = Wanted { file, task, group, device };
            Slot::start(name, wanted, loader, report).map_err(|e| e.to_string())
        });
        match started {
            Ok(slot) => {
                self.slots.insert(replica, slot);
            }
            Err(error) => self.feed(Event::Slot(replica, Happened::Failed(error))),
        }
    }
}
