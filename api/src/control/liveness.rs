//! Pure: when agents and processes were heard of, in; who is silent, out.
//!
//! Every moment is one of this process' monotonic clock, so no clock is ever compared with another. Silence counts only while
//! this process itself was awake: after a gap of its own (it was stopped, its machine slept, the database stalled)
//! everybody first gets the time to be heard again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// An agent that was not heard of for so long is lost: three reports have not come.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
/// An agent whose stream broke off and that has not come back for so long is lost. One that lives comes back within a fifth of
/// a second; one that was killed never does, and its queries wait for another replica meanwhile.
pub const BROKEN_MAX: Duration = Duration::from_millis(500);
/// The longest pause of an agent between two attempts to come back.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Who looks around this late was not awake. Turns are a quarter of a second apart.
const GAP_MAX: Duration = Duration::from_secs(1);
/// A process that was not heard of for so long is lost, and with it the agents that have not come to another one by then.
pub const PROCESS_SILENCE_MAX: Duration = SILENCE_MAX.saturating_add(BACKOFF_MAX);

/// Whether somebody may be judged now.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    looked: Instant,
    until: Instant,
    is_gap: bool,
}

impl Patience {
    /// Judges at once: there is nobody yet.
    #[must_use]
    pub fn none(at: Instant) -> Self {
        Self { looked: at, until: at, is_gap: false }
    }

    /// Waits first: nothing is known of the time before.
    #[must_use]
    pub fn long(at: Instant) -> Self {
        Self { until: at + grace(BACKOFF_MAX), ..Self::none(at) }
    }

    /// Must be told each time that its owner looks around; answers whether nobody may be judged.
    pub fn look(&mut self, at: Instant) -> bool {
        let gap = at.saturating_duration_since(self.looked);
        self.is_gap = gap > GAP_MAX;
        if self.is_gap {
            self.until = self.until.max(at + grace(gap));
        }
        self.looked = at;
        at < self.until
    }

    /// Whether its owner was not awake before it looked around last.
    #[must_use]
    pub fn is_gap(&self) -> bool {
        self.is_gap
    }
}

/// After a gap everybody may take as long as is usual to be heard of, and before that as long as the pause between attempts can
/// have become meanwhile: it doubles from attempt to attempt.
fn grace(gap: Duration) -> Duration {
    SILENCE_MAX + gap.min(BACKOFF_MAX)
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    heard: Instant,
    /// Since when it is broken off, if it is.
    broken: Option<Instant>,
    is_news: bool,
}

/// The streams that this process holds, and those that broke off and may come back.
#[derive(Clone, Debug, Default)]
pub struct Streams(BTreeMap<Uuid, Stream>);

impl Streams {
    /// A stream has begun.
    pub fn begin(&mut self, session: Uuid, at: Instant) {
        self.0.insert(session, Stream { heard: at, broken: None, is_news: false });
    }

    /// Something was heard on a stream.
    pub fn heard(&mut self, session: Uuid, at: Instant) {
        if let Some(stream) = self.0.get_mut(&session) {
            (stream.heard, stream.is_news) = (at, true);
        }
    }

    /// A stream broke off: its agent may live.
    pub fn break_off(&mut self, session: Uuid, at: Instant) {
        if let Some(stream) = self.0.get_mut(&session) {
            stream.broken = Some(at);
        }
    }

    /// Nothing more is to be said of a stream.
    pub fn forget(&mut self, session: Uuid) {
        self.0.remove(&session);
    }

    /// Whether a stream of this process broke off.
    #[must_use]
    pub fn is_broken(&self, session: Uuid) -> bool {
        self.0.get(&session).is_some_and(|stream| stream.broken.is_some())
    }

    /// Streams heard of since this was asked last, and how long ago that was.
    pub fn news(&mut self, at: Instant) -> Vec<(Uuid, Duration)> {
        let news = self.0.iter_mut().filter_map(|(session, stream)| {
            std::mem::take(&mut stream.is_news).then(|| (*session, at.saturating_duration_since(stream.heard)))
        });
        news.collect()
    }

    /// Streams whose agents are lost, if anybody may be judged.
    #[must_use]
    pub fn silent(&self, at: Instant) -> Vec<Uuid> {
        let is_over = |since: Instant, most: Duration| at.saturating_duration_since(since) > most;
        let is_silent = |stream: &Stream| {
            is_over(stream.heard, SILENCE_MAX) || stream.broken.is_some_and(|since| is_over(since, BROKEN_MAX))
        };
        self.0.iter().filter(|(_, stream)| is_silent(stream)).map(|(session, _)| *session).collect()
    }
}

/// The service's processes, as one of them sees them.
#[derive(Clone, Debug, Default)]
pub struct Processes(BTreeMap<Uuid, (i64, Instant)>);

