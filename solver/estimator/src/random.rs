//! One random stream per purpose, derived by name from the root seed.
//!
//! Streams are xoshiro256++ (Blackman and Vigna), so that two plans meet the same arrivals and a change in one place
//! disturbs nothing else.

use apportion_serving::mix::mix;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of this name under this root seed: FNV-1a of the name, mixed with the seed.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const FNV_PRIME: u64 = 0x0100_0000_01b3;
        let hash = name.bytes().fold(FNV_OFFSET, |h, b| (h ^ u64::from(b)).wrapping_mul(FNV_PRIME));
        Self(Xoshiro256PlusPlus::seed_from_u64(mix(hash ^ mix(seed))))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    #[inline]
    pub fn positive(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.positive().ln()
    }

    /// Standard normal, by the polar method of Marsaglia.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.positive() - 1.0, 2.0 * self.positive() - 1.0);
            let s = x * x + y * y;
            if s > 0.0 && s < 1.0 {
                return x * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Gamma with this shape (above 0) and scale 1, by the method of Marsaglia and Tsang (2000); shapes below 1 by their
    /// boost with a power of a uniform.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = self.positive().powf(1.0 / shape);
            return boost * self.gamma(shape + 1.0);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.positive().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draw: impl FnMut() -> f64) -> (f64, f64) {
        const DRAWS: usize = 200_000;
        let draws: Vec<f64> = std::iter::repeat_with(draw).take(DRAWS).collect();
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        (mean, draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / DRAWS as f64)
    }

    #[test]
    fn names_and_seeds_give_different_streams_and_the_same_ones_again() {
        let bits = |seed, name| Stream::new(seed, name).bits();
        assert_eq!(bits(1, "a"), bits(1, "a"));
        assert_ne!(bits(1, "a"), bits(1, "b"));
        assert_ne!(bits(1, "a"), bits(2, "a"));
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut s = Stream::new(7, "moments");
        let close = |(mean, variance): (f64, f64), (m, v): (f64, f64)| {
            assert!((mean - m).abs() < 0.02 * m.max(1.0), "mean {mean}, expected {m}");
            assert!((variance - v).abs() < 0.05 * v, "variance {variance}, expected {v}");
        };
        close(moments(|| s.exponential()), (1.0, 1.0));
        close(moments(|| s.normal()), (0.0, 1.0));
        close(moments(|| s.gamma(4.0)), (4.0, 4.0));
        close(moments(|| s.gamma(0.5)), (0.5, 0.5));
    }
}
