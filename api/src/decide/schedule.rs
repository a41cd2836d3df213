//! When does a schedule fire, and for which demand does it plan?
//!
//! Example: `50 8 * * 1-5` in `Europe/Berlin` fires at 8:50 on workdays, by the clocks of Berlin. When clocks are set
//! forward, a time of day that does not exist fires at the first moment after the gap. When they are set back, a time of
//! day that comes twice fires once, at its first moment. A pattern for every hour or minute (`*`, `*/5`) follows the time
//! that passes: nothing fires in the gap, and the repeated hour fires again.

use super::replan::{OnBetterPlan, ReplanInput};
use apportion_wire::{PipelineSpec, ReplanMode};
use chrono::{DateTime, FixedOffset, Offset, Utc};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, JobType};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Shortest interval, in seconds: as short as the finest cron.
pub const EVERY_S_MIN: u32 = 60;
/// Longest interval, in seconds: a year.
pub const EVERY_S_MAX: u32 = 365 * 86_400;
/// Longest hold of a firing, in seconds: a year.
pub const WINDOW_S_MAX: u32 = 365 * 86_400;
/// Longest text of a cron expression.
pub const CRON_CHARS_MAX: usize = 200;
/// Most due times that are counted after an outage. Seven days of minutes are as many.
pub const DUES_MAX: usize = 10_080;
/// Most due times in a repeated time of day: the minutes of three hours.
const REPEATED_MAX: usize = 180;
/// Most changes of the clocks between two due times that are looked at.
const OFFSETS_MAX: usize = 8;
/// Least and largest headroom of a firing.
pub const HEADROOM_RANGE: [f64; 2] = [0.1, 100.0];

/// A schedule: when it fires (`cron` or `every_s`), and its effect (`replan` or `hold`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Its pipeline. Default: `replan` plans every pipeline that is replanned for its load; `hold` holds the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Five fields: minute, hour, day of the month, month, day of the week (0 or 7 is Sunday). Instead of `every_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200, example = "50 8 * * 1-5")]
    pub cron: Option<String>,
    /// With `cron`: the name of its time zone in the IANA database; default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
    /// Seconds between two firings, counted from the moment when the schedule is written. Instead of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 31_536_000)]
    pub every_s: Option<u32>,
    /// Plans again, and deploys a better plan. Instead of `hold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan: Option<ScheduledReplan>,
    /// Begins a window in which rounds of replanning deploy nothing. Instead of `replan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ScheduledHold>,
}

/// A round of replanning at a due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledReplan {
    /// The demand to plan for, in queries per second. Default: the mean load of the last minute, times `headroom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0.0)]
    pub demand_qps: Option<f64>,
    /// Factor on the load, 0.1 to 100; default: that of the pipeline's `replan` settings. Instead of `demand_qps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.1, maximum = 100.0)]
    pub headroom: Option<f64>,
    /// Seconds from the due time in which no other round replaces the plan; default 0.
    #[serde(default)]
    #[schema(maximum = 31_536_000)]
    pub hold_s: u32,
}

/// A window that begins at a due time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledHold {
    /// Seconds that it lasts from the due time.
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub for_s: u32,
    /// The reason, 1 to 500 characters.
    #[schema(min_length = 1, max_length = 500)]
    pub reason: String,
}

/// Why a schedule is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// It has no timing, or two.
    #[error("expected either cron or every_s")]
    Timing,
    /// It has no effect, or two.
    #[error("expected either replan or hold")]
    Effect,
    /// An interval has a time zone.
    #[error("expected it beside cron only: an interval has no time zone")]
    IntervalZone,
    /// The time zone is unknown.
    #[error("{0:?}: expected a name of the IANA time zone database, such as \"Europe/Berlin\"")]
    Zone(String),
    /// The expression cannot be read.
    #[error("{text:?}: {why}: expected five fields of cron, such as \"50 8 * * 1-5\"")]
    Cron {
        /// The expression.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// No day is a due day.
    #[error("{0:?}: expected a date that comes")]
    NeverComes(String),
    /// A number is out of its range.
    #[error("{found}: expected {expected}")]
    OutOfRange {
        /// Where it is.
        pointer: &'static str,
        /// The number.
        found: String,
        /// The right range.
        expected: String,
    },
    /// A demand without a pipeline.
    #[error("expected pipeline too: one demand does not fit several pipelines")]
    DemandOfAll,
    /// A demand and a headroom.
    #[error("expected either demand_qps or headroom: headroom multiplies the load")]
    TwoDemands,
}

