//! Do variants in service take the times of their profile, and make as many queries as it says?
//!
//! Example: by its profile a batch of `read-s` on `t4` takes 10 ms. In three windows of 5 s in a row it took 13 ms. That is
//! a drift of 1.30, and plans count with it. When the batches take 10 ms again for three windows, the drift is over.
//!
//! - A window has the batches of all agents, and enough of them ([`FigureKind::count_min`]). Where little is served, a
//!   window is longer.
//! - One disturbed agent makes no drift: the ratio is that on which the agents agree ([`MeasuredWindow::ratio`]).
//! - A drift begins beyond one band and ends within a narrower one, so that a ratio at the limit makes one event.
//! - A prior of some queries that behaved as the profile says is added to a measured fan-out.

use chrono::{DateTime, Utc};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// Length of a period, in seconds. Sums are kept by period. Agents report each second, so a period has several reports of
/// each.
pub const PERIOD_S: i64 = 5;
/// Windows in a row that must agree. With the period in which the change began and the delay of reports, a drift is known
/// after at most 23 s: `(WINDOWS + 1) * PERIOD_S` and 3 s.
pub const WINDOWS: usize = 3;
/// Most periods of one window. A variant that runs fewer batches than [`FigureKind::count_min`] in 30 s is not judged.
pub const WINDOW_PERIODS_MAX: i64 = 6;
/// Most periods that a judgement reads.
pub const HISTORY_PERIODS_MAX: i64 = WINDOWS as i64 * WINDOW_PERIODS_MAX;
/// A drift that was not measured for this many periods is over: 15 minutes. Plans may have left the variant because of the
/// drift, and only a variant that serves can show that it has recovered.
pub const UNMEASURED_PERIODS_MAX: i64 = 15 * 60 / PERIOD_S;

/// A drift begins if the ratio is further from 1 than this. Profiles are medians of a calm device, and means in service are
/// up to a tenth above them without any fault.
const BEGIN_BAND: f64 = 0.15;
/// A drift ends if the ratio is within this distance of 1.
const END_BAND: f64 = 0.10;
/// A drift has another factor if the ratio is further from its factor than this part of it.
const CHANGE_BAND: f64 = 0.10;
/// Fewest batches of a window.
const BATCHES_MIN: u64 = 5;
/// Fewest queries of a window. Their Poisson error is then a seventh of their mean, for one child each.
const QUERIES_MIN: u64 = 50;
/// Batches whose mean is no further from the profile do not drift, in milliseconds. A thread wakes that late on a machine
/// with other work.
const DIFFERENCE_MS_MIN: f64 = 0.5;
/// A fan-out differs from the profile's beyond this many standard deviations of a Poisson count, or of the profile's
/// distribution if that is wider.
const DEVIATIONS: f64 = 3.0;
/// Queries of the prior.
const PRIOR_QUERIES: f64 = 20.0;
/// Smallest factor.
const FACTOR_MIN: f64 = 0.01;
/// Largest factor. Beyond it a variant is broken rather than slow.
const FACTOR_MAX: f64 = 100.0;
/// The part of the work beyond which no minority decides. Of five agents with equal work three decide, and of two agents
/// only both.
const MINORITY: f64 = 0.45;

/// The kinds of figures of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FigureKind {
    /// Time of a batch of a variant on a hardware type.
    Latency,
    /// Queries that one query of a variant makes at a child task.
    Fanout,
}

impl FigureKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Fanout];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Fanout => "fanout",
        }
    }

    /// The kind with this word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Fewest batches, or queries, of a window.
    #[must_use]
    pub fn count_min(self) -> u64 {
        match self {
            Self::Latency => BATCHES_MIN,
            Self::Fanout => QUERIES_MIN,
        }
    }
}

/// A figure of a pipeline's profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileFigure {
    /// Its kind.
    pub kind: FigureKind,
    /// The variant's task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type of a latency, or the child task of a fan-out.
    pub at: String,
}

impl fmt::Display for ProfileFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, variant, at, .. } = self;
        match kind {
            FigureKind::Latency => write!(f, "{variant} on {at}"),
            FigureKind::Fanout => write!(f, "{variant} towards {at}"),
        }
    }
}

/// What one agent measured of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPart {
    /// The agent's stream.
    pub session: Uuid,
    /// Batches of a latency, queries of a fan-out.
    pub count: u64,
    /// Their time in milliseconds, or their children.
    pub measured: f64,
    /// The same by the profile, above 0.
    pub expected: f64,
    /// Variance of `measured` by chance: of children, by their distribution in the profile; 0 for a latency.
    pub variance: f64,
}

/// What all agents measured of a figure in one period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeriodSums {
    /// Number of the period since the epoch.
    pub period: i64,
    /// By agent.
    pub parts: Vec<MeasuredPart>,
}

