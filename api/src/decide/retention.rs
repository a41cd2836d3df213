//! For how long are rows kept?
//!
//! Example: plans are kept for 30 days. A plan that ended 31 days ago is deleted, unless it is in force, or a kept target,
//! a kept decision or an advice refers to it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Longest time for which rows may be kept, but arrivals and sums: ten years.
pub const KEPT_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// Longest time for which arrivals may be kept. They are one row for each pipeline and second.
pub const ARRIVALS_KEPT_MAX: Duration = Duration::from_secs(31 * 86_400);
/// Shortest time for which arrivals are kept: a promise is judged by the last hour.
pub const ARRIVALS_KEPT_MIN: Duration = Duration::from_secs(2 * 3_600);
/// Longest time for which the sums behind a drift may be kept.
pub const SUMS_KEPT_MAX: Duration = DAY;
/// Shortest time for which the sums behind a drift are kept: a judgement reads the last 90 s.
pub const SUMS_KEPT_MIN: Duration = Duration::from_secs(300);
/// The newest targets are kept whatever their age, for a rollback.
pub const TARGETS_KEPT_MIN: i64 = 100;
/// Seconds of one partition of arrivals, as in `migrations/0047_retention.sql`.
pub const PARTITION_S: i64 = 6 * 3_600;
/// Partitions of arrivals that are made ahead: two days, during which no process needs to lead.
pub const PARTITIONS_AHEAD: i64 = 8;

/// A kind of rows that are deleted by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// Requests of each pipeline and second.
    Arrivals,
    /// The sums behind drifts.
    Sums,
    /// Decisions of replanning.
    Decisions,
    /// Events. They are all that webhooks still have to deliver.
    Events,
    /// Who asked for which change.
    Audit,
    /// Former targets.
    Targets,
    /// Plans that have ended.
    Plans,
    /// Simulations, frontiers, comparisons and profile jobs that have ended.
    Analyses,
    /// Firings of schedules.
    Firings,
    /// Machines that have ended.
    Machines,
    /// Agents that are lost or have left, with the times that they measured.
    Agents,
    /// Tokens that were revoked or have expired.
    Tokens,
}

impl RowKind {
    /// All of them. Rows that refer to plans come before plans.
    pub const ALL: [Self; 12] = [
        Self::Arrivals,
        Self::Sums,
        Self::Decisions,
        Self::Events,
        Self::Audit,
        Self::Targets,
        Self::Plans,
        Self::Analyses,
        Self::Firings,
        Self::Machines,
        Self::Agents,
        Self::Tokens,
    ];

    /// Its name in metrics and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrivals => "arrivals",
            Self::Sums => "sums",
            Self::Decisions => "decisions",
            Self::Events => "events",
            Self::Audit => "audit",
            Self::Targets => "targets",
            Self::Plans => "plans",
            Self::Analyses => "analyses",
            Self::Firings => "firings",
            Self::Machines => "machines",
            Self::Agents => "agents",
            Self::Tokens => "tokens",
        }
    }

    /// The time for which its rows are kept, unless a setting says otherwise.
    #[must_use]
    pub fn kept_usually(self) -> Duration {
        match self {
            Self::Arrivals => DAY,
            Self::Sums => Duration::from_secs(600),
            // The audit names tokens by their identifiers.
            Self::Audit | Self::Tokens => 400 * DAY,
            _ => 30 * DAY,
        }
    }

    /// The times that a setting may say.
    #[must_use]
    pub fn permitted(self) -> RangeInclusive<Duration> {
        match self {
            Self::Arrivals => ARRIVALS_KEPT_MIN..=ARRIVALS_KEPT_MAX,
            Self::Sums => SUMS_KEPT_MIN..=SUMS_KEPT_MAX,
            _ => HOUR..=KEPT_MAX,
        }
    }
}

/// Why a policy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// Rows cannot be kept for this time.
    #[error(
        "--keep-{name}: {found} s: expected {least} s to {most} s, for example 12h or 30days",
        name = .kind.name(),
        found = .kept.as_secs(),
        least = .kind.permitted().start().as_secs(),
        most = .kind.permitted().end().as_secs()
    )]
    Kept {
        /// The kind of rows.
        kind: RowKind,
        /// The time.
        kept: Duration,
    },
}

/// For how long the rows of each kind are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPolicy(BTreeMap<RowKind, Duration>);

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self(RowKind::ALL.into_iter().map(|kind| (kind, kind.kept_usually())).collect())
    }
}

impl RetentionPolicy {
    /// The same policy with another time for one kind.
    ///
    /// # Errors
    /// If the time is not permitted.
    pub fn with(mut self, kind: RowKind, kept: Duration) -> Result<Self, RetentionError> {
        if !kind.permitted().contains(&kept) {
            return Err(RetentionError::Kept { kind, kept });
        }
        self.0.insert(kind, kept);
        Ok(self)
    }

    /// The time for which the rows of a kind are kept.
    #[must_use]
    pub fn kept(&self, kind: RowKind) -> Duration {
        self.0.get(&kind).copied().unwrap_or_else(|| kind.kept_usually())
    }
}

/// The seconds of a partition of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpan {
    /// The first one.
    pub begins: i64,
    /// The one after the last.
    pub ends: i64,
}

/// The partitions that arrivals need from the second `now` on, the present one included.
#[must_use]
pub fn partitions_from(now: i64) -> Vec<PartitionSpan> {
    let first = now.div_euclid(PARTITION_S) * PARTITION_S;
    let begins = (0..=PARTITIONS_AHEAD).map(|number| first + number * PARTITION_S);
    begins.map(|begins| PartitionSpan { begins, ends: begins + PARTITION_S }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn usual_times_are_permitted_and_names_are_unique() {
        let mut names = BTreeSet::new();
        for kind in RowKind::ALL {
            let policy = RetentionPolicy::default().with(kind, kind.kept_usually());
            assert_eq!(policy, Ok(RetentionPolicy::default()), "{}", kind.name());
            names.insert(kind.name());
        }
        assert_eq!(names.len(), RowKind::ALL.len());
    }

    #[test]
    fn times_outside_the_limits_are_refused_with_their_setting() {
        for kind in RowKind::ALL {
            let (least, most) = kind.permitted().into_inner();
            for kept in [least, most] {
                let policy = RetentionPolicy::default().with(kind, kept).expect("a limit is permitted");
                assert_eq!(policy.kept(kind), kept);
            }
            let second = Duration::from_secs(1);
            for kept in [least - second, most + second] {
                let error = RetentionPolicy::default().with(kind, kept).expect_err("it is outside");
                assert!(error.to_string().starts_with(&format!("--keep-{}: ", kind.name())), "{error}");
            }
        }
    }

    #[test]
    fn partitions_follow_each_other_from_the_present_one() {
        let spans = partitions_from(10 * PARTITION_S + 5);
        assert_eq!(spans.len() as i64, PARTITIONS_AHEAD + 1);
        assert_eq!((spans[0].begins, spans[0].ends), (10 * PARTITION_S, 11 * PARTITION_S));
        assert!(spans.windows(2).all(|pair| pair[0].ends == pair[1].begins));
        assert_eq!(partitions_from(10 * PARTITION_S), spans, "a partition begins with its first second");
    }
}
