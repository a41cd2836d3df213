//! How is a small formulation solved faster than HiGHS solves it? By branch and bound on [`Tableau`].
//!
//! The search is depth first, with strong branching and fixing by reduced costs. On small programmes HiGHS spends most of
//! its time at the root (cuts, heuristics, symmetry), and they need none of it. Here a node is a copy of a tableau and a
//! few pivots. Programmes that are too large, or take too many nodes, are left to HiGHS.

use crate::rounding::{INTEGRAL, Rounding, round};
use crate::tableau::{PivotEnd, Tableau};
use crate::{Ending, Formulation, RunLimits, SolveResult};

/// Most entries of a tableau that is copied for every node.
const ENTRIES_MAX: usize = 100_000;
/// Most nodes before HiGHS takes over.
const NODES_MAX: usize = 60_000;
/// Most tableau entries of all nodes before HiGHS takes over. So larger programmes get fewer nodes.
const ENTRIES_ALL_MAX: usize = 1_800_000_000;
/// Deepest tree: the number of waiting nodes, each with a tableau. A deeper search is left to HiGHS.
const DEPTH_MAX: usize = 400;
/// Tableau entries that are copied between two checks of the limits. It decides how many nodes that is.
const ENTRIES_BETWEEN_CHECKS: usize = 240_000;
/// Most nodes between two checks of the limits.
const NODES_BETWEEN_CHECKS_MAX: usize = 64;
/// Most pivots of one re-optimisation.
const PIVOTS_MAX: usize = 2_000;
/// Most pivots of one trial in strong branching.
const TRIAL_PIVOTS_MAX: usize = 60;
/// Most fractional columns that strong branching tries.
const TRIALS_MAX: usize = 6;

/// Settings of one search.
#[derive(Clone, Copy, Debug)]
pub struct BranchSettings {
    /// Relative gap.
    pub gap: f64,
    /// Only solutions that cost less count.
    pub cutoff: f64,
    /// Most nodes.
    pub nodes_max: usize,
    /// How the relaxed solution of a node becomes a whole one.
    pub rounding: Rounding,
}

/// The best solution so far.
struct BestSolution {
    cost: f64,
    /// By column.
    values: Vec<f64>,
}

/// The state of one search.
struct Tree<'a> {
    formulation: &'a Formulation,
    integers: Vec<usize>,
    gap: f64,
    rounding: Rounding,
    /// Whether every solution has a whole cost. Then bounds round up.
    whole_costs: bool,
    limits: &'a RunLimits,
    /// Nodes between two checks of the limits.
    check_every: usize,
    best: Option<BestSolution>,
    /// Only solutions that cost less are searched for.
    cutoff: f64,
    /// Least cost bound of all nodes that were pruned because of the cutoff.
    pruned_bound: f64,
    nodes: usize,
    /// Most nodes, and how the search ends beyond them.
    nodes_max: usize,
    at_nodes_max: Ending,
    /// Ancestors of the present node, each with a tableau that waits.
    depth: usize,
    /// Why the search ended early.
    ending: Option<Ending>,
}

/// Solves a formulation; `None` if it is too large or too hard for this search.
///
/// `gap` is relative. Only solutions that cost less than `cutoff` count.
pub fn solve(formulation: &Formulation, gap: f64, cutoff: f64, limits: &RunLimits) -> Option<SolveResult> {
    let entries = formulation.columns.len() * formulation.rows.len();
    let nodes_max = (ENTRIES_ALL_MAX / entries.max(1)).min(NODES_MAX);
    let settings = BranchSettings { gap, cutoff, nodes_max, rounding: Rounding::Up };
    search(formulation, settings, Ending::Failed, limits)
}

/// The same search for at most `nodes_max` nodes. Beyond them it ends as [`Ending::Stopped`] with its best solution, and
/// without a bound.
pub fn solve_within(
    formulation: &Formulation,
    gap: f64,
    cutoff: f64,
    nodes_max: usize,
    limits: &RunLimits,
) -> Option<SolveResult> {
    solve_with(formulation, BranchSettings { gap, cutoff, nodes_max, rounding: Rounding::Up }, limits)
}

