//! What follows when a batch has ended: its members make queries for the next tasks, or answer their requests.

use super::agenda::RunningBatch;
use super::children::{FinishedQuery, QueryOrigin};
use crate::state::group::NO_BUDGET;
use crate::state::journal::JournalQuery;
use crate::state::query::{Dispatch, SimulatedQuery};
use crate::state::serving::StationInfo;
use crate::state::settlement::{SettledQuery, Settlement};
use crate::state::statistics::AnsweredRequest;
use crate::state::{RunState, ServerId};
use apportion_domain::Partial;
use apportion_serving::Waiting;
use apportion_serving::station::StationInput;

/// Ends batches.
#[derive(Debug, Default)]
pub struct Completion {
    /// Members of the batch that ends: a buffer.
    members: Vec<Waiting<SimulatedQuery>>,
}

impl Completion {
    /// A batch has ended.
    #[inline]
    pub fn end_batch(&mut self, run: &mut RunState, RunningBatch { station, server, .. }: RunningBatch) {
        if run.stale.take(ServerId { station, server }) {
            return;
        }
        let machine = &mut run.serving.stations[station as usize];
        machine.handle(run.now, StationInput::BatchFinished { server });
        machine.swap_batch(server, &mut self.members);
        run.serving.bounds.count_ended(self.members.len() as u64);
        run.serving.take_outputs(run.now, station, |_, _, _| {});
        let info = run.serving.infos[station as usize];
        let group = &run.groups[info.group as usize];
        let state = &run.pipelines[group.pipeline as usize];
        // A request that lost a query makes no more of them, unless partial answers are allowed.
        let are_wanted = state.partial == Partial::Allow || !run.requests.has_dropped();
        let is_leaf = group.edges.is_empty() && !state.counts_outstanding;
        let is_done = match are_wanted {
            true if group.passes_on && state.passes_on() => self.pass_on_all(run, info),
            true if is_leaf && run.journal.is_some() => self.note_all(run, info),
            true if is_leaf && state.is_single => self.answer_all(run, info),
            _ => false,
        };
        if !is_done {
            self.end_each(run, station, info);
        }
        self.members.clear();
    }

    /// Fast path: all members go on to the same task, and nothing else follows. Returns `false` if each needs a look.
    #[inline(always)]
    fn pass_on_all(&self, run: &mut RunState, info: StationInfo) -> bool {
        let (group, now) = (&run.groups[info.group as usize], run.now);
        let is_on_time = |m: &Waiting<SimulatedQuery>| m.arrived + group.budget >= now;
        if run.serving.is_watched() || !(group.budget == NO_BUDGET || self.members.iter().all(is_on_time)) {
            return false;
        }
        let step = run.pipelines[group.pipeline as usize].paths.stage(group.step, group.accuracy);
        run.serving.bounds.count_passed(self.members.len() as u64);
        run.serving.pass_on(now, info.router, step, &self.members);
        true
    }

    /// Fast path: all members answer their requests, of which only sums are kept. Returns `false` if more is kept.
    #[inline(always)]
    fn answer_all(&self, run: &mut RunState, info: StationInfo) -> bool {
        if !run.statistics.keeps_sums_only() || run.has_changes {
            return false;
        }
        let group = &run.groups[info.group as usize];
        let paths = &run.pipelines[group.pipeline as usize].paths;
        let step = paths.stage(group.step, group.accuracy);
        let requests = &mut run.requests;
        let answers = self.members.iter().map(|m| {
            let point = step.pass(&m.query);
            let arrival = requests.close_single(m.query.request);
            AnsweredRequest { arrival, deadline: m.deadline, accuracy: paths.accuracy(point, group.depth) }
        });
        run.statistics.count_answers(group.pipeline as usize, run.now, answers);
        true
    }

    /// Fast path: all members end as leaves, and another thread follows their requests. Returns `false` if this one does.
    #[inline(always)]
    fn note_all(&self, run: &mut RunState, info: StationInfo) -> bool {
        let Some(journal) = &mut run.journal else { return false };
        let group = &run.groups[info.group as usize];
        let paths = &run.pipelines[group.pipeline as usize].paths;
        let step = paths.stage(group.step, group.accuracy);
        let note = |m: &Waiting<SimulatedQuery>, accuracy: f64| JournalQuery {
            deadline: m.deadline,
            accuracy,
            request: m.query.request,
            made: 0,
        };
        let members = self.members.iter();
        match paths.is_plain_product() {
            true => journal.note_queries(members.map(|m| note(m, m.query.stages * group.accuracy))),
            false => {
                journal.note_queries(members.map(|m| note(m, paths.accuracy(step.pass(&m.query), group.depth))));
            }
        }
        journal.note_end(run.now, info.group);
        true
    }

    /// Each member makes its children, or ends as a leaf.
    #[inline]
    fn end_each(&self, run: &mut RunState, station: u32, info: StationInfo) {
        let group = &run.groups[info.group as usize];
        let state = &run.pipelines[group.pipeline as usize];
        let settlement = Settlement { group, weights: &state.weights, partial: state.partial };
        for &Waiting { query, deadline, arrived } in &self.members {
            if run.serving.bounds.cut().is_some() {
                return;
            }
            if state.counts_outstanding {
                run.serving.query_ended(&query);
            }
            let point = state.paths.stage(group.step, group.accuracy).pass(&query);
            let is_wanted = state.partial == Partial::Allow || run.requests.is_whole(query.request);
            let may_make = !group.edges.is_empty() && is_wanted;
            let mut made = 0;
            if may_make && let Some(done) = run.serving.done.get_mut(station as usize) {
                *done += 1;
            }
            if may_make || state.joins.is_some() {
                let to = Dispatch { deadline, behind: run.now.since(arrived + group.budget) };
                let query = SimulatedQuery { node: point.node, stages: point.stages, ..query };
                let parent = FinishedQuery { query, to, may_make };
                let origin = QueryOrigin { state, group, info, now: run.now };
                made = match &state.joins {
                    None => origin.make_children(&mut run.serving, &mut run.streams, parent),
                    Some(joins) => origin.make_joined(joins, &mut run.scopes, &mut run.serving, &mut run.streams, parent),
                };
            }
            let accuracy = || state.paths.accuracy(point, group.depth);
            match &mut run.journal {
                None => {
                    let ended = SettledQuery { slot: query.request, now: run.now, made };
                    settlement.settle(&mut run.requests, &mut run.statistics, ended, accuracy);
                }
                // The only query of a request has only gone on.
                Some(_) if state.is_single && made > 0 => {}
                Some(journal) => {
                    let accuracy = if made == 0 || group.is_scored { accuracy() } else { 0.0 };
                    journal.note_query(JournalQuery { deadline, accuracy, request: query.request, made: made as u32 });
                }
            }
        }
        if let Some(journal) = &mut run.journal {
            journal.note_end(run.now, info.group);
        }
    }
}
