//! What does the caller learn: the outcome, the report, the reasons?

pub(crate) mod explain;
pub(crate) mod infeasible;
pub(crate) mod report;