/// The same search with its settings.
pub fn solve_with(formulation: &Formulation, settings: BranchSettings, limits: &RunLimits) -> Option<SolveResult> {
    search(formulation, settings, Ending::Stopped, limits)
}

/// The search, with its ending beyond its most nodes.
fn search(
    formulation: &Formulation,
    settings: BranchSettings,
    at_nodes_max: Ending,
    limits: &RunLimits,
) -> Option<SolveResult> {
    let BranchSettings { gap, cutoff, nodes_max, rounding } = settings;
    let entries = formulation.columns.len() * formulation.rows.len();
    if entries > ENTRIES_MAX {
        return None;
    }
    let mut root = Tableau::new(formulation)?;
    let integers: Vec<usize> = (0..formulation.columns.len()).filter(|&c| formulation.columns[c].is_integer).collect();
    let whole_costs = formulation
        .costs
        .iter()
        .zip(&formulation.columns)
        .all(|(&cost, column)| cost == 0.0 || (column.is_integer && cost.fract() == 0.0));
    let mut tree = Tree {
        formulation,
        integers,
        gap,
        rounding,
        whole_costs,
        limits,
        check_every: (ENTRIES_BETWEEN_CHECKS / entries.max(1)).clamp(1, NODES_BETWEEN_CHECKS_MAX),
        best: None,
        cutoff: f64::INFINITY,
        pruned_bound: f64::INFINITY,
        nodes: 0,
        nodes_max,
        at_nodes_max,
        depth: 0,
        ending: None,
    };
    tree.cutoff = if cutoff.is_finite() { tree.cutoff_below(cutoff) } else { cutoff };
    let ended = root.reoptimise(f64::INFINITY, 5 * PIVOTS_MAX);
    limits.count_work(root.size() * (1 + root.pivots()));
    match ended {
        PivotEnd::Optimal => tree.enter(root),
        PivotEnd::Infeasible => {}
        PivotEnd::Cutoff | PivotEnd::PivotLimit => return None,
    }
    match (tree.ending, tree.best) {
        (Some(Ending::Failed), _) => None,
        (Some(ending), best) => {
            let cost = best.as_ref().map_or(f64::INFINITY, |b| b.cost);
            Some(SolveResult { ending, values: best.map(|b| b.values), cost, bound: f64::NEG_INFINITY })
        }
        (None, Some(BestSolution { cost, values })) => {
            Some(SolveResult { ending: Ending::Optimal, values: Some(values), cost, bound: tree.pruned_bound.min(cost) })
        }
        (None, None) => {
            Some(SolveResult { ending: Ending::Infeasible, values: None, cost: f64::INFINITY, bound: tree.pruned_bound })
        }
    }
}

