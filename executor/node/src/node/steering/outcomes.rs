//! Which requests have ended in the fleet since the host of a steward looked last?
//!
//! Example: agent 2 has told 100 requests in time, and then tells 130: 30 are new. It restarts and tells 5: 5 are new.
//!
//! Each agent tells the sums since its start. So a lost report delays counts and loses none. The first sums of an agent
//! say nothing: nobody knows which of its requests ended before the host began. An agent that tells no sums, because it is
//! of an older version, or tells none for a while, adds nothing. The host hands on what it knows, at least its own counts,
//! ten times a second. So the controller is not silent, and its headroom follows the requests that are counted.

use crate::steering::QUERIES_MAX;
use apportion_protocol::v1;
use apportion_serving::error_budget::OutcomeCount;
use std::collections::BTreeMap;

/// The requests of one pipeline that ended at all gateways.
#[derive(Clone, Debug, Default)]
pub struct FleetOutcomes {
    /// The last sums of each agent.
    told: BTreeMap<u64, v1::EndedRequests>,
    /// What is new.
    new: OutcomeCount,
}

impl FleetOutcomes {
    /// An agent tells its sums. Sums of the same life of the agent that are smaller than its last ones come late, and
    /// differences that no agent can have are not believed.
    pub fn count(&mut self, agent: u64, told: v1::EndedRequests) {
        let Some(last) = self.told.get(&agent).copied() else {
            self.told.insert(agent, told);
            return;
        };
        let is_same_life = last.session == told.session;
        if is_same_life && (told.in_time < last.in_time || told.missed < last.missed) {
            return;
        }
        let before = if is_same_life { sums(last) } else { OutcomeCount::default() };
        let more = sums(told).since(before);
        if more.total() <= QUERIES_MAX {
            self.new = self.new.with(more);
        }
        self.told.insert(agent, told);
    }

    /// Takes out what is new since the last call.
    pub fn take(&mut self) -> OutcomeCount {
        std::mem::take(&mut self.new)
    }

    /// The same without the agents that are not in the target any more.
    #[must_use]
    pub fn of_agents(mut self, agents: &BTreeMap<u64, String>) -> Self {
        self.told.retain(|agent, _| agents.contains_key(agent));
        self
    }
}

const fn sums(told: v1::EndedRequests) -> OutcomeCount {
    OutcomeCount { in_time: told.in_time, missed: told.missed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent's number, the number of its life, and its sums in time and missed.
    type Told = (u64, u64, u64, u64);

    fn count(outcomes: &mut FleetOutcomes, (agent, session, in_time, missed): Told) {
        outcomes.count(agent, v1::EndedRequests { session, in_time, missed });
    }

    #[test]
    fn each_request_counts_once() {
        // What is told, and what is new by it.
        let script: [(Told, (u64, u64)); 9] = [
            ((2, 7, 1_000, 50), (0, 0)),
            ((2, 7, 1_030, 50), (30, 0)),
            ((3, 9, 400, 4), (0, 0)),
            // Agent 2 restarts. The next report is lost, and agent 3 was silent.
            ((2, 8, 5, 1), (5, 1)),
            ((2, 8, 65, 3), (60, 2)),
            ((3, 9, 900, 14), (500, 10)),
            // A report of the same life that comes late.
            ((2, 8, 40, 3), (0, 0)),
            ((2, 8, 66, 3), (1, 0)),
            // No agent has so many.
            ((3, 9, 901 + QUERIES_MAX, 14), (0, 0)),
        ];
        let mut outcomes = FleetOutcomes::default();
        for (told, (in_time, missed)) in script {
            count(&mut outcomes, told);
            assert_eq!(outcomes.take(), OutcomeCount { in_time, missed }, "{told:?}");
        }
        assert_eq!(outcomes.take(), OutcomeCount::default(), "nothing is new twice");
    }

    #[test]
    fn an_agent_that_leaves_the_target_is_forgotten() {
        let mut outcomes = FleetOutcomes::default();
        count(&mut outcomes, (2, 7, 10, 0));
        count(&mut outcomes, (3, 7, 10, 0));
        let mut next = outcomes.of_agents(&[(3, String::new())].into());
        count(&mut next, (2, 7, 30, 0));
        count(&mut next, (3, 7, 30, 0));
        assert_eq!(next.take(), OutcomeCount { in_time: 20, missed: 0 }, "those of agent 3");
    }
}
