//! Closed forms of queueing theory that tests hold the simulation against.

/// Probability that an arrival at M/M/c must wait (Erlang's C formula).
///
/// `load` is arrival rate times mean service time, below `servers`.
#[must_use]
pub fn erlang_c(servers: u32, load: f64) -> f64 {
    assert!(load < f64::from(servers), "a stable queue");
    // Erlang's B by its recursion, then C from B.
    let blocked = (1..=servers).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let c = f64::from(servers);
    c * blocked / (c - load * (1.0 - blocked))
}

/// Mean wait in the queue of M/M/c, in the unit of `service`, the mean service time.
#[must_use]
pub fn mmc_wait(servers: u32, arrivals_per_unit: f64, service: f64) -> f64 {
    let load = arrivals_per_unit * service;
    erlang_c(servers, load) * service / (f64::from(servers) - load)
}

/// Mean wait in the queue of M/D/1 (Pollaczek and Khinchine), in the unit of `service`, the constant service time.
#[must_use]
pub fn md1_wait(arrivals_per_unit: f64, service: f64) -> f64 {
    let load = arrivals_per_unit * service;
    assert!(load < 1.0, "a stable queue");
    load * service / (2.0 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_agree_in_their_common_special_cases() {
        // One server: C is the load, and M/M/1 waits twice as long as M/D/1.
        assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
        assert!((mmc_wait(1, 0.7, 1.0) - 2.0 * md1_wait(0.7, 1.0)).abs() < 1e-12);
        // Two servers: C = 2 r^2 / (1 + r) with r = load / 2.
        assert!((erlang_c(2, 1.2) - 2.0 * 0.36 / 1.6).abs() < 1e-12);
    }
}
