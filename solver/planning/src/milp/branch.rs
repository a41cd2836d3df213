//! Branch and bound for small formulations on [`Tableau`]: depth first, strong branching, fixing by reduced costs.
//!
//! HiGHS spends most of its time on these programmes at the root (cuts, heuristics, symmetry), and they need none of it: a
//! node here is a copy of a tableau and a handful of pivots. What is too large, or takes too many nodes, is left to HiGHS.

use super::formulation::{Ending, Formulation, Solved};
use super::tableau::{End, Tableau};
use crate::limits::Limits;

/// Most entries of a tableau worth copying for every node.
const ENTRIES_MAX: usize = 30_000;
/// Most nodes before HiGHS takes over.
const NODES_MAX: usize = 60_000;
/// Most nodes that wait for the ones below them; a deeper search is left to HiGHS.
const DEPTH_MAX: usize = 400;
/// Nodes between two looks at the limits: as many as have so many entries, at most.
const LOOKED_AT_ENTRIES: usize = 240_000;
const LOOK_EVERY_MAX: usize = 64;
/// Most pivots of one re-optimisation.
const PIVOTS_MAX: usize = 2_000;
/// Pivots of one trial in strong branching.
const TRIAL_PIVOTS: usize = 60;
/// Fractional columns that strong branching tries.
const TRIALS: usize = 6;
/// A value this near to an integer is one.
const INTEGRAL: f64 = 1e-7;

struct Tree<'a> {
    formulation: &'a Formulation,
    integers: Vec<usize>,
    gap: f64,
    /// All costs are whole numbers, so bounds round up.
    whole_costs: bool,
    limits: &'a Limits,
    /// Nodes between two looks at the limits.
    look_every: usize,
    best: Option<(f64, Vec<f64>)>,
    /// Nothing of this cost or more is of interest.
    cutoff: f64,
    /// Least cost bound of what was given up because of the gap.
    given_up: f64,
    nodes: usize,
    /// Nodes on the way to this one, each with a tableau that waits.
    depth: usize,
    ending: Option<Ending>,
}

/// Solves a formulation; `None` if it is too large or too hard for this. Only solutions that cost less than `cutoff` count.
pub(crate) fn solve(formulation: &Formulation, gap: f64, cutoff: f64, limits: &Limits) -> Option<Solved> {
    let entries = formulation.columns.len() * formulation.rows.len();
    if entries > ENTRIES_MAX {
        return None;
    }
    let mut root = Tableau::new(formulation)?;
    let integers: Vec<usize> = (0..formulation.columns.len()).filter(|&c| formulation.columns[c].2).collect();
    let whole_costs = formulation
        .costs
        .iter()
        .zip(&formulation.columns)
        .all(|(&cost, column)| cost == 0.0 || (column.2 && cost.fract() == 0.0));
    let mut tree = Tree {
        formulation,
        integers,
        gap,
        whole_costs,
        limits,
        look_every: (LOOKED_AT_ENTRIES / entries.max(1)).clamp(1, LOOK_EVERY_MAX),
        best: None,
        cutoff: f64::INFINITY,
        given_up: f64::INFINITY,
        nodes: 0,
        depth: 0,
        ending: None,
    };
    tree.cutoff = if cutoff.is_finite() { tree.cutoff_below(cutoff) } else { cutoff };
    match root.reoptimise(f64::INFINITY, 5 * PIVOTS_MAX) {
        End::Optimal => tree.node(root),
        End::Infeasible => {}
        End::Cutoff | End::Limit => return None,
    }
    match (tree.ending, tree.best) {
        (Some(Ending::Failed), _) => None,
        (Some(ending), best) => {
            let cost = best.as_ref().map_or(f64::INFINITY, |b| b.0);
            Some(Solved { ending, values: best.map(|b| b.1), cost, bound: f64::NEG_INFINITY })
        }
        (None, Some((cost, values))) => {
            Some(Solved { ending: Ending::Optimal, values: Some(values), cost, bound: tree.given_up.min(cost) })
        }
        (None, None) => {
            Some(Solved { ending: Ending::Infeasible, values: None, cost: f64::INFINITY, bound: tree.given_up })
        }
    }
}

