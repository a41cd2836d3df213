//! One agent's state: requests, routes, replicas and what is on its way. A single loop owns it: [`Node::handle`] takes an
//! event and gives the actions that the loop carries out, so nothing here waits, reads a clock or touches a socket.
//!
//! Loss: a sender keeps each query until the agent that it sent it to says `Taken`; when that agent is lost, the query is sent to
//! another ready replica. So a query can run twice, and its part of the request can come back twice, which the gateway tells
//! by the credit ([`request::Covered`]). What an agent had taken and not yet passed on is lost with it, and nobody else knows
//! what that was: each gateway that loses an agent runs its unanswered requests again ([`request::Attempt`]). What does not
//! come back nevertheless is given up after a while. Every request gets exactly one answer.
//!
//! The same events at the same times give the same actions: nothing here iterates over what has no order.

mod alone;
mod batch;
mod cancel;
mod choose;
pub mod counts;
mod ingress;
mod load;
mod meet;
mod moves;
mod offline;
mod release;
mod renumber;
pub mod replicas;
pub mod request;
pub mod route;
pub mod silence;
mod spans;
pub mod split;
mod steer;
mod suspects;
mod swap;
mod work;

pub use cancel::CANCELLED_MAX;
pub use meet::MEETINGS_MAX;
pub use offline::OFFLINE_MAX;
pub use suspects::SUSPECTS_MAX;
pub use work::PARKED_MAX;

use crate::chooser::Chooser;
use crate::layout::Layout;
use crate::slot::Happened;
use crate::tensor::Tensor;
use crate::trace::{Span, SpanIds};
use crate::wire::{Announced, Coming, Load, Message, Query};
use cancel::Cancelled;
use counts::Counts;
use meet::Meetings;
use replicas::Replica;
use request::{Answer, Pending, Terms};
use route::{Routes, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use work::Parked;

/// Shortest time after which a request is given up.
const GIVE_UP_NS_MIN: u64 = 2_000_000_000;
/// How long queries of a task wait for a plan with replicas of it after its last one was lost.
const REPAIR_NS: u64 = GIVE_UP_NS_MIN;
/// Times the SLO after which a request is given up.
const GIVE_UP_SLOS: u64 = 10;

/// What happens to an agent.
#[derive(Debug)]
pub enum Event {
    /// A checked target that is newer than the one in force.
    Obey(Arc<Layout>),
    /// The control plane's number of this agent, from the target on that follows.
    Number(u64),
    /// A request at the gateway, with at least one row and valid inputs.
    Arrive {
        /// The pipeline.
        pipeline: String,
        /// Its inputs.
        inputs: Vec<Tensor>,
        /// What it says beyond them.
        terms: Terms,
        /// Where the answer goes.
        reply: oneshot::Sender<Answer>,
    },
    /// From another agent.
    Message(Message),
    /// The query of this hop could not be sent.
    Unsent {
        /// This agent's number of the hop.
        hop: u64,
        /// Why not.
        why: String,
    },
    /// A connection to this agent is up.
    PeerUp(u64),
    /// The connection to this agent is lost.
    PeerDown(u64),
    /// From a replica's thread.
    Slot(u64, Happened),
    /// Time has passed.
    Tick,
    /// The moment has come that [`Node::wake_ns`] named.
    Wake,
    /// Say again what is ready.
    Announce,
    /// The agent is about to stop: it finishes what it has and takes nothing new.
    Leave,
}

/// What the loop has to do.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "moved once each; a box would cost an allocation for every query")]
pub enum Action {
    /// To another agent.
    Send(u64, Message),
    /// Fetch the file with this digest and start a slot with it.
    Load(u64, String),
    /// Run a batch on a slot and hold it for as long as its profile says, if the agent paces.
    Run(u64, Vec<Tensor>, Duration),
    /// Fetch the files with these digests, for replicas that may come.
    Prefetch(Vec<String>),
    /// Drop the slot.
    Unload(u64),
    /// Replicas have other numbers from now on: each from the first of a pair to the second, all at once.
    Renumber(Vec<(u64, u64)>),
    /// The replicas' states or the target in force changed: acknowledge.
    Acknowledge,
    /// Send out a span that has ended.
    Span(Box<Span>),
}

/// A query that waits or runs here.
#[derive(Debug)]
pub struct Work {
    /// The query.
    pub query: Query,
    /// Its deadline on this agent's clock, in nanoseconds; it may lie before the clock's zero.
    pub deadline_ns: i64,
    /// Who sent it here.
    pub from: Sender,
    /// When it came here.
    pub arrived_ns: u64,
}

/// Who sent a query to its place, and wants to hear when it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// This agent, by this choice; none if it was a fork's.
    Here(Option<Ticket>),
    /// Another one.
    Agent {
        /// Its number.
        agent: u64,
        /// Its number of the hop.
        hop: u64,
    },
}

