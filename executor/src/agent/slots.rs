//! How does a replica that the node wants loaded get its slot? First its file is fetched, then its thread starts.

use super::AgentCommand;
use super::handle::FetchedFile;
use super::loop_state::Loop;
use super::measurer::DeviceOccupancy;
use crate::backend::{BackendKind, ReplicaVariant};
use crate::files::FileError;
use crate::parts::part;
use crate::slot::{BatchRun, GivenBatch, Slot};
use apportion_node::node::{NodeEvent, RenumberedReplica, RunSpread};
use apportion_node::replica_event::ReplicaEvent;
use apportion_protocol::v1;
use std::sync::Arc;
use std::time::Instant;

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
        if let Some(device) = self.node.replicas().find(|r| r.id == replica).map(|r| r.device) {
            self.measurer.yield_device(device);
        }
        let loading = self.load_times.next_number();
        self.loadings.insert(loading, replica);
        let files = self.options.files.clone();
        let (commands, needed) = (self.handle.commands.clone(), self.options.loader.needs_file());
        tokio::spawn(part("loading", async move {
            let begun = Instant::now();
            let file = if needed { files.get(&digest).await.map(Some) } else { Ok(None) };
            let fetched = FetchedFile { loading, file, took: begun.elapsed() };
            let _stopping = commands.send(AgentCommand::File(fetched)).await;
        }));
    }

    /// Carries out an order to measure, if its device has no replica.
    pub(super) fn measure(&mut self, order: v1::Measure) {
        let is_used = self.node.replicas().any(|replica| replica.device == order.device);
        self.measurer.obey(order, if is_used { DeviceOccupancy::Replicas } else { DeviceOccupancy::Free });
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

    pub(super) fn open_slot(&mut self, FetchedFile { loading, file, took }: FetchedFile) {
        let Some(replica) = self.loadings.get(&loading).copied() else { return };
        let Some(wanted) = self.node.replicas().find(|r| r.id == replica) else { return };
        let (task, group, device) = (wanted.task().clone(), wanted.group.clone(), wanted.device);
        let events = self.handle.events.clone();
        let report = move |event| {
            let _stopping = events.blocking_send(NodeEvent::Replica { replica: loading, event });
        };
        let (name, loader) = (format!("replica-{replica}"), self.options.loader.clone());
        self.load_times.begin(loading, took, Instant::now());
        let started = file.map_err(SlotError::from).and_then(|file| {
            let wanted = ReplicaVariant { file, task, group, device };
            Ok(Slot::start(name, wanted, loader, report)?)
        });
        match started {
            Ok(slot) => {
                self.slots.insert(replica, slot);
            }
            Err(error) => {
                self.load_times.forget(loading);
                let event = ReplicaEvent::Failed(error.to_string());
                self.feed(NodeEvent::Replica { replica: loading, event });
            }
        }
    }

    /// Gives a batch to the thread of its replica. Returns what has happened by now: the batch has ended here, or the
    /// thread is gone. `spread` is that of [`Action::Run`](apportion_node::node::Action::Run).
    pub(super) fn start_batch(&mut self, replica: u64, mut batch: GivenBatch, spread: RunSpread) -> Option<ReplicaEvent> {
        if self.options.pace || self.options.loader.kind() == BackendKind::Emulated {
            // Nobody reads the profile's time of a run whose device is not held for it.
            batch.expected = self.slot_times.draw(batch.expected, spread);
            batch.hold = batch.expected.mul_f64(self.options.slowness);
        }
        match self.slots.get_mut(&replica).and_then(|slot| slot.run(batch)) {
            Some(BatchRun::Later) => None,
            Some(BatchRun::Now(happened)) => Some(happened),
            None => Some(ReplicaEvent::Failed("its thread is gone".into())),
        }
    }

    /// Has the query of a slot leave. Without its thread the replica has failed, and its queries with it.
    pub(super) fn leave_slot(&mut self, replica: u64, server: u32) {
        if let Some(slot) = self.slots.get(&replica) {
            slot.leave(server);
        }
    }

    pub(super) fn unload(&mut self, replica: u64) {
        self.slots.remove(&replica);
        self.loadings.retain(|_, of| *of != replica);
        self.load_times.keep(|loading| self.loadings.contains_key(&loading));
    }

    /// A replica's thread has spoken of its loading. Profiles that are played back load nothing, and another server loads
    /// by itself: only variants that run here have a time.
    pub(super) fn note_load(&mut self, loading: u64, event: &ReplicaEvent) {
        if !matches!(event, ReplicaEvent::Ready | ReplicaEvent::Failed(_)) {
            return;
        }
        let Some(took) = self.load_times.end(loading, Instant::now()) else { return };
        let loaded = self.loadings.get(&loading).and_then(|id| self.node.replicas().find(|r| r.id == *id));
        if let (ReplicaEvent::Ready, BackendKind::Local, Some(replica)) = (event, self.options.loader.kind(), loaded) {
            self.load_times.add(v1::LoadTime {
                pipeline: replica.pipeline.clone(),
                task: replica.task().name.clone(),
                variant: replica.group.variant.clone(),
                hardware: replica.group.hardware.clone(),
                download_ms: 1e3 * took.download.as_secs_f64(),
                start_ms: 1e3 * took.start.as_secs_f64(),
            });
        }
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
