//! Which stages does a search run, and does its plan pass the checker?

pub(crate) mod attempt;
pub(crate) mod best;
mod fallback;
pub(crate) mod heuristic;
pub(crate) mod modes;
