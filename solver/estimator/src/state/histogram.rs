//! Percentiles of spans in memory that does not grow with their number.

use apportion_domain::TimeSpan;

/// Bits of a value that its bin keeps below the leading one: bins are at most 2^-10 of their value wide.
const PRECISION_BITS: u32 = 10;

/// Counts of spans in bins of a constant relative width; below 2^11 ns the bins are exact.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max: TimeSpan,
}

impl Histogram {
    /// Counts one span.
    #[inline]
    pub fn add(&mut self, span: TimeSpan) {
        self.add_all(std::iter::once(span));
    }

    /// Counts several.
    #[inline]
    pub fn add_all(&mut self, spans: impl ExactSizeIterator<Item = TimeSpan>) {
        self.total += spans.len() as u64;
        // In a register: the counts might be anywhere.
        let mut sum_ns = self.sum_ns;
        let mut below = self.below_last();
        for span in spans {
            sum_ns += u128::from(span.as_nanos());
            let bin = bin(span.as_nanos());
            match below.get_mut(bin) {
                Some(count) => *count += 1,
                None => {
                    self.add_last(span, bin);
                    below = self.below_last();
                }
            }
        }
        self.sum_ns = sum_ns;
    }

    /// All bins but the last, which is the one of the largest span.
    #[inline]
    fn below_last(&mut self) -> &mut [u64] {
        self.counts.split_last_mut().map_or(&mut [], |(_, below)| below)
    }

    /// Counts a span in the last bin, or in one behind it.
    #[inline(never)]
    fn add_last(&mut self, span: TimeSpan, bin: usize) {
        self.max = self.max.max(span);
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
    }

    /// Counts all of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
    }

    /// Spans counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Mean in milliseconds; 0 without spans.
    pub fn mean_ms(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum_ns as f64 / self.total as f64 / 1e6 }
    }

    /// The smallest span that a part `p` of all spans does not exceed, in milliseconds; 0 without spans. It is rounded up
    /// within its bin: by at most 0.1 %, and never above the largest span.
    pub fn percentile_ms(&self, p: f64) -> f64 {
        let rank = ((p * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return TimeSpan::from_nanos(bin_end(bin)).min(self.max).as_millis();
            }
        }
        0.0
    }
}

#[inline]
fn bin(nanos: u64) -> usize {
    let shift = (nanos | 1 << PRECISION_BITS).ilog2() - PRECISION_BITS;
    ((u64::from(shift) << PRECISION_BITS) + (nanos >> shift)) as usize
}

/// Largest value of a bin.
fn bin_end(bin: usize) -> u64 {
    let shift = ((bin >> PRECISION_BITS) as u64).saturating_sub(1);
    let value = bin as u64 - (shift << PRECISION_BITS);
    ((u128::from(value + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_cover_every_value_once_in_order() {
        let values = (0..5000).chain((11..64).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1])).chain([u64::MAX]);
        for v in values {
            assert!(bin_end(bin(v)) >= v && (bin(v) == 0 || bin_end(bin(v) - 1) < v), "{v}");
        }
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut h = Histogram::default();
        (1..=1000).for_each(|i| h.add(TimeSpan::from_nanos(i * 1_000_000)));
        assert!((h.percentile_ms(0.5) / 500.0 - 1.0).abs() < 1e-3, "{}", h.percentile_ms(0.5));
        assert!((h.percentile_ms(0.99) / 990.0 - 1.0).abs() < 1e-3);
        assert_eq!(h.percentile_ms(1.0), 1000.0);
        assert_eq!(h.mean_ms(), 500.5);
    }
}
