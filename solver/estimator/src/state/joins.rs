//! Joins: a query that the primary edge makes waits for the queries of its siblings over the other edges.
//!
//! The edges that make queries form a tree of tasks. For each other edge into a join there is a nearest common ancestor of
//! both parents in that tree. A path of tasks leads from there (excluded) to the edge's parent (included). Each query that
//! ends at such an ancestor opens a *scope*, which counts for each edge the queries on that path that stem from it and have
//! not ended. While a count is above 0, there are queries over that edge to wait for, or there still may be.

use super::query::{Dispatch, SimulatedQuery};
use apportion_domain::{Pipeline, TaskIndex};

/// No scope.
pub const NO_SCOPE: u32 = u32::MAX;

/// No held query.
const NO_HELD: u32 = u32::MAX;

/// The joins of one pipeline; tasks by position.
#[derive(Clone, Debug, Default)]
pub struct Joins {
    /// By edge that only delays: the ancestor at which it opens.
    ancestors: Vec<u32>,
    /// By task: the edges on whose paths it lies.
    counted: Vec<Vec<u32>>,
    /// By task: the edges that a query made there waits for.
    awaited: Vec<Vec<u32>>,
    /// By task: whether some edge opens there.
    opens: Vec<bool>,
}

impl Joins {
    /// Of a pipeline; `None` if nothing ever waits.
    #[must_use]
    pub fn new(pipeline: &Pipeline) -> Option<Self> {
        let tasks = pipeline.tasks.len();
        let mut joins = Self {
            ancestors: vec![],
            counted: vec![vec![]; tasks],
            awaited: vec![vec![]; tasks],
            opens: vec![false; tasks],
        };
        for edge in pipeline.edges.iter().filter(|e| !e.primary) {
            let above = lineage(pipeline, edge.to);
            let way = lineage(pipeline, edge.from);
            let Some(at) = way.iter().position(|t| above.contains(t)) else { continue };
            // A parent that is an ancestor of the query has ended before it was made.
            if at == 0 {
                continue;
            }
            let number = joins.ancestors.len() as u32;
            joins.ancestors.push(way[at].get() as u32);
            joins.opens[way[at].get()] = true;
            way[..at].iter().for_each(|t| joins.counted[t.get()].push(number));
            joins.awaited[edge.to.get()].push(number);
        }
        (!joins.ancestors.is_empty()).then_some(joins)
    }

    /// Whether queries of this task wait for others.
    #[inline]
    #[must_use]
    pub fn waits(&self, task: u32) -> bool {
        !self.awaited[task as usize].is_empty()
    }
}

/// A task and its ancestors over the edges that make queries, itself first.
fn lineage(pipeline: &Pipeline, task: TaskIndex) -> Vec<TaskIndex> {
    let mut all = vec![task];
    while let Some(edge) = pipeline.primary_parent(all[all.len() - 1]) {
        all.push(edge.from);
    }
    all
}

/// A query that was made and has not been sent.
#[derive(Clone, Copy, Debug)]
pub struct MadeQuery {
    /// The query.
    pub query: SimulatedQuery,
    /// Its dispatch.
    pub to: Dispatch,
    /// The task of the query that made it, in its pipeline.
    pub maker: u32,
    /// Its own task, in its pipeline.
    pub task: u32,
}

/// A query that waits at a join before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct HeldQuery {
    /// The query, where it came from and where it goes.
    pub made: MadeQuery,
    /// Edges that it waits for.
    edges: u32,
    /// Its number among all queries that were ever held.
    sequence: u64,
    is_cancelled: bool,
    /// Position of the query of the same request that was held before it and may still be cancelled.
    before: u32,
    /// Position of the one that was held after it.
    after: u32,
}

#[derive(Clone, Debug, Default)]
struct Scope {
    task: u32,
    outer: u32,
    /// Queries and scopes that refer to it.
    uses: u32,
    counts: Vec<u32>,
    /// By edge, positions of the queries that are held.
    held: Vec<Vec<u32>>,
}

/// All scopes that are open, and all queries that are held; slots are reused with their buffers.
#[derive(Debug, Default)]
pub struct Scopes {
    scopes: Vec<Scope>,
    free_scopes: Vec<u32>,
    held: Vec<HeldQuery>,
    free_held: Vec<u32>,
    /// By slot of a request: the position of its query that was held last and may still be cancelled.
    last_of_request: Vec<u32>,
    /// Queries that need not wait any longer.
    pub released: Vec<HeldQuery>,
    sequence: u64,
    /// How many children a query makes over each edge, reused.
    pub counts: Vec<u32>,
    /// Most edges that any scope counts for.
    counts_max: usize,
}

impl Scopes {
    /// The scope in which the children of a query of this task live; one use of it belongs to the caller until
    /// [`Scopes::leave`].
    pub fn enter(&mut self, joins: &Joins, task: u32, outer: u32) -> u32 {
        if !joins.opens[task as usize] {
            self.take(outer, 1);
            return outer;
        }
        self.take(outer, 1);
        let at = self.free_scopes.pop().unwrap_or_else(|| {
            self.scopes.push(Scope::default());
            self.scopes.len() as u32 - 1
        });
        let scope = &mut self.scopes[at as usize];
        (scope.task, scope.outer, scope.uses) = (task, outer, 1);
        scope.counts.clear();
        scope.counts.resize(joins.ancestors.len(), 0);
        self.counts_max = self.counts_max.max(joins.ancestors.len());
        if scope.held.len() < joins.ancestors.len() {
            scope.held.resize(joins.ancestors.len(), Vec::new());
        }
        at
    }

