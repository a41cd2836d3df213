//! Which queries of joins wait at this agent, and which parts of their requests have come?
//!
//! A *meeting* is a scope at the place where its parts meet. Its key is the scope's credit, with the names of its join and
//! its fork.

use super::parts::waits;
use crate::layout::{JoinWait, LayoutPipeline};
use crate::node::covered::CreditCoverage;
use crate::node::fleet::FleetState;
use crate::node::work::LocalQuery;
use crate::tensor::zero_row;
use crate::wire::{Credit, JoinInputs, JoinPart, RoutedQuery, Scope};
use std::collections::{BTreeMap, BTreeSet};

/// Meetings at one agent; queries that would open more are dropped, with the reason `join_full`.
pub const MEETINGS_MAX: usize = 65_536;

/// A scope at its meeting place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeetingKey {
    origin: u64,
    request: u64,
    attempt: u8,
    join: String,
    fork: String,
    /// First unit of the scope's credit.
    start: u64,
    /// Units of the scope's credit.
    len: u64,
}

#[derive(Debug, Default)]
struct Meeting {
    /// By the name of the edge's parent.
    edges: BTreeMap<String, Met>,
    /// Queries that wait, by their numbers.
    held: BTreeSet<u64>,
    pipeline: String,
    until_ns: u64,
}

/// The parts that have come over one edge.
#[derive(Debug, Default)]
struct Met {
    covered: CreditCoverage,
    brought: Vec<JoinInputs>,
}

/// A query that waits at a join.
pub struct WaitingQuery {
    /// Its number here.
    pub number: u64,
    /// The meetings for which it waits.
    pub keys: Vec<MeetingKey>,
}

/// A query that waits no longer.
pub struct ReleasedQuery {
    /// The query, with the inputs that were brought.
    pub work: LocalQuery,
    /// The replica that its fork has chosen; 0 if none.
    pub replica: u64,
}

/// All meetings here.
#[derive(Debug, Default)]
pub struct JoinMeetings {
    open: BTreeMap<MeetingKey, Meeting>,
    held: BTreeMap<u64, LocalQuery>,
    last_number: u64,
}

impl JoinMeetings {
    /// Scopes that are not over, and queries that wait.
    pub fn len(&self) -> usize {
        self.open.len() + self.held.len()
    }

    /// Takes note of parts that have ended. Returns the key of their meeting; none if there are too many meetings.
    pub fn note_part(&mut self, part: JoinPart, fleet: &FleetState, now_ns: u64) -> Option<MeetingKey> {
        let JoinPart { pipeline, origin, request, attempt, join, fork, parent, scope, ended, brought, .. } = part;
        let key = MeetingKey { origin, request, attempt, join, fork, start: scope.start, len: scope.len };
        let Some(meeting) = self.meeting(&key, &pipeline, fleet, now_ns) else {
            tracing::warn!(MEETINGS_MAX, "too many joins wait here: what comes on top is forgotten");
            return None;
        };
        let met = meeting.edges.entry(parent).or_default();
        let mut is_new = false;
        for credit in ended {
            is_new |= met.covered.add(credit);
        }
        // A query that ran twice brings the same twice.
        if is_new {
            met.brought.extend(brought);
        }
        Some(key)
    }

    /// Enters a query into the meetings of its scopes; none if there are too many meetings.
    pub fn enter(
        &mut self,
        query: &RoutedQuery,
        of: &LayoutPipeline,
        fleet: &FleetState,
        now_ns: u64,
    ) -> Option<WaitingQuery> {
        let keys: Vec<MeetingKey> = own_scopes(query).map(|scope| key_of(query, scope)).collect();
        self.last_number += 1;
        let number = self.last_number;
        for key in &keys {
            let maker = waits(of, &key.join, &key.fork).find(|w| w.makes).map(|w| of.tasks[w.parent].name.clone());
            let Some(meeting) = self.meeting(key, &query.pipeline, fleet, now_ns) else {
                tracing::warn!(MEETINGS_MAX, "too many joins wait here: one more is dropped");
                return None;
            };
            if let Some(maker) = maker {
                meeting.edges.entry(maker).or_default().covered.add(query.credit);
            }
            meeting.held.insert(number);
        }
        Some(WaitingQuery { number, keys })
    }

    /// Keeps a query that has entered its meetings.
    pub fn hold(&mut self, number: u64, work: LocalQuery) {
        self.held.insert(number, work);
    }

    /// The meeting of a scope, opened if need be; none if there are too many.
    fn meeting(&mut self, key: &MeetingKey, pipeline: &str, fleet: &FleetState, now_ns: u64) -> Option<&mut Meeting> {
        if !self.open.contains_key(key) {
            if self.open.len() >= MEETINGS_MAX {
                return None;
            }
            let until_ns = now_ns.saturating_add(fleet.patience_ns(pipeline));
            let meeting = Meeting { until_ns, pipeline: pipeline.into(), ..Meeting::default() };
            self.open.insert(key.clone(), meeting);
        }
        self.open.get_mut(key)
    }

