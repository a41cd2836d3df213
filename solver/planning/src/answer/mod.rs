//! Which answer does the caller get: outcome, report, reasons?

pub(crate) mod explain;
pub(crate) mod infeasible;
pub(crate) mod report;
