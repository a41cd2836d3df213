//! How long do batches take if queries have several shapes? Each batch has rows of one shape, so times are a mixture.
//!
//! Example: 90 % of the texts have 128 tokens and take 10 ms, and 10 % have 512 tokens and take 40 ms. The median is 10 ms
//! and the mean 13 ms. A planner counts with the mean, because queries of both lengths use the device.

use crate::service_times::sigma_of_ratio;

/// Most shapes of a profile row.
pub const SHAPES_MAX: usize = 16;
/// How far the shares of shapes, written in decimals, may be from summing to 1.
pub const SHARES_SLACK: f64 = 1e-6;
/// How far the figures of a row may be from those of the mixture of its shapes, as a part of these.
pub const MIXTURE_SLACK: f64 = 0.01;
/// A quantile is reached if the probability misses it by less: sums of shares lose digits.
const QUANTILE_SLACK: f64 = 1e-9;
/// Most halvings of the interval around a quantile: it ends with two neighbouring numbers, or with 2^-128 of its width.
const HALVINGS_MAX: usize = 128;
/// So many standard deviations above the median are above every quantile.
const DEVIATIONS_MAX: f64 = 9.0;

/// The times of batches whose rows have one shape: lognormal, as [`TimeDistribution`](crate::TimeDistribution) has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeTimes {
    /// Share of the queries that have this shape, above 0 and at most 1.
    pub share: f64,
    /// The median, above 0. In a profile row it is a multiple of the row's latency; a mixture takes any unit.
    pub median: f64,
    /// The 99th percentile in the same unit, at least the median.
    pub p99: f64,
}

impl ShapeTimes {
    /// The standard deviation of the logarithm; 0 if all times are the median.
    #[must_use]
    pub fn sigma(&self) -> f64 {
        sigma_of_ratio(self.p99 / self.median)
    }

    fn mean(&self) -> f64 {
        self.median * (0.5 * self.sigma() * self.sigma()).exp()
    }

    /// The probability of a time of at most `time`, given [`ShapeTimes::sigma`].
    fn below(&self, time: f64, sigma: f64) -> f64 {
        match sigma {
            0.0 => f64::from(u8::from(time >= self.median)),
            sigma => normal_below((time / self.median).ln() / sigma),
        }
    }

    fn is_valid(&self) -> bool {
        let is_time = |time: f64| time > 0.0 && time.is_finite();
        self.share > 0.0 && self.share <= 1.0 && is_time(self.median) && is_time(self.p99) && self.p99 >= self.median
    }
}

/// Whether these are 1 to [`SHAPES_MAX`] shapes with times in order, whose shares sum to 1.
#[must_use]
pub fn are_shapes(shapes: &[ShapeTimes]) -> bool {
    let sum: f64 = shapes.iter().map(|shape| shape.share).sum();
    (1..=SHAPES_MAX).contains(&shapes.len()) && shapes.iter().all(ShapeTimes::is_valid) && (sum - 1.0).abs() <= SHARES_SLACK
}

/// The figures of a profile row whose queries have several shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureTimes {
    /// The larger one of the median and the mean. Capacity is counted with it: a rare slow shape raises the mean alone, and
    /// a device is busy for the mean.
    pub latency: f64,
    /// The 99th percentile, at least `latency`.
    pub p99: f64,
}

/// The figures of the mixture of valid shapes ([`are_shapes`]), in their unit.
#[must_use]
pub fn mixture_times(shapes: &[ShapeTimes]) -> MixtureTimes {
    let total: f64 = shapes.iter().map(|shape| shape.share).sum();
    let mean = shapes.iter().map(|shape| shape.share * shape.mean()).sum::<f64>() / total;
    let latency = mixture_quantile(shapes, 0.5).max(mean);
    MixtureTimes { latency, p99: mixture_quantile(shapes, 0.99).max(latency) }
}

