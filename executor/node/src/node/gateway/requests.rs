//! Which requests of this gateway wait for their answer, and when is each of them due?

use super::pending::{Pending, RequestAttempt};
use crate::node::request::{Piece, RequestTerms};
use crate::tensor::Tensor;
use crate::wire::{Credit, RoutedQuery};
use std::collections::BTreeMap;

/// Most runs of one request.
pub const ATTEMPTS_MAX: usize = 4;

/// Requests of this agent's gateway that have no answer yet, by number.
pub struct PendingRequests {
    pending: BTreeMap<u64, Pending>,
    /// Their numbers by their clients'.
    by_caller: BTreeMap<u64, u64>,
    /// No request is due ([`Pending::due_ns`]) before this moment: ticks look at none of them until then.
    due_ns: u64,
    last_number: u64,
}

/// The outcome of a request whose parts are all back.
pub struct CompletedRequest {
    /// The pieces that its sinks made.
    pub pieces: Vec<Piece>,
    /// How many parts were dropped.
    pub dropped: u32,
}

/// One run of a request.
pub struct AttemptInput {
    /// The gateway's number of the request.
    pub request: u64,
    /// Its pipeline.
    pub pipeline: String,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
    /// When it should be answered, on the agent's clock.
    pub deadline_ns: i64,
    /// What it says beyond its inputs.
    pub terms: RequestTerms,
    /// Which run it is, from 0.
    pub attempt: u8,
    /// The group that serves the request at each task, if it has chosen them; else empty.
    pub pins: Vec<u64>,
}

impl AttemptInput {
    /// The queries of the run: one for each row, at the task `root`. `apart` keeps them apart from others' in batches.
    pub fn into_queries(self, agent: u64, root: &str, apart: u64) -> impl Iterator<Item = RoutedQuery> {
        let Self { request, pipeline, inputs, terms, attempt, pins, .. } = self;
        let RequestTerms { level, trace, .. } = terms;
        let rows = inputs[0].rows();
        let mut columns: Vec<_> = inputs.iter().map(|t| t.each_row().into_iter()).collect();
        (0..rows).map(move |row| RoutedQuery {
            pipeline: pipeline.clone(),
            task: root.to_string(),
            replica: 0,
            origin: agent,
            request,
            row: row as u32,
            credit: Credit::WHOLE.part(row as u64, rows as u64).expect("fewer rows than credit"),
            budget_ns: 0,
            hops: 0,
            attempt,
            group: 0,
            behind_ns: 0,
            level,
            apart,
            pins: pins.clone(),
            trace,
            scopes: Vec::new(),
            inputs: columns.iter_mut().filter_map(Iterator::next).collect(),
        })
    }
}

impl PendingRequests {
    /// None yet; their numbers follow `last_number`.
    pub fn after(last_number: u64) -> Self {
        Self { pending: BTreeMap::new(), by_caller: BTreeMap::new(), due_ns: u64::MAX, last_number }
    }

    /// Adds a request; its number.
    pub fn insert(&mut self, pending: Pending) -> u64 {
        self.last_number += 1;
        self.due_ns = self.due_ns.min(pending.due_ns());
        self.by_caller.insert(pending.caller, self.last_number);
        self.pending.insert(self.last_number, pending);
        self.last_number
    }

    /// The request with this number, if it has no answer yet. A caller that makes it due earlier calls [`Self::make_due`].
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending.get_mut(&number)
    }

    /// The request with this number, if it has no answer yet.
    pub fn get(&self, number: u64) -> Option<&Pending> {
        self.pending.get(&number)
    }

    /// Takes out a request, to answer it.
    pub fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        self.by_caller.remove(&pending.caller);
        Some(pending)
    }

    /// The number of the request of this client, if it has no answer yet.
    pub fn of_caller(&self, caller: u64) -> Option<u64> {
        self.by_caller.get(&caller).copied()
    }

    /// Begins a new run of a request.
    pub fn begin_run(&mut self, number: u64) -> Option<AttemptInput> {
        let pending = self.pending.get_mut(&number)?;
        let attempt = u8::try_from(pending.attempts.len()).expect("few attempts");
        pending.attempts.push(RequestAttempt::default());
        Some(AttemptInput {
            request: number,
            pipeline: pending.pipeline.clone(),
            inputs: pending.inputs.clone(),
            deadline_ns: pending.deadline_ns.cast_signed(),
            terms: pending.terms.clone(),
            attempt,
            pins: pending.chosen.as_ref().map_or_else(Vec::new, |chosen| chosen.groups.clone()),
        })
    }

    /// A request is due at this moment.
    pub fn make_due(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// Plans another run of each request that may have one. `retry_ns` says when, by pipeline.
    pub fn plan_retries(&mut self, retry_ns: impl Fn(&str) -> u64) {
        for pending in self.pending.values_mut().filter(|p| p.attempts.len() < ATTEMPTS_MAX) {
            pending.again_ns = Some(retry_ns(&pending.pipeline));
            self.due_ns = self.due_ns.min(pending.due_ns());
        }
    }

    /// Whether any request may be due.
    pub fn is_any_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// All due requests were served: finds the moment at which the next one is due.
    pub fn find_next_due(&mut self) {
        self.due_ns = self.pending.values().map(Pending::due_ns).min().unwrap_or(u64::MAX);
    }

    /// The requests whose next run is due.
    pub fn due_retries(&self, now_ns: u64) -> Vec<u64> {
        self.numbers(|pending| pending.again_ns.is_some_and(|at| at <= now_ns))
    }

    /// The requests that nobody waits for any longer.
    pub fn expired(&self, now_ns: u64) -> Vec<u64> {
        self.numbers(|pending| pending.give_up_ns <= now_ns)
    }

    fn numbers(&self, is_wanted: impl Fn(&Pending) -> bool) -> Vec<u64> {
        self.pending.iter().filter(|(_, pending)| is_wanted(pending)).map(|(number, _)| *number).collect()
    }

    /// How many have no answer yet.
    pub fn len(&self) -> usize {
        self.pending.len()
    }
}
