//! Which messages wait for one peer?
//!
//! There are two queues, because a small message must not wait behind large ones. Their bytes are bounded.

use apportion_node::frames::{Cutter, MESSAGE_BYTES_MAX, Pieces, SMALL_BYTES_MAX, len};
use apportion_node::wire::{Message, encode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc;

/// Small messages that wait for one peer.
const SMALL_MAX: usize = 65_536;
/// Larger messages that wait for one peer.
const LARGE_MAX: usize = 4_096;
/// Bytes that wait for one peer. Further messages are refused, because the peer is too slow.
const WAITING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no connection to the agent, and none is tried.
    #[error("there is no way to its agent")]
    NoWay,
    /// Too much waits for the agent already.
    #[error("too much waits for its agent")]
    Full,
    /// No connection takes it.
    #[error("it is larger than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
}

/// Where messages for a peer are put.
pub(super) struct Outbound {
    small: mpsc::Sender<Pieces>,
    large: mpsc::Sender<Pieces>,
    waiting: Arc<AtomicUsize>,
}

/// Where its connection takes them.
pub(super) struct Inbound {
    small: mpsc::Receiver<Pieces>,
    large: mpsc::Receiver<Pieces>,
    waiting: Arc<AtomicUsize>,
}

/// The two ends of an outbox.
pub(super) fn outbox() -> (Outbound, Inbound) {
    let ((small, small_out), (large, large_out)) = (mpsc::channel(SMALL_MAX), mpsc::channel(LARGE_MAX));
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbound { small, large, waiting: waiting.clone() }, Inbound { small: small_out, large: large_out, waiting })
}

impl Outbound {
    /// Queues a message.
    pub(super) fn send(&self, message: &Message) -> Result<(), SendError> {
        let pieces = encode(message);
        let bytes = len(&pieces);
        if bytes > MESSAGE_BYTES_MAX {
            return Err(SendError::TooLarge);
        }
        let is_small = bytes <= SMALL_BYTES_MAX;
        // What ends a query makes room elsewhere: it is refused last, by the count alone.
        let may_wait = is_small && !matches!(message, Message::Query { .. } | Message::Batch { .. });
        if !may_wait && self.waiting.load(Relaxed) + bytes > WAITING_BYTES_MAX {
            return Err(SendError::Full);
        }
        self.waiting.fetch_add(bytes, Relaxed);
        let queue = if is_small { &self.small } else { &self.large };
        queue.try_send(pieces).map_err(|e| {
            self.waiting.fetch_sub(bytes, Relaxed);
            match e {
                mpsc::error::TrySendError::Full(_) => SendError::Full,
                mpsc::error::TrySendError::Closed(_) => SendError::NoWay,
            }
        })
    }
}

impl Inbound {
    /// Gives the cutter what it has room for.
    pub(super) fn fill(&mut self, cutter: &mut Cutter) {
        while cutter.has_room_for_small()
            && let Ok(message) = self.small.try_recv()
        {
            cutter.take(message);
        }
        while cutter.has_room_for_large()
            && let Ok(message) = self.large.try_recv()
        {
            cutter.take(message);
        }
    }

    /// Waits for a message for an empty cutter; false if there will be none any more.
    pub(super) async fn wait(&mut self, cutter: &mut Cutter) -> bool {
        let message = tokio::select! {
            message = self.small.recv() => message,
            message = self.large.recv() => message,
        };
        message.map(|m| cutter.take(m)).is_some()
    }

    /// So many bytes wait no longer.
    pub(super) fn release_bytes(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_node::tensor::{Datatype, Tensor};
    use apportion_node::wire::{Credit, CreditReturn, DispatchedQuery, PartEnd, RoutedQuery};
    use bytes::Bytes;

    fn query(data: &Bytes) -> Message {
        Message::Query { from: 1, hop: 1, query: routed(data) }
    }

    /// A batch of two queries.
    fn batch(data: &Bytes) -> Message {
        let queries = [1, 2].map(|hop| DispatchedQuery { hop, waited_ns: 0, query: routed(data) });
        Message::Batch { from: 1, queries: queries.into() }
    }

    fn routed(data: &Bytes) -> RoutedQuery {
        let tensor = Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1, data.len()], data: data.clone() };
        RoutedQuery {
            pipeline: "p".into(),
            task: "t".into(),
            replica: 1,
            origin: 1,
            request: 1,
            row: 0,
            credit: Credit::WHOLE,
            budget_ns: 0,
            hops: 0,
            attempt: 0,
            group: 0,
            behind_ns: 0,
            level: 0,
            apart: 0,
            pins: vec![],
            trace: None,
            scopes: vec![],
            inputs: vec![tensor],
        }
    }

    #[test]
    fn waiting_bytes_are_bounded_and_ends_of_queries_still_pass() {
        let (outbound, mut inbound) = outbox();
        // The same memory many times: the bound is of what would have to be kept.
        let data = Bytes::from(vec![0; 32 * 1024 * 1024]);
        let sent = (0..).take_while(|_| outbound.send(&query(&data)).is_ok()).count();
        assert_eq!(sent, WAITING_BYTES_MAX / (data.len() + 1024));
        assert_eq!(outbound.send(&query(&data)), Err(SendError::Full));
        assert_eq!(outbound.send(&batch(&data.slice(..data.len() / 2))), Err(SendError::Full));
        assert_eq!(outbound.send(&Message::Taken { hop: 7 }), Ok(()));
        let end = PartEnd::Dropped("full".into());
        let part = CreditReturn { request: 1, row: 0, attempt: 0, credit: Credit::WHOLE, end };
        assert_eq!(outbound.send(&Message::Return(part)), Ok(()));
        let mut cutter = Cutter::default();
        loop {
            inbound.fill(&mut cutter);
            if cutter.is_empty() {
                break;
            }
            inbound.release_bytes(cutter.burst().message_bytes());
        }
        assert_eq!(inbound.waiting.load(Relaxed), 0, "all that was sent is accounted for");
        assert_eq!(outbound.send(&query(&data)), Ok(()));
    }

    #[test]
    fn what_no_connection_takes_is_refused_and_said() {
        let (outbound, inbound) = outbox();
        let data = Bytes::from(vec![0; MESSAGE_BYTES_MAX]);
        assert_eq!(outbound.send(&query(&data)), Err(SendError::TooLarge));
        // Each of its queries could go alone.
        assert_eq!(outbound.send(&batch(&data.slice(..MESSAGE_BYTES_MAX / 2))), Err(SendError::TooLarge));
        drop(inbound);
        assert_eq!(outbound.send(&Message::Taken { hop: 1 }), Err(SendError::NoWay));
    }
}
