//! What does the gateway know of a request that has no answer yet?

use crate::chooser::ChosenVariants;
use crate::node::covered::CreditCoverage;
use crate::node::request::{Piece, RequestTerms};
use crate::tensor::Tensor;

/// The parts of a run that were dropped.
#[derive(Debug, Default)]
pub struct DroppedParts {
    /// How many.
    pub parts: u32,
    /// Why the first of them was dropped.
    pub first_reason: Option<String>,
}

/// One run of a request. Parts of different runs are never put together: another run may have gone through other variants,
/// which cut the request in other parts.
#[derive(Debug, Default)]
pub struct RequestAttempt {
    /// What came back.
    pub pieces: Vec<Piece>,
    /// Which parts came back.
    pub covered: CreditCoverage,
    /// Parts that ended at a leaf.
    pub leaves: u32,
    /// Parts that were dropped.
    pub dropped: DroppedParts,
    /// A query of it ran twice and was cut differently: its pieces overlap, and it answers nothing.
    pub is_spoiled: bool,
}

/// A request that waits for its parts.
pub struct Pending {
    /// Its pipeline.
    pub pipeline: String,
    /// Its inputs, to run it again.
    pub inputs: Vec<Tensor>,
    /// What it said.
    pub terms: RequestTerms,
    /// The variants of its latest run, if it said what it needs.
    pub chosen: Option<ChosenVariants>,
    /// When it came.
    pub arrived_ns: u64,
    /// When it should be answered.
    pub deadline_ns: u64,
    /// When it is answered without its parts.
    pub give_up_ns: u64,
    /// Whether that is the timeout that it came with.
    pub is_timed: bool,
    /// The loop's number of the client.
    pub caller: u64,
    /// Its runs; the first to be whole answers it.
    pub attempts: Vec<RequestAttempt>,
    /// When it is run again, if it is still unanswered: an agent was lost that may have held a part of it.
    pub again_ns: Option<u64>,
}

impl Pending {
    /// When it is given up or run again, whichever comes first.
    pub fn due_ns(&self) -> u64 {
        self.again_ns.map_or(self.give_up_ns, |again_ns| again_ns.min(self.give_up_ns))
    }
}
