//! Which lost agents does the target leave out?
//!
//! Example: one of three agents is lost; 0.75 s later a new target is made for the other two, and they load its replicas.
//!
//! When many agents are lost at once, the network to them has probably failed, and they still serve. So removal is slow if
//! many agents are lost, and stops if all are. Kubernetes' node life-cycle controller does the same, with the zone states
//! *normal*, *partial disruption* and *full disruption*.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::heartbeat::PROCESS_SILENCE_MAX;
use apportion_wire::AgentState;

/// A lost agent is removed after this time. By then other agents that were lost by the same cause are known, or it is back.
const REMOVE_AFTER: Duration = Duration::from_millis(750);
/// Largest share of the fleet that one round removes. One agent may always be removed.
const ROUND_SHARE_MAX: f64 = 0.25;
/// Time between two rounds: agents that were cut off for a moment come back.
const ROUND_EVERY: Duration = Duration::from_secs(2);
/// If at least this share of the fleet is lost, there is a disruption (`unhealthy-zone-threshold` of Kubernetes).
const DISRUPTED_SHARE: f64 = 0.55;
/// Fewer lost agents than this are no disruption.
const DISRUPTED_MIN: usize = 3;
/// In a disruption no agent is removed for this long. Then each round removes one.
const DISRUPTED_WAIT: Duration = Duration::from_secs(30);
/// When the first agents are back after all were lost, the others get this long to come back.
const RETURN_WAIT: Duration = PROCESS_SILENCE_MAX;

/// How much of the fleet is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disruption {
    /// A small part: rounds remove lost agents.
    #[default]
    None,
    /// A large part: no agent is removed at first, then one in each round.
    Partial,
    /// All: no agent is removed.
    Full,
}

/// One agent of the fleet, as the database knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentStatus {
    /// Its number.
    pub number: u64,
    /// Its state.
    pub state: AgentState,
}

/// The agents of the next target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetMembers {
    /// The members: live agents, and lost agents that the target keeps.
    pub agents: BTreeSet<u64>,
    /// How many members are not live.
    pub kept: usize,
    /// How much is lost.
    pub disruption: Disruption,
}

/// The memory of the decisions so far.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    lost: BTreeMap<u64, Instant>,
    disruption: Disruption,
    removed: Option<Instant>,
    wait_until: Option<Instant>,
}

