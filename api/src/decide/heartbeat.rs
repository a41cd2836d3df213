//! Which agents and service processes are silent for too long?
//!
//! Every moment is one of this process's monotonic clock, so no two clocks are ever compared. A process that was itself
//! suspended (or whose database stalled) judges nobody at first: all others get time to send a heartbeat again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// An agent is lost after this silence: three reports have not come.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
/// An agent is lost this long after its connection broke. A live agent reconnects within 0.2 s. A killed agent never does,
/// and its queries wait for another replica meanwhile.
pub const DISCONNECTED_MAX: Duration = Duration::from_millis(500);
/// The longest pause of an agent between two attempts to reconnect.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A longer pause between two observations means that this process was suspended. Observations are 0.25 s apart.
const GAP_MAX: Duration = Duration::from_secs(1);
/// A service process is lost after this silence. Its agents are lost too, unless they joined another process by then.
pub const PROCESS_SILENCE_MAX: Duration = SILENCE_MAX.saturating_add(BACKOFF_MAX);

/// Whether silent agents and processes may be declared lost now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossJudgement {
    /// They may.
    Allowed,
    /// Not yet: they may have had no chance to send a heartbeat.
    Withheld,
}

/// The time during which no agent is declared lost.
#[derive(Clone, Copy, Debug)]
pub struct GracePeriod {
    observed: Instant,
    until: Instant,
    has_gap: bool,
}

impl GracePeriod {
    /// No grace period, because no agent is known yet.
    #[must_use]
    pub fn none(at: Instant) -> Self {
        Self { observed: at, until: at, has_gap: false }
    }

    /// The longest grace period, for a new leader: it knows nothing of the time before.
    #[must_use]
    pub fn longest(at: Instant) -> Self {
        Self { until: at + grace_after(BACKOFF_MAX), ..Self::none(at) }
    }

    /// Notes an observation; its owner calls this before each judgement. A gap since the last call extends the period.
    pub fn observe(&mut self, at: Instant) -> LossJudgement {
        let gap = at.saturating_duration_since(self.observed);
        self.has_gap = gap > GAP_MAX;
        if self.has_gap {
            self.until = self.until.max(at + grace_after(gap));
        }
        self.observed = at;
        if at < self.until { LossJudgement::Withheld } else { LossJudgement::Allowed }
    }

    /// Whether this process was suspended before the last observation.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }
}

/// The grace period after a gap. First comes the pause between attempts to reconnect: it doubles from attempt to attempt,
/// so it is at most as long as the gap. Then comes the usual time between heartbeats.
fn grace_after(gap: Duration) -> Duration {
    SILENCE_MAX + gap.min(BACKOFF_MAX)
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    last_message: Instant,
    disconnected: Option<Instant>,
    is_recent: bool,
}

/// The heartbeats of the streams that this process holds, and of disconnected streams whose agents may come back.
#[derive(Clone, Debug, Default)]
pub struct StreamHeartbeats(BTreeMap<Uuid, Stream>);

impl StreamHeartbeats {
    /// Starts to follow a stream.
    pub fn open(&mut self, session: Uuid, at: Instant) {
        self.0.insert(session, Stream { last_message: at, disconnected: None, is_recent: false });
    }

    /// Notes a message on a stream.
    pub fn record(&mut self, session: Uuid, at: Instant) {
        if let Some(stream) = self.0.get_mut(&session) {
            (stream.last_message, stream.is_recent) = (at, true);
        }
    }

    /// Notes that a connection was lost; its agent may live.
    pub fn disconnect(&mut self, session: Uuid, at: Instant) {
        if let Some(stream) = self.0.get_mut(&session) {
            stream.disconnected = Some(at);
        }
    }

    /// Removes a stream.
    pub fn forget(&mut self, session: Uuid) {
        self.0.remove(&session);
    }

    /// Whether the connection of a stream was lost.
    #[must_use]
    pub fn is_disconnected(&self, session: Uuid) -> bool {
        self.0.get(&session).is_some_and(|stream| stream.disconnected.is_some())
    }

    /// Whether a stream is followed whose connection is up.
    #[must_use]
    pub fn is_connected(&self, session: Uuid) -> bool {
        self.0.get(&session).is_some_and(|stream| stream.disconnected.is_none())
    }

    /// The streams that had messages since the last call, each with the age of its last message.
    pub fn take_recent(&mut self, at: Instant) -> BTreeMap<Uuid, Duration> {
        let recent = self.0.iter_mut().filter_map(|(session, stream)| {
            let age = at.saturating_duration_since(stream.last_message);
            std::mem::take(&mut stream.is_recent).then_some((*session, age))
        });
        recent.collect()
    }