impl ScheduleError {
    /// The JSON pointer of the refused value.
    #[must_use]
    pub fn pointer(&self) -> &'static str {
        match self {
            Self::Timing | Self::Effect => "",
            Self::IntervalZone | Self::Zone(_) => "/time_zone",
            Self::Cron { .. } | Self::NeverComes(_) => "/cron",
            Self::OutOfRange { pointer, .. } => pointer,
            Self::DemandOfAll => "/replan/demand_qps",
            Self::TwoDemands => "/replan/headroom",
        }
    }
}

/// When a schedule fires.
#[derive(Clone, Debug)]
pub struct Timing(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Cron {
        cron: Box<Cron>,
        zone: Tz,
    },
    /// Whole seconds after a whole second.
    Interval {
        every_s: i64,
        from: i64,
    },
}

/// The due times that have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedDues {
    /// The newest of them.
    pub latest: DateTime<Utc>,
    /// How many are before it.
    pub skipped: usize,
    /// The first one that has not passed; `None`: none comes.
    pub next: Option<DateTime<Utc>>,
}

impl ScheduleSpec {
    /// The timing of a schedule that was written at this moment. The whole schedule is checked.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn timing(&self, written_at: DateTime<Utc>) -> Result<Timing, ScheduleError> {
        match (&self.replan, &self.hold) {
            (Some(replan), None) => self.check_replan(replan)?,
            (None, Some(hold)) => check_range("/hold/for_s", hold.for_s, [1, WINDOW_S_MAX])?,
            _ => return Err(ScheduleError::Effect),
        }
        match (&self.cron, self.every_s) {
            (Some(text), None) => {
                let timing = Timing(self.cron_rule(text)?);
                match timing.next_after(written_at) {
                    Some(_) => Ok(timing),
                    None => Err(ScheduleError::NeverComes(text.clone())),
                }
            }
            (None, Some(every_s)) if self.time_zone.is_none() => {
                check_range("/every_s", every_s, [EVERY_S_MIN, EVERY_S_MAX])?;
                Ok(Timing(Rule::Interval { every_s: i64::from(every_s), from: written_at.timestamp() }))
            }
            (None, Some(_)) => Err(ScheduleError::IntervalZone),
            _ => Err(ScheduleError::Timing),
        }
    }

    fn check_replan(&self, replan: &ScheduledReplan) -> Result<(), ScheduleError> {
        check_range("/replan/hold_s", replan.hold_s, [0, WINDOW_S_MAX])?;
        if replan.demand_qps.is_some() && replan.headroom.is_some() {
            return Err(ScheduleError::TwoDemands);
        }
        let [least, largest] = HEADROOM_RANGE;
        if let Some(headroom) = replan.headroom.filter(|headroom| !(least..=largest).contains(headroom)) {
            let (found, expected) = (headroom.to_string(), format!("{least} to {largest}"));
            return Err(ScheduleError::OutOfRange { pointer: "/replan/headroom", found, expected });
        }
        match replan.demand_qps {
            Some(qps) if !qps.is_finite() || qps <= 0.0 => {
                let (found, expected) = (qps.to_string(), "a number above 0".to_owned());
                Err(ScheduleError::OutOfRange { pointer: "/replan/demand_qps", found, expected })
            }
            Some(_) if self.pipeline.is_none() => Err(ScheduleError::DemandOfAll),
            _ => Ok(()),
        }
    }

    fn cron_rule(&self, text: &str) -> Result<Rule, ScheduleError> {
        let chars = text.chars().count();
        if chars > CRON_CHARS_MAX {
            let (found, expected) = (format!("{chars} characters"), format!("at most {CRON_CHARS_MAX}"));
            return Err(ScheduleError::OutOfRange { pointer: "/cron", found, expected });
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let unreadable =
            |error: croner::errors::CronError| ScheduleError::Cron { text: text.into(), why: error.to_string() };
        let cron = Box::new(parser.parse(text).map_err(unreadable)?);
        let zone = self.time_zone.as_deref().unwrap_or("UTC");
        let zone = zone.parse().map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        Ok(Rule::Cron { cron, zone })
    }
}

fn check_range(pointer: &'static str, found: u32, [least, largest]: [u32; 2]) -> Result<(), ScheduleError> {
    match (least..=largest).contains(&found) {
        true => Ok(()),
        false => {
            let (found, expected) = (found.to_string(), format!("{least} to {largest}"));
            Err(ScheduleError::OutOfRange { pointer, found, expected })
        }
    }
}

impl Timing {
    /// The first due time after this moment; `None`: none comes.
    #[must_use]
    pub fn next_after(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.0 {
            Rule::Cron { cron, zone } => next_of_cron(cron, *zone, at),
            Rule::Interval { every_s, from } => {
                let passed = (at.timestamp() - from).max(0) / every_s;
                DateTime::from_timestamp(from + (passed + 1) * every_s, 0)
            }
        }
    }

