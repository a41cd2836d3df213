//! Pure: which agents are lost, in; which of them the target is to do without, out.
//!
//! A target that leaves an agent out makes others load what it had. When many agents are lost at once, the fault is more
//! likely on the way to them than in all of them, and they serve on. So removal is slow where much is lost, and stops where
//! all is: as in Kubernetes' node life-cycle controller, with its zones' states *normal*, *partial* and *full disruption*.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::liveness::PROCESS_SILENCE_MAX;

/// A lost agent is removed after so long: when many are lost by one cause, the others are lost by then, and it may be back.
const SETTLE: Duration = Duration::from_millis(750);
/// Most of the fleet that one round removes; one agent may always go.
const ROUND_SHARE_MAX: f64 = 0.25;
/// Between two rounds: those who are only cut off for a moment come back.
const ROUND_EVERY: Duration = Duration::from_secs(2);
/// From this share of the fleet on, lost agents are a disruption (`unhealthy-zone-threshold` of Kubernetes).
const DISRUPTED_SHARE: f64 = 0.55;
/// No disruption is made of fewer lost agents than this.
const DISRUPTED_MIN: usize = 3;
/// How long nobody is removed in a disruption. After it, one agent goes in each round.
const DISRUPTED_WAIT: Duration = Duration::from_secs(30);
/// When the first agents are back after all were lost, the others get as long to come.
const RETURN_WAIT: Duration = PROCESS_SILENCE_MAX;

/// What the table says of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was heard of lately.
    Live,
    /// It is silent.
    Lost,
    /// It stopped on purpose.
    Left,
}

impl Standing {
    /// As the table has it.
    #[must_use]
    pub fn of(state: &str) -> Self {
        match state {
            "live" => Self::Live,
            "left" => Self::Left,
            _ => Self::Lost,
        }
    }
}

/// How much of the fleet is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disruption {
    /// Little: lost agents are removed by rounds.
    #[default]
    None,
    /// Much: nobody is removed at first, then one by one.
    Partial,
    /// All: nobody is removed.
    Full,
}

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The agents that the target is made for: the live ones, and those lost that it keeps.
    pub agents: BTreeSet<u64>,
    /// How many of them are not live.
    pub kept: usize,
    /// How much is lost.
    pub disruption: Disruption,
}

/// What is remembered from one look to the next.
#[derive(Clone, Debug, Default)]
pub struct Removals {
    lost: BTreeMap<u64, Instant>,
    disruption: Disruption,
    removed: Option<Instant>,
    wait_until: Option<Instant>,
}

impl Removals {
    /// Decides who is a member now. `before`: the members so far, which are the agents of the target in force.
    pub fn look(&mut self, at: Instant, agents: &[(u64, Standing)], before: &BTreeSet<u64>) -> Members {
        let with = |standing| agents.iter().filter(move |a| a.1 == standing).map(|a| a.0);
        let live: BTreeSet<u64> = with(Standing::Live).collect();
        let lost: BTreeSet<u64> = with(Standing::Lost).filter(|number| before.contains(number)).collect();
        if live.is_empty() {
            // A target without agents helps nobody: it stays as it is, also for those who have left.
            self.disruption = if before.is_empty() { Disruption::None } else { Disruption::Full };
            return Members { kept: before.len(), agents: before.clone(), disruption: self.disruption };
        }
        if self.disruption == Disruption::Full {
            self.lost.clear();
            self.wait_until = Some(at + RETURN_WAIT);
        }
        self.lost.retain(|number, _| lost.contains(number));
        lost.iter().for_each(|number| {
            self.lost.entry(*number).or_insert(at);
        });
        self.disruption = disruption(live.len(), lost.len());
        let removed = self.remove(at, live.len() + lost.len());
        let kept = lost.len() - removed.len();
        let agents = live.into_iter().chain(lost.difference(&removed).copied()).collect();
        Members { agents, kept, disruption: self.disruption }
    }

    /// Who goes now: those lost longest first.
    fn remove(&mut self, at: Instant, fleet: usize) -> BTreeSet<u64> {
        let is_early = self.removed.is_some_and(|last| at.saturating_duration_since(last) < ROUND_EVERY);
        let waits = self.wait_until.is_some_and(|until| at < until);
        let newest = self.lost.values().max();
        let is_new = newest.is_some_and(|newest| at.saturating_duration_since(*newest) < DISRUPTED_WAIT);
        let is_disrupted = self.disruption == Disruption::Partial;
        let is_settled = |since: &Instant| at.saturating_duration_since(*since) >= SETTLE;
        let mut order: Vec<(Instant, u64)> = self.lost.iter().map(|(number, since)| (*since, *number)).collect();
        order.retain(|(since, _)| is_settled(since));
        if order.is_empty() || is_early || waits || (is_disrupted && is_new) {
            return BTreeSet::new();
        }
        let most = if is_disrupted { 1 } else { ((fleet as f64 * ROUND_SHARE_MAX) as usize).max(1) };
        order.sort_unstable();
        let gone: BTreeSet<u64> = order.into_iter().take(most).map(|(_, number)| number).collect();
        self.lost.retain(|number, _| !gone.contains(number));
        self.removed = Some(at);
        gone
    }
}

