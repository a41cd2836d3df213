//! Does this process still hold its lease?
//!
//! Example: the process renews a lease of 4 s, and the database answers after 0.3 s. The lease holds until 4 s after the
//! *question*: the database counts from a later moment. Without another answer the process stops by itself at that time,
//! before any other process can take the lease.

use std::time::{Duration, Instant};

/// The time for which a lease is taken. After a crash, this long nobody leads.
pub const LEASE_TIME: Duration = Duration::from_secs(4);
/// Pause between two renewals.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Pause after a renewal without an answer.
pub const RENEW_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// A renewal without an answer for this long is given up, and made again on another connection.
pub const ANSWER_MAX: Duration = Duration::from_millis(1_200);
/// Pause between two attempts to take a lease.
pub const TAKE_EVERY: Duration = Duration::from_millis(500);

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAnswer {
    /// The lease is extended.
    Extended,
    /// Another process has it.
    Gone,
    /// None came.
    None,
}

/// The next step of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderStep {
    /// Renew the lease after this pause.
    RenewAfter(Duration),
    /// Stop the work.
    Stop,
}

/// A lease as its holder sees it. Moments are of the process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct LeaseClock {
    valid_until: Instant,
}

impl LeaseClock {
    /// A lease that was asked for at `asked` and taken.
    #[must_use]
    pub fn taken(asked: Instant) -> Self {
        Self { valid_until: asked + LEASE_TIME }
    }

    /// Takes the answer to the renewal that was asked for at `asked`.
    #[must_use]
    pub fn answered(&mut self, asked: Instant, now: Instant, answer: RenewalAnswer) -> HolderStep {
        match answer {
            RenewalAnswer::Extended => self.valid_until = asked + LEASE_TIME,
            RenewalAnswer::Gone => return HolderStep::Stop,
            RenewalAnswer::None => {}
        }
        if now >= self.valid_until {
            return HolderStep::Stop;
        }
        let pause = if answer == RenewalAnswer::Extended { RENEW_EVERY } else { RENEW_AGAIN_AFTER };
        HolderStep::RenewAfter(pause.min(self.valid_until - now))
    }

    /// The time that is left at most for an answer.
    #[must_use]
    pub fn answer_within(&self, now: Instant) -> Duration {
        ANSWER_MAX.min(self.valid_until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_serving::mix::SplitMix;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_holder_without_answers_stops_before_its_lease_ends() {
        let begin = Instant::now();
        let mut clock = LeaseClock::taken(begin);
        let extended = clock.answered(begin + ms(1_000), begin + ms(1_300), RenewalAnswer::Extended);
        assert_eq!(extended, HolderStep::RenewAfter(RENEW_EVERY));
        let at = |millis: u64| begin + ms(1_000 + millis);
        let step = clock.answered(at(1_300), at(2_500), RenewalAnswer::None);
        assert_eq!(step, HolderStep::RenewAfter(RENEW_AGAIN_AFTER));
        assert_eq!(clock.answer_within(at(3_900)), ms(100));
        assert_eq!(clock.answered(at(3_900), at(4_000), RenewalAnswer::None), HolderStep::Stop);
        assert_eq!(clock.answered(at(0), at(1), RenewalAnswer::Gone), HolderStep::Stop);
    }

    /// The lease row as the database keeps it.
    #[derive(Default)]
    struct Row {
        holder: usize,
        epoch: u64,
        expires_ms: u64,
    }

    /// Three processes, with pauses, lost answers and a slow database: at any moment at most one believes that it holds the
    /// lease, and epochs only grow.
    #[test]
    fn at_most_one_process_holds_a_lease_at_any_time() {
        let mut changes = 0;
        for seed in 0..200 {
            let begin = Instant::now();
            let mut draw = SplitMix(seed);
            let mut below = |n: u64| draw.bits() % n;
            let mut row = Row::default();
            let mut held: [Option<(LeaseClock, u64)>; 3] = [None; 3];
            let mut now_ms = 0;
            for _ in 0..400 {
                now_ms += 50 + below(400);
                let process = below(3) as usize;
                // the question, its arrival at the database, and the answer, if it comes
                let (asked, arrived) = (now_ms, now_ms + below(300));
                let answered = arrived + below(300);
                now_ms = answered + if below(20) == 0 { below(9_000) } else { 0 };
                let is_lost = below(5) == 0;
                let moment = |millis| begin + ms(millis);
                match &mut held[process] {
                    Some((clock, epoch)) => {
                        let is_ours = row.holder == process && row.epoch == *epoch;
                        if is_ours {
                            row.expires_ms = arrived + LEASE_TIME.as_millis() as u64;
                        }
                        let answer = match (is_lost, is_ours) {
                            (true, _) => RenewalAnswer::None,
                            (false, true) => RenewalAnswer::Extended,
                            (false, false) => RenewalAnswer::Gone,
                        };
                        if clock.answered(moment(asked), moment(now_ms), answer) == HolderStep::Stop {
                            held[process] = None;
                        }
                    }
                    None if row.expires_ms <= arrived => {
                        row = Row {
                            holder: process,
                            epoch: row.epoch + 1,
                            expires_ms: arrived + LEASE_TIME.as_millis() as u64,
                        };
                        changes += 1;
                        held[process] = (!is_lost).then(|| (LeaseClock::taken(moment(asked)), row.epoch));
                    }
                    None => {}
                }
                let at = moment(now_ms);
                let holders = held.iter().flatten().filter(|(clock, _)| !clock.answer_within(at).is_zero());
                assert!(holders.count() <= 1, "seed {seed}: two holders at {now_ms} ms");
            }
        }
        assert!(changes > 1_000, "{changes}");
    }
}
