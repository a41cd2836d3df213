//! How are plans analysed: replayed on a load, swept over a value, compared between planners?
//!
//! The commands `simulate`, `frontier` and `compare` and the jobs of the service call the same functions, so both give the
//! same results.
//!
//! What belongs here: requests, and the runs that answer them. What never does: rows, HTTP, files, arguments. The commonest
//! addition is an option: a field of its request, its check in `check`, and its effect in `run`.

pub mod comparison;
pub mod frontier;
pub mod load;
mod options;
pub mod series;
pub mod simulation;
