//! Does a plan hold on the trace? If not, the formulation is tightened and solved again.

pub(crate) mod check_loop;
mod tested;
mod tighten;
pub(crate) mod unchecked;
