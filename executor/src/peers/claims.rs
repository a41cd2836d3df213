//! Which connection speaks for which agent?
//!
//! Each connection has proven the number of its agent. The newest one counts: an agent dials again only when its last
//! connection is of no use to it any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// The newest connection of an agent.
#[derive(Debug)]
struct NewestConnection {
    number: u64,
    replaced: CancellationToken,
}

/// The newest connections of all agents.
#[derive(Debug, Default)]
pub struct AgentClaims {
    /// By agent.
    newest: Mutex<HashMap<u64, NewestConnection>>,
    connections: AtomicU64,
}

impl AgentClaims {
    /// A new connection of an agent. The one before it is replaced.
    #[must_use]
    pub fn claim(self: &Arc<Self>, agent: u64) -> AgentClaim {
        let (number, replaced) = (self.connections.fetch_add(1, Relaxed), CancellationToken::new());
        let newest = NewestConnection { number, replaced: replaced.clone() };
        let before = self.newest.lock().unwrap_or_else(PoisonError::into_inner).insert(agent, newest);
        if let Some(before) = before {
            before.replaced.cancel();
        }
        AgentClaim { of: self.clone(), agent, number, replaced }
    }
}

/// A connection of an agent, until it is dropped.
#[derive(Debug)]
pub struct AgentClaim {
    of: Arc<AgentClaims>,
    agent: u64,
    number: u64,
    replaced: CancellationToken,
}

impl AgentClaim {
    /// Waits until the agent has a newer connection.
    pub async fn replaced(&self) {
        self.replaced.cancelled().await;
    }
}

impl Drop for AgentClaim {
    fn drop(&mut self) {
        let mut newest = self.of.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.get(&self.agent).is_some_and(|connection| connection.number == self.number) {
            newest.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_connection_replaces_only_that_of_its_agent() {
        let claims = Arc::<AgentClaims>::default();
        let (first, other) = (claims.claim(1), claims.claim(2));
        assert!(!first.replaced.is_cancelled());
        let second = claims.claim(1);
        assert!(first.replaced.is_cancelled() && !second.replaced.is_cancelled() && !other.replaced.is_cancelled());
        drop(first);
        let third = claims.claim(1);
        assert!(second.replaced.is_cancelled(), "the end of the first has changed nothing");
        drop((second, third, other));
        assert!(claims.newest.lock().expect("no panic").is_empty());
    }
}
