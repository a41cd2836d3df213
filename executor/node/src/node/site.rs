//! Which agent is this, what time is it here, and what must the agent's loop do next?
//!
//! Example: agent 2 takes a query that agent 1 has sent. It pushes the action `Send(1, Taken)`, and the loop carries that
//! action out after the event.

use super::event::Action;
use super::request::RequestAnswer;
use crate::wire::Message;
use apportion_domain::Moment;
use std::collections::BTreeSet;

/// The agent's own number, its clock, and its queue of actions.
pub(super) struct Site {
    agent: u64,
    /// Numbers that it had before.
    former: BTreeSet<u64>,
    now_ns: u64,
    /// The agent is about to stop.
    is_leaving: bool,
    actions: Vec<Action>,
    /// Hops of queries that have left replicas of this agent, to which a central queue here had sent them.
    left: Vec<u64>,
}

impl Site {
    /// The site of an agent, at the zero of its clock.
    pub fn new(agent: u64) -> Self {
        Self { agent, former: BTreeSet::new(), now_ns: 0, is_leaving: false, actions: Vec::new(), left: Vec::new() }
    }

    /// The agent's number.
    pub fn agent(&self) -> u64 {
        self.agent
    }

    /// The agent has another number from its next target on.
    pub fn set_agent_number(&mut self, agent: u64) {
        if self.agent != agent {
            self.former.insert(self.agent);
            self.former.remove(&agent);
            self.agent = agent;
        }
    }

    /// Whether the agent had this number before.
    pub fn had_number(&self, agent: u64) -> bool {
        self.former.contains(&agent)
    }

    /// The time on the agent's clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The time on the agent's clock.
    pub fn now(&self) -> Moment {
        Moment::from_nanos(self.now_ns)
    }

    /// Sets the clock forward; it never goes back.
    pub fn advance_clock(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// From now on the agent takes no requests, no queries of other agents and no targets.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether the agent is about to stop.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Sends a message to another agent.
    pub fn send(&mut self, agent: u64, message: Message) {
        self.actions.push(Action::Send { agent, message });
    }

    /// Gives a client its answer.
    pub fn answer(&mut self, caller: u64, answer: RequestAnswer) {
        self.actions.push(Action::Answer { caller, answer });
    }

    /// A query that a central queue here had sent to a replica here has left that replica.
    pub fn note_left(&mut self, hop: u64) {
        self.left.push(hop);
    }

    /// Takes the hops of such queries out, in their order.
    pub fn take_left(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.left)
    }

    /// Takes the actions out, in their order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }
}
