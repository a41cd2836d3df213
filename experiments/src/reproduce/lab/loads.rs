//! Which loads do comparisons play?

use super::measures::quantile;
use apportion_domain::ArrivalTrace;
use apportion_estimator::{ArrivalProcess, Workload};

/// A load with one rate for each second.
pub fn load(rates: &[f64], arrivals: ArrivalProcess, seed: u64) -> Workload {
    let rows = (0..).zip(rates.iter().copied()).collect();
    Workload { traces: vec![ArrivalTrace::Rates(rows)], arrivals, seed }
}

/// One rate for each second from the first row on, at most `seconds` of them. A rate holds for the least step between two
/// rows. Longer gaps have no queries.
///
/// Example: the rows 0, 60, 120 and 300 are rates of minutes. The seconds 180 to 299 have the rate 0.
pub fn rates_by_second(rows: &[(u64, f64)], seconds: usize) -> Vec<f64> {
    let Some(&(first, _)) = rows.first() else { return Vec::new() };
    let mut rates = vec![0.0; seconds_of(rows).min(seconds)];
    let step = least_step(rows) as usize;
    for &(second, qps) in rows {
        rates.iter_mut().skip((second - first) as usize).take(step).for_each(|rate| *rate = qps);
    }
    rates
}

/// The seconds from the first row to the end of the last one.
pub fn seconds_of(rows: &[(u64, f64)]) -> usize {
    match (rows.first(), rows.last()) {
        (Some(&(first, _)), Some(&(last, _))) => (last - first + least_step(rows)) as usize,
        _ => 0,
    }
}

/// The least step between two rows; a second for a single row.
fn least_step(rows: &[(u64, f64)]) -> u64 {
    rows.windows(2).map(|pair| pair[1].0 - pair[0].0).min().unwrap_or(1)
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
    fn a_rate_holds_for_the_least_step() {
        let of = |rows: &[(u64, f64)]| rates_by_second(rows, usize::MAX);
        assert_eq!(of(&[(7, 1.0), (8, 2.0), (9, 3.0)]), [1.0, 2.0, 3.0]);
        // a gap of two seconds, and rows of three seconds with a gap of three
        assert_eq!(of(&[(0, 1.0), (1, 2.0), (4, 3.0)]), [1.0, 2.0, 0.0, 0.0, 3.0]);
        assert_eq!(of(&[(3, 1.0), (6, 2.0), (12, 3.0)]), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0]);
        assert_eq!((of(&[(5, 4.0)]), of(&[])), (vec![4.0], vec![]));
        let far = [(0, 1.0), (1, 2.0), (u64::from(u32::MAX), 3.0)];
        assert_eq!((seconds_of(&far), rates_by_second(&far, 3)), (1 << 32, vec![1.0, 2.0, 0.0]));
    }

    #[test]
    fn scaled_rates_keep_their_shape() {
        assert_eq!(scaled(&[1.0, 3.0], 10.0), [5.0, 15.0]);
        assert_eq!(scaled(&[0.0, 0.0], 2.0), [2.0, 2.0]);
        let burst = bursts(120, 30, 5, 2.0);
        let mean = burst.iter().sum::<f64>() / 120.0;
        assert!((mean - 1.0).abs() < 1e-9 && burst[29] > 1.5 * burst[20], "{mean}");
    }
}
