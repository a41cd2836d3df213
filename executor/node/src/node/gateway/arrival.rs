//! What comes to a gateway, and what does it know of it before the first run?

use crate::chooser::ChosenVariants;
use crate::node::request::RequestTerms;
use crate::tensor::Tensor;

/// A request of a client, with at least one row and valid inputs.
pub struct Arrival {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
    /// What it says beyond its inputs.
    pub terms: RequestTerms,
    /// The loop's number of the client.
    pub caller: u64,
}

/// A request whose variants are chosen, if it says what it needs.
pub struct AcceptedArrival {
    /// The request.
    pub arrival: Arrival,
    /// Its variants.
    pub chosen: Option<ChosenVariants>,
    /// When it came: before now, if it has waited for its variants.
    pub arrived_ns: u64,
}
