//! How are the service, agents and clients run on this machine, and what do the clients see?

pub mod capacity;
pub mod console;
pub mod estimate;
pub mod figures;
pub mod fleet;
pub mod idle_start;
pub mod load;
pub mod plans;
pub mod process;
pub mod scrape;
pub mod service;
pub mod validation;
pub mod waits;
