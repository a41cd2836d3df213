//! Which servers do not do as their profile says? Slow replicas, and servers that died while they ran a batch.

use apportion_domain::{Moment, TimeSpan};
use std::ops::Range;

/// A server of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerId {
    /// The station.
    pub station: u32,
    /// The server there.
    pub server: u32,
}

/// A replica that is slow for a while.
#[derive(Clone, Debug)]
pub struct SlowReplica {
    /// Its station.
    pub station: u32,
    /// Its servers there.
    pub servers: Range<u32>,
    /// Its batches take longer by this factor.
    pub factor: f64,
    /// When it has its profiled speed again.
    pub until: Moment,
}

/// The replicas that are slow, or were slow a while ago.
#[derive(Debug, Default)]
pub struct SlowReplicas {
    replicas: Vec<SlowReplica>,
}

impl SlowReplicas {
    /// From now on one more replica is slow.
    pub fn add(&mut self, now: Moment, replica: SlowReplica) {
        self.replicas.retain(|s| s.until > now);
        self.replicas.push(replica);
    }

    /// Whether no batch needs [`SlowReplicas::prolong`].
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// The time of a batch that a server starts now, given its time at the profiled speed.
    #[cold]
    #[must_use]
    pub fn prolong(&self, now: Moment, id: ServerId, service: TimeSpan) -> TimeSpan {
        let is_of_server = |s: &&SlowReplica| s.station == id.station && s.servers.contains(&id.server) && s.until > now;
        let factor: f64 = self.replicas.iter().filter(is_of_server).map(|s| s.factor).product();
        TimeSpan::from_nanos((service.as_nanos() as f64 * factor).round_ties_even() as u64)
    }
}

/// Servers that died while they ran a batch, whose end is still among the events.
#[derive(Debug, Default)]
pub struct StaleServers {
    servers: Vec<ServerId>,
}

impl StaleServers {
    /// A server died while it ran a batch.
    pub fn add(&mut self, id: ServerId) {
        self.servers.push(id);
    }

    /// Whether the end of a dead server's batch is still among the events.
    #[must_use]
    pub fn contains(&self, id: ServerId) -> bool {
        self.servers.contains(&id)
    }

    /// The batch of a server has ended. Returns whether the server died meanwhile: then the end has no effect.
    #[inline]
    pub fn take(&mut self, id: ServerId) -> bool {
        if self.servers.is_empty() {
            return false;
        }
        let Some(at) = self.servers.iter().position(|s| *s == id) else { return false };
        self.servers.swap_remove(at);
        true
    }
}
