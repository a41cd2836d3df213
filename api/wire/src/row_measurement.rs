//! Which keys say how a latency was measured, and how old and sure the profiles of a plan are?

use crate::record::record;
use crate::shape_latency::ShapeLatency;
use crate::utc_time::parse_utc;
use apportion_domain::{INTERFERENCE_MAX, INTERFERENCE_MIN, Invalid, Share};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

record! {
    /// How a latency was measured. Keys that nobody knows are left out.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RowMeasurement {
        /// When, in UTC: `2026-03-01T12:00:00Z`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<String> => optional.or_null(),
        /// Timed runs; 0 if the latency is interpolated between measured batch sizes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub runs: Option<u32> => optional.or_null(),
        /// Runs before them that did not count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub warm_up_runs: Option<u32> => optional.or_null(),
        /// Whether the times had stopped changing when the warm-up ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub steady: Option<bool> => optional.or_null(),
        /// How much a fixed calculation, or the runs themselves, varied meanwhile: 0 is calm, above 0.1 is noisy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub noise: Option<f64> => optional.or_null(),
        /// On a share of a device: the latency, which is that beside neighbours, over the latency alone. Absent if it was
        /// measured alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub interference: Option<f64> => optional.or_null(),
        /// 95th percentile of the batch's time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub p95_ms: Option<f64> => optional.or_null(),
        /// Lower end of the 95 % interval of the median.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub median_low_ms: Option<f64> => optional.or_null(),
        /// Upper end of the same; absent with too few runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub median_high_ms: Option<f64> => optional.or_null(),
        /// Lower end of the 95 % interval of the 99th percentile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub p99_low_ms: Option<f64> => optional.or_null(),
        /// Upper end of the same; absent with too few runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub p99_high_ms: Option<f64> => optional.or_null(),
        /// Name of the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String> => optional.or_null(),
        /// The device, as its driver or its system names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub device: Option<String> => optional.or_null(),
        /// The driver and the library that ran the variant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub software: Option<String> => optional.or_null(),
        /// Version of the program that measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<String> => optional.or_null(),
        /// The times by the shape of the queries. The row's latency and 99th percentile are those of their mixture.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub by_shape: Vec<ShapeLatency> => optional,
        /// The drift by which the service has multiplied the latency; only in problems that it makes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub drift: Option<f64> => optional.or_null(),
    }
}

impl RowMeasurement {
    /// Width of the 95 % interval of the median, as a part of the latency; `None` if nobody knows.
    pub(crate) fn width(&self, latency_ms: f64) -> Option<f64> {
        let (low, high) = self.median_low_ms.zip(self.median_high_ms)?;
        Some((high - low) / latency_ms).filter(|width| width.is_finite() && *width >= 0.0)
    }

    /// The faults of its values; `at` is its pointer, and `share` the part of a device that its row is about.
    pub(crate) fn check(&self, share: Share, at: &str, problems: &mut Vec<Invalid>) {
        if let Some(text) = self.at.as_deref().filter(|text| parse_utc(text).is_none()) {
            let expected = "a time in UTC such as 2026-03-01T12:00:00Z";
            problems.push(Invalid::new(format!("{at}/at"), format!("{text:?}"), expected));
        }
        let Some(interference) = self.interference else { return };
        let at = format!("{at}/interference");
        if share == Share::WHOLE {
            let expected = "no such member: a batch that has a whole device has no neighbours there";
            problems.push(Invalid::new(at, interference, expected));
        } else if !(INTERFERENCE_MIN..=INTERFERENCE_MAX).contains(&interference) {
            let expected = format!("a factor from {INTERFERENCE_MIN} to {INTERFERENCE_MAX}");
            problems.push(Invalid::new(at, interference, expected));
        }
    }
}

record! {
    /// Age and error of the profile of one group of a plan.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct GroupProfileFile {
        /// The pipeline.
        pub pipeline: String => required,
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Hardware type.
        pub hardware: String => required,
        /// Fraction of a device.
        #[serde(default = "whole")]
        pub share: f64 => optional,
        /// When its oldest latency was measured, in UTC; null if nobody knows.
        pub measured_at: Option<String> => required.or_null(),
        /// Widest 95 % interval of its medians, as a part of the median; null if nobody knows.
        pub interval: Option<f64> => required.or_null(),
        /// Measured in service over the profile; null without a drift.
        pub drift: Option<f64> => required.or_null(),
    }
}

fn whole() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_part_of_the_latency() {
        let of = |low: Option<f64>, high: Option<f64>| {
            RowMeasurement { median_low_ms: low, median_high_ms: high, ..RowMeasurement::default() }.width(10.0)
        };
        assert_eq!(of(Some(9.0), Some(11.0)), Some(0.2));
        assert_eq!(of(Some(9.0), None), None, "an open interval has no width");
        assert_eq!(of(Some(11.0), Some(9.0)), None);
        assert_eq!(of(Some(0.0), Some(f64::INFINITY)), None);
    }

    #[test]
    fn a_wrong_time_is_refused_at_its_place() {
        let mut problems = Vec::new();
        let of = |at: &str| RowMeasurement { at: Some(at.into()), ..RowMeasurement::default() };
        of("2026-03-01T12:00:00Z").check(Share::WHOLE, "/profile/0/measured", &mut problems);
        assert!(problems.is_empty());
        of("yesterday").check(Share::WHOLE, "/profile/0/measured", &mut problems);
        assert_eq!(problems[0].pointer, "/profile/0/measured/at");
    }

    #[test]
    fn interference_is_a_factor_of_a_share() {
        let half = Share::new(0.5).expect("a share");
        let said = |interference: f64, share: Share| {
            let mut problems = Vec::new();
            let of = RowMeasurement { interference: Some(interference), ..RowMeasurement::default() };
            of.check(share, "/profile/0/measured", &mut problems);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for right in [INTERFERENCE_MIN, 1.7, INTERFERENCE_MAX] {
            assert_eq!(said(right, half), [""; 0], "{right}");
        }
        for wrong in [0.99, 100.1, -1.0, 0.0, f64::NAN, f64::INFINITY] {
            let said = said(wrong, half).join("");
            assert!(said.contains("/profile/0/measured/interference") && said.contains("from 1 to 100"), "{said}");
        }
        let whole = said(1.7, Share::WHOLE).join("");
        assert!(whole.contains("/profile/0/measured/interference") && whole.contains("1.7: expected no such"), "{whole}");
    }
}
