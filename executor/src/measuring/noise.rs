//! How much does other work of the machine disturb a measurement?
//!
//! Two signs of it are measured. A fixed calculation takes the same time on a calm machine. And the median of the first
//! quarter of the runs equals those of the other quarters. Where other work comes and goes, the medians are on two levels.

use super::percentiles::{STEADY_RUNS, percentile};
use std::hint::black_box;
use std::time::Instant;

/// Above this noise a machine counts as noisy: a fixed calculation then takes a tenth longer at times, or the medians of
/// two parts of the runs are a tenth apart.
pub const NOISE_MAX: f64 = 0.10;
/// Fixed calculations.
const CALCULATIONS: usize = 30;
/// Steps of each: some tenths of a millisecond, so that a clock's tick does not count.
const STEPS: u32 = 100_000;
/// Parts of the runs that are compared.
const PARTS: usize = 4;

/// By which part the 90th percentile of fixed calculations exceeds their median.
#[must_use]
pub fn calculation_noise() -> f64 {
    let calculation = || {
        let (begun, mut number) = (Instant::now(), 1_u64);
        for step in 0..STEPS {
            number = black_box(number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ u64::from(step));
        }
        begun.elapsed().as_secs_f64()
    };
    let times: Vec<f64> = (0..CALCULATIONS).map(|_| calculation()).collect();
    let median = percentile(&times, 0.5);
    if median > 0.0 { percentile(&times, 0.9) / median - 1.0 } else { 0.0 }
}

/// By which part the highest median of a quarter of the runs exceeds the lowest; 0 with fewer runs than can say so.
#[must_use]
pub fn level_noise(times_ms: &[f64]) -> f64 {
    let size = times_ms.len() / PARTS;
    if size < STEADY_RUNS {
        return 0.0;
    }
    let medians: Vec<f64> = times_ms.chunks_exact(size).map(|part| percentile(part, 0.5)).collect();
    let (lowest, highest) = medians.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), m| (l.min(*m), h.max(*m)));
    if lowest > 0.0 { highest / lowest - 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_levels_are_noise_and_single_slow_runs_are_not() {
        let calm = [10.0; 40];
        assert_eq!(level_noise(&calm), 0.0);
        let mut slow = calm;
        slow[7] = 300.0;
        assert_eq!(level_noise(&slow), 0.0, "one slow run moves no median");
        let levels: Vec<f64> = (0..40).map(|i| if i < 20 { 10.0 } else { 13.0 }).collect();
        assert!((level_noise(&levels) - 0.3).abs() < 1e-12 && level_noise(&levels) > NOISE_MAX);
        assert_eq!(level_noise(&levels[..4 * STEADY_RUNS - 1]), 0.0, "too few runs");
    }

    #[test]
    fn a_calculation_has_a_noise() {
        let noise = calculation_noise();
        assert!(noise >= 0.0 && noise.is_finite(), "{noise}");
    }
}