/// What all agents measured of a figure in some periods in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredWindow {
    /// Its first period.
    pub begin: i64,
    /// The period after its last one.
    pub end: i64,
    /// Sums by agent.
    parts: Vec<MeasuredPart>,
}

impl MeasuredWindow {
    /// The window of the periods from `begin` (included) to `end` (excluded).
    #[must_use]
    pub fn of(periods: &[PeriodSums], begin: i64, end: i64) -> Self {
        let mut parts: BTreeMap<Uuid, MeasuredPart> = BTreeMap::new();
        for part in periods.iter().filter(|of| (begin..end).contains(&of.period)).flat_map(|of| &of.parts) {
            let none = MeasuredPart { session: part.session, count: 0, measured: 0.0, expected: 0.0, variance: 0.0 };
            let sum = parts.entry(part.session).or_insert(none);
            sum.count += part.count;
            sum.measured += part.measured;
            sum.expected += part.expected;
            sum.variance += part.variance;
        }
        Self { begin, end, parts: parts.into_values().filter(|part| part.expected > 0.0).collect() }
    }

    /// Batches of a latency, queries of a fan-out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// Mean per batch in milliseconds, or per query; none without any.
    #[must_use]
    pub fn measured_mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.measured() / self.count() as f64)
    }

    /// The same by the profile.
    #[must_use]
    pub fn expected_mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.expected() / self.count() as f64)
    }

    fn measured(&self) -> f64 {
        self.parts.iter().map(|part| part.measured).sum()
    }

    fn expected(&self) -> f64 {
        self.parts.iter().map(|part| part.expected).sum()
    }

    /// Measured over expected, as the agents agree on it; 1 without a measurement.
    ///
    /// Example: of two agents with equal work one takes 1.6 times the profile, and the other takes its time. They agree on
    /// no drift, so the ratio is 1. If both take 1.3 and 1.6 times the profile, it is 1.3.
    ///
    /// Rule: agents are weighted by their expected work. The ratio is the value nearest to 1 between the quantiles 0.45 and
    /// 0.55 of the agents' ratios.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let (low, high) = (self.quantile(MINORITY), self.quantile(1.0 - MINORITY));
        match (low, high) {
            (Some(low), Some(high)) => 1.0_f64.clamp(low, high),
            _ => 1.0,
        }
    }

    /// The smallest ratio of an agent such that agents with at most that ratio have this part of the expected work.
    fn quantile(&self, part: f64) -> Option<f64> {
        let mut ratios: Vec<(f64, f64)> = self.parts.iter().map(|of| (of.measured / of.expected, of.expected)).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Sums of fractions may miss an equal part by their rounding.
        let wanted = part * self.expected() * (1.0 - 1e-9);
        let mut work = 0.0;
        let reaches = |&&(_, expected): &&(f64, f64)| {
            work += expected;
            work >= wanted
        };
        ratios.iter().find(reaches).or(ratios.last()).map(|(ratio, _)| *ratio)
    }

    /// Whether the difference is more than noise.
    fn is_noticeable(&self, kind: FigureKind) -> bool {
        let difference = (self.measured() - self.expected()).abs();
        match kind {
            FigureKind::Latency => difference > DIFFERENCE_MS_MIN * self.count() as f64,
            FigureKind::Fanout => {
                let variance: f64 = self.parts.iter().map(|part| part.variance).sum();
                difference > DEVIATIONS * variance.max(self.measured()).sqrt()
            }
        }
    }

    /// The side of `of` on which the ratio is, if it is further from it than this part of it.
    fn side(&self, of: f64, band: f64) -> Ordering {
        match self.ratio() / of {
            ratio if ratio > 1.0 + band => Ordering::Greater,
            ratio if ratio < 1.0 - band => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// The factor that a plan uses: with the prior of a fan-out, and rounded to two digits after the point.
    fn factor(&self, kind: FigureKind) -> f64 {
        let ratio = match (kind, self.expected_mean()) {
            (FigureKind::Fanout, Some(mean)) => {
                let prior = PRIOR_QUERIES * mean;
                (self.ratio() * self.expected() + prior) / (self.expected() + prior)
            }
            _ => self.ratio(),
        };
        (ratio.clamp(FACTOR_MIN, FACTOR_MAX) * 100.0).round() / 100.0
    }
}

/// The last windows with enough batches or queries before the period `until`, the newest first: at most [`WINDOWS`], and
/// without gaps between them.
#[must_use]
pub fn last_windows(kind: FigureKind, periods: &[PeriodSums], until: i64) -> Vec<MeasuredWindow> {
    let window_before = |end: i64| {
        let mut longer = (1..=WINDOW_PERIODS_MAX).map(|length| MeasuredWindow::of(periods, end - length, end));
        longer.find(|window| window.count() >= kind.count_min())
    };
    let newest = window_before(until);
    std::iter::successors(newest, |later| window_before(later.begin)).take(WINDOWS).collect()
}

/// A figure of a pipeline that differs from its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileDrift {
    /// The pipeline.
    pub pipeline: String,
    /// The figure.
    pub figure: ProfileFigure,
    /// Measured over profile, rounded to two digits after the point. Plans multiply the profile by it.
    pub factor: f64,
    /// Mean of the profile over what was run: milliseconds for each batch, or queries for each query.
    pub profile: f64,
    /// The same as it was measured.
    pub measured: f64,
    /// When its first window began.
    pub since: DateTime<Utc>,
}