    /// The pipeline of a meeting.
    pub fn pipeline_of(&self, key: &MeetingKey) -> Option<&str> {
        self.open.get(key).map(|meeting| meeting.pipeline.as_str())
    }

    /// The numbers of the queries that wait for a meeting.
    pub fn waiting_for(&self, key: &MeetingKey) -> Vec<u64> {
        self.open.get(key).map(|meeting| meeting.held.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether all parts for which a query waits have ended.
    pub fn may_release(&self, number: u64, of: &LayoutPipeline) -> bool {
        let Some(work) = self.held.get(&number) else { return false };
        own_scopes(&work.query).map(|scope| key_of(&work.query, scope)).all(|key| {
            let waited_for = waits(of, &key.join, &key.fork).filter(|w| !w.makes);
            self.have_ended(&key, waited_for, of)
        })
    }

    /// Forgets a meeting if no query waits for it and nothing can make more of these queries.
    pub fn forget_if_over(&mut self, key: &MeetingKey, of: &LayoutPipeline) {
        let is_empty = self.open.get(key).is_some_and(|meeting| meeting.held.is_empty());
        if is_empty && self.have_ended(key, waits(of, &key.join, &key.fork), of) {
            self.open.remove(key);
        }
    }

    fn have_ended<'p>(&self, key: &MeetingKey, mut waits: impl Iterator<Item = &'p JoinWait>, of: &LayoutPipeline) -> bool {
        let Some(meeting) = self.open.get(key) else { return true };
        let scope = Credit { start: key.start, len: key.len };
        waits.all(|w| {
            let met = meeting.edges.get(&of.tasks[w.parent].name);
            met.is_some_and(|met| met.covered.has(scope))
        })
    }

    /// Takes out a query that need not wait any longer, with the inputs that were brought for it.
    pub fn release(&mut self, number: u64, of: &LayoutPipeline, now_ns: u64) -> ReleasedQuery {
        let mut work = self.held.remove(&number).expect("it is held");
        let task = work.query.task.clone();
        let (own, others): (Vec<Scope>, Vec<Scope>) =
            std::mem::take(&mut work.query.scopes).into_iter().partition(|s| s.join == task);
        work.query.scopes = others;
        for scope in &own {
            let Some(meeting) = self.open.get_mut(&key_of(&work.query, scope)) else { continue };
            meeting.held.remove(&number);
            meeting.edges.values().for_each(|met| bring(&mut work.query, met, scope.row));
        }
        if let Some(at) = of.position(&task) {
            let missing = |query: &RoutedQuery, name: &str| query.inputs.iter().all(|t| t.name != name);
            let specs: Vec<_> = of.tasks[at].inputs.iter().filter(|s| missing(&work.query, &s.name)).collect();
            work.query.inputs.extend(specs.into_iter().map(zero_row));
        }
        work.arrived_ns = now_ns;
        ReleasedQuery { work, replica: own.first().map_or(0, |scope| scope.replica) }
    }

    /// Forgets the meetings of a cancelled request. Returns the queries that waited there.
    pub fn cancel(&mut self, origin: u64, request: u64) -> impl Iterator<Item = LocalQuery> {
        self.forget(move |key, _| (key.origin, key.request) == (origin, request))
    }

    /// Forgets meetings that are too old: an agent that would have brought the rest is lost, and the gateway has given up.
    /// Returns the queries that waited there.
    pub fn expire(&mut self, now_ns: u64) -> impl Iterator<Item = LocalQuery> {
        self.forget(move |_, meeting| meeting.until_ns <= now_ns)
    }

    fn forget(&mut self, is_over: impl Fn(&MeetingKey, &Meeting) -> bool) -> impl Iterator<Item = LocalQuery> {
        let over = self.open.extract_if(.., |key, meeting| is_over(key, meeting));
        let numbers: BTreeSet<u64> = over.flat_map(|(_, meeting)| meeting.held).collect();
        numbers.into_iter().filter_map(move |number| {
            let work = self.held.remove(&number)?;
            for scope in &work.query.scopes {
                if let Some(meeting) = self.open.get_mut(&key_of(&work.query, scope)) {
                    meeting.held.remove(&number);
                }
            }
            Some(work)
        })
    }
}

/// The scopes whose parts meet at the query's own task.
fn own_scopes(query: &RoutedQuery) -> impl Iterator<Item = &Scope> {
    query.scopes.iter().filter(|scope| scope.join == query.task)
}

fn key_of(query: &RoutedQuery, scope: &Scope) -> MeetingKey {
    let (origin, request, attempt) = (query.origin, query.request, query.attempt);
    let Credit { start, len } = scope.credit;
    MeetingKey { origin, request, attempt, join: scope.join.clone(), fork: scope.fork.clone(), start, len }
}

/// Gives a query the inputs that one edge has brought: those of the same row of the fork if there are any, else the first.
fn bring(query: &mut RoutedQuery, met: &Met, row: u32) {
    let first = met.brought.iter().min_by_key(|b| (b.row != row, b.row, b.order));
    for input in first.into_iter().flat_map(|b| &b.inputs) {
        if query.inputs.iter().all(|t| t.name != input.name) {
            query.inputs.push(input.clone());
        }
    }
}
