//! Which requests does their gateway give up?
//!
//! Example: under twice the load that a plan serves, queries of the first task wait for seconds. A request that has waited
//! for ten times its SLO is given up, as agents do. The queries of it that wait leave their queues, and those that run make
//! no children. So the next task has less to do, and serves others in time.

use crate::state::RunState;
use crate::state::requests::RequestKey;
use apportion_domain::Moment;
use std::collections::VecDeque;

/// The requests that may be given up.
#[derive(Debug, Default)]
pub struct GiveUps {
    /// By pipeline in the problem's order, the requests in the order of their arrival, each with the moment when it is
    /// given up. Any of them may have ended.
    waiting: Vec<VecDeque<(Moment, RequestKey)>>,
}

impl GiveUps {
    /// A request is given up at this moment, if it is still open then. Moments of one pipeline never fall.
    pub fn watch(&mut self, pipeline: usize, at: Moment, request: RequestKey) {
        if self.waiting.len() <= pipeline {
            self.waiting.resize_with(pipeline + 1, VecDeque::new);
        }
        self.waiting[pipeline].push_back((at, request));
    }

    /// When the next request may be given up.
    pub fn next(&self) -> Moment {
        self.waiting.iter().filter_map(|of| of.front()).map(|(at, _)| *at).min().unwrap_or(Moment::NEVER)
    }

    /// Gives up the requests that are due now, and forgets those that have ended.
    pub fn act(&mut self, run: &mut RunState) {
        // What was dropped at this moment comes first.
        run.account_for_drops();
        for (pipeline, waiting) in self.waiting.iter_mut().enumerate() {
            while let Some(&(at, request)) = waiting.front() {
                let is_open = run.requests.is_open(request);
                if is_open && at > run.now {
                    break;
                }
                waiting.pop_front();
                if is_open {
                    run.give_up(pipeline as u32, request.slot);
                    run.account_for_drops();
                }
            }
        }
    }
}
