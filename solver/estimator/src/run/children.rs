//! The queries that a finished query makes.

use crate::random::RandomStream;
use crate::state::drops::send_released;
use crate::state::group::CompiledGroup;
use crate::state::joins::{Joins, MadeQuery, Scopes};
use crate::state::pipeline::PipelineState;
use crate::state::query::{Dispatch, NO_PICK, SimulatedQuery};
use crate::state::serving::{ServingState, SimulatedDrop, StationInfo};
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::DropReason;

/// A query that has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedQuery {
    /// The query, with the fields that its children inherit.
    pub query: SimulatedQuery,
    /// The dispatch of its children.
    pub to: Dispatch,
    /// Whether it may make queries: not if its task is the last, or its request has lost another query.
    pub may_make: bool,
}

/// The station where a query has finished.
#[derive(Clone, Copy, Debug)]
pub struct QueryOrigin<'a> {
    /// Its pipeline.
    pub state: &'a PipelineState,
    /// Its group.
    pub group: &'a CompiledGroup,
    /// Its station.
    pub info: StationInfo,
    /// The present.
    pub now: Moment,
}

impl QueryOrigin<'_> {
    /// Makes the children of a query. Each child is sent, or dropped. Returns their number. A run that is cut short makes
    /// no more.
    #[inline]
    pub fn make_children(&self, serving: &mut ServingState, streams: &mut [RandomStream], parent: FinishedQuery) -> u64 {
        let mut made = 0;
        for at in self.group.chosen(streams) {
            let edge = &self.group.edges[at];
            let count = edge.fanout.draw(&mut streams[edge.stream as usize]);
            let child = SimulatedQuery { router: self.info.router + at as u32, ..parent.query };
            let joins_at_once = self.state.links[edge.to as usize].is_none() && parent.to.behind == TimeSpan::ZERO;
            let mut left = u64::from(count);
            while left > 0 {
                let allowed = serving.bounds.count_made(left);
                if allowed == 0 {
                    return made;
                }
                match joins_at_once {
                    true => serving.send_alike(self.now, child, parent.to.deadline, allowed),
                    false => (0..allowed).for_each(|_| self.send(serving, child, parent.to, edge.to)),
                }
                left -= allowed;
            }
            made += u64::from(count);
            if let Some(of_edge) = serving.made.get_mut(child.router as usize) {
                *of_edge += u64::from(count);
            }
        }
        made
    }

    #[inline(always)]
    fn send(&self, serving: &mut ServingState, child: SimulatedQuery, to: Dispatch, task: u32) {
        if !serving.send(self.now, self.state.links[task as usize], child, to) {
            drop_child(serving, self.info, child, task);
        }
    }

    /// As [`QueryOrigin::make_children`], in a pipeline with joins. First all children are counted. Then the parent is
    /// counted off, which may release held queries. Then children are sent, or held at their join.
    pub fn make_joined(
        &self,
        joins: &Joins,
        scopes: &mut Scopes,
        serving: &mut ServingState,
        streams: &mut [RandomStream],
        parent: FinishedQuery,
    ) -> u64 {
        let task = self.group.task_in_pipeline;
        if !parent.may_make {
            scopes.count_ended(joins, parent.query.scope, task);
            send_released(scopes, serving, self.state, self.now);
            return 0;
        }
        let scope = scopes.enter(joins, task, parent.query.scope);
        let chosen = self.group.chosen(streams);
        let mut made = 0;
        scopes.counts.clear();
        for edge_at in chosen.clone() {
            let edge = &self.group.edges[edge_at];
            let count = edge.fanout.draw(&mut streams[edge.stream as usize]);
            scopes.counts.push(count);
            if let Some(of_edge) = serving.made.get_mut(self.info.router as usize + edge_at) {
                *of_edge += u64::from(count);
            }
            scopes.count_made(joins, scope, edge.to, count);
            made += u64::from(count);
        }
        scopes.count_ended(joins, parent.query.scope, task);
        send_released(scopes, serving, self.state, self.now);
        let first = chosen.start;
        for at in chosen {
            let edge = &self.group.edges[at];
            let child = SimulatedQuery { router: self.info.router + at as u32, scope, pick: NO_PICK, ..parent.query };
            let mut left = u64::from(scopes.counts[at - first]);
            while left > 0 {
                let allowed = serving.bounds.count_made(left);
                if allowed == 0 {
                    return made;
                }
                let made_query = MadeQuery { query: child, to: parent.to, maker: task, task: edge.to };
                for _ in 0..allowed {
                    if !(joins.waits(edge.to) && scopes.hold_if_waiting(joins, made_query)) {
                        self.send(serving, child, parent.to, edge.to);
                    }
                }
                left -= allowed;
            }
        }
        scopes.leave(scope);
        made
    }
}

#[cold]
fn drop_child(serving: &mut ServingState, info: StationInfo, query: SimulatedQuery, task: u32) {
    let StationInfo { pipeline, task_in_pipeline: at, .. } = info;
    let query = SimulatedQuery { pick: NO_PICK, ..query };
    serving.dropped.push(SimulatedDrop { pipeline, at, task, query, reason: DropReason::Budget });
}
