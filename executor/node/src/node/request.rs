//! What does a client's request say beyond its inputs, and what can be its answer?

use crate::chooser::{ChosenVariants, RequestNeeds};
use crate::policies::LEVEL_DEFAULT;
use crate::tensor::Tensor;
use crate::trace::TraceContext;

/// What a request says beyond its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTerms {
    /// After how many nanoseconds its answer is worth nothing; none if the pipeline's SLO alone says when it is late.
    pub timeout_ns: Option<u64>,
    /// How important it is: the lowest number comes first.
    pub level: u32,
    /// What it needs, if that is to decide which variants serve it.
    pub needs: Option<RequestNeeds>,
    /// Variants that must serve it, each as `variant` or `task:variant`; they count beside its needs.
    pub variants: Vec<String>,
    /// The trace that it belongs to, if it is sampled.
    pub trace: Option<TraceContext>,
    /// Whose it is, in a number; 0 if that is not known.
    pub sender: u64,
}

impl Default for RequestTerms {
    fn default() -> Self {
        Self { timeout_ns: None, level: LEVEL_DEFAULT, needs: None, variants: Vec::new(), trace: None, sender: 0 }
    }
}

/// Rows that a sink made, with what orders them.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Row of the request.
    pub row: u32,
    /// Start of its credit: the order of children under their parents.
    pub order: u64,
    /// The sink.
    pub task: String,
    /// Its outputs.
    pub outputs: Vec<Tensor>,
}

/// The one answer to a request.
#[derive(Debug, PartialEq)]
pub enum RequestAnswer {
    /// All parts came back.
    Done {
        /// In the order of rows and children.
        pieces: Vec<Piece>,
        /// After the deadline.
        late: bool,
        /// From arrival to answer, in nanoseconds.
        latency_ns: u64,
        /// Parts that were dropped and are left out.
        dropped: u32,
        /// The variants that served it, if it said what it needs.
        chosen: Option<ChosenVariants>,
    },
    /// No variants do what it needs; the nearest are named.
    Unmet(String),
    /// No replica of the root is ready.
    NotReady(String),
    /// Shed, and why.
    Dropped(String),
    /// Failed, and why.
    Failed(String),
    /// Its own timeout passed before all parts came back.
    TimedOut,
    /// Given up: parts of it never came back.
    GivenUp,
    /// Its client had gone: nobody gets this answer.
    ClientGone,
}
