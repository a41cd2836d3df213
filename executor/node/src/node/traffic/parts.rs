//! Which parts of a fork's query end with a query, and what does the query bring to their joins?

use super::members::{MemberOutputs, TaskRef};
use crate::layout::{JoinWait, LayoutPipeline};
use crate::node::split::{BatchOutputError, ChildQuery, child_inputs};
use crate::wire::{JoinInputs, JoinPart, RoutedQuery, Scope};

/// A query at the end of its visit: it made children, or ended here.
#[derive(Clone, Copy)]
pub struct EndedVisit<'v> {
    /// Its task.
    pub task: TaskRef<'v>,
    /// The query.
    pub query: &'v RoutedQuery,
    /// Its children; none if it did not run.
    pub made: &'v [ChildQuery],
    /// Its outputs; none if it did not run.
    pub outputs: MemberOutputs<'v>,
}

/// The edges into a join for whose parts a scope waits.
pub fn waits<'p>(of: &'p LayoutPipeline, join: &str, fork: &str) -> impl Iterator<Item = &'p JoinWait> + use<'p> {
    let (join, fork) = (of.position(join), of.position(fork));
    of.waits.iter().filter(move |w| (Some(w.join), Some(w.fork)) == (join, fork))
}

/// The message about a query to one of its scopes, over the edge from the task `parent`. Nothing has ended in it yet.
pub fn empty_part(query: &RoutedQuery, scope: &Scope, parent: &str) -> JoinPart {
    JoinPart {
        pipeline: query.pipeline.clone(),
        origin: query.origin,
        request: query.request,
        row: query.row,
        attempt: query.attempt,
        join: scope.join.clone(),
        fork: scope.fork.clone(),
        parent: parent.to_string(),
        scope: scope.credit,
        ended: Vec::new(),
        brought: Vec::new(),
    }
}

impl EndedVisit<'_> {
    /// The edges over which a part of this scope has ended with the query, or may have.
    pub fn edges<'s>(&'s self, scope: &Scope) -> impl Iterator<Item = &'s JoinWait> + use<'s> {
        let TaskRef { of, at } = self.task;
        let is_fork = scope.fork == of.tasks[at].name;
        waits(of, &scope.join, &scope.fork).filter(move |w| is_fork || w.counted.contains(&at))
    }

    /// The message to a scope about one of these edges; nothing may have ended in it.
    ///
    /// # Errors
    /// [`BatchOutputError`] if the outputs lack an input of the join.
    pub fn part_over(&self, wait: &JoinWait, scope: &Scope) -> Result<JoinPart, BatchOutputError> {
        let TaskRef { of, at } = self.task;
        let mut part = empty_part(self.query, scope, &of.tasks[wait.parent].name);
        if wait.parent == at && !wait.makes {
            part.ended.push(self.query.credit);
            part.brought = self.brought(wait, scope)?;
        } else if self.made.is_empty() {
            part.ended.push(self.query.credit);
        } else {
            part.ended.extend(self.made.iter().filter(|c| !wait.leads(at, c.to)).map(|c| c.credit));
        }
        Ok(part)
    }

    /// The scopes that each child carries along.
    pub fn scopes_of_children(&self, scopes: &[Scope]) -> Vec<Vec<Scope>> {
        let TaskRef { of, at } = self.task;
        let name = &of.tasks[at].name;
        let of_child = |child: &ChildQuery| {
            let leads = |s: &&Scope| waits(of, &s.join, &s.fork).any(|w| w.leads(at, child.to));
            let row = |s: &Scope| if s.fork == *name { child.row as u32 } else { s.row };
            scopes.iter().filter(leads).map(|s| Scope { row: row(s), ..s.clone() }).collect()
        };
        self.made.iter().map(of_child).collect()
    }

    /// The inputs that the query brings to a join: each of its rows if it is the fork's own, else its first, for the fork's
    /// row.
    fn brought(&self, wait: &JoinWait, scope: &Scope) -> Result<Vec<JoinInputs>, BatchOutputError> {
        let TaskRef { of, at } = self.task;
        let MemberOutputs { tensors, rows } = self.outputs;
        let Some(edge) = of.tasks[at].delays.iter().find(|e| e.to == wait.join && !e.map.is_empty()) else {
            return Ok(Vec::new());
        };
        let is_fork = wait.fork == at;
        let one = |row: &usize| {
            let inputs = child_inputs(&of.tasks[wait.join], &edge.map, tensors, *row)?;
            let of_row = if is_fork { *row as u32 } else { scope.row };
            Ok(JoinInputs { row: of_row, order: self.query.credit.start, inputs })
        };
        rows.iter().take(if is_fork { rows.len() } else { 1 }).map(one).collect()
    }
}