    /// Memory of all scopes and queries that are held, in bytes.
    pub fn bytes(&self) -> usize {
        let each = size_of::<Scope>() + self.counts_max * (size_of::<u32>() + size_of::<Vec<u32>>());
        let held = 2 * self.held.len() * (size_of::<HeldQuery>() + size_of::<u32>());
        self.scopes.len() * each + held + self.last_of_request.len() * size_of::<u32>()
    }

    fn take(&mut self, scope: u32, uses: u32) {
        if scope != NO_SCOPE {
            self.scopes[scope as usize].uses += uses;
        }
    }

    /// Gives one use back.
    pub fn leave(&mut self, mut scope: u32) {
        while scope != NO_SCOPE {
            let of = &mut self.scopes[scope as usize];
            of.uses -= 1;
            if of.uses > 0 {
                return;
            }
            self.free_scopes.push(scope);
            scope = of.outer;
        }
    }

    fn find(&self, joins: &Joins, mut scope: u32, edge: u32) -> u32 {
        let ancestor = joins.ancestors[edge as usize];
        while self.scopes[scope as usize].task != ancestor {
            scope = self.scopes[scope as usize].outer;
        }
        scope
    }

    /// `count` queries of a task were made in a scope.
    pub fn count_made(&mut self, joins: &Joins, scope: u32, task: u32, count: u32) {
        self.take(scope, count);
        for &edge in &joins.counted[task as usize] {
            let at = self.find(joins, scope, edge);
            self.scopes[at as usize].counts[edge as usize] += count;
        }
    }

    /// A query of a task that was made in a scope has ended, after its children were counted, or was dropped.
    pub fn count_ended(&mut self, joins: &Joins, scope: u32, task: u32) {
        for &edge in &joins.counted[task as usize] {
            let at = self.find(joins, scope, edge);
            let of = &mut self.scopes[at as usize];
            of.counts[edge as usize] -= 1;
            if of.counts[edge as usize] == 0 {
                let mut waiting = std::mem::take(&mut of.held[edge as usize]);
                waiting.drain(..).for_each(|held| self.release(held));
                self.scopes[at as usize].held[edge as usize] = waiting;
            }
        }
        // Queries that one end sets free are sent in the order in which they were made.
        self.released.sort_unstable_by_key(|held| held.sequence);
        self.leave(scope);
    }

    fn release(&mut self, at: u32) {
        let held = &mut self.held[at as usize];
        held.edges -= 1;
        if held.edges == 0 {
            if !held.is_cancelled {
                self.released.push(*held);
                self.unlink(at);
            }
            self.free_held.push(at);
        }
    }

    /// Holds a query if it has to wait for others. Returns whether it is held.
    pub fn hold_if_waiting(&mut self, joins: &Joins, made: MadeQuery) -> bool {
        let mut edges = 0;
        let next = self.free_held.last().copied().unwrap_or(self.held.len() as u32);
        for &edge in &joins.awaited[made.task as usize] {
            let at = self.find(joins, made.query.scope, edge);
            let of = &mut self.scopes[at as usize];
            if of.counts[edge as usize] > 0 {
                of.held[edge as usize].push(next);
                edges += 1;
            }
        }
        if edges == 0 {
            return false;
        }
        let request = made.query.request as usize;
        if self.last_of_request.len() <= request {
            self.last_of_request.resize(request + 1, NO_HELD);
        }
        let before = std::mem::replace(&mut self.last_of_request[request], next);
        if before != NO_HELD {
            self.held[before as usize].after = next;
        }
        let held = HeldQuery { made, edges, sequence: self.sequence, is_cancelled: false, before, after: NO_HELD };
        self.sequence += 1;
        match self.free_held.pop() {
            Some(at) => self.held[at as usize] = held,
            None => self.held.push(held),
        }
        true
    }

    /// Cancels the held query of a request that has the first position.
    pub fn cancel(&mut self, request: u32) -> Option<MadeQuery> {
        let mut at = *self.last_of_request.get(request as usize)?;
        let mut first = at;
        while at != NO_HELD {
            first = first.min(at);
            at = self.held[at as usize].before;
        }
        let held = self.held.get_mut(first as usize)?;
        held.is_cancelled = true;
        let made = held.made;
        self.unlink(first);
        Some(made)
    }

    /// Takes a held query out of the list of its request.
    fn unlink(&mut self, at: u32) {
        let HeldQuery { made, before, after, .. } = self.held[at as usize];
        match after {
            NO_HELD => self.last_of_request[made.query.request as usize] = before,
            _ => self.held[after as usize].before = before,
        }
        if before != NO_HELD {
            self.held[before as usize].after = after;
        }
    }
}