fn disruption(live: usize, lost: usize) -> Disruption {
    let share = lost as f64 / (live + lost) as f64;
    if lost >= DISRUPTED_MIN && share >= DISRUPTED_SHARE { Disruption::Partial } else { Disruption::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fleet whose members are followed from look to look.
    struct Story {
        begin: Instant,
        removals: Removals,
        members: Members,
        agents: BTreeMap<u64, Standing>,
    }

    impl Story {
        fn of(count: u64) -> Self {
            let agents = (1..=count).map(|number| (number, Standing::Live)).collect();
            let mut story =
                Self { begin: Instant::now(), removals: Removals::default(), members: Members::default(), agents };
            story.look(0.0);
            story
        }

        fn set(&mut self, numbers: impl IntoIterator<Item = u64>, standing: Standing) {
            numbers.into_iter().for_each(|number| {
                self.agents.insert(number, standing);
            });
        }

        /// The members after a look at this second.
        fn look(&mut self, second: f64) -> Vec<u64> {
            let agents: Vec<_> = self.agents.iter().map(|(number, standing)| (*number, *standing)).collect();
            let at = self.begin + Duration::from_secs_f64(second);
            let before = self.members.agents.clone();
            self.members = self.removals.look(at, &agents, &before);
            self.members.agents.iter().copied().collect()
        }
    }

    #[test]
    fn one_lost_agent_is_removed_soon_and_comes_back() {
        let mut story = Story::of(3);
        story.set([2], Standing::Lost);
        assert_eq!(story.look(1.0), [1, 2, 3], "others may follow");
        assert_eq!(story.look(1.8), [1, 3]);
        assert_eq!(story.look(2.0), [1, 3], "one that was removed stays so");
        story.set([2], Standing::Live);
        assert_eq!(story.look(3.0), [1, 2, 3]);
        assert_eq!((story.members.kept, story.members.disruption), (0, Disruption::None));
    }

    #[test]
    fn a_round_removes_a_quarter_at_most() {
        let mut story = Story::of(8);
        story.set(5..=8, Standing::Lost);
        // (second, members left)
        for (second, left) in [(1.0, 8), (2.0, 6), (2.2, 6), (3.9, 6), (4.0, 5), (5.9, 5), (6.0, 4), (60.0, 4)] {
            assert_eq!(story.look(second).len(), left, "second {second}");
        }
        assert_eq!(story.look(61.0), [1, 2, 3, 4]);
    }

    #[test]
    fn where_most_are_lost_nobody_is_removed_for_a_while_and_then_one_by_one() {
        let mut story = Story::of(10);
        story.set(1..=6, Standing::Lost);
        assert_eq!(story.look(1.0).len(), 10);
        assert_eq!((story.members.kept, story.members.disruption), (6, Disruption::Partial));
        assert_eq!(story.look(30.9).len(), 10);
        assert_eq!(story.look(31.0).len(), 9);
        story.set(1..=6, Standing::Live);
        assert_eq!(story.look(31.2).len(), 10, "whoever is back is a member");
    }

    #[test]
    fn a_cut_off_fleet_keeps_its_target_though_its_agents_are_lost_one_after_the_other() {
        let mut story = Story::of(4);
        for (agent, second) in [(1, 1.0), (2, 1.25), (3, 1.5), (4, 1.7)] {
            story.set([agent], Standing::Lost);
            assert_eq!(story.look(second).len(), 4, "second {second}");
        }
        assert_eq!(story.look(100.0).len(), 4);
    }

    #[test]
    fn the_last_agents_are_never_removed() {
        for standing in [Standing::Lost, Standing::Left] {
            for count in [1, 2, 6] {
                let mut story = Story::of(count);
                story.set(1..=count, standing);
                for second in [1.0, 10.0, 100.0, 100_000.0] {
                    assert_eq!(story.look(second).len() as u64, count, "{standing:?} at {second}");
                }
                assert_eq!(story.members.disruption, Disruption::Full);
            }
        }
    }

    #[test]
    fn after_all_were_lost_those_who_come_late_are_waited_for() {
        let mut story = Story::of(4);
        story.set(1..=4, Standing::Lost);
        assert_eq!(story.look(1.0).len(), 4);
        story.set([1, 2, 3], Standing::Live);
        assert_eq!(story.look(20.0).len(), 4);
        assert_eq!(story.look(27.9).len(), 4);
        assert_eq!(story.look(28.8), [1, 2, 3], "it does not come");
    }

    #[test]
    fn who_leaves_on_purpose_goes_at_once_unless_nobody_stays() {
        let mut story = Story::of(3);
        story.set([1, 2], Standing::Left);
        assert_eq!(story.look(1.0), [3]);
        story.set([3], Standing::Left);
        assert_eq!(story.look(2.0), [3]);
    }

    #[test]
    fn agents_lost_before_anything_was_placed_on_them_are_no_members() {
        let mut removals = Removals::default();
        let agents = [(1, Standing::Lost), (2, Standing::Left)];
        assert_eq!(removals.look(Instant::now(), &agents, &BTreeSet::new()), Members::default());
    }

    /// The oracle: however agents come and go, at least one stays if any was there, and no round takes more than it may.
    #[test]
    fn no_course_of_events_empties_the_fleet_or_hurries() {
        let mut state = 17_u64;
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for count in 1..=12 {
            let mut story = Story::of(count);
            let mut last = -10.0;
            for turn in 1..500 {
                let second = f64::from(turn) * 0.5;
                let (from, many) = (draw(count) + 1, draw(count) + 1);
                let standing = if draw(3) == 0 { Standing::Lost } else { Standing::Live };
                story.set(from..=(from + many).min(count), standing);
                let before: BTreeSet<u64> = story.members.agents.clone();
                let after: BTreeSet<u64> = story.look(second).into_iter().collect();
                let gone = before.difference(&after).count();
                assert!(!after.is_empty(), "{count} agents, turn {turn}");
                let fleet = before.union(&after).count();
                assert!(gone <= (fleet / 4).max(1), "{count} agents, turn {turn}: {gone} of {fleet}");
                assert!(gone == 0 || second - last >= 2.0, "{count} agents, turn {turn}: too soon");
                last = if gone > 0 { second } else { last };
            }
        }
    }
}
