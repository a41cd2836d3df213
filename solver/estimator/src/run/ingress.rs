//! Requests enter their pipelines.

use crate::change::Changes;
use crate::input::workload::Arrivals;
use crate::state::RunState;
use crate::state::joins::NO_SCOPE;
use crate::state::paths::PathPoint;
use crate::state::query::{Dispatch, NO_PICK, SimulatedQuery};
use crate::state::requests::{NewRequest, RequestKey};
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::Router;
use apportion_serving::station::StationInput;

/// Arrivals between two looks at other events.
const ARRIVALS_AT_ONCE: u64 = 1 << 12;

/// The arrivals to come, by pipeline.
#[derive(Debug)]
pub struct Ingress<'a> {
    arrivals: Vec<Arrivals<'a>>,
    /// The next arrival of each pipeline; `NEVER` if there is none.
    next: Vec<Moment>,
}

/// The next request: its pipeline, and when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct NextArrival {
    /// The pipeline.
    pub pipeline: usize,
    /// When; `NEVER` if no request is left.
    pub at: Moment,
}

impl<'a> Ingress<'a> {
    /// Before the first arrival.
    #[must_use]
    pub fn new(mut arrivals: Vec<Arrivals<'a>>) -> Self {
        let next = arrivals.iter_mut().map(|a| a.next().unwrap_or(Moment::NEVER)).collect();
        Self { arrivals, next }
    }

    /// The next request of all pipelines; of several at one moment, the first pipeline's.
    #[inline]
    pub fn next(&self) -> NextArrival {
        match self.next.as_slice() {
            [only] => NextArrival { pipeline: 0, at: *only },
            many => {
                let first = many.iter().copied().enumerate().min_by_key(|&(_, at)| at);
                let (pipeline, at) = first.unwrap_or((0, Moment::NEVER));
                NextArrival { pipeline, at }
            }
        }
    }

    /// The next request of a pipeline arrives now, and its root query leaves the ingress that its client has chosen.
    #[inline]
    pub fn arrive(&mut self, run: &mut RunState, mut changes: Option<&mut Changes<'_>>, pipeline: usize) {
        if let Some(changes) = changes.as_deref_mut() {
            changes.count_arrival(pipeline, run.now);
        }
        self.next[pipeline] = self.arrivals[pipeline].next().unwrap_or(Moment::NEVER);
        let state = &run.pipelines[pipeline];
        let PathPoint { node, stages } = state.paths.start();
        let deadline = run.now + state.slo;
        let number = run.statistics.count_arrival(pipeline, run.now);
        let router = state.ingress_router(number, &mut run.streams);
        let new = NewRequest { pipeline, number, arrival: run.now, deadline };
        // Another thread follows requests by their numbers.
        let request = if run.journal.is_none() { run.requests.open(new) } else { number as u32 };
        if let Some(changes) = changes {
            changes.watch(RequestKey { pipeline: pipeline as u32, slot: request, number }, run.now, state.slo);
        }
        run.serving.track(request, state.is_tracked);
        let query = SimulatedQuery { request, node, stages, router, pick: NO_PICK, scope: NO_SCOPE };
        let link = state.links[state.root as usize];
        let is_sent = run.serving.send(run.now, link, query, Dispatch { deadline, behind: TimeSpan::ZERO });
        debug_assert!(is_sent, "a query that is not behind is sent");
    }

    /// Requests arrive until a station wants a tick, a query is on its way, or `moment` comes. No other event is earlier.
    #[inline]
    pub fn arrive_before(&mut self, run: &mut RunState, mut changes: Option<&mut Changes<'_>>, moment: Moment) {
        let is_quiet = run.serving.is_quiet();
        if is_quiet && self.arrive_in_bulk(run, moment) && self.next().at > run.now {
            return;
        }
        loop {
            let arrival = self.next();
            run.now = arrival.at;
            self.arrive(run, changes.as_deref_mut(), arrival.pipeline);
            run.serving.bounds.count_work(1);
            let is_quiet = run.serving.is_quiet();
            if !is_quiet {
                run.account_for_drops();
            }
            let next = self.next().at;
            let serving = &run.serving;
            let may_go_on =
                is_quiet && !serving.bounds.is_due() && serving.next_wake().min(serving.network.next_due()) >= moment;
            if next > arrival.at && !(may_go_on && next < moment) {
                return;
            }
        }
    }

    /// Fast path: one pipeline, whose root queries all join one queue at once, and nothing else depends on them. Data that
    /// does not depend on the request is read once for all of them. Returns `false`, with nothing done, where the path does
    /// not apply. It may stop while more requests arrive at the same moment.
    #[inline]
    fn arrive_in_bulk(&mut self, run: &mut RunState, before: Moment) -> bool {
        let ([state], [arrivals], [next]) = (&*run.pipelines, &mut *self.arrivals, &mut *self.next) else {
            return false;
        };
        let Some(router) = state.only_ingress() else { return false };
        let only = run.serving.routers[router as usize].as_ref().and_then(Router::only);
        let is_unobserved = state.passes_on() && !state.is_tracked && !run.serving.is_watched() && !run.has_changes;
        let Some(picked) = only.filter(|_| is_unobserved) else { return false };
        let PathPoint { node, stages } = state.paths.start();
        let station = &mut run.serving.stations[picked.target as usize];
        let is_followed_here = run.journal.is_none();
        let mut arrived = 0;
        loop {
            let now = *next;
            let deadline = now + state.slo;
            let number = run.statistics.count_arrival(0, now);
            let new = NewRequest { pipeline: 0, number, arrival: now, deadline };
            let request = if is_followed_here { run.requests.open(new) } else { number as u32 };
            let query = SimulatedQuery { request, node, stages, router, pick: picked.slot, scope: NO_SCOPE };
            station.handle(now, StationInput::Arrive { query, deadline });
            run.now = now;
            *next = arrivals.next().unwrap_or(Moment::NEVER);
            arrived += 1;
            if !station.is_quiet() || *next >= before || arrived == ARRIVALS_AT_ONCE {
                break;
            }
        }
        run.serving.bounds.count_work(arrived);
        run.serving.take_outputs(run.now, picked.target, |_, _, _| {});
        run.account_for_drops();
        true
    }
}
