//! How is one stage of a mode solved? By enumeration where that applies, else by the whole formulation.

pub(crate) mod enumerate;
pub(crate) mod envelope;
pub(crate) mod paths;
pub(crate) mod solve;
