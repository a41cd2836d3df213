//! How near are two numbers that count as equal?

/// Slack for comparing latencies, capacities and shares, absolute on values of order one and relative on larger ones.
///
/// Budgets sit exactly on profile values, so an exact comparison would reject plans for the last bit of a float.
pub const SLACK: f64 = 1e-9;
