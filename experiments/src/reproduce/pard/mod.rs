//! Do the results of PARD's comparisons (section 5) hold on this code?

pub mod ablations;
mod case;
pub mod goodput;
mod module_times;
pub mod over_time;
pub mod places;
pub mod sweeps;
