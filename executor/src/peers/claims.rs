//! Which connection speaks for which agent?
//!
//! Agents say their numbers and prove nothing. The first connection that names a number is believed for as long as it
//! lives and speaks. Another connection that names the number meanwhile is refused. So an impostor must come before the
//! agent, or wait until it is silent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An agent of which nothing was heard for so long may have another connection: three of its announcements are missing.
pub const SILENT_MAX: Duration = Duration::from_secs(3);

/// The connection that speaks for an agent.
#[derive(Debug)]
struct Speaker {
    connection: u64,
    /// When it was last heard.
    heard: Instant,
}

/// All claims at one agent.
#[derive(Debug, Default)]
pub struct AgentClaims {
    /// By agent.
    held: Mutex<HashMap<u64, Speaker>>,
    connections: std::sync::atomic::AtomicU64,
}

impl AgentClaims {
    /// A connection that has not named a number yet.
    #[must_use]
    pub fn open(self: &Arc<Self>) -> AgentClaim {
        let connection = self.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        AgentClaim { of: self.clone(), connection, agent: None }
    }
}

/// What one connection says of itself.
#[derive(Debug)]
pub struct AgentClaim {
    of: Arc<AgentClaims>,
    connection: u64,
    agent: Option<u64>,
}

impl AgentClaim {
    /// Whether it may speak for this agent, from now on for this one alone. An agent has no number (0) before it has one.
    #[must_use]
    pub fn speaks_for(&mut self, agent: u64, now: Instant) -> bool {
        if agent == 0 || self.agent == Some(agent) {
            return true;
        }
        // The control plane has given it another number.
        self.release();
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |speaker: &Speaker| now.saturating_duration_since(speaker.heard) < SILENT_MAX;
        if held.get(&agent).is_some_and(is_other) {
            return false;
        }
        held.insert(agent, Speaker { connection: self.connection, heard: now });
        self.agent = Some(agent);
        true
    }

    /// Whether it speaks for anybody.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.agent.is_some()
    }

    /// It was heard; false if another connection speaks for its agent by now.
    #[must_use]
    pub fn is_heard(&self, now: Instant) -> bool {
        let Some(agent) = self.agent else { return true };
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(&agent) {
            Some(speaker) if speaker.connection == self.connection => {
                speaker.heard = now;
                true
            }
            _ => false,
        }
    }

    fn release(&mut self) {
        let Some(agent) = self.agent.take() else { return };
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(&agent).is_some_and(|speaker| speaker.connection == self.connection) {
            held.remove(&agent);
        }
    }
}

impl Drop for AgentClaim {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_live_connection_keeps_its_agents_number() {
        let (claims, now) = (Arc::<AgentClaims>::default(), Instant::now());
        let (mut own, mut forged) = (claims.open(), claims.open());
        assert!(own.speaks_for(1, now) && own.speaks_for(1, now) && own.is_heard(now));
        assert!(!forged.speaks_for(1, now) && !forged.is_made());
        assert!(forged.speaks_for(2, now), "a number that nobody has");
        assert!(own.is_heard(now + SILENT_MAX / 2));
        assert!(!forged.speaks_for(1, now + SILENT_MAX));
        // Silent, it may have another connection, and is told apart from that.
        let mut again = claims.open();
        assert!(again.speaks_for(1, now + SILENT_MAX * 2) && !own.is_heard(now + SILENT_MAX * 2));
        drop(own);
        assert!(again.is_heard(now + SILENT_MAX * 2), "what ends is only its own");
    }

    #[test]
    fn an_ended_connection_frees_its_number() {
        let (claims, now) = (Arc::<AgentClaims>::default(), Instant::now());
        let mut first = claims.open();
        assert!(first.speaks_for(0, now) && !first.is_made() && first.speaks_for(1, now));
        assert!(first.speaks_for(2, now) && claims.open().speaks_for(1, now));
        drop(first);
        assert!(claims.open().speaks_for(2, now));
        assert!(claims.held.lock().expect("no panic").is_empty());
    }
}
