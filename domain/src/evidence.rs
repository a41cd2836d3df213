//! When, and how surely, was a latency of a profile measured?

use crate::plan::GroupName;

/// The measurement of one latency of a problem. It changes no plan; each plan says which of its profiles are old or unsure.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileEvidence {
    /// The pipeline.
    pub pipeline: String,
    /// Task, variant, hardware type and share.
    pub group: GroupName,
    /// When it was measured, in seconds since 1970; `None` if nobody knows.
    pub measured_at_s: Option<i64>,
    /// Width of the 95 % interval of the median, as a part of the median; `None` if nobody knows.
    pub width: Option<f64>,
    /// Measured in service over the profile, where they differ for long; `None` without a drift.
    pub drift: Option<f64>,
}

/// What is known of all latencies of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupEvidence {
    /// When the oldest one was measured; `None` if that is not known of one of them.
    pub measured_at_s: Option<i64>,
    /// The widest interval; `None` if that is not known of one of them.
    pub width: Option<f64>,
    /// The drift.
    pub drift: Option<f64>,
}

impl GroupEvidence {
    /// The oldest and the least sure of the latencies of a group.
    #[must_use]
    pub fn of(all: &[ProfileEvidence], pipeline: &str, group: &GroupName) -> Self {
        let of_group: Vec<&ProfileEvidence> = all.iter().filter(|e| e.pipeline == pipeline && e.group == *group).collect();
        let times: Option<Vec<i64>> = of_group.iter().map(|e| e.measured_at_s).collect();
        let widths: Option<Vec<f64>> = of_group.iter().map(|e| e.width).collect();
        Self {
            measured_at_s: times.and_then(|times| times.into_iter().min()),
            width: widths.and_then(|widths| widths.into_iter().max_by(f64::total_cmp)),
            drift: of_group.iter().find_map(|e| e.drift),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    #[test]
    fn a_group_is_as_old_as_its_oldest_latency() {
        let group = |variant: &str| GroupName {
            task: "t".into(),
            variant: variant.into(),
            hardware: "h".into(),
            share: Share::WHOLE,
        };
        let of = |variant: &str, measured_at_s, width| ProfileEvidence {
            pipeline: "p".into(),
            group: group(variant),
            measured_at_s,
            width,
            drift: None,
        };
        let all = [of("a", Some(7), Some(0.1)), of("a", Some(5), Some(0.3)), of("b", Some(3), None), of("b", None, None)];
        let a = GroupEvidence { measured_at_s: Some(5), width: Some(0.3), drift: None };
        assert_eq!(GroupEvidence::of(&all, "p", &group("a")), a);
        assert_eq!(GroupEvidence::of(&all, "p", &group("b")), GroupEvidence::default(), "one of them is not known");
        assert_eq!(GroupEvidence::of(&all, "q", &group("a")), GroupEvidence::default());
    }
}
