//! Which drifts begin and end as periods pass?
//!
//! Example: agents report batches of `read-s` beside 10 ms, and somebody registers a profile with 13 ms. Until the next
//! target, agents compare with the old profile. A drift from it is over, and what they measured until then is not judged.

use super::drift::{
    DriftChange, DriftEnd, HISTORY_PERIODS_MAX, PeriodSums, ProfileFigure, UNMEASURED_PERIODS_MAX, judge, last_windows,
};
use std::collections::BTreeMap;

/// After this many periods the first whole period with a new profile has begun: the target comes in the period that was not
/// judged yet, or early in the next one.
const PROFILE_PERIODS: i64 = 2;
/// A figure that was not measured for this many periods is forgotten. Its drift was over long before, or its pipeline is
/// gone.
const FORGOTTEN_PERIODS: i64 = 2 * UNMEASURED_PERIODS_MAX;

/// A figure of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureKey {
    /// The pipeline.
    pub pipeline: String,
    /// The figure.
    pub figure: ProfileFigure,
}

/// The registered profile of a figure beside the one with which agents compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileMatch {
    /// They are the same.
    Same,
    /// Agents have another one.
    Other,
    /// None is registered.
    Missing,
}

/// Judges figures period by period.
#[derive(Debug, Default)]
pub struct DriftJudge {
    /// The last period in which each drifting figure was measured, or in which it was judged first.
    measured_at: BTreeMap<FigureKey, i64>,
    /// The period at whose begin agents had another profile of a figure for the last time.
    other_at: BTreeMap<FigureKey, i64>,
}

impl DriftJudge {
    /// Forgets all that no figure needs whose periods before `until` are judged.
    pub fn forget_old(&mut self, until: i64) {
        self.other_at.retain(|_, at| until - *at <= HISTORY_PERIODS_MAX + PROFILE_PERIODS);
        self.measured_at.retain(|_, last| until - *last <= FORGOTTEN_PERIODS);
    }

    /// Judges the periods of a figure before `until`. `known` is the factor of its drift, if it has one.
    pub fn judge(
        &mut self,
        key: &FigureKey,
        periods: &[PeriodSums],
        until: i64,
        profile: ProfileMatch,
        known: Option<f64>,
    ) -> Option<DriftChange> {
        if profile == ProfileMatch::Other {
            self.other_at.insert(key.clone(), until);
        }
        if profile != ProfileMatch::Same {
            return known.map(|_| DriftChange::Over(DriftEnd::ProfileChanged));
        }
        if known.is_none() {
            self.measured_at.remove(key);
        } else if self.periods_since_measured(key, periods, until) > UNMEASURED_PERIODS_MAX {
            return Some(DriftChange::Over(DriftEnd::Unmeasured));
        }
        let from = self.other_at.get(key).map_or(i64::MIN, |at| at + PROFILE_PERIODS);
        let own: Vec<PeriodSums> = periods.iter().filter(|of| of.period >= from).cloned().collect();
        judge(key.figure.kind, &last_windows(key.figure.kind, &own, until), known)
    }

    fn periods_since_measured(&mut self, key: &FigureKey, periods: &[PeriodSums], until: i64) -> i64 {
        let last = self.measured_at.entry(key.clone()).or_insert(until);
        *last = periods.last().map_or(*last, |newest| newest.period.max(*last));
        until - *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::drift::{FigureKind, MeasuredPart};
    use uuid::Uuid;

    fn key() -> FigureKey {
        let figure = ProfileFigure { kind: FigureKind::Latency, task: "t".into(), variant: "v".into(), at: "h".into() };
        FigureKey { pipeline: "p".into(), figure }
    }

    /// Batches at this ratio in these periods.
    fn history(ratio: f64, periods: std::ops::Range<i64>) -> Vec<PeriodSums> {
        let (measured, expected) = (ratio * 200.0, 200.0);
        let part = || MeasuredPart { session: Uuid::nil(), count: 20, measured, expected, variance: 0.0 };
        periods.map(|period| PeriodSums { period, parts: vec![part()] }).collect()
    }

    fn has_begun(change: Option<DriftChange>) -> bool {
        matches!(change, Some(DriftChange::Begun(_)))
    }

    #[test]
    fn another_profile_ends_a_drift() {
        let mut judge = DriftJudge::default();
        let slow = history(1.3, 0..10);
        assert!(has_begun(judge.judge(&key(), &slow, 10, ProfileMatch::Same, None)));
        let over = Some(DriftChange::Over(DriftEnd::ProfileChanged));
        for profile in [ProfileMatch::Other, ProfileMatch::Missing] {
            assert_eq!(judge.judge(&key(), &slow, 10, profile, Some(1.3)), over);
            assert_eq!(judge.judge(&key(), &slow, 10, profile, None), None, "there is none to end");
        }
    }

    #[test]
    fn measurements_beside_an_old_profile_are_not_judged() {
        let mut judge = DriftJudge::default();
        assert_eq!(judge.judge(&key(), &history(1.3, 0..10), 10, ProfileMatch::Other, None), None);
        // Periods 10 and 11 may still be beside the old profile: the third window of the new one ends with period 14.
        for until in 11..15 {
            assert_eq!(judge.judge(&key(), &history(1.3, 0..until), until, ProfileMatch::Same, None), None, "{until}");
        }
        assert!(has_begun(judge.judge(&key(), &history(1.3, 0..15), 15, ProfileMatch::Same, None)));
    }

    #[test]
    fn figures_of_pipelines_that_are_gone_are_forgotten() {
        let mut judge = DriftJudge::default();
        let gone = |number: i64| FigureKey { pipeline: format!("gone-{number}"), ..key() };
        for until in 10..3 * FORGOTTEN_PERIODS {
            let measured = history(1.3, until - 10..until);
            judge.forget_old(until);
            assert_eq!(judge.judge(&gone(until), &measured, until, ProfileMatch::Same, Some(1.3)), None);
        }
        assert!(judge.measured_at.len() as i64 <= FORGOTTEN_PERIODS + 1, "{}", judge.measured_at.len());
    }

    #[test]
    fn a_drift_that_is_not_measured_is_over_after_a_while() {
        let mut judge = DriftJudge::default();
        assert_eq!(judge.judge(&key(), &history(1.3, 0..10), 10, ProfileMatch::Same, Some(1.3)), None);
        let last = 10 + UNMEASURED_PERIODS_MAX;
        assert_eq!(judge.judge(&key(), &[], last, ProfileMatch::Same, Some(1.3)), None);
        let over = Some(DriftChange::Over(DriftEnd::Unmeasured));
        assert_eq!(judge.judge(&key(), &[], last + 1, ProfileMatch::Same, Some(1.3)), over);
        let measured = history(1.3, last - 2..last);
        assert_eq!(judge.judge(&key(), &measured, last, ProfileMatch::Same, Some(1.3)), None, "measured again");
    }
}
