//! What do the notes of a run add up to?

use super::numbers::OpenNumbers;
use crate::state::RunState;
use crate::state::group::CompiledGroup;
use crate::state::journal::{JournalBlock, JournalEnd, JournalQuery};
use crate::state::pipeline::PipelineState;
use crate::state::requests::{NewRequest, RequestSlots};
use crate::state::settlement::{SettledQuery, Settlement};
use crate::state::statistics::{AnsweredRequest, Statistics};
use apportion_domain::{Partial, TimeSpan};

/// One pipeline, as far as its accounts need it.
#[derive(Debug)]
struct PipelineAccount {
    slo: TimeSpan,
    partial: Partial,
    weights: Vec<f64>,
    /// Whether a request never has more than one query.
    is_single: bool,
    open: OpenNumbers,
}

/// The open requests of a run, and the counts of its waits and outcomes.
#[derive(Debug)]
pub struct RequestLedger {
    groups: Vec<CompiledGroup>,
    pipelines: Vec<PipelineAccount>,
    requests: RequestSlots,
    statistics: Statistics,
}

impl RequestLedger {
    /// Before the first event of a run.
    #[must_use]
    pub fn new(state: &RunState) -> Self {
        let pipeline = |p: &PipelineState| PipelineAccount {
            slo: p.slo,
            partial: p.partial,
            weights: p.weights.clone(),
            is_single: p.is_single,
            open: OpenNumbers::default(),
        };
        let channels_max = state.pipelines.iter().map(|p| p.weights.len()).max().unwrap_or(0);
        Self {
            groups: state.groups.clone(),
            pipelines: state.pipelines.iter().map(pipeline).collect(),
            requests: RequestSlots::new(channels_max),
            statistics: state.statistics.clone(),
        }
    }

    /// Enters the notes of a part of the run.
    pub fn enter(&mut self, block: &JournalBlock) {
        let mut waits = block.waits.as_slice();
        for start in &block.starts {
            let (of_batch, rest) = waits.split_at(start.queries as usize);
            self.statistics.count_waits(start.task, of_batch.iter().copied());
            waits = rest;
        }
        let mut queries = block.queries.as_slice();
        for end in &block.ends {
            let (of_batch, rest) = queries.split_at(end.queries as usize);
            self.end(*end, of_batch);
            queries = rest;
        }
    }

    /// Queries of one batch have ended.
    fn end(&mut self, end: JournalEnd, queries: &[JournalQuery]) {
        let JournalEnd { now, group, .. } = end;
        let group = &self.groups[group as usize];
        let PipelineAccount { slo, partial, weights, is_single, open } = &mut self.pipelines[group.pipeline as usize];
        let (slo, pipeline) = (*slo, group.pipeline as usize);
        if *is_single {
            let answer = |q: &JournalQuery| AnsweredRequest {
                arrival: q.deadline - slo,
                deadline: q.deadline,
                accuracy: q.accuracy,
            };
            return self.statistics.count_answers(pipeline, now, queries.iter().map(answer));
        }
        let settlement = Settlement { group, weights, partial: *partial };
        for q in queries {
            let (deadline, number) = (q.deadline, u64::from(q.request));
            let new = NewRequest { pipeline, number, arrival: deadline - slo, deadline };
            let slot = open.slot(q.request, || self.requests.open(new));
            let ended = SettledQuery { slot, now, made: u64::from(q.made) };
            if settlement.settle(&mut self.requests, &mut self.statistics, ended, || q.accuracy) {
                open.complete(q.request);
            }
        }
    }

    /// All counts.
    #[must_use]
    pub fn into_statistics(self) -> Statistics {
        self.statistics
    }
}
