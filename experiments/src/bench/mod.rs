//! How fast is each part?
//!
//! What belongs here: measurements over public interfaces of the other crates. What never does: measurements that need the
//! insides of a crate, which stand in that crate (`planning::bench`, `planning::scaling::bench`, `executor::bench`).

mod chain;
mod clock;
pub mod estimator;
pub mod fidelity;
pub mod fleet;
pub mod heuristics;
pub mod promises;
pub mod push;
mod scaling;
pub mod selector;
pub mod serving;
pub mod solver;
pub mod stand_ins;
pub mod store;
