//! Which requests wait until the service has loaded the variants that they need?
//!
//! Example: a request needs an accuracy that no loaded variant has. The agent tells the service which group it wants, once
//! for all requests that need it. The service's next target has a replica of the group. When the replica is ready, the
//! request runs.
//!
//! The agent loads nothing by itself: targets are the service's.

use super::arrival::Arrival;
use crate::chooser::UnloadedVariants;
use crate::layout::LayoutPipeline;
use crate::node::event::Action;
use crate::node::site::Site;
use apportion_protocol::v1;
use std::collections::BTreeMap;

/// Most requests of one agent that wait for variants.
pub const WAITING_MAX: usize = 1_024;
/// Time after which a want is said again while requests wait for it: the message may have been lost.
const WANT_AGAIN_NS: u64 = 1_000_000_000;
/// Time after which requests give up that the service loads anything for them.
const UNANSWERED_NS: u64 = 3_000_000_000;
/// Times the expected time of a load that requests wait for one.
const LOADS: u64 = 2;
/// Longest wait, in nanoseconds.
const WAIT_NS_MAX: u64 = 600_000_000_000;
/// Time between two looks if the ready replicas have not changed.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// A request that waits for variants.
pub struct WaitingRequest {
    /// The request.
    pub arrival: Arrival,
    /// The groups that were missing at the last look.
    pub groups: Vec<u64>,
    /// `task:variant` of its choice.
    pub variants: String,
    /// When it came.
    pub arrived_ns: u64,
    /// When it has waited for too long.
    pub until_ns: u64,
}

impl WaitingRequest {
    /// Whether its own timeout has passed.
    pub fn is_timed_out(&self, now_ns: u64) -> bool {
        self.arrival.terms.timeout_ns.is_some_and(|ns| now_ns >= self.arrived_ns.saturating_add(ns))
    }

    /// Whether the service has had long enough to load something for it.
    pub fn is_unanswered(&self, now_ns: u64) -> bool {
        now_ns >= self.arrived_ns + UNANSWERED_NS
    }
}

/// Which groups of which pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantKey {
    pipeline: String,
    groups: Vec<u64>,
}

/// The requests of one gateway that wait for variants, in the order in which they came.
#[derive(Default)]
pub struct WaitingRequests {
    waiting: Vec<WaitingRequest>,
    /// When each want was last said.
    said_ns: BTreeMap<WantKey, u64>,
    looked_ns: u64,
    /// When the ready replicas had last changed at the last look.
    seen_ns: u64,
}

impl WaitingRequests {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits, or it is too early to look again.
    pub fn may_rest(&self, now_ns: u64, changed_ns: u64) -> bool {
        let is_due = changed_ns != self.seen_ns || now_ns >= self.looked_ns + LOOK_AGAIN_NS;
        self.waiting.is_empty() || !is_due
    }

    /// Takes all out, to look at each of them.
    pub fn take(&mut self, now_ns: u64, changed_ns: u64) -> Vec<WaitingRequest> {
        (self.looked_ns, self.seen_ns) = (now_ns, changed_ns);
        std::mem::take(&mut self.waiting)
    }

    /// Puts one back that waits on.
    pub fn put_back(&mut self, waiting: WaitingRequest) {
        self.waiting.push(waiting);
    }

    /// Forgets the wants that may be said again.
    pub fn forget_old_wants(&mut self, now_ns: u64) {
        self.said_ns.retain(|_, said_ns| now_ns < *said_ns + WANT_AGAIN_NS);
    }

    /// Adds a request, which waits for these variants.
    ///
    /// # Errors
    /// Why it does not wait.
    pub fn add(
        &mut self,
        arrival: Arrival,
        unloaded: UnloadedVariants,
        of: &WaitTerms<'_>,
        now_ns: u64,
    ) -> Result<(), TurnedAway> {
        let UnloadedVariants { groups, is_loading, load_ns, variants } = unloaded;
        let timeout_ns = arrival.terms.timeout_ns.unwrap_or(u64::MAX);
        let why_not = if !of.pipeline.loads_on_demand && !is_loading {
            Some("nothing is loaded for requests: the pipeline's replan settings deploy nothing for them".to_owned())
        } else if timeout_ns <= load_ns && !is_loading {
            Some(format!("its load takes {:.0} ms: longer than the request waits", load_ns as f64 / 1e6))
        } else if self.len() >= WAITING_MAX {
            Some(format!("{WAITING_MAX} requests wait for variants"))
        } else {
            None
        };
        if let Some(why) = why_not {
            return Err(TurnedAway { caller: arrival.caller, why: format!("{variants} would do, and {why}") });
        }
        let loads_ns = LOADS * load_ns.min(WAIT_NS_MAX) + UNANSWERED_NS;
        let longest_ns = loads_ns.saturating_add(of.patience_ns).min(WAIT_NS_MAX);
        let until_ns = now_ns.saturating_add(timeout_ns.min(longest_ns));
        self.waiting.push(WaitingRequest { arrival, groups, variants, arrived_ns: now_ns, until_ns });
        Ok(())
    }

    /// Forgets the request of a client. Whether it was here.
    pub fn forget(&mut self, caller: u64) -> bool {
        let before = self.len();
        self.waiting.retain(|waiting| waiting.arrival.caller != caller);
        self.len() < before
    }

    /// Tells the service which groups requests want, unless it was told lately.
    pub fn say_want(&mut self, arrival: &Arrival, groups: &[u64], site: &mut Site) {
        let key = WantKey { pipeline: arrival.pipeline.clone(), groups: groups.to_vec() };
        let now_ns = site.now_ns();
        if self.said_ns.get(&key).is_some_and(|said_ns| now_ns < said_ns + WANT_AGAIN_NS) {
            return;
        }
        let needs = arrival.terms.needs.unwrap_or_default();
        site.push(Action::Want(v1::VariantWant {
            pipeline: key.pipeline.clone(),
            groups: key.groups.clone(),
            accuracy_min: needs.accuracy(),
            latency_ns_max: if needs.latency_ns_max == u64::MAX { 0 } else { needs.latency_ns_max },
            variants: arrival.terms.variants.clone(),
        }));
        self.said_ns.insert(key, now_ns);
    }
}

/// What a pipeline lets a request wait for, and how long.
pub struct WaitTerms<'a> {
    /// The pipeline.
    pub pipeline: &'a LayoutPipeline,
    /// How long a request of it waits for its answer, in nanoseconds.
    pub patience_ns: u64,
}

/// A request that does not wait.
pub struct TurnedAway {
    /// The loop's number of its client.
    pub caller: u64,
    /// Why not.
    pub why: String,
}
