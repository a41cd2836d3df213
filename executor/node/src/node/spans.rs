//! Which spans does a traced request make here: hops to other agents, and visits at replicas?
//!
//! A request without a trace costs one comparison.

use super::sent::{Hop, Sent};
use super::{Action, Node, Work};
use crate::trace::{Batch, Span, Trace, Visit, What};

impl Node {
    fn span_id(&mut self) -> u64 {
        self.span_ids.next().expect("numbers without end")
    }

    /// A hop begins: what is above a query here, and what is to be above it there.
    pub(super) fn begin_hop(&mut self, above: Option<Trace>) -> (Option<Hop>, Option<Trace>) {
        let Some(above) = above else { return (None, None) };
        let (id, begun_ns) = (self.span_id(), self.now_ns);
        (Some(Hop { above, id, begun_ns }), Some(Trace { parent: id, ..above }))
    }

    /// A hop has ended; `error` says why in vain.
    pub(super) fn end_hop(&mut self, sent: &Sent, error: Option<&str>) {
        let Some(Hop { above, id, begun_ns }) = sent.span else { return };
        let what = What::Hop { task: sent.query.task.clone(), to: sent.agent };
        self.span(above, id, begun_ns, what, error);
    }

    /// A query leaves replica `id` after its batch, or without one because of `error`; what it makes hangs below.
    pub(super) fn end_visit(&mut self, replica: u64, work: &mut Work, batch: Option<Batch>, error: Option<&str>) {
        let Some(above) = work.query.trace else { return };
        let id = self.span_id();
        work.query.trace = Some(Trace { parent: id, ..above });
        let variant = self.replicas.get(&replica).map_or_else(String::new, |r| r.group.variant.clone());
        let (pipeline, task) = (work.query.pipeline.clone(), work.query.task.clone());
        let what = What::Visit(Visit { pipeline, task, variant, replica, batch });
        self.span(above, id, work.arrived_ns, what, error);
    }

    fn span(&mut self, trace: Trace, id: u64, begun_ns: u64, what: What, error: Option<&str>) {
        let span = Span { trace, id, begun_ns, ended_ns: self.now_ns, what, error: error.map(Into::into) };
        self.actions.push(Action::Span(Box::new(span)));
    }
}