impl Membership {
    /// Decides which agents are members now. `before` are the members so far: the agents of the target in force.
    pub fn decide(&mut self, at: Instant, agents: &[AgentStatus], before: &BTreeSet<u64>) -> FleetMembers {
        let with = |state| agents.iter().filter(move |a| a.state == state).map(|a| a.number);
        let live: BTreeSet<u64> = with(AgentState::Live).collect();
        let lost: BTreeSet<u64> = with(AgentState::Lost).filter(|number| before.contains(number)).collect();
        if live.is_empty() {
            // A target without agents is useless, so the target stays as it is. That holds for agents that left, too.
            self.disruption = if before.is_empty() { Disruption::None } else { Disruption::Full };
            return FleetMembers { kept: before.len(), agents: before.clone(), disruption: self.disruption };
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
        let removed = self.remove_lost(at, live.len() + lost.len());
        let kept = lost.len() - removed.len();
        let agents = live.into_iter().chain(lost.difference(&removed).copied()).collect();
        FleetMembers { agents, kept, disruption: self.disruption }
    }

    /// The agents to remove now. The longest lost agent is first.
    fn remove_lost(&mut self, at: Instant, fleet: usize) -> BTreeSet<u64> {
        let is_early = self.removed.is_some_and(|last| at.saturating_duration_since(last) < ROUND_EVERY);
        let waits = self.wait_until.is_some_and(|until| at < until);
        let newest = self.lost.values().max();
        let is_new = newest.is_some_and(|newest| at.saturating_duration_since(*newest) < DISRUPTED_WAIT);
        let is_disrupted = self.disruption == Disruption::Partial;
        let is_due = |since: &Instant| at.saturating_duration_since(*since) >= REMOVE_AFTER;
        let mut order: Vec<(Instant, u64)> = self.lost.iter().map(|(number, since)| (*since, *number)).collect();
        order.retain(|(since, _)| is_due(since));
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

    /// A fleet whose members are followed from decision to decision.
    struct Scenario {
        begin: Instant,
        membership: Membership,
        members: FleetMembers,
        agents: BTreeMap<u64, AgentState>,
    }

    impl Scenario {
        fn with_agents(count: u64) -> Self {
            let agents = (1..=count).map(|number| (number, AgentState::Live)).collect();
            let mut scenario =
                Self { begin: Instant::now(), membership: Membership::default(), members: FleetMembers::default(), agents };
            scenario.decide(0.0);
            scenario
        }

        fn set(&mut self, numbers: impl IntoIterator<Item = u64>, state: AgentState) {
            numbers.into_iter().for_each(|number| {
                self.agents.insert(number, state);
            });
        }

        /// The members after a decision at this second.
        fn decide(&mut self, second: f64) -> Vec<u64> {
            let status = |(&number, &state)| AgentStatus { number, state };
            let agents: Vec<_> = self.agents.iter().map(status).collect();
            let at = self.begin + Duration::from_secs_f64(second);
            let before = self.members.agents.clone();
            self.members = self.membership.decide(at, &agents, &before);
            self.members.agents.iter().copied().collect()
        }
    }

    #[test]
    fn one_lost_agent_is_removed_soon_and_comes_back() {
        let mut scenario = Scenario::with_agents(3);
        scenario.set([2], AgentState::Lost);
        assert_eq!(scenario.decide(1.0), [1, 2, 3], "others may follow");
        assert_eq!(scenario.decide(1.8), [1, 3]);
        assert_eq!(scenario.decide(2.0), [1, 3], "one that was removed stays so");
        scenario.set([2], AgentState::Live);
        assert_eq!(scenario.decide(3.0), [1, 2, 3]);
        assert_eq!((scenario.members.kept, scenario.members.disruption), (0, Disruption::None));
    }

    #[test]
    fn a_round_removes_a_quarter_at_most() {
        let mut scenario = Scenario::with_agents(8);
        scenario.set(5..=8, AgentState::Lost);
        // (second, members left)
        for (second, left) in [(1.0, 8), (2.0, 6), (2.2, 6), (3.9, 6), (4.0, 5), (5.9, 5), (6.0, 4), (60.0, 4)] {
            assert_eq!(scenario.decide(second).len(), left, "second {second}");
        }
        assert_eq!(scenario.decide(61.0), [1, 2, 3, 4]);
    }

    #[test]
    fn a_disruption_delays_removal_and_then_removes_one_by_one() {
        let mut scenario = Scenario::with_agents(10);
        scenario.set(1..=6, AgentState::Lost);
        assert_eq!(scenario.decide(1.0).len(), 10);
        assert_eq!((scenario.members.kept, scenario.members.disruption), (6, Disruption::Partial));
        assert_eq!(scenario.decide(30.9).len(), 10);
        assert_eq!(scenario.decide(31.0).len(), 9);
        scenario.set(1..=6, AgentState::Live);
        assert_eq!(scenario.decide(31.2).len(), 10, "agents that are back are members");
    }

    #[test]
    fn a_fleet_that_is_cut_off_keeps_its_target() {
        let mut scenario = Scenario::with_agents(4);
        for (agent, second) in [(1, 1.0), (2, 1.25), (3, 1.5), (4, 1.7)] {
            scenario.set([agent], AgentState::Lost);
            assert_eq!(scenario.decide(second).len(), 4, "second {second}");
        }
        assert_eq!(scenario.decide(100.0).len(), 4);
    }

    #[test]
    fn the_last_agents_are_never_removed() {
        for state in [AgentState::Lost, AgentState::Left] {
            for count in [1, 2, 6] {
                let mut scenario = Scenario::with_agents(count);
                scenario.set(1..=count, state);
                for second in [1.0, 10.0, 100.0, 100_000.0] {
                    assert_eq!(scenario.decide(second).len() as u64, count, "{state:?} at {second}");
                }
                assert_eq!(scenario.members.disruption, Disruption::Full);
            }
        }
    }

    #[test]
    fn after_full_disruption_late_agents_get_time() {
        let mut scenario = Scenario::with_agents(4);
        scenario.set(1..=4, AgentState::Lost);
        assert_eq!(scenario.decide(1.0).len(), 4);
        scenario.set([1, 2, 3], AgentState::Live);
        assert_eq!(scenario.decide(20.0).len(), 4);
        assert_eq!(scenario.decide(27.9).len(), 4);
        assert_eq!(scenario.decide(28.8), [1, 2, 3], "it does not come");
    }

    #[test]
    fn an_agent_that_left_is_removed_unless_it_is_last() {
        let mut scenario = Scenario::with_agents(3);
        scenario.set([1, 2], AgentState::Left);
        assert_eq!(scenario.decide(1.0), [3]);
        scenario.set([3], AgentState::Left);
        assert_eq!(scenario.decide(2.0), [3]);
    }

    #[test]
    fn agents_lost_before_the_first_target_are_no_members() {
        let mut membership = Membership::default();
        let agents = [(1, AgentState::Lost), (2, AgentState::Left)].map(|(number, state)| AgentStatus { number, state });
        assert_eq!(membership.decide(Instant::now(), &agents, &BTreeSet::new()), FleetMembers::default());
    }

    /// The oracle: at least one member stays if there was one, and no round removes too many.
    #[test]
    fn no_random_events_empty_the_fleet_or_exceed_the_rate() {
        let mut random = 17_u64;
        let mut draw = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        for count in 1..=12 {
            let mut scenario = Scenario::with_agents(count);
            let mut last = -10.0;
            for turn in 1..500 {
                let second = f64::from(turn) * 0.5;
                let (from, many) = (draw(count) + 1, draw(count) + 1);
                let state = if draw(3) == 0 { AgentState::Lost } else { AgentState::Live };
                scenario.set(from..=(from + many).min(count), state);
                let before: BTreeSet<u64> = scenario.members.agents.clone();
                let after: BTreeSet<u64> = scenario.decide(second).into_iter().collect();
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
