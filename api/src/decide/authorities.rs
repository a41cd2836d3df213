//! When does the fleet get another authority for certificates, and which one signs?
//!
//! Example: an authority is 30 days old, so another one is made. For an hour the old one signs on, and agents hear of the
//! new one. Then the new one signs. Agents trust both until the third one comes, 30 days later. No certificate of the first
//! one is as old as that.

use chrono::{DateTime, Duration, Utc};

/// Longest life of an agent's certificate, in seconds. It is shorter than the time for which an authority counts after it
/// has signed last.
pub const CERTIFICATE_LIFE_S_MAX: i64 = 7 * 24 * 3_600;
/// Days until the next authority is made.
const RENEW_AFTER_DAYS: i64 = 30;
/// Days that an authority counts: as long as two are made after it, and a while more.
const AUTHORITY_LIFE_DAYS: i64 = 90;
/// Days until the next authority is made after a restore: the backup may have been read by others.
const RENEW_AFTER_RESTORE_DAYS: i64 = 1;
/// Minutes in which agents hear of an authority before it signs.
const ANNOUNCED_MINUTES: i64 = 60;

/// When an authority signs, is followed by another one, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityTimes {
    /// From then on it signs.
    pub signs_from: DateTime<Utc>,
    /// Then the next one is made.
    pub renew_at: DateTime<Utc>,
    /// Then it ends.
    pub ends_at: DateTime<Utc>,
}

/// The times of the next authority; none while the newest one is young.
#[must_use]
pub fn next_authority(newest: Option<AuthorityTimes>, at: DateTime<Utc>) -> Option<AuthorityTimes> {
    if newest.is_some_and(|newest| at < newest.renew_at) {
        return None;
    }
    // One that is about to end, or has ended, signs no certificate that counts.
    let signs_on = newest.is_some_and(|newest| at + Duration::seconds(CERTIFICATE_LIFE_S_MAX) < newest.ends_at);
    let announced = if signs_on { Duration::minutes(ANNOUNCED_MINUTES) } else { Duration::zero() };
    Some(times(at, at + announced, RENEW_AFTER_DAYS))
}

/// The times of the authority that a restored database gets.
#[must_use]
pub fn restored_authority(at: DateTime<Utc>) -> AuthorityTimes {
    times(at, at, RENEW_AFTER_RESTORE_DAYS)
}

fn times(at: DateTime<Utc>, signs_from: DateTime<Utc>, renew_after_days: i64) -> AuthorityTimes {
    let after = |days: i64| at + Duration::days(days);
    AuthorityTimes { signs_from, renew_at: after(renew_after_days), ends_at: after(AUTHORITY_LIFE_DAYS) }
}

/// The position of the authority that signs, among those that count, the newest first.
#[must_use]
pub fn signing_authority(newest_first: &[AuthorityTimes], at: DateTime<Utc>) -> Option<usize> {
    let signs = newest_first.iter().position(|times| times.signs_from <= at);
    signs.or_else(|| newest_first.len().checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::days(day)
    }

    #[test]
    fn an_authority_is_announced_before_it_signs() {
        let first = next_authority(None, day(0)).expect("there is none");
        assert_eq!((first.signs_from, first.renew_at, first.ends_at), (day(0), day(30), day(90)));
        assert_eq!(next_authority(Some(first), day(29)), None);
        let second = next_authority(Some(first), day(30)).expect("the first one is old");
        assert_eq!(second.signs_from, day(30) + Duration::hours(1));
        let both = [second, first];
        assert_eq!(signing_authority(&both, day(30)), Some(1));
        assert_eq!(signing_authority(&both, day(30) + Duration::hours(1)), Some(0));
        assert_eq!(signing_authority(&[], day(30)), None);
    }

    #[test]
    fn a_fleet_whose_authority_has_ended_gets_one_that_signs_at_once() {
        let first = next_authority(None, day(0)).expect("there is none");
        for (asleep_days, waits) in [(82, true), (83, false), (400, false)] {
            let next = next_authority(Some(first), day(asleep_days)).expect("the first one is old");
            assert_eq!(next.signs_from > day(asleep_days), waits, "after {asleep_days} days");
        }
    }

    #[test]
    fn a_restored_fleet_gets_another_authority_soon() {
        let restored = restored_authority(day(10));
        assert_eq!((restored.signs_from, restored.renew_at), (day(10), day(11)));
        assert!(next_authority(Some(restored), day(11)).is_some());
        let never_signed = AuthorityTimes { signs_from: day(12), ..restored };
        assert_eq!(signing_authority(&[never_signed], day(11)), Some(0), "one is better than none");
    }
}
