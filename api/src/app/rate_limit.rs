//! Does a client send more requests than its limit allows? Time is an argument.
//!
//! Each client has a bucket. Example: with 10 requests per second and a burst of 20, a client that was silent may send 20
//! requests at once, and one more each tenth of a second. A bucket is the moment at which it is full again (the generic
//! cell rate algorithm, ITU-T I.371): one number, and the same decisions as a count of tokens.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Duration;

/// Most clients with a bucket. One more takes the place of the client that has sent the least.
pub const CLIENTS_MAX: usize = 4_096;

/// The requests that one client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per second, as a mean over a long time.
    pub requests_per_s: NonZero<u32>,
    /// Most requests at once, after a pause.
    pub burst_max: NonZero<u32>,
}

impl RateLimit {
    /// 1,000 requests per second, and 10,000 at once: more than a person, a page or a scraper sends.
    pub const DEFAULT: Self =
        Self { requests_per_s: NonZero::new(1_000).expect("not zero"), burst_max: NonZero::new(10_000).expect("not zero") };

    /// The time in which a bucket gets one request back.
    fn refill(self) -> Duration {
        Duration::from_secs(1) / self.requests_per_s.get()
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    /// It is served.
    Served,
    /// It is refused. The same request is served after this time, if the client sends none before.
    Refused {
        /// Until the next request, above 0.
        retry_after: Duration,
    },
}

/// The bucket of one client.
#[derive(Clone, Copy, Debug, Default)]
struct RateBucket {
    /// The moment at which it is full again; full is the state of a new bucket.
    full_at: Duration,
}

impl RateBucket {
    fn take(&mut self, limit: RateLimit, now: Duration) -> RateDecision {
        let full_at = self.full_at.max(now) + limit.refill();
        let retry_after = full_at.saturating_sub(now + limit.refill() * limit.burst_max.get());
        if retry_after.is_zero() {
            self.full_at = full_at;
            return RateDecision::Served;
        }
        RateDecision::Refused { retry_after }
    }
}

/// The buckets of all clients. `K` is the identity of a client.
#[derive(Debug)]
pub struct RateBuckets<K> {
    limit: RateLimit,
    buckets: BTreeMap<K, RateBucket>,
}

impl<K: Ord + Clone> RateBuckets<K> {
    /// A full bucket for each client.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        Self { limit, buckets: BTreeMap::new() }
    }

    /// Decides on a request that comes now. `now` never goes back.
    pub fn take(&mut self, client: K, now: Duration) -> RateDecision {
        if self.buckets.len() >= CLIENTS_MAX && !self.buckets.contains_key(&client) {
            self.make_room(now);
        }
        self.buckets.entry(client).or_default().take(self.limit, now)
    }

    /// Forgets full buckets, which are as new ones. If there are none, forgets the one that is full first.
    fn make_room(&mut self, now: Duration) {
        self.buckets.retain(|_, bucket| bucket.full_at > now);
        if self.buckets.len() >= CLIENTS_MAX {
            let first = self.buckets.iter().min_by_key(|(_, bucket)| bucket.full_at).map(|(client, _)| client.clone());
            if let Some(client) = first {
                self.buckets.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(requests_per_s: u32, burst_max: u32) -> RateLimit {
        let number = |n| NonZero::new(n).expect("not zero");
        RateLimit { requests_per_s: number(requests_per_s), burst_max: number(burst_max) }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// How many of `requests` at one moment are served.
    fn served(buckets: &mut RateBuckets<&'static str>, client: &'static str, requests: usize, now: Duration) -> usize {
        (0..requests).filter(|_| buckets.take(client, now) == RateDecision::Served).count()
    }

    #[test]
    fn a_burst_is_served_and_then_the_rate() {
        let mut buckets = RateBuckets::new(limit(10, 3));
        assert_eq!(served(&mut buckets, "a", 9, ms(5_000)), 3);
        assert_eq!(served(&mut buckets, "a", 9, ms(5_099)), 0);
        assert_eq!(served(&mut buckets, "a", 9, ms(5_100)), 1);
        assert_eq!(served(&mut buckets, "a", 9, ms(5_350)), 2, "half a request is kept");
        assert_eq!(served(&mut buckets, "a", 9, ms(5_400)), 1);
        assert_eq!(served(&mut buckets, "a", 9, ms(60_000)), 3, "a bucket is never more than full");
    }

    #[test]
    fn a_refusal_says_when_the_next_request_is_served() {
        let mut buckets = RateBuckets::new(limit(4, 2));
        assert_eq!(served(&mut buckets, "a", 2, ms(100)), 2);
        assert_eq!(buckets.take("a", ms(200)), RateDecision::Refused { retry_after: ms(150) });
        assert_eq!(buckets.take("a", ms(349)), RateDecision::Refused { retry_after: ms(1) });
        assert_eq!(buckets.take("a", ms(350)), RateDecision::Served, "refusals cost nothing");
    }

    #[test]
    fn clients_do_not_share_a_bucket() {
        let mut buckets = RateBuckets::new(limit(1, 2));
        assert_eq!(served(&mut buckets, "a", 5, ms(0)), 2);
        assert_eq!(served(&mut buckets, "b", 5, ms(0)), 2);
    }

    #[test]
    fn the_mean_rate_is_the_limit() {
        let mut buckets = RateBuckets::new(limit(7, 1));
        let sent = (0..10_000).filter(|step| buckets.take("a", ms(*step)) == RateDecision::Served).count();
        assert!((69..=71).contains(&sent), "{sent} in ten seconds");
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let mut buckets = RateBuckets::new(limit(1, 2));
        for client in 0..CLIENTS_MAX {
            buckets.take(client, ms(0));
        }
        buckets.take(0, ms(0));
        buckets.take(CLIENTS_MAX, ms(0));
        assert_eq!(buckets.buckets.len(), CLIENTS_MAX, "one made room");
        assert!(matches!(buckets.take(0, ms(0)), RateDecision::Refused { .. }), "the busiest client is remembered");
        buckets.take(CLIENTS_MAX + 1, ms(60_000));
        assert_eq!(buckets.buckets.len(), 1, "full buckets are as new ones");
    }
}
