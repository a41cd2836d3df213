//! Which queries wait in the central queues that this agent holds, and which replicas serve them (InferLine section 3)?
//!
//! Example: agents 1 and 2 have a replica of `read` each, and the plan says `queueing: central`. Agent 1 holds the queue:
//! it is the lowest agent with a ready replica. The queue is a station of two servers, one for each replica. When the
//! replica at agent 2 is free, the next batch goes there as a whole and starts at once.

mod group_queue;
mod set;

pub use group_queue::{CrewMember, GroupQueue, ServerBatch};
pub use set::{GroupQueues, QueueServer};
