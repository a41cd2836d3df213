//! Which spans does a traced request make here: hops to other agents, and visits at replicas?
//!
//! Example: agent 1 sends a traced query to agent 2. Agent 1 exports a span of the hop when agent 2 has taken the query,
//! and agent 2 exports a span of the visit below it. A request without a trace costs one comparison.

use super::event::Action;
use super::replicas::LocalReplicas;
use super::site::Site;
use super::work::LocalQuery;
use crate::trace::{Batch, SpanActivity, SpanIds, TraceContext, TraceSpan, Visit};

/// A hop that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// The span above it.
    above: TraceContext,
    id: u64,
    begun_ns: u64,
}

impl Hop {
    /// The parent of the spans that the query makes at its receiver.
    pub fn below(self) -> TraceContext {
        TraceContext { parent: self.id, ..self.above }
    }

    /// The hop has ended; `error` says why it was in vain.
    pub fn end(self, site: &mut Site, task: &str, to: u64, error: Option<&str>) {
        export(site, self, SpanActivity::Hop { task: task.to_owned(), to }, error);
    }
}

/// How a query has left its replica.
#[derive(Clone, Copy)]
pub(super) enum VisitEnd<'e> {
    /// It ran in a batch; `error` says why it failed there.
    Ran { batch: Batch, error: Option<&'e str> },
    /// It left without a batch of its own.
    Left { error: Option<&'e str> },
}

/// Gives numbers to spans.
pub(super) struct Tracing {
    ids: SpanIds,
}

impl Tracing {
    /// Numbers that follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self { ids: SpanIds::new(seed) }
    }

    fn next_id(&mut self) -> u64 {
        self.ids.next().expect("numbers without end")
    }

    /// A hop of a query begins; none if the query is not traced.
    pub fn begin_hop(&mut self, above: Option<TraceContext>, now_ns: u64) -> Option<Hop> {
        let above = above?;
        Some(Hop { above, id: self.next_id(), begun_ns: now_ns })
    }

    /// A query leaves its replica. What it makes hangs below the span of its visit.
    pub fn end_visit(
        &mut self,
        site: &mut Site,
        replicas: &LocalReplicas,
        replica: u64,
        work: &mut LocalQuery,
        end: VisitEnd<'_>,
    ) {
        let Some(above) = work.query.trace else { return };
        let id = self.next_id();
        work.query.trace = Some(TraceContext { parent: id, ..above });
        let variant = replicas.get(replica).map_or_else(String::new, |r| r.group.variant.clone());
        let (pipeline, task) = (work.query.pipeline.clone(), work.query.task.clone());
        let (batch, error) = match end {
            VisitEnd::Ran { batch, error } => (Some(batch), error),
            VisitEnd::Left { error } => (None, error),
        };
        let what = SpanActivity::Visit(Visit { pipeline, task, variant, replica, batch });
        export(site, Hop { above, id, begun_ns: work.arrived_ns }, what, error);
    }
}

/// Exports a span that ends now.
fn export(site: &mut Site, begun: Hop, what: SpanActivity, error: Option<&str>) {
    let Hop { above: trace, id, begun_ns } = begun;
    let span = TraceSpan { trace, id, begun_ns, ended_ns: site.now_ns(), what, error: error.map(Into::into) };
    site.push(Action::Span(Box::new(span)));
}
