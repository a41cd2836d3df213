//! Which clients wait for answers, and which of them have gone?
//!
//! Example: a client cancels its call while its query runs in a slot. The gateway notes it, the loop sees it at the next
//! tick, and the node lets the query leave its slot.

use super::handle::{ClientPresence, GoneClients};
use apportion_node::node::request::RequestAnswer;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// The clients that wait, by the numbers that the node knows.
#[derive(Default)]
pub(super) struct Callers {
    waiting: BTreeMap<u64, oneshot::Sender<RequestAnswer>>,
    gone: GoneClients,
    last: u64,
}

impl Callers {
    /// Adds a client; its number.
    pub(super) fn add(&mut self, reply: oneshot::Sender<RequestAnswer>, presence: &ClientPresence) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, reply);
        presence.take_as(self.last, &self.gone);
        self.last
    }

    /// The clients that have gone since the last call and have no answer yet.
    pub(super) fn take_gone(&self) -> Vec<u64> {
        let mut gone = self.gone.take();
        gone.retain(|caller| self.waiting.contains_key(caller));
        gone
    }

    /// Gives a client its answer, if it still waits.
    pub(super) fn answer(&mut self, caller: u64, answer: RequestAnswer) {
        if let Some(reply) = self.waiting.remove(&caller) {
            let _client_gone = reply.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_that_goes_unanswered_is_named_once() {
        let mut callers = Callers::default();
        let presences: [ClientPresence; 4] = Default::default();
        let [early, stays, late, answered] = &presences;
        // It goes while its request is on its way to the loop.
        early.end();
        let numbers = presences.each_ref().map(|presence| callers.add(oneshot::channel().0, presence));
        assert_eq!(callers.take_gone(), [numbers[0]]);
        callers.answer(numbers[3], RequestAnswer::Failed("why".into()));
        for presence in [late, answered, late, early] {
            presence.end();
        }
        assert_eq!(callers.take_gone(), [numbers[2]]);
        assert!(callers.take_gone().is_empty());
        assert!(late.has_ended() && !stays.has_ended());
    }
}