impl Tree<'_> {
    /// The cutoff for solutions that are better than `cost` by more than the gap.
    fn cutoff_below(&self, cost: f64) -> f64 {
        if self.whole_costs { cost - 1.0 + 1e-6 } else { cost - (self.gap * cost.abs()).max(1e-9) }
    }

    /// Records the cost bound of a node that was pruned because of the cutoff.
    fn record_pruned(&mut self, cost: f64) {
        self.pruned_bound = self.pruned_bound.min(cost);
    }

    /// Explores the subtree of an optimal tableau, one level deeper.
    fn enter(&mut self, at: Tableau) {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.ending = Some(Ending::Failed);
        }
        self.explore(at);
        self.depth -= 1;
    }

    /// Explores the subtree of an optimal tableau.
    fn explore(&mut self, mut at: Tableau) {
        loop {
            if self.ending.is_some() {
                return;
            }
            self.nodes += 1;
            if self.nodes > self.nodes_max {
                self.ending = Some(self.at_nodes_max);
                return;
            }
            if self.nodes.is_multiple_of(self.check_every) && self.limits.exceeded() {
                self.ending = Some(Ending::Stopped);
                return;
            }
            if at.cost >= self.cutoff {
                self.record_pruned(at.cost);
                return;
            }
            if self.round_up(&at) {
                return;
            }
            self.fix_by_reduced_costs(&mut at);
            let Some(next) = self.branch_on_best_column(&mut at) else { return };
            match next {
                // one side is closed: the node has tighter bounds and is explored again
                Next::Retry => {}
                Next::Branch(first, second) => {
                    if let Some(first) = first {
                        self.enter(*first);
                    }
                    match second {
                        Some(second) => at = *second,
                        None => return,
                    }
                }
            }
        }
    }

    /// Takes the node's solution with its integers rounded up, if it is feasible. In the formulations of plans, more
    /// replicas never cost accuracy. Whether the node needs no further search.
    fn round_up(&mut self, at: &Tableau) -> bool {
        let relaxed: Vec<f64> = (0..self.formulation.columns.len()).map(|c| at.value_of(c)).collect();
        let Some(values) = round(self.formulation, &self.integers, relaxed, self.rounding) else { return false };
        let cost: f64 = values.iter().zip(&self.formulation.costs).map(|(v, c)| v * c).sum();
        if cost < self.best.as_ref().map_or(f64::INFINITY, |b| b.cost).min(self.cutoff) {
            self.cutoff = self.cutoff.min(self.cutoff_below(cost));
            self.best = Some(BestSolution { cost, values });
        }
        let is_done = cost <= at.cost + 1e-9 || at.cost >= self.cutoff;
        if is_done && cost > at.cost + 1e-9 {
            self.record_pruned(at.cost);
        }
        is_done
    }

    /// Narrows non-basic integers: none can move further than the cutoff allows.
    fn fix_by_reduced_costs(&self, at: &mut Tableau) {
        if !self.cutoff.is_finite() {
            return;
        }
        let room = self.cutoff - at.cost;
        for &c in &self.integers {
            let (lower, upper) = at.bounds_of(c);
            let reduced = at.reduced_cost(c);
            if upper - lower < 0.5 || reduced.abs() < 1e-9 {
                continue;
            }
            let steps = (room / reduced.abs() + 1e-6).floor();
            if steps < upper - lower {
                if reduced > 0.0 {
                    at.narrow_bounds(c, lower, lower + steps)
                } else {
                    at.narrow_bounds(c, upper - steps, upper)
                }
            }
        }
    }

    /// Tries columns and branches on the best one; `None` if nothing is left below the node.
    fn branch_on_best_column(&mut self, at: &mut Tableau) -> Option<Next> {
        let mut fractional: Vec<FractionalColumn> = Vec::new();
        for &c in &self.integers {
            let distance = (at.value_of(c) - at.value_of(c).round()).abs();
            if distance > INTEGRAL {
                fractional.push(FractionalColumn { column: c, distance });
            }
        }
        if fractional.is_empty() {
            // the solution is integral but infeasible when rounded: a numerical failure
            self.ending = Some(Ending::Failed);
            return None;
        }
        fractional.sort_by(|a, b| b.distance.total_cmp(&a.distance));
        fractional.truncate(TRIALS_MAX);
        let mut best: Option<BranchTrial> = None;
        for FractionalColumn { column: c, .. } in fractional {
            let (lower, upper) = at.bounds_of(c);
            let floor = at.value_of(c).floor();
            let down = self.try_bounds(at, c, lower, floor);
            let up = self.try_bounds(at, c, floor + 1.0, upper);
            match (down.is_alive, up.is_alive) {
                (false, false) => return None,
                (false, true) => return self.continue_on(at, up),
                (true, false) => return self.continue_on(at, down),
                (true, true) => {}
            }
            let gain = |t: &Trial| (t.tableau.cost - at.cost).max(1e-7);
            let score = gain(&down) * gain(&up);
            if best.as_ref().is_none_or(|b| score > b.score) {
                best = Some(BranchTrial { score, down, up });
            }
        }
        let BranchTrial { down, up, .. } = best?;
        let (first, second) = if down.tableau.cost <= up.tableau.cost { (down, up) } else { (up, down) };
        Some(Next::Branch(self.complete(first), self.complete(second)))
    }

    /// A node with narrower bounds of one column, after a few pivots.
    fn try_bounds(&mut self, at: &Tableau, c: usize, lower: f64, upper: f64) -> Trial {
        let mut tableau = at.clone();
        tableau.narrow_bounds(c, lower, upper);
        let end = tableau.reoptimise(self.cutoff, TRIAL_PIVOTS_MAX);
        self.limits.count_work(tableau.size() * (1 + tableau.pivots() - at.pivots()));
        if end == PivotEnd::Cutoff {
            self.record_pruned(tableau.cost);
        }
        Trial {
            is_alive: matches!(end, PivotEnd::Optimal | PivotEnd::PivotLimit),
            is_optimal: end == PivotEnd::Optimal,
            tableau: Box::new(tableau),
        }
    }

    /// Continues the node on this side, because the other side is closed.
    fn continue_on(&mut self, at: &mut Tableau, trial: Trial) -> Option<Next> {
        let tableau = self.complete(trial)?;
        *at = *tableau;
        Some(Next::Retry)
    }

    /// Pivots a trial to its optimum; `None` if nothing is left below it.
    fn complete(&mut self, trial: Trial) -> Option<Box<Tableau>> {
        let mut tableau = trial.tableau;
        if trial.is_optimal {
            return Some(tableau);
        }
        let before = tableau.pivots();
        let ended = tableau.reoptimise(self.cutoff, PIVOTS_MAX);
        self.limits.count_work(tableau.size() * (tableau.pivots() - before));
        match ended {
            PivotEnd::Optimal => Some(tableau),
            PivotEnd::Infeasible => None,
            PivotEnd::Cutoff => {
                self.record_pruned(tableau.cost);
                None
            }
            PivotEnd::PivotLimit => {
                self.ending = Some(Ending::Failed);
                None
            }
        }
    }
}

