//! Which loads do comparisons play?

use super::measures::quantile;
use apportion_domain::ArrivalTrace;
use apportion_estimator::{ArrivalProcess, Workload};

/// A load with one rate for each second.
pub fn load(rates: &[f64], arrivals: ArrivalProcess, seed: u64) -> Workload {
    let rows = (0..).zip(rates.iter().copied()).collect();
    Workload { traces: vec![ArrivalTrace::Rates(rows)], arrivals, seed }
}

/// A constant load.
pub fn constant(qps: f64, seconds: usize, arrivals: ArrivalProcess, seed: u64) -> Workload {
    load(&vec![qps; seconds], arrivals, seed)
}

/// Rates of the same shape with this mean.
pub fn scaled(rates: &[f64], mean: f64) -> Vec<f64> {
    let now = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    rates.iter().map(|r| if now > 0.0 { r * mean / now } else { mean }).collect()
}

/// The rate that a share `q` of the seconds does not exceed.
pub fn rate_quantile(rates: &[f64], q: f64) -> f64 {
    quantile(rates, q)
}

/// A built-in bursty trace of mean 1: a slow wave, and in each period of `every` seconds a burst of `length` seconds that
/// multiplies the rate by `height`. The pattern is fixed, so a run needs no data.
pub fn bursts(seconds: usize, every: usize, length: usize, height: f64) -> Vec<f64> {
    let wave = |s: usize| 1.0 + 0.2 * (s as f64 / 40.0 * std::f64::consts::TAU).sin();
    let rate = |s: usize| if s % every >= every - length { height * wave(s) } else { wave(s) };
    scaled(&(0..seconds).map(rate).collect::<Vec<_>>(), 1.0)
}

/// Rates of `burst` in the last two of every twenty seconds, and of `calm` in the others.
pub fn bursts_between(seconds: usize, calm: f64, burst: f64) -> Vec<f64> {
    (0..seconds).map(|s| if s % 20 >= 18 { burst } else { calm }).collect()
}

/// A built-in day: up from 50 to 425 queries per second and down again, with ripples.
pub fn day_ramp(seconds: usize) -> Vec<f64> {
    let wave = |s: usize| {
        let middle = (s as f64 + 0.5) / seconds as f64;
        // A slow hump with two ripples.
        let slow = 0.5 - 0.5 * (std::f64::consts::TAU * middle).cos();
        let fast =
            0.12 * (std::f64::consts::TAU * 7.0 * middle).sin() + 0.06 * (std::f64::consts::TAU * 31.0 * middle).sin();
        (50.0 + 375.0 * (slow + fast * slow)).max(50.0)
    };
    (0..seconds).map(wave).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_rates_keep_their_shape() {
        assert_eq!(scaled(&[1.0, 3.0], 10.0), [5.0, 15.0]);
        assert_eq!(scaled(&[0.0, 0.0], 2.0), [2.0, 2.0]);
        let burst = bursts(120, 30, 5, 2.0);
        let mean = burst.iter().sum::<f64>() / 120.0;
        assert!((mean - 1.0).abs() < 1e-9 && burst[29] > 1.5 * burst[20], "{mean}");
    }
}
