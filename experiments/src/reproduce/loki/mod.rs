//! What do Loki's comparisons (section 6) say of this code?

pub mod capacity;
pub mod dropping;
pub mod phases;
mod rerouting;
pub mod slo;
pub mod traffic;