/// The state.
pub struct Node {
    agent: u64,
    /// Numbers that it had before.
    former: BTreeSet<u64>,
    /// Replicas that were set aside under numbers of this agent's own.
    last_former: u64,
    now_ns: u64,
    /// When time last passed, and when the replicas here were last announced.
    ticked_ns: u64,
    said_ns: u64,
    layout: Arc<Layout>,
    replicas: BTreeMap<u64, Replica>,
    peers: BTreeMap<u64, Peer>,
    routes: Routes,
    sent: BTreeMap<u64, Sent>,
    hop: u64,
    span_ids: SpanIds,
    requests: BTreeMap<u64, Pending>,
    /// No request is due ([`Pending::due_ns`]) before this moment: a tick looks at none of them until then.
    requests_due_ns: u64,
    request: u64,
    counts: Counts,
    actions: Vec<Action>,
    /// The last handle given to a station.
    key: u64,
    /// Replicas whose station may start a batch.
    touched: BTreeSet<u64>,
    /// Replicas whose batch cannot be run.
    misfits: Vec<u64>,
    /// The agent is about to stop.
    leaving: bool,
    /// Joins whose parts meet here.
    meetings: Meetings,
    cancelled: Cancelled,
    /// Cancelled requests whose queries are still in queues here.
    cancelling: Vec<(u64, u64)>,
    /// Queries that wait for any replica of their task.
    parked: Vec<Parked>,
    swap: swap::Swap,
    steers: steer::Steers,
    suspects: suspects::Suspects,
    /// Of the pipelines whose requests have said what they need.
    choosers: BTreeMap<String, Chooser>,
    /// When the replicas' loads were last measured.
    rolled_ns: u64,
}

#[derive(Debug, Default)]
struct Peer {
    connected: bool,
    /// It is connected and says nothing.
    is_silent: bool,
    /// When it last said something.
    heard_ns: u64,
    ready: Vec<Announced>,
    coming: Vec<Coming>,
    yielding: Vec<u64>,
    /// By replica.
    loads: BTreeMap<u64, Load>,
    failed: BTreeSet<u64>,
}

struct Sent {
    agent: u64,
    query: Query,
    deadline_ns: i64,
    ticket: Option<Ticket>,
    span: Option<spans::Hop>,
}

impl Node {
    /// An agent without a target. `first_request` must differ between the lives of an agent, so that an answer to an
    /// earlier life's request is not taken for one of this life's.
    #[must_use]
    pub fn new(agent: u64, first_request: u64) -> Self {
        Self {
            agent,
            former: BTreeSet::new(),
            last_former: 0,
            now_ns: 0,
            ticked_ns: 0,
            said_ns: 0,
            layout: Arc::default(),
            replicas: BTreeMap::new(),
            peers: BTreeMap::new(),
            routes: Routes::of(agent),
            sent: BTreeMap::new(),
            hop: 0,
            span_ids: SpanIds::new(agent ^ first_request.rotate_left(32)),
            requests: BTreeMap::new(),
            requests_due_ns: u64::MAX,
            request: first_request,
            counts: Counts::default(),
            actions: Vec::new(),
            key: 0,
            touched: BTreeSet::new(),
            misfits: Vec::new(),
            leaving: false,
            meetings: Meetings::default(),
            cancelled: Cancelled::default(),
            cancelling: Vec::new(),
            parked: Vec::new(),
            swap: swap::Swap::default(),
            steers: steer::Steers::default(),
            suspects: suspects::Suspects::default(),
            choosers: BTreeMap::new(),
            rolled_ns: 0,
        }
    }

