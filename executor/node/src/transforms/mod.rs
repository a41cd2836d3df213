//! How does an agent carry out the built-in transforms of a task? Pure functions over the rows of a batch.
//!
//! Example: a batch of two photos has five boxes. `crop` makes five rows of patches, and the set of rows knows from which
//! photo each came. The types are checked before each transform (`apportion_domain::transform`), so a transform computes
//! and does not look for faults.

mod boxes;
mod fault;
mod numbers;
mod pictures;
mod rows;
mod run;
mod texts;

pub use fault::{GLUE_BYTES_MAX, GLUE_ROWS_MAX, GlueFault, TransformFault};
pub use numbers::reals;
pub use run::{run_after, run_before};

#[cfg(test)]
mod tests;
