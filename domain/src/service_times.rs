//! How do the times of batches, or of queries in slots, spread around the profile's?

use crate::units::TimeSpan;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

/// The distribution of times around the profile's.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeDistribution {
    /// Lognormal, with this standard deviation of the logarithm for a batch of `i + 1` queries.
    Lognormal(Vec<f64>),
    /// Exponential, the profile's time being the mean.
    Exponential,
}

impl TimeDistribution {
    /// Of a query in a slot of a `continuous` task (PARD section 7), by median and 99th percentile with all slots taken:
    /// lognormal, as times that are products of many small causes are. Without a percentile above the median it is
    /// exponential around `median`.
    #[must_use]
    pub fn of_slot(median: TimeSpan, p99: TimeSpan) -> Self {
        let sigma = lognormal_sigma(median, p99);
        if sigma > 0.0 { Self::Lognormal(vec![sigma]) } else { Self::Exponential }
    }
}

/// The standard deviation of the logarithm that gives this 99th percentile with this median.
#[must_use]
pub fn lognormal_sigma(median: TimeSpan, p99: TimeSpan) -> f64 {
    sigma_of_ratio(p99.as_nanos() as f64 / median.as_nanos().max(1) as f64)
}

/// The standard deviation of the logarithm, by the ratio of the 99th percentile to the median.
pub(crate) fn sigma_of_ratio(ratio: f64) -> f64 {
    ratio.max(1.0).ln() / NORMAL_P99
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_times_are_lognormal_where_a_percentile_is_known() {
        let [median, p99] = [10, 30].map(|ms| TimeSpan::from_millis(f64::from(ms)));
        let TimeDistribution::Lognormal(sigmas) = TimeDistribution::of_slot(median, p99) else { panic!("a percentile") };
        assert!(((sigmas[0] * NORMAL_P99).exp() - 3.0).abs() < 1e-9, "{sigmas:?}");
        for none in [TimeSpan::ZERO, median] {
            assert_eq!(TimeDistribution::of_slot(median, none), TimeDistribution::Exponential);
        }
    }
}