impl Tree<'_> {
    /// What a node's cost must stay below to be better than `cost` by more than the gap.
    fn cutoff_below(&self, cost: f64) -> f64 {
        if self.whole_costs { cost - 1.0 + 1e-6 } else { cost - (self.gap * cost.abs()).max(1e-9) }
    }

    fn give_up(&mut self, cost: f64) {
        self.given_up = self.given_up.min(cost);
    }

    /// Explores below a tableau that is optimal.
    fn node(&mut self, at: Tableau) {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.ending = Some(Ending::Failed);
        }
        self.explore(at);
        self.depth -= 1;
    }

    fn explore(&mut self, mut at: Tableau) {
        loop {
            if self.ending.is_some() {
                return;
            }
            self.nodes += 1;
            if self.nodes > NODES_MAX {
                self.ending = Some(Ending::Failed);
                return;
            }
            if self.nodes.is_multiple_of(self.look_every) && self.limits.stopped() {
                self.ending = Some(Ending::Stopped);
                return;
            }
            if at.cost >= self.cutoff {
                self.give_up(at.cost);
                return;
            }
            if self.rounds_up(&at) {
                return;
            }
            self.fix_by_reduced_costs(&mut at);
            let Some(choice) = self.choose(&mut at) else { return };
            match choice {
                // a bound was tightened for good: look at the node again
                Choice::Again => {}
                Choice::Branch(first, second) => {
                    if let Some(first) = first {
                        self.node(*first);
                    }
                    match second {
                        Some(second) => at = *second,
                        None => return,
                    }
                }
            }
        }
    }

    /// Takes the node's solution with its integers rounded up, if that is feasible: rounding costs nothing in accuracy.
    /// Whether the node is done with.
    fn rounds_up(&mut self, at: &Tableau) -> bool {
        let mut values: Vec<f64> = (0..self.formulation.columns.len()).map(|c| at.value(c)).collect();
        for &c in &self.integers {
            values[c] = (values[c] - INTEGRAL).ceil();
        }
        // columns that only count what integers use follow them
        let holds = self.formulation.rows.iter().all(|row| {
            let sum: f64 = row.terms.iter().map(|&(c, factor)| factor * values[c.0]).sum();
            sum <= row.upper + 1e-7 && sum >= row.lower - 1e-7
        });
        if !holds {
            return false;
        }
        let cost: f64 = values.iter().zip(&self.formulation.costs).map(|(v, c)| v * c).sum();
        if cost < self.best.as_ref().map_or(f64::INFINITY, |b| b.0).min(self.cutoff) {
            self.cutoff = self.cutoff.min(self.cutoff_below(cost));
            self.best = Some((cost, values));
        }
        let done = cost <= at.cost + 1e-9 || at.cost >= self.cutoff;
        if done && cost > at.cost + 1e-9 {
            self.give_up(at.cost);
        }
        done
    }

    /// A non-basic integer cannot move further than the cutoff allows.
    fn fix_by_reduced_costs(&self, at: &mut Tableau) {
        if !self.cutoff.is_finite() {
            return;
        }
        let room = self.cutoff - at.cost;
        for &c in &self.integers {
            let (lower, upper) = at.bounds(c);
            let reduced = at.reduced_cost(c);
            if upper - lower < 0.5 || reduced.abs() < 1e-9 {
                continue;
            }
            let steps = (room / reduced.abs() + 1e-6).floor();
            if steps < upper - lower {
                if reduced > 0.0 { at.narrow(c, lower, lower + steps) } else { at.narrow(c, upper - steps, upper) }
            }
        }
    }

    /// The column to branch on, by trial; `None` if nothing is left below the node.
    fn choose(&mut self, at: &mut Tableau) -> Option<Choice> {
        let mut fractional: Vec<(f64, usize)> = Vec::new();
        for &c in &self.integers {
            let distance = (at.value(c) - at.value(c).round()).abs();
            if distance > INTEGRAL {
                fractional.push((distance, c));
            }
        }
        if fractional.is_empty() {
            // integral, yet not feasible when rounded: numerics
            self.ending = Some(Ending::Failed);
            return None;
        }
        fractional.sort_by(|a, b| b.0.total_cmp(&a.0));
        fractional.truncate(TRIALS);
        let mut best: Option<(f64, Trial, Trial)> = None;
        for (_, c) in fractional {
            let (lower, upper) = at.bounds(c);
            let floor = at.value(c).floor();
            let down = self.trial(at, c, lower, floor);
            let up = self.trial(at, c, floor + 1.0, upper);
            match (down.alive, up.alive) {
                (false, false) => return None,
                (false, true) => return self.tighten(at, up),
                (true, false) => return self.tighten(at, down),
                (true, true) => {}
            }
            let gain = |t: &Trial| (t.tableau.cost - at.cost).max(1e-7);
            let score = gain(&down) * gain(&up);
            if best.as_ref().is_none_or(|(most, _, _)| score > *most) {
                best = Some((score, down, up));
            }
        }
        let (_, down, up) = best?;
        let (first, second) = if down.tableau.cost <= up.tableau.cost { (down, up) } else { (up, down) };
        Some(Choice::Branch(self.complete(first), self.complete(second)))
    }

    fn trial(&mut self, at: &Tableau, c: usize, lower: f64, upper: f64) -> Trial {
        let mut tableau = at.clone();
        tableau.narrow(c, lower, upper);
        let end = tableau.reoptimise(self.cutoff, TRIAL_PIVOTS);
        if end == End::Cutoff {
            self.give_up(tableau.cost);
        }
        Trial { alive: matches!(end, End::Optimal | End::Limit), optimal: end == End::Optimal, tableau: Box::new(tableau) }
    }

    /// The other side is closed: the node continues on this one.
    fn tighten(&mut self, at: &mut Tableau, trial: Trial) -> Option<Choice> {
        let tableau = self.complete(trial)?;
        *at = *tableau;
        Some(Choice::Again)
    }

    /// A trial pivoted to its end; `None` if nothing is left below it.
    fn complete(&mut self, trial: Trial) -> Option<Box<Tableau>> {
        let mut tableau = trial.tableau;
        if trial.optimal {
            return Some(tableau);
        }
        match tableau.reoptimise(self.cutoff, PIVOTS_MAX) {
            End::Optimal => Some(tableau),
            End::Infeasible => None,
            End::Cutoff => {
                self.give_up(tableau.cost);
                None
            }
            End::Limit => {
                self.ending = Some(Ending::Failed);
                None
            }
        }
    }
}

