//! How exact must numbers of a plan be?

use apportion_domain::SLACK;

/// Whether `value` is at most `limit`, with slack.
pub(crate) fn at_most(value: f64, limit: f64) -> bool {
    value <= limit + SLACK * limit.abs().max(1.0)
}

/// Whether two sums agree, up to the rounding of files and solvers.
pub(crate) fn agrees(claimed: f64, computed: f64) -> bool {
    (claimed - computed).abs() <= CLAIM_SLACK * computed.abs().max(1.0)
}

/// Largest difference of a claimed sum from the computed one, relative above 1. Files and solvers round each flow.
pub(crate) const CLAIM_SLACK: f64 = 1e-6;