    /// The streams whose agents are lost, if judgement is allowed.
    #[must_use]
    pub fn silent(&self, at: Instant) -> Vec<Uuid> {
        let is_over = |since: Instant, limit: Duration| at.saturating_duration_since(since) > limit;
        let is_silent = |stream: &Stream| {
            let is_disconnected = stream.disconnected.is_some_and(|since| is_over(since, DISCONNECTED_MAX));
            is_over(stream.last_message, SILENCE_MAX) || is_disconnected
        };
        self.0.iter().filter(|(_, stream)| is_silent(stream)).map(|(session, _)| *session).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct LastBeat {
    beat: i64,
    seen: Instant,
}

/// The heartbeats of the service's processes, as one of them sees them.
#[derive(Clone, Debug, Default)]
pub struct ProcessHeartbeats(BTreeMap<Uuid, LastBeat>);

impl ProcessHeartbeats {
    /// Takes the beat counter of every process; returns the live ones. A process counts as live when it is first seen.
    pub fn observe(&mut self, at: Instant, beats: &BTreeMap<Uuid, i64>) -> Vec<Uuid> {
        let known = std::mem::take(&mut self.0);
        for (&id, &beat) in beats {
            let unchanged = known.get(&id).filter(|last| last.beat == beat);
            self.0.insert(id, LastBeat { beat, seen: unchanged.map_or(at, |last| last.seen) });
        }
        let lives = |last: &LastBeat| at.saturating_duration_since(last.seen) <= PROCESS_SILENCE_MAX;
        self.0.iter().filter(|(_, last)| lives(last)).map(|(id, _)| *id).collect()
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

    /// Observes every 0.25 s from second `from` to second `to`; returns the seconds at which judgement was withheld.
    fn observe_regularly(grace: &mut GracePeriod, begin: Instant, from: f64, to: f64) -> Vec<f64> {
        let turns = (1..).map(|turn| from + 0.25 * f64::from(turn)).take_while(|at| *at <= to);
        turns.filter(|at| grace.observe(begin + s(*at)) == LossJudgement::Withheld).collect()
    }

    #[test]
    fn a_suspended_process_withholds_judgement() {
        let begin = Instant::now();
        // (length of the gap, grace period after it)
        for (gap, withheld) in [(0.25_f64, 0.0_f64), (1.0, 0.0), (1.5, 4.5), (5.0, 8.0), (600.0, 8.0)] {
            let mut grace = GracePeriod::none(begin);
            assert!(observe_regularly(&mut grace, begin, 0.0, 10.0).is_empty());
            let woken = 10.0 + gap;
            let is_withheld = grace.observe(begin + s(woken)) == LossJudgement::Withheld;
            assert_eq!(is_withheld, withheld > 0.0, "a gap of {gap} s");
            assert_eq!(grace.has_gap(), withheld > 0.0);
            let during = observe_regularly(&mut grace, begin, woken, woken + 20.0);
            let last = during.last().map_or(0.0, |last| last - woken);
            assert!(last < withheld.max(0.1) && last >= withheld - 0.5, "a gap of {gap} s: withheld for {last} s");
            assert!(!grace.has_gap());
        }
    }

    #[test]
    fn a_new_leader_withholds_judgement_at_first() {
        let begin = Instant::now();
        let during = observe_regularly(&mut GracePeriod::longest(begin), begin, 0.0, 20.0);
        assert_eq!(during.last(), Some(&7.75));
    }

    #[test]
    fn silence_and_disconnection_have_different_limits() {
        let begin = Instant::now();
        // (last message, disconnected, judged, whether the agent is lost)
        let cases = [
            (0.0, None, 3.0, false),
            (0.0, None, 3.01, true),
            (0.0, Some(0.5), 1.0, false),
            (0.0, Some(0.5), 1.01, true),
            (9.0, None, 3.01, false),
        ];
        for (message, disconnected, at, lost) in cases {
            let mut streams = StreamHeartbeats::default();
            streams.open(A, begin);
            streams.record(A, begin + s(message));
            disconnected.into_iter().for_each(|second| streams.disconnect(A, begin + s(second)));
            assert_eq!(streams.is_disconnected(A), disconnected.is_some());
            assert_eq!(
                streams.silent(begin + s(at)),
                if lost { vec![A] } else { vec![] },
                "{message} {disconnected:?} {at}"
            );
        }
    }

    #[test]
    fn a_stream_is_recent_once_and_never_after_removal() {
        let begin = Instant::now();
        let mut streams = StreamHeartbeats::default();
        [A, B].into_iter().for_each(|session| streams.open(session, begin));
        streams.record(A, begin + s(1.0));
        assert_eq!(streams.take_recent(begin + s(1.5)), [(A, s(0.5))].into());
        assert_eq!(streams.take_recent(begin + s(1.5)), BTreeMap::new());
        streams.forget(A);
        streams.record(A, begin + s(2.0));
        assert_eq!(streams.take_recent(begin + s(2.0)), BTreeMap::new());
        assert_eq!(streams.silent(begin + s(9.0)), [B]);
    }

    #[test]
    fn a_process_lives_while_its_beat_rises() {
        let begin = Instant::now();
        let mut processes = ProcessHeartbeats::default();
        assert_eq!(processes.observe(begin, &[(A, 7), (B, 1)].into()), [A, B], "both are new");
        for second in 1_u32..=8 {
            let beats = [(A, 7 + i64::from(second)), (B, 1)].into();
            assert_eq!(processes.observe(begin + s(second.into()), &beats), [A, B], "second {second}");
        }
        assert_eq!(processes.observe(begin + s(8.01), &[(A, 15), (B, 1)].into()), [A]);
        assert_eq!(processes.observe(begin + s(8.02), &[(A, 15), (B, 2)].into()), [A, B], "it is back");
        assert_eq!(processes.observe(begin + s(8.03), &[(B, 2)].into()), [B], "a process without a row is not live");
    }
}
