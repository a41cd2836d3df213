//! How do reports and traces of other tools become profiles, traces and problems?
//!
//! What belongs here: readers of foreign formats, one file each, as functions from text to `domain` and `wire` types; the
//! problem that profiles and a few numbers make. What never does: reading files from disk, printing, planning.
//!
//! The commonest addition is a format: a file in [`profile`] or [`trace`] with the source of the format in its first lines,
//! and its name in the list of that folder.

pub mod gathered;
pub mod problem;
pub mod profile;
mod table;
pub mod trace;

pub use gathered::{GatheredProfile, GivenNames};
pub use problem::{ProblemRequest, hardware_offers, problem_of};
pub use profile::{ProfileFormat, add_profile};
pub use trace::{TimeUnit, TraceChoice, TraceFormat, import_trace};
