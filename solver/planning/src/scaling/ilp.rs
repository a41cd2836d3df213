//! How is the scaling problem stated for HiGHS? The integer linear programme of INFaaS section 4.2.1.
//!
//! It is the fallback of the search, and its oracle.
//!
//! The columns are integers: `k` kept and `a` added replicas of each variant, `0 <= k <= N` and `0 <= a`. A variant has `a`
//! only if its latency is within the SLO. So a variant that is too slow may stay or be unloaded, but not grow
//! (constraint 2). Constraint 4, `N + delta >= 0`, is the lower bound of `k`.

use super::program::{Program, REPLICAS_MAX, ReplicaCounts};
use apportion_mip::RunLimits;
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{ColumnId, Ending, Formulation};

/// Goal of the programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IlpGoal {
    /// The price of all replicas (the objective without its constant).
    Price,
    /// Minus the capacity of one application. Its own load is then not a constraint.
    Capacity(usize),
}

/// Result of HiGHS.
#[derive(Clone, Debug)]
pub(crate) struct IlpResult {
    pub ending: Ending,
    pub counts: Option<ReplicaCounts>,
    /// No solution has a lower price.
    pub bound: f64,
}

/// The programme with the meaning of its columns.
struct Columns {
    formulation: Formulation,
    /// By application and variant.
    replicas: Vec<Vec<ReplicaColumns>>,
}

/// The columns of one variant.
#[derive(Clone, Copy)]
struct ReplicaColumns {
    /// Kept replicas; `None` if none runs.
    kept: Option<ColumnId>,
    /// Added replicas; `None` if no replica may be added.
    added: Option<ColumnId>,
}

/// Solves by HiGHS; `start` is a solution to begin with.
pub(crate) fn solve(program: &Program, goal: IlpGoal, limits: &RunLimits, start: Option<&ReplicaCounts>) -> IlpResult {
    let Some(columns) = formulate(program, goal) else {
        return IlpResult { ending: Ending::Infeasible, counts: None, bound: f64::INFINITY };
    };
    let start = start.map(|counts| columns.values(program, counts));
    let solved = highs::solve(&columns.formulation, SolveSettings::mip(0.0), limits, start.as_deref());
    let counts = solved.values.map(|values| columns.counts(&values));
    IlpResult { ending: solved.ending, counts, bound: solved.bound }
}

/// The programme; `None` if no variant can cover a load.
fn formulate(program: &Program, goal: IlpGoal) -> Option<Columns> {
    let mut columns = Columns { formulation: Formulation::default(), replicas: Vec::with_capacity(program.covers.len()) };
    for (i, _) in program.covers.iter().enumerate() {
        let free = goal == IlpGoal::Capacity(i);
        columns.add_application(program, i, goal);
        if !free {
            columns.add_load(program, i)?;
        }
    }
    for t in 0..program.totals.len() {
        columns.add_resource(program, t);
    }
    Some(columns)
}

impl Columns {
    /// Adds the columns of an application, with their costs.
    fn add_application(&mut self, program: &Program, i: usize, goal: IlpGoal) {
        let cover = &program.covers[i];
        let mut replicas = Vec::with_capacity(cover.kinds.len());
        for kind in &cover.kinds {
            // as many as the load needs, or without a load as many as the resources allow
            let worth = (cover.needed / kind.qps).ceil().clamp(0.0, f64::from(REPLICAS_MAX));
            let held = kind.uses.iter().zip(&program.totals).filter(|(u, _)| **u > 0.0).map(|(u, total)| total / u);
            let held = (held.fold(f64::INFINITY, f64::min) + 1e-6).floor();
            let most = if goal == IlpGoal::Capacity(i) { held.min(worth) } else { worth.min(held) };
            let (kept, added) = (most.min(f64::from(kind.running)), (kind.most > kind.running).then_some(most));
            let kept = (kept > 0.0).then(|| self.formulation.integer(0.0, kept));
            let added = added.filter(|most| *most > 0.0).map(|most| self.formulation.integer(0.0, most));
            for (column, price) in [(kept, kind.keep), (added, kind.add)] {
                let cost = match goal {
                    IlpGoal::Price => price,
                    IlpGoal::Capacity(j) if i == j => -kind.qps,
                    IlpGoal::Capacity(_) => 0.0,
                };
                if let Some(column) = column {
                    self.formulation.add_cost(column, cost);
                }
            }
            replicas.push(ReplicaColumns { kept, added });
        }
        self.replicas.push(replicas);
    }

    /// Constraint 1: `sum Q (k + a) >= L + slack`, divided by the right side. `None` if there is no column for it.
    fn add_load(&mut self, program: &Program, i: usize) -> Option<()> {
        let cover = &program.covers[i];
        if cover.needed <= 0.0 {
            return Some(());
        }
        let terms: Vec<_> = self.terms(i, |v| cover.kinds[v].qps / cover.needed).collect();
        if terms.is_empty() {
            return None;
        }
        self.formulation.at_least(1.0, terms);
        Some(())
    }

    /// Constraint 3: `sum R (k + a) <= R_total`, divided by the right side where it is not 0.
    fn add_resource(&mut self, program: &Program, t: usize) {
        let total = program.totals[t];
        if total.is_infinite() {
            return;
        }
        let scale = if total > 0.0 { total } else { 1.0 };
        let terms: Vec<_> = (0..program.covers.len())
            .flat_map(|i| self.terms(i, move |v| program.covers[i].kinds[v].uses[t] / scale).collect::<Vec<_>>())
            .filter(|(_, factor)| *factor != 0.0)
            .collect();
        if !terms.is_empty() {
            self.formulation.at_most(total / scale, terms);
        }
    }

    /// `sum factor(v) (k + a)` over the variants of an application.
    fn terms<'a>(&'a self, i: usize, factor: impl Fn(usize) -> f64 + 'a) -> impl Iterator<Item = (ColumnId, f64)> + 'a {
        let both = move |(v, columns): (usize, &ReplicaColumns)| {
            let factor = factor(v);
            columns.kept.into_iter().chain(columns.added).map(move |column| (column, factor))
        };
        self.replicas[i].iter().enumerate().flat_map(both)
    }

    /// The replicas of a solution.
    fn counts(&self, values: &[f64]) -> ReplicaCounts {
        let value = |column: Option<ColumnId>| column.map_or(0.0, |c| values[c.0].round().max(0.0));
        let count = |columns: &ReplicaColumns| (value(columns.kept) + value(columns.added)) as u32;
        self.replicas.iter().map(|columns| columns.iter().map(count).collect()).collect()
    }

    /// The solution that has these replicas.
    fn values(&self, program: &Program, counts: &ReplicaCounts) -> Vec<f64> {
        let mut values = vec![0.0; self.formulation.columns.len()];
        for ((columns, cover), counts) in self.replicas.iter().zip(&program.covers).zip(counts) {
            for ((&ReplicaColumns { kept, added }, kind), &n) in columns.iter().zip(&cover.kinds).zip(counts) {
                let k = n.min(kind.running);
                for (column, value) in [(kept, k), (added, n - k)] {
                    if let Some(ColumnId(c)) = column {
                        values[c] = f64::from(value);
                    }
                }
            }
        }
        values
    }
}
