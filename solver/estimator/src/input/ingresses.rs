//! At how many ingresses do requests come in, and how do clients choose among them?
//!
//! Example: three agents serve a pipeline, and its clients send their requests to them in turn. Each agent chooses replicas
//! by itself, so two requests in a row may come to the same replica while another one is idle. A single ingress would send
//! them to different ones.

use crate::random::RandomStream;
use std::num::NonZeroU32;

/// Most ingresses of a run.
pub const INGRESSES_MAX: u32 = 4_096;

/// How a client chooses the ingress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IngressChoice {
    /// Each in its turn, as one client does that knows all of them.
    #[default]
    InTurn,
    /// Each with the same probability, as many clients do that know nothing of each other.
    AtRandom,
    /// Each client keeps its ingress, as connection pools and load balancers with affinity do. There are [`STICKY_CLIENTS`]
    /// of them, each at a random ingress, and a request is of any client with the same probability.
    Sticky,
}

/// Clients under [`IngressChoice::Sticky`]: few enough that ingresses get different loads.
pub const STICKY_CLIENTS: u32 = 16;

/// The ingresses of each pipeline in a run. Each has a router of its own, as each agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressSettings {
    /// Their number, at most [`INGRESSES_MAX`].
    pub count: NonZeroU32,
    /// How clients choose among them.
    pub choice: IngressChoice,
}

impl Default for IngressSettings {
    /// A single one.
    fn default() -> Self {
        Self { count: NonZeroU32::MIN, choice: IngressChoice::default() }
    }
}

impl IngressSettings {
    /// This number of them, at least one, which clients use in turn.
    #[must_use]
    pub fn in_turn(count: u32) -> Self {
        Self { count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN), choice: IngressChoice::InTurn }
    }

    /// Whether chance decides which one a request comes to.
    pub(crate) fn are_drawn(self) -> bool {
        self.count > NonZeroU32::MIN && self.choice != IngressChoice::InTurn
    }

    /// The ingress of each client, where clients keep theirs; else empty.
    pub(crate) fn homes(self, seed: u64, pipeline: &str) -> Vec<u32> {
        if !self.are_drawn() || self.choice != IngressChoice::Sticky {
            return Vec::new();
        }
        let mut stream = RandomStream::new(seed, &format!("clients/{pipeline}"));
        (0..STICKY_CLIENTS).map(|_| stream.below(u64::from(self.count.get())) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_clients_have_homes() {
        let homes = |count: u32, choice, seed| {
            IngressSettings { count: NonZeroU32::new(count).expect("above 0"), choice }.homes(seed, "p")
        };
        let sticky = homes(3, IngressChoice::Sticky, 1);
        assert_eq!(sticky.len(), STICKY_CLIENTS as usize);
        assert!(sticky.iter().all(|home| *home < 3) && (0..3).all(|home| sticky.contains(&home)), "{sticky:?}");
        assert_eq!(sticky, homes(3, IngressChoice::Sticky, 1));
        assert_ne!(sticky, homes(3, IngressChoice::Sticky, 2));
        for none in
            [homes(3, IngressChoice::AtRandom, 1), homes(3, IngressChoice::InTurn, 1), homes(1, IngressChoice::Sticky, 1)]
        {
            assert_eq!(none, [0_u32; 0]);
        }
    }
}