    /// Takes an event at `now_ns` of the agent's clock; [`Node::flush`] follows after all events of one moment.
    pub fn handle(&mut self, now_ns: u64, event: Event) {
        self.now_ns = self.now_ns.max(now_ns);
        match event {
            Event::Obey(layout) => self.obey(layout),
            Event::Number(agent) => self.renumber(agent),
            Event::Arrive { pipeline, inputs, terms, reply } => self.arrive(pipeline, inputs, terms, reply),
            Event::Message(message) => self.hear(message),
            Event::Unsent { hop, why } => self.shed(hop, &why),
            Event::PeerUp(agent) => {
                let peer = self.peers.entry(agent).or_default();
                (peer.connected, peer.is_silent, peer.heard_ns) = (true, false, self.now_ns);
                self.announce();
                self.reroute();
            }
            Event::PeerDown(agent) => self.lose(agent),
            Event::Slot(replica, happened) => self.happen(replica, happened),
            Event::Tick => self.tick(),
            Event::Wake => self.wake(),
            Event::Announce => {
                self.roll_loads();
                self.report_to_choosers();
                self.announce();
            }
            Event::Leave => self.stop(),
        }
        self.carry_out_cancels();
    }

    /// Starts batches and gives what is to be done for all events since the last call.
    pub fn flush(&mut self) -> Vec<Action> {
        while !self.touched.is_empty() || !self.misfits.is_empty() {
            self.start_batches();
            self.fail_misfits();
            self.carry_out_cancels();
        }
        std::mem::take(&mut self.actions)
    }