impl ProfileDrift {
    /// The drift in a sentence without its end, for example `read-s on t4 takes 1.30 times its profile`.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { figure, factor, .. } = self;
        let ProfileFigure { kind, variant, at, .. } = figure;
        match kind {
            FigureKind::Latency => format!("{variant} on {at} takes {factor:.2} times its profile"),
            FigureKind::Fanout => format!("{variant} makes {factor:.2} times the queries of its profile at {at}"),
        }
    }
}

/// Why a drift is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftEnd {
    /// The figure is near its profile again.
    Recovered,
    /// Nothing was measured of it for [`UNMEASURED_PERIODS_MAX`].
    Unmeasured,
    /// Its profile is another one, or there is none.
    ProfileChanged,
}

impl DriftEnd {
    /// The end in a sentence without a full stop.
    #[must_use]
    pub fn describe(self, figure: &ProfileFigure) -> String {
        match self {
            Self::Recovered => format!("{figure} is as its profile says again"),
            Self::Unmeasured => {
                format!("{figure} was not measured for {} s: its profile counts", UNMEASURED_PERIODS_MAX * PERIOD_S)
            }
            Self::ProfileChanged => format!("{figure} has another profile"),
        }
    }
}

/// A drift in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftNumbers {
    /// Measured over profile, rounded to two digits after the point.
    pub factor: f64,
    /// Mean of the profile.
    pub profile: f64,
    /// Measured mean.
    pub measured: f64,
    /// The first period of its windows.
    pub begin: i64,
}

/// What becomes of a drift.
#[derive(Clone, Debug, PartialEq)]
pub enum DriftChange {
    /// It begins.
    Begun(DriftNumbers),
    /// It has another factor.
    Changed(DriftNumbers),
    /// It is over.
    Over(DriftEnd),
}

/// Judges the last windows of a figure. `known` is the factor of its drift, if it has one. Fewer than [`WINDOWS`] windows
/// say nothing.
#[must_use]
pub fn judge(kind: FigureKind, windows: &[MeasuredWindow], known: Option<f64>) -> Option<DriftChange> {
    let (newest, oldest) = (windows.first()?, windows.last()?);
    if windows.len() < WINDOWS {
        return None;
    }
    let side_of_all = |side: &dyn Fn(&MeasuredWindow) -> Ordering| {
        let first = side(newest);
        if windows.iter().all(|window| side(window) == first) { first } else { Ordering::Equal }
    };
    let all = joined(windows, oldest.begin, newest.end);
    let numbers = || {
        let (profile, measured) = (all.expected_mean()?, all.measured_mean()?);
        Some(DriftNumbers { factor: all.factor(kind), profile, measured, begin: oldest.begin })
    };
    let Some(factor) = known else {
        let is_beyond = side_of_all(&|window: &MeasuredWindow| window.side(1.0, BEGIN_BAND)) != Ordering::Equal;
        let is_noticeable = windows.iter().all(|window| window.is_noticeable(kind));
        return (is_beyond && is_noticeable).then(numbers)?.map(DriftChange::Begun);
    };
    if windows.iter().all(|window| window.side(1.0, END_BAND) == Ordering::Equal) {
        return Some(DriftChange::Over(DriftEnd::Recovered));
    }
    let is_other = side_of_all(&|window: &MeasuredWindow| window.side(factor, CHANGE_BAND)) != Ordering::Equal;
    let numbers = is_other.then(numbers)?;
    numbers.filter(|numbers| (numbers.factor - factor).abs() > 1e-9).map(DriftChange::Changed)
}

/// One window of these.
fn joined(windows: &[MeasuredWindow], begin: i64, end: i64) -> MeasuredWindow {
    let periods: Vec<PeriodSums> =
        windows.iter().map(|window| PeriodSums { period: window.begin, parts: window.parts.clone() }).collect();
    MeasuredWindow::of(&periods, begin, end)
}

/// What all agents measured of a figure in its last windows; none without enough batches or queries.
#[must_use]
pub fn last_measured(kind: FigureKind, periods: &[PeriodSums], until: i64) -> Option<MeasuredWindow> {
    let windows = last_windows(kind, periods, until);
    Some(joined(&windows, windows.last()?.begin, windows.first()?.end))
}

#[cfg(test)]
mod tests;
