//! How exact must numbers of a plan be?

use apportion_domain::SLACK;

/// Whether `value` is at most `limit`, with slack.
pub(crate) fn at_most(value: f64, limit: f64) -> bool {
    value <= limit + SLACK * limit.abs().max(1.0)
}

/// Whether two sums agree up to the rounding that a file and a solver leave.
pub(crate) fn agrees(claimed: f64, computed: f64) -> bool {
    (claimed - computed).abs() <= CLAIM_SLACK * computed.abs().max(1.0)
}

/// How far a claimed sum may be from the computed one: flows are printed and re-read, each with its own rounding.
pub(crate) const CLAIM_SLACK: f64 = 1e-6;
