//! What a station and its driver say to each other.

use super::dropper::{DropReason, StationView};
use apportion_domain::Moment;

/// An event at a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationInput<Q> {
    /// A query joins the queue.
    Arrive {
        /// The driver's handle.
        query: Q,
        /// When its request should be answered.
        deadline: Moment,
    },
    /// A more important query joins the queue before the last `passes` waiting queries ([`super::Station::waiting`]).
    /// Policies that order the queue themselves (by remaining time, or nexus's window) keep their order.
    Overtake {
        /// The driver's handle.
        query: Q,
        /// When its request should be answered.
        deadline: Moment,
        /// How many queries it passes.
        passes: u32,
    },
    /// The batch of a server has ended. Its members can be read until the server starts its next batch.
    BatchFinished {
        /// The server.
        server: u32,
    },
    /// Every query that equals this one is unwanted. Queries that run, or are not here, are left alone.
    Cancel {
        /// The handle that the query arrived with, or an equal one.
        query: Q,
    },
    /// As [`StationInput::Cancel`], for queries that joined at one moment with one deadline. A driver that remembers both
    /// spares the search through a long queue.
    CancelJoined {
        /// The handle that the query arrived with, or an equal one.
        query: Q,
        /// When it joined the queue.
        arrived: Moment,
        /// Its deadline.
        deadline: Moment,
    },
    /// A server joins. The driver chooses its number, which is not in use.
    AddServer {
        /// Its number, dense from 0.
        server: u32,
    },
    /// A server leaves once its batch has ended.
    RemoveServer {
        /// Its number.
        server: u32,
    },
    /// Module states were synchronised.
    Steer {
        /// The part of them that this station needs.
        view: StationView,
    },
    /// The moment that [`super::Station::poll_timeout`] named has come.
    Tick,
}

/// An instruction of a station to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationOutput<Q> {
    /// A server starts a batch. Its members are [`super::Station::batch`].
    StartBatch {
        /// The server.
        server: u32,
        /// Number of queries in the batch.
        size: u32,
    },
    /// A query has left without being served.
    Drop {
        /// The handle that the query arrived with.
        query: Q,
        /// Why.
        reason: DropReason,
    },
    /// A removed server has ended its last batch.
    ServerGone {
        /// The server.
        server: u32,
    },
}

/// Why a station wants a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationWakeup {
    /// A free server can start a batch.
    Start,
}
