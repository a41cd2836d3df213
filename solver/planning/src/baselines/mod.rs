//! Planners to compare with: what the papers measure themselves against, as fair as they make it.
//!
//! - [`hardware_only`]: InferLine as Loki evaluates it (section 6.1): replicas are scaled, variants are not.
//! - [`proteus`]: accuracy scaling that knows nothing of pipelines (Loki, section 6.1).
//! - [`coarse`]: the whole pipeline as one black box, replicated as a unit (InferLine, section 6).
//!
//! None proves anything: their plans are feasible without a bound. Where the load is too much for a baseline, its plan is
//! for the largest part of it that fits, the status says `demand_not_met`, and the explanation how much is missing.

mod assemble;
pub(crate) mod coarse;
mod common;
pub(crate) mod hardware_only;
pub(crate) mod proteus;
#[cfg(test)]
mod tests;