struct Trial {
    alive: bool,
    optimal: bool,
    tableau: Box<Tableau>,
}

enum Choice {
    Again,
    Branch(Option<Box<Tableau>>, Option<Box<Tableau>>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::milp::formulation::Column;
    use crate::milp::highs::{self, Settings};
    use std::sync::Arc;
    use std::time::Duration;

    fn unlimited() -> Limits {
        Limits::new(Arc::new(|| Duration::ZERO))
    }

    /// A packing programme with equations, drawn from a seed: shares of two items of each kind, replicas that carry them.
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
    fn agrees_with_highs_on_drawn_programmes() {
        let mut feasible = 0;
        for seed in 0..200 {
            let f = drawn(seed);
            let ours = solve(&f, 0.0, f64::INFINITY, &unlimited()).expect("small enough");
            let theirs = highs::solve(&f, Settings::mip(0.0), &unlimited(), None);
            assert_eq!(ours.ending, theirs.ending, "seed {seed}");
            if ours.ending == Ending::Optimal {
                assert!((ours.cost - theirs.cost).abs() < 1e-6, "seed {seed}: {} for {}", ours.cost, theirs.cost);
                assert!(ours.bound <= ours.cost && ours.bound > ours.cost - 1e-6, "seed {seed}");
                feasible += 1;
            }
        }
        assert!((20..=180).contains(&feasible), "the programmes are too alike: {feasible} feasible");
    }

    #[test]
    fn a_cutoff_hides_what_is_no_better() {
        let solved = (0..).map(|seed| (seed, solve(&drawn(seed), 0.0, f64::INFINITY, &unlimited()).expect("small")));
        let (seed, best) = solved.into_iter().find(|(_, s)| s.ending == Ending::Optimal).expect("a feasible one");
        let f = drawn(seed);
        let none = solve(&f, 0.0, best.cost, &unlimited()).expect("small enough");
        assert_eq!(none.ending, Ending::Infeasible);
        let again = solve(&f, 0.0, best.cost + 0.01, &unlimited()).expect("small enough");
        assert!((again.cost - best.cost).abs() < 1e-9);
    }

    #[test]
    fn columns_without_bounds_are_left_to_others() {
        let mut f = drawn(3);
        let free = f.continuous(0.0, f64::INFINITY);
        f.at_least(1.0, vec![(free, 1.0), (Column(0), 1.0)]);
        assert!(solve(&f, 0.0, f64::INFINITY, &unlimited()).is_none());
    }

    #[test]
    fn a_solve_that_is_cancelled_stops() {
        let limits = unlimited();
        limits.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        let solved = highs::solve(&drawn(5), Settings::mip(0.0), &limits, None);
        assert_eq!(solved.ending, Ending::Stopped);
    }
}
