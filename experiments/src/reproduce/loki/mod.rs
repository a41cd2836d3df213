//! Do the results of Loki's comparisons (section 6) hold on this code?

pub mod capacity;
pub mod dropping;
pub mod phases;
mod rerouting;
pub mod slo;
pub mod traffic;