    /// The next due times after this moment, by the clocks of the schedule's time zone.
    #[must_use]
    pub fn upcoming(&self, at: DateTime<Utc>, most: usize) -> Vec<DateTime<FixedOffset>> {
        let dues = std::iter::successors(self.next_after(at), |due| self.next_after(*due));
        dues.take(most).map(|due| self.local(due)).collect()
    }

    fn local(&self, due: DateTime<Utc>) -> DateTime<FixedOffset> {
        match &self.0 {
            Rule::Cron { zone, .. } => due.with_timezone(zone).fixed_offset(),
            Rule::Interval { .. } => due.fixed_offset(),
        }
    }

    /// The due times from `first`, which has passed, up to `at`. At most [`DUES_MAX`] are counted.
    #[must_use]
    pub fn passed(&self, first: DateTime<Utc>, at: DateTime<Utc>) -> PassedDues {
        let (mut latest, mut skipped) = (first, 0);
        while skipped < DUES_MAX
            && let Some(due) = self.next_after(latest).filter(|due| *due <= at)
        {
            (latest, skipped) = (due, skipped + 1);
        }
        PassedDues { latest, skipped, next: self.next_after(at.max(latest)) }
    }
}

/// The first due time of a cron expression after this moment.
fn next_of_cron(cron: &Cron, zone: Tz, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
    // croner keeps a fraction of a second
    let at = DateTime::from_timestamp(at.timestamp(), 0)?;
    let after = |at: DateTime<Utc>| {
        let next = cron.find_next_occurrence(&at.with_timezone(&zone), false).ok()?;
        Some(next.with_timezone(&Utc))
    };
    // from inside a repeated hour croner 3.0 goes back to the first one
    let by_clock = std::iter::successors(after(at), |next| after(*next)).take(REPEATED_MAX).find(|next| *next > at);
    match cron.determine_job_type() {
        JobType::FixedTime => by_clock,
        // croner 3.0 leaves the repeated hour out, where the wildcards of its documentation fire again
        JobType::IntervalWildcard => [next_of_wildcards(cron, zone, at), by_clock].into_iter().flatten().min(),
    }
}

/// The first due time of wildcards after this moment: the clock goes on at its offset from UTC, and at each change of the
/// offset it goes on at the new one.
fn next_of_wildcards(cron: &Cron, zone: Tz, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let offset = |at: DateTime<Utc>| at.with_timezone(&zone).offset().fix();
    let (mut from, mut is_from_due) = (at, false);
    for _ in 0..OFFSETS_MAX {
        let local = from.with_timezone(&offset(from));
        let next = cron.find_next_occurrence(&local, is_from_due).ok()?.with_timezone(&Utc);
        if offset(next) == offset(from) {
            return Some(next);
        }
        // the change is after `same` and not after `other`
        let (mut same, mut other) = (from.timestamp(), next.timestamp());
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            let is_same = DateTime::from_timestamp(middle, 0).is_some_and(|middle| offset(middle) == offset(from));
            if is_same { same = middle } else { other = middle }
        }
        (from, is_from_due) = (DateTime::from_timestamp(other, 0)?, true);
    }
    None
}

/// The wish of a pipeline for the round of a firing. `seen_qps` is its mean load; `None`: it is unknown, and so is the
/// demand if the schedule names none.
#[must_use]
pub fn scheduled_input(spec: PipelineSpec, replan: &ScheduledReplan, seen_qps: Option<f64>) -> Option<ReplanInput> {
    let settings = spec.replan.clone().unwrap_or_default();
    let from_load = || seen_qps.map(|qps| (qps * replan.headroom.unwrap_or(settings.headroom)).max(settings.min_qps));
    let demand_qps = replan.demand_qps.or_else(from_load)?;
    let is_advice = settings.mode == ReplanMode::Advisory.name();
    Some(ReplanInput {
        demand_qps,
        // The plan must serve all of this demand, or it goes.
        keep_qps: demand_qps,
        loads: std::iter::once(seen_qps.unwrap_or(demand_qps)).collect(),
        on_better_plan: if is_advice { OnBetterPlan::Advise } else { OnBetterPlan::Apply },
        may_improve: true,
        missed: None,
        ladder_factor: 1.0,
        spec,
    })
}

/// The mean load over the seconds from the first report to `to`; `None` without a report. A row is a second with its
/// arrivals, and seconds without arrivals have none.
#[must_use]
pub fn mean_qps(rows: &[(i64, i64)], to: i64) -> Option<f64> {
    let first = rows.iter().map(|(second, _)| *second).min()?;
    let offered: i64 = rows.iter().map(|(_, offered)| offered.max(&0)).sum();
    Some(offered as f64 / (to - first).max(1) as f64)
}

#[cfg(test)]
mod tests;
