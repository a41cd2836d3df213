//! Which clients wait for answers, and which of them have gone?
//!
//! Example: a client cancels its call while its query runs in a slot. The gateway notes it, the loop sees it at the next
//! tick, and the node lets the query leave its slot.

use super::handle::ClientPresence;
use apportion_node::node::request::RequestAnswer;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// A client that waits for its answer.
struct Caller {
    reply: oneshot::Sender<RequestAnswer>,
    presence: ClientPresence,
}

/// The clients that wait, by the numbers that the node knows.
#[derive(Default)]
pub(super) struct Callers {
    waiting: BTreeMap<u64, Caller>,
    last: u64,
}

impl Callers {
    /// Adds a client; its number.
    pub(super) fn add(&mut self, reply: oneshot::Sender<RequestAnswer>, presence: ClientPresence) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Caller { reply, presence });
        self.last
    }

    /// The clients that have gone and have no answer yet.
    pub(super) fn gone(&self) -> Vec<u64> {
        let gone = self.waiting.iter().filter(|(_, caller)| caller.presence.has_ended());
        gone.map(|(number, _)| *number).collect()
    }

    /// Gives a client its answer, if it still waits.
    pub(super) fn answer(&mut self, caller: u64, answer: RequestAnswer) {
        if let Some(Caller { reply, .. }) = self.waiting.remove(&caller) {
            let _client_gone = reply.send(answer);
        }
    }
}