    /// The target in force.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Requests that are not yet answered, queries that wait or run here, and those whose next agent has not yet finished
    /// them.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let waiting = self.meetings.len() + self.parked.len();
        waiting + self.requests.len() + self.sent.len() + self.replicas.values().map(Replica::len).sum::<usize>()
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Whether requests for the pipeline are taken and all its tasks can be reached.
    #[must_use]
    pub fn ready(&self, pipeline: &str) -> bool {
        !self.leaving
            && self
                .layout
                .pipelines
                .get(pipeline)
                .is_some_and(|p| p.tasks.iter().all(|t| self.routes.reaches(pipeline, &t.name)))
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Ready { agent, replicas, coming, yielding, loads, failed } => {
                let is_back = self.hear_of(agent);
                let peer = self.peers.entry(agent).or_default();
                let is_new = is_back || (&peer.ready, &peer.coming) != (&replicas, &coming);
                (peer.ready, peer.coming, peer.yielding) = (replicas, coming, yielding);
                peer.loads = loads.into_iter().collect();
                peer.failed = failed.into_iter().collect();
                if is_new {
                    self.reroute();
                }
            }
            Message::Query { from, hop, query } => {
                self.hear_of(from);
                let deadline_ns = self.now_ns.cast_signed().saturating_add(query.budget_ns);
                self.accept(Work { query, deadline_ns, from: Sender::Agent { agent: from, hop }, arrived_ns: self.now_ns });
            }
            Message::Taken { hop } => {
                if let Some(sent) = self.sent.remove(&hop) {
                    self.end_hop(&sent, None);
                    self.ended(&sent.query, sent.ticket);
                }
            }
            Message::Return(part) => self.take_back(part),
            Message::Part(part) => self.hear_part(part),
            Message::Cancel { origin, request } => self.cancel(origin, request),
            Message::Measured(told) => self.hear_measured(&told),
            Message::Steering(told) => self.hear_steering(told),
        }
    }

    fn lose(&mut self, agent: u64) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        (peer.connected, peer.is_silent) = (false, false);
        // Whoever answers there next may be a new process without these replicas; it says what it has.
        (peer.ready, peer.coming, peer.yielding) = Default::default();
        (peer.loads, peer.failed) = Default::default();
        self.reroute();
        let lost: Vec<u64> = self.sent.iter().filter(|(_, s)| s.agent == agent).map(|(hop, _)| *hop).collect();
        for hop in lost {
            let sent = self.sent.remove(&hop).expect("it was there");
            self.end_hop(&sent, Some("its agent was lost"));
            // What was to meet others there cannot meet them elsewhere: its gateway runs the request again.
            if sent.query.waits() {
                continue;
            }
            let (from, arrived_ns) = (Sender::Here(sent.ticket), self.now_ns);
            let work = Work { query: sent.query, deadline_ns: sent.deadline_ns, from, arrived_ns };
            self.pass_on(work, "its agent was lost");
        }
        self.plan_attempts();
    }

    /// Says to all peers which replicas here take queries.
    fn announce(&mut self) {
        self.said_ns = self.now_ns;
        let replicas: Vec<Announced> = self.replicas.values().filter(|r| r.takes()).map(Replica::announced).collect();
        let coming: Vec<Coming> = self.replicas.values().filter_map(Replica::coming).collect();
        let yielding = self.yielding();
        let loads: Vec<(u64, Load)> = self.replicas.values().filter(|r| r.takes()).map(|r| (r.id, r.load)).collect();
        let failed: Vec<u64> = self.replicas.values().filter(|r| r.has_failed()).map(|r| r.id).collect();
        for (agent, peer) in &self.peers {
            // Two agents that take each other for lost must hear each other again.
            if peer.connected || peer.is_silent {
                let (replicas, coming, yielding) = (replicas.clone(), coming.clone(), yielding.clone());
                let (loads, failed) = (loads.clone(), failed.clone());
                let ready = Message::Ready { agent: self.agent, replicas, coming, yielding, loads, failed };
                self.actions.push(Action::Send(*agent, ready));
            }
        }
    }

    fn reroute(&mut self) {
        let here = self.replicas.values().filter(|r| r.takes()).map(|r| (self.agent, r.announced()));
        // An agent that is not in the target keeps its connection, for what it has asked for, but gets nothing new.
        let usable = |agent: u64| agent != self.agent && self.layout.agents.contains_key(&agent);
        let connected = self.peers.iter().filter(|(agent, p)| p.connected && usable(**agent));
        let there = connected.flat_map(|(agent, p)| p.ready.iter().map(|r| (*agent, r.clone())));
        self.routes.set(self.now_ns, here.chain(there));
        // What nobody else takes goes to a replica that drains here: it still serves what it is given.
        for draining in self.replicas.values().filter(|r| r.is_up() && !r.takes()) {
            self.routes.add_last(self.agent, draining.announced());
        }
        self.swap.changed_ns = self.now_ns;
        self.unpark();
    }

    /// Whether a replica of the task, none of which is ready although one was, will be: one is loaded or about to be, or the last
    /// one was lost so lately that a new plan may be on its way. Its queries wait for that.
    fn is_coming(&self, pipeline: &str, task: &str) -> bool {
        let Some(of) = self.layout.pipelines.get(pipeline) else { return false };
        let Some(at) = of.position(task) else { return false };
        let is_loading = |id: u64| {
            let here = self.replicas.get(&id).is_some_and(|r| r.coming().is_some());
            here || self.peers.values().any(|p| p.connected && p.coming.iter().any(|c| c.replica == id))
        };
        let Some(lost_ns) = self.routes.lost_ns(pipeline, task) else { return false };
        // Others' replicas of a new target are not known to be coming before those have said so.
        let is_new = self.steers.is_settling(self.now_ns) || self.now_ns < lost_ns + REPAIR_NS;
        of.replicas.iter().filter(|r| of.groups[&r.group].task == at).any(|r| is_new || is_loading(r.id))
    }
}

#[cfg(test)]
mod tests;