/// An integer column with a fractional value.
struct FractionalColumn {
    column: usize,
    /// Distance of the value from the nearest integer.
    distance: f64,
}

/// Both sides of a branch on one column.
struct BranchTrial {
    /// Product of the gains in cost of both sides.
    score: f64,
    down: Trial,
    up: Trial,
}

/// A node after a few pivots.
struct Trial {
    /// Whether the node may contain a better solution.
    is_alive: bool,
    /// Whether its tableau is optimal.
    is_optimal: bool,
    tableau: Box<Tableau>,
}

/// How the search continues at a node.
enum Next {
    /// The node has tighter bounds: explore it again.
    Retry,
    /// Explore both children, the more promising one first.
    Branch(Option<Box<Tableau>>, Option<Box<Tableau>>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnId;
    use crate::highs::{self, SolveSettings};
    use std::sync::Arc;
    use std::time::Duration;

    fn unlimited() -> RunLimits {
        RunLimits::new(Arc::new(|| Duration::ZERO))
    }

    /// A packing programme with equations, drawn from a seed. It has shares of two or three items of each kind, and
    /// replicas that carry them.
    fn drawn(seed: u64) -> Formulation {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n) as f64
        };
        let mut f = Formulation::default();
        let mut all = Vec::new();
        for _ in 0..3 + below(3) as usize {
            let mut shares = Vec::new();
            for _ in 0..2 + below(2) as usize {
                let share = f.continuous(0.0, 1.0);
                f.add_cost(share, -(1.0 + below(50)) / 50.0);
                let replicas = f.integer(0.0, 6.0);
                f.at_most(0.0, vec![(share, 0.3 + below(40) / 10.0), (replicas, -1.0)]);
                shares.push((share, 1.0));
                all.push((replicas, 1.0));
            }
            f.equal(1.0, shares);
        }
        f.at_most(2.0 + below(8), all);
        f
    }

    #[test]
    fn branch_and_bound_agrees_with_highs_on_drawn_programmes() {
        let mut feasible = 0;
        for seed in 0..200 {
            let f = drawn(seed);
            let ours = solve(&f, 0.0, f64::INFINITY, &unlimited()).expect("small enough");
            let theirs = highs::solve(&f, SolveSettings::mip(0.0), &unlimited(), None);
            assert_eq!(ours.ending, theirs.ending, "seed {seed}");
            if ours.ending == Ending::Optimal {
                assert!((ours.cost - theirs.cost).abs() < 1e-6, "seed {seed}: {} for {}", ours.cost, theirs.cost);
                assert!(ours.bound <= ours.cost && ours.bound > ours.cost - 1e-6, "seed {seed}");
                feasible += 1;
            }
        }
        assert!((20..=180).contains(&feasible), "the programmes are too alike: {feasible} feasible");
    }

    /// The same programme if each replica needs a device with a price, and a group in use a spare.
    fn with_dependents(seed: u64) -> Formulation {
        let mut f = drawn(seed);
        let replicas: Vec<usize> = (0..f.columns.len()).filter(|&c| f.columns[c].is_integer).collect();
        for c in replicas {
            let (used, devices) = (f.integer(0.0, 1.0), f.continuous(0.0, 9.0));
            f.add_cost(devices, 0.1);
            f.at_most(0.0, vec![(ColumnId(c), 1.0), (used, 1.0), (devices, -1.0)]);
            f.at_most(0.0, vec![(ColumnId(c), 1.0), (used, -6.0)]);
        }
        f
    }

    #[test]
    fn both_roundings_find_the_optimum_of_highs() {
        let (mut nodes, mut feasible) = ([0, 0], 0);
        for seed in 0..60 {
            let f = with_dependents(seed);
            let theirs = highs::solve(&f, SolveSettings::mip(0.0), &unlimited(), None);
            for (i, rounding) in [Rounding::Up, Rounding::WithDependents].into_iter().enumerate() {
                let settings = BranchSettings { gap: 0.0, cutoff: f64::INFINITY, nodes_max: 100_000, rounding };
                let limits = unlimited().with_work(u64::MAX);
                let ours = solve_with(&f, settings, &limits).expect("small enough");
                nodes[i] += limits.work.expect("a budget").done();
                assert_eq!(ours.ending, theirs.ending, "seed {seed}, {rounding:?}");
                let near = ours.ending == Ending::Infeasible || (ours.cost - theirs.cost).abs() < 1e-6;
                assert!(near, "seed {seed}, {rounding:?}: {} for {}", ours.cost, theirs.cost);
            }
            feasible += usize::from(theirs.ending == Ending::Optimal);
        }
        assert!(feasible > 5, "{feasible} feasible");
        assert!(nodes[1] <= nodes[0], "raised dependents cost work: {nodes:?}");
    }

    #[test]
    fn solutions_at_the_cutoff_are_not_found() {
        let solved = (0..).map(|seed| (seed, solve(&drawn(seed), 0.0, f64::INFINITY, &unlimited()).expect("small")));
        let (seed, best) = solved.into_iter().find(|(_, s)| s.ending == Ending::Optimal).expect("a feasible one");
        let f = drawn(seed);
        let none = solve(&f, 0.0, best.cost, &unlimited()).expect("small enough");
        assert_eq!(none.ending, Ending::Infeasible);
        let again = solve(&f, 0.0, best.cost + 0.01, &unlimited()).expect("small enough");
        assert!((again.cost - best.cost).abs() < 1e-9);
    }

    #[test]
    fn columns_without_bounds_are_refused() {
        let mut f = drawn(3);
        let free = f.continuous(0.0, f64::INFINITY);
        f.at_least(1.0, vec![(free, 1.0), (ColumnId(0), 1.0)]);
        assert!(solve(&f, 0.0, f64::INFINITY, &unlimited()).is_none());
    }

    #[test]
    fn a_cancelled_solve_stops() {
        let limits = unlimited();
        limits.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        let solved = highs::solve(&drawn(5), SolveSettings::mip(0.0), &limits, None);
        assert_eq!(solved.ending, Ending::Stopped);
    }
}
