//! What do the command line, the experiments and the tests share? Exit codes, input files, output, pages of lists, progress
//! bars, plots and ports.
//!
//! What belongs here: tools of programs that people start, used by at least two crates. What never does: planning,
//! estimating, a command's own output. The commonest addition is a function that a command and an experiment both need.

pub mod exit;
pub mod input;
pub mod output;
pub mod pages;
pub mod plot;
pub mod ports;
pub mod progress;
