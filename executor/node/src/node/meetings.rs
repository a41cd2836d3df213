//! Which queries of joins wait at this agent, and which parts of their requests have come?

use super::request::Covered;
use super::work::Work;
use crate::wire::Brought;
use std::collections::{BTreeMap, BTreeSet};

/// Meetings at one agent; queries that would open more are dropped, with the reason `join_full`.
pub const MEETINGS_MAX: usize = 65_536;

/// A scope at its meeting place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) origin: u64,
    pub(super) request: u64,
    pub(super) attempt: u8,
    pub(super) join: String,
    pub(super) fork: String,
    pub(super) credit: (u64, u64),
}

#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// By the name of the edge's parent.
    pub(super) edges: BTreeMap<String, Met>,
    /// Queries that wait, by their numbers.
    pub(super) held: BTreeSet<u64>,
    pub(super) pipeline: String,
    pub(super) until_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Met {
    pub(super) covered: Covered,
    pub(super) brought: Vec<Brought>,
}

/// All meetings here.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    pub(super) open: BTreeMap<Key, Meeting>,
    pub(super) held: BTreeMap<u64, Work>,
    pub(super) last: u64,
}

impl Meetings {
    /// Scopes that are not over, and queries that wait.
    pub fn len(&self) -> usize {
        self.open.len() + self.held.len()
    }
}
