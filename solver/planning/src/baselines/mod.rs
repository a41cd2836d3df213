//! Which plans do the baselines of the papers give? Each baseline is as fair as its paper describes it.
//!
//! - [`hardware_only`]: InferLine as Loki evaluates it (section 6.1): replicas are scaled, variants are not.
//! - [`proteus`]: accuracy scaling that knows nothing of pipelines (Loki, section 6.1).
//! - [`coarse`]: the whole pipeline as one black box, replicated as a unit (InferLine, section 6).
//!
//! A baseline proves nothing: its plans are feasible without a bound. If the load is too high for a baseline, its plan
//! is for the largest share of the load that fits. Then the status is `demand_not_met`, and the explanation states the
//! missing load.

pub(crate) mod assemble;
pub(crate) mod coarse;
pub(crate) mod common;
pub(crate) mod hardware_only;
pub(crate) mod proteus;
#[cfg(test)]
mod tests;
