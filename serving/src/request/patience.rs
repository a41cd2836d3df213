//! How long does a gateway wait for the answer of a request?
//!
//! Example: a pipeline has an SLO of 400 ms. After 4 s its gateway answers that the request has failed, and the queries of
//! it that still wait leave their queues.

use apportion_domain::TimeSpan;

/// Times the SLO after which a request is given up.
const GIVE_UP_SLOS: u64 = 10;

/// Shortest time after which a request is given up.
pub const GIVE_UP_MIN: TimeSpan = TimeSpan::from_nanos(2_000_000_000);

/// The time after which a request with this SLO is given up, from its arrival.
#[must_use]
pub fn patience(slo: TimeSpan) -> TimeSpan {
    TimeSpan::from_nanos(slo.as_nanos().saturating_mul(GIVE_UP_SLOS)).max(GIVE_UP_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_waits_ten_slos_and_two_seconds_at_least() {
        let seconds = |slo_ms: f64| patience(TimeSpan::from_millis(slo_ms)).as_millis() / 1e3;
        assert_eq!([50.0, 200.0, 400.0].map(seconds), [2.0, 2.0, 4.0]);
        assert_eq!(patience(TimeSpan::from_nanos(u64::MAX)).as_nanos(), u64::MAX, "a pipeline without a real SLO");
    }
}
