//! Random streams: one for each purpose, derived by name from the root seed.
//!
//! Streams are xoshiro256++ (Blackman and Vigna), so that two plans meet the same arrivals and a change in one place
//! disturbs nothing else.

use apportion_serving::mix::mix;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::LazyLock;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct RandomStream(Xoshiro256PlusPlus);

impl RandomStream {
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

    /// Uniform in `0..bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> u64::BITS) as u64
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    #[inline]
    pub fn positive(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        (-ln(self.positive())).max(0.0)
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

/// Bits of the mantissa that choose a row of [`LOGARITHMS`].
const ROW_BITS: u32 = 7;

/// For each part of the mantissas from 1 to 2: the reciprocal of its middle, and the logarithm of that.
static LOGARITHMS: LazyLock<[(f64, f64); 1 << ROW_BITS]> = LazyLock::new(|| {
    std::array::from_fn(|row| {
        let middle = 1.0 + (row as f64 + 0.5) / (1 << ROW_BITS) as f64;
        (1.0 / middle, by_series(middle))
    })
});

/// Natural logarithm of a number from 1 to 2: twice the inverse hyperbolic tangent of `(x - 1) / (x + 1)`, by its series.
fn by_series(x: f64) -> f64 {
    /// Powers of at most 1/9 that still count.
    const TERMS: u32 = 18;
    let z = (x - 1.0) / (x + 1.0);
    let sum = (0..TERMS).rev().fold(0.0, |sum, k| sum * z * z + 1.0 / f64::from(2 * k + 1));
    2.0 * z * sum
}

/// Natural logarithm of a positive normal number to within 2^-51 of the larger of 1 and its size. A table gives the
/// logarithm of a number nearby. The first terms of the series give the rest, which is at most 2^-8. It is the same on
/// every machine, where the last bit of the C library's depends on the processor, and inlined it costs less.
#[inline(always)]
fn ln(x: f64) -> f64 {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const ONE: u64 = 1f64.to_bits();
    let bits = x.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as i32 - (f64::MAX_EXP - 1);
    let mantissa = bits & ((1 << MANTISSA_BITS) - 1);
    let row = mantissa >> (MANTISSA_BITS - ROW_BITS);
    let middle = f64::from_bits(ONE | (2 * row + 1) << (MANTISSA_BITS - ROW_BITS - 1));
    let (reciprocal, of_middle) = LOGARITHMS[row as usize];
    let r = (f64::from_bits(ONE | mantissa) - middle) * reciprocal;
    let series = r - r * r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * (0.2 - r * (1.0 / 6.0)))));
    f64::from(exponent) * std::f64::consts::LN_2 + of_middle + series
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
    fn streams_depend_on_name_and_seed() {
        let bits = |seed, name| RandomStream::new(seed, name).bits();
        assert_eq!(bits(1, "a"), bits(1, "a"));
        assert_ne!(bits(1, "a"), bits(1, "b"));
        assert_ne!(bits(1, "a"), bits(2, "a"));
    }

    #[test]
    fn logarithms_equal_the_librarys_but_for_the_last_bits() {
        let mut stream = RandomStream::new(1, "logarithms");
        let edges = (0..=53).flat_map(|n| [0.5f64.powi(n), 1.0 - 0.5f64.powi(n.max(1))]);
        let drawn: Vec<f64> = (0..500_000).map(|n| stream.positive() * 0.5f64.powi(n % 40)).collect();
        for x in edges.chain(drawn) {
            let (own, theirs) = (ln(x), x.ln());
            assert!((own - theirs).abs() <= 2.0 * f64::EPSILON * theirs.abs().max(1.0), "{x:e}: {own:e}, not {theirs:e}");
        }
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut s = RandomStream::new(7, "moments");
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