/// The smallest time that the share `quantile` of the batches does not exceed, for valid shapes, in their unit.
#[must_use]
pub fn mixture_quantile(shapes: &[ShapeTimes], quantile: f64) -> f64 {
    let total: f64 = shapes.iter().map(|shape| shape.share).sum();
    let wanted = (quantile - QUANTILE_SLACK) * total;
    let sigmas: Vec<f64> = shapes.iter().map(ShapeTimes::sigma).collect();
    let spread = || shapes.iter().zip(&sigmas);
    let is_reached =
        |time: f64| spread().map(|(shape, &sigma)| shape.share * shape.below(time, sigma)).sum::<f64>() >= wanted;
    let highest = spread().map(|(shape, sigma)| shape.median * (DEVIATIONS_MAX * sigma).exp());
    let (mut low, mut high) = (0.0, highest.fold(0.0, f64::max));
    for _ in 0..HALVINGS_MAX {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if is_reached(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The probability that a standard normal number is at most `z`, with a relative error below 1.2e-7 of its smaller side
/// (`erfcc`; Press et al., Numerical Recipes in C, section 6.2).
fn normal_below(z: f64) -> f64 {
    /// From the highest power down.
    const COEFFICIENTS: [f64; 10] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let exponent = COEFFICIENTS.iter().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let beyond = 0.5 * t * (exponent - x * x).exp();
    if z > 0.0 { 1.0 - beyond } else { beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(share: f64, median: f64, p99: f64) -> ShapeTimes {
        ShapeTimes { share, median, p99 }
    }

    fn is_near(found: f64, expected: f64, part: f64) -> bool {
        (found / expected - 1.0).abs() <= part
    }

    /// The slow version: times that are drawn one by one, sorted. The numbers come from Knuth's MMIX generator, and the
    /// method of Box and Muller makes them normal.
    fn drawn(shapes: &[ShapeTimes], count: usize) -> Vec<f64> {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64
        };
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let (mut left, mut chosen) = (uniform(), shapes[shapes.len() - 1]);
            for shape in shapes {
                left -= shape.share;
                if left <= 0.0 {
                    chosen = *shape;
                    break;
                }
            }
            let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
            times.push(chosen.median * ((chosen.p99 / chosen.median).ln() / 2.326_347_874 * normal).exp());
        }
        times.sort_by(f64::total_cmp);
        times
    }

    #[test]
    fn a_mixture_has_the_quantiles_of_drawn_times() {
        let cases = [
            vec![shape(1.0, 10.0, 20.0)],
            vec![shape(0.6, 10.0, 15.0), shape(0.4, 12.0, 30.0)],
            vec![shape(0.9, 10.0, 14.0), shape(0.1, 40.0, 50.0)],
            vec![shape(0.2, 3.0, 5.0), shape(0.35, 5.0, 9.0), shape(0.45, 8.0, 30.0)],
        ];
        for shapes in cases {
            let times = drawn(&shapes, 200_000);
            for quantile in [0.1, 0.5, 0.95, 0.99] {
                let (slow, fast) = (times[(quantile * 200_000.0) as usize], mixture_quantile(&shapes, quantile));
                assert!(is_near(fast, slow, 0.02), "{shapes:?} at {quantile}: {fast}, drawn {slow}");
            }
            let mean = times.iter().sum::<f64>() / 200_000.0;
            let MixtureTimes { latency, p99 } = mixture_times(&shapes);
            assert!(is_near(latency, mean.max(times[100_000]), 0.02), "{shapes:?}: {latency}, drawn {mean}");
            assert!(is_near(p99, times[198_000], 0.02), "{shapes:?}: {p99}");
        }
    }

    #[test]
    fn one_shape_has_its_own_quantiles() {
        for (median, p99) in [(10.0, 25.0), (0.003, 0.0031), (7.0, 7.0)] {
            let one = [shape(1.0, median, p99)];
            assert!(is_near(mixture_quantile(&one, 0.5), median, 1e-6), "{one:?}");
            assert!(is_near(mixture_quantile(&one, 0.99), p99, 1e-6), "{one:?}");
        }
        assert_eq!(mixture_quantile(&[shape(1.0, 7.0, 7.0)], 0.5), 7.0);
    }

    #[test]
    fn times_without_spread_are_the_shapes_own() {
        let two = [shape(0.9, 10.0, 10.0), shape(0.1, 40.0, 40.0)];
        assert_eq!([0.5, 0.9, 0.99].map(|quantile| mixture_quantile(&two, quantile)), [10.0, 10.0, 40.0]);
        assert!(is_near(mixture_times(&two).latency, 13.0, 1e-12), "the mean");
        let ten: Vec<ShapeTimes> = (1..=10).map(|ms| shape(0.1, f64::from(ms), f64::from(ms))).collect();
        assert_eq!(mixture_quantile(&ten, 0.5), 5.0, "five tenths are a half, whatever digits their sum loses");
        let rare = [shape(0.995, 1.0, 1.0), shape(0.005, 1_000.0, 1_000.0)];
        let MixtureTimes { latency, p99 } = mixture_times(&rare);
        assert!(p99 >= latency && latency > 5.9, "{latency}, {p99}");
    }

    #[test]
    fn shapes_are_few_and_sum_to_one() {
        assert!(are_shapes(&[shape(1.0 / 3.0, 1.0, 2.0), shape(2.0 / 3.0, 3.0, 3.0)]));
        let many = |count: usize| vec![shape(1.0 / count as f64, 1.0, 1.0); count];
        assert!(are_shapes(&many(SHAPES_MAX)) && !are_shapes(&many(SHAPES_MAX + 1)) && !are_shapes(&[]));
        for wrong in [shape(0.99, 1.0, 1.0), shape(f64::NAN, 1.0, 1.0), shape(1.0, 0.0, 1.0), shape(1.0, 2.0, 1.0)] {
            assert!(!are_shapes(&[wrong]), "{wrong:?}");
        }
        assert!(!are_shapes(&[shape(1.0, f64::NAN, 1.0)]) && !are_shapes(&[shape(1.0, 1.0, f64::INFINITY)]));
        assert!(!are_shapes(&[shape(1.5, 1.0, 1.0), shape(-0.5, 1.0, 1.0)]));
    }
}
