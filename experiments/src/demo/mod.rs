//! Does the whole system work on real input, with the commands and calls that a user would type?
//!
//! A demo starts the service with a private database and several agents. It profiles a pipeline on this machine, and
//! rehearses to see how much of the machine is free. It deploys the pipeline, plays a load that doubles and falls back, and
//! checks every answer against its label. It compares the measurements with the promises of the plans and with the
//! estimator, and judges itself.

mod estimate;
mod fit;
#[cfg(test)]
pub(crate) mod fixtures;
mod in_force;
mod judge;
mod meter;
mod play;
mod rehearse;
mod report;
mod settings;
mod tour;
mod verdict;

pub use play::run;
pub use settings::DemoSettings;
pub use tour::{TOUR_QUERY, load_name};
