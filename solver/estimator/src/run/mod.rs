//! Which event is next, and what does it do?
//!
//! Example: at one moment a batch ends, a request arrives, and a replica becomes free. [`SimulationRun`] lets each part act
//! in this order. Batches end ([`completion`]), requests arrive ([`ingress`]), and queries come out of the network
//! ([`transit`]). Stations wake, module states arrive, and replicas and plans change ([`crate::change`]). At last batches
//! start ([`running`]). The loop decides nothing about policy.

mod agenda;
mod children;
mod completion;
mod ingress;
mod running;
mod transit;

use crate::change::Changes;
use crate::input::workload::Arrivals;
use crate::state::RunState;
use apportion_domain::Moment;
use completion::Completion;
use ingress::{Ingress, NextArrival};
use running::RunningBatches;

/// A run in progress.
#[derive(Debug)]
pub struct SimulationRun<'a> {
    /// The present state.
    pub state: RunState,
    /// The changes of the run, if it has any.
    pub changes: Option<Changes<'a>>,
    ingress: Ingress<'a>,
    running: RunningBatches,
    completion: Completion,
}

/// When the parts of a run act next.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The next request.
    arrival: NextArrival,
    /// The next event that is not an arrival.
    other: Moment,
    /// When module states act.
    views: Moment,
    /// When a change is due.
    change: Moment,
    /// Whether some replica finishes its queries before it leaves: each event may then free its device.
    is_draining: bool,
}

/// How a turn of the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnEnd {
    /// All requests of the moment have arrived: batches may start.
    MomentComplete,
    /// More requests arrive at this moment: batches wait for them.
    MoreArrivals,
    /// The run is cut short, or a change failed.
    Cut,
}

impl<'a> SimulationRun<'a> {
    /// Before the first event.
    #[must_use]
    pub fn new(state: RunState, arrivals: Vec<Arrivals<'a>>, changes: Option<Changes<'a>>) -> Self {
        let (ingress, running) = (Ingress::new(arrivals), RunningBatches::default());
        Self { state, changes, ingress, running, completion: Completion::default() }
    }

    /// Runs until no event is left, or the run is cut short.
    pub fn run(&mut self) {
        while let Some(turn) = self.next_turn() {
            match self.take_turn(turn) {
                TurnEnd::MomentComplete => self.running.start_due(&mut self.state),
                TurnEnd::MoreArrivals => self.state.account_for_drops(),
                TurnEnd::Cut => return,
            }
        }
    }

    /// When the parts act next; `None` if no event is left, or the run is cut short.
    #[inline]
    fn next_turn(&mut self) -> Option<Turn> {
        self.state.serving.bounds.count_work(1);
        if !self.state.is_within_bounds() {
            return None;
        }
        let arrival = self.ingress.next();
        let serving = &self.state.serving;
        let others = self.running.next_end().min(serving.network.next_due()).min(serving.next_wake());
        let work = others.min(arrival.at);
        let change = match &mut self.changes {
            None => Moment::NEVER,
            Some(changes) => changes.next(work, self.state.now, self.state.requests.in_flight()),
        };
        if work.min(change) == Moment::NEVER || self.state.statistics.has_too_many_misses() {
            return None;
        }
        let views = self.state.modules.next(work);
        let is_draining = self.changes.as_ref().is_some_and(|c| c.is_draining());
        Some(Turn { arrival, other: others.min(views).min(change), views, change, is_draining })
    }

    /// Requests arrive alone up to the next other event, or all parts act at the next moment.
    #[inline]
    fn take_turn(&mut self, turn: Turn) -> TurnEnd {
        if turn.arrival.at < turn.other && !turn.is_draining {
            self.ingress.arrive_before(&mut self.state, self.changes.as_mut(), turn.other);
            return TurnEnd::MomentComplete;
        }
        let now = turn.other.min(turn.arrival.at);
        self.state.now = now;
        while let Some(batch) = self.running.pop_ended(now) {
            self.completion.end_batch(&mut self.state, batch);
            if !self.state.is_within_bounds() {
                return TurnEnd::Cut;
            }
        }
        // Each of several arrivals at one moment takes a turn of the loop. Batches start after the last.
        let is_last = turn.arrival.at > now || {
            self.ingress.arrive(&mut self.state, self.changes.as_mut(), turn.arrival.pipeline);
            self.ingress.next().at > now
        };
        transit::join_stations(&mut self.state);
        self.state.serving.wake(now);
        if turn.views == now {
            self.state.modules.act(now, &mut self.state.serving);
        }
        if (turn.is_draining || turn.change <= now) && !self.carry_out_changes() {
            return TurnEnd::Cut;
        }
        if is_last { TurnEnd::MomentComplete } else { TurnEnd::MoreArrivals }
    }

    /// Carries out the changes that are due. Returns whether the run can go on.
    #[cold]
    fn carry_out_changes(&mut self) -> bool {
        let Some(changes) = &mut self.changes else { return true };
        changes.carry_out(&mut self.state);
        changes.failed.is_none()
    }
}
