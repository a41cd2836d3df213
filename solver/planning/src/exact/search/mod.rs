//! Which stages does a search run, and does its plan pass the checker?

pub(crate) mod attempt;
mod fallback;
pub(crate) mod heuristic;
pub(crate) mod modes;