impl Processes {
    /// Takes in every process' beat; answers which of them live. One that was not known yet is taken to live.
    pub fn look(&mut self, at: Instant, beats: &[(Uuid, i64)]) -> Vec<Uuid> {
        let mut seen = BTreeMap::new();
        for &(id, beat) in beats {
            let moved = self.0.get(&id).filter(|known| known.0 == beat).map_or(at, |known| known.1);
            seen.insert(id, (beat, moved));
        }
        self.0 = seen;
        let lives = |moved: Instant| at.saturating_duration_since(moved) <= PROCESS_SILENCE_MAX;
        self.0.iter().filter(|(_, (_, moved))| lives(*moved)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Looks around each quarter of a second from `from` to `to`; answers when nobody could be judged.
    fn awake(patience: &mut Patience, begin: Instant, from: f64, to: f64) -> Vec<f64> {
        let turns = (1..).map(|turn| from + 0.25 * f64::from(turn)).take_while(|at| *at <= to);
        turns.filter(|at| patience.look(begin + s(*at))).collect()
    }

    #[test]
    fn a_gap_of_its_own_makes_a_process_patient() {
        let begin = Instant::now();
        // (length of the gap, how long nobody is judged after it)
        for (gap, patient) in [(0.25_f64, 0.0_f64), (1.0, 0.0), (1.5, 4.5), (5.0, 8.0), (600.0, 8.0)] {
            let mut patience = Patience::none(begin);
            assert!(awake(&mut patience, begin, 0.0, 10.0).is_empty());
            let woken = 10.0 + gap;
            assert_eq!(patience.look(begin + s(woken)), patient > 0.0, "a gap of {gap} s");
            assert_eq!(patience.is_gap(), patient > 0.0);
            let during = awake(&mut patience, begin, woken, woken + 20.0);
            let last = during.last().map_or(0.0, |last| last - woken);
            assert!(last < patient.max(0.1) && last >= patient - 0.5, "a gap of {gap} s: patient for {last} s");
            assert!(!patience.is_gap());
        }
    }

    #[test]
    fn a_new_leader_waits_before_it_judges() {
        let begin = Instant::now();
        let during = awake(&mut Patience::long(begin), begin, 0.0, 20.0);
        assert_eq!(during.last(), Some(&7.75));
    }

    #[test]
    fn silence_and_broken_streams_are_told_apart() {
        let begin = Instant::now();
        // (heard at, broken at, looked at, whether it is lost)
        let cases = [
            (0.0, None, 3.0, false),
            (0.0, None, 3.01, true),
            (0.0, Some(0.5), 1.0, false),
            (0.0, Some(0.5), 1.01, true),
            (9.0, None, 3.01, false),
        ];
        for (heard, broken, at, lost) in cases {
            let mut streams = Streams::default();
            streams.begin(A, begin);
            streams.heard(A, begin + s(heard));
            broken.into_iter().for_each(|broken| streams.break_off(A, begin + s(broken)));
            assert_eq!(streams.is_broken(A), broken.is_some());
            assert_eq!(streams.silent(begin + s(at)), if lost { vec![A] } else { vec![] }, "{heard} {broken:?} {at}");
        }
    }

    #[test]
    fn a_stream_is_news_once_and_forgotten_for_ever() {
        let begin = Instant::now();
        let mut streams = Streams::default();
        [A, B].into_iter().for_each(|session| streams.begin(session, begin));
        streams.heard(A, begin + s(1.0));
        assert_eq!(streams.news(begin + s(1.5)), [(A, s(0.5))]);
        assert_eq!(streams.news(begin + s(1.5)), []);
        streams.forget(A);
        streams.heard(A, begin + s(2.0));
        assert_eq!(streams.news(begin + s(2.0)), []);
        assert_eq!(streams.silent(begin + s(9.0)), [B]);
    }

    #[test]
    fn a_process_lives_while_its_beat_rises_whatever_its_clock_says() {
        let begin = Instant::now();
        let mut processes = Processes::default();
        assert_eq!(processes.look(begin, &[(A, 7), (B, 1)]), [A, B], "nothing is known against either");
        for second in 1_u32..=8 {
            let beats = [(A, 7 + i64::from(second)), (B, 1)];
            assert_eq!(processes.look(begin + s(second.into()), &beats), [A, B], "second {second}");
        }
        assert_eq!(processes.look(begin + s(8.01), &[(A, 15), (B, 1)]), [A]);
        assert_eq!(processes.look(begin + s(8.02), &[(A, 15), (B, 2)]), [A, B], "it is back");
        assert_eq!(processes.look(begin + s(8.03), &[(B, 2)]), [B], "one without a row is none");
    }
}
