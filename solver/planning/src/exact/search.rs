//! One goal over all budgets: by maximal vectors where they are few, else by one program with level binaries.

use super::budgets;
use super::constraints::{Budgets, Formulation};
use super::highs::{Ending, Solved, minimise};
use super::variables::{Space, Tightenings};
use crate::control::Control;
use apportion_domain::Problem;

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Replicas.
    Replicas,
    /// The negative of the weighted accuracy.
    Accuracy,
    /// Cost of devices, with or without switching.
    Cost {
        /// Whether replicas beyond the deployed ones cost their load time.
        switching: bool,
    },
}

/// What a search works on.
pub struct Search<'a> {
    /// What is planned.
    pub problem: &'a Problem,
    /// What can be decided.
    pub space: &'a Space,
    /// Tightening of the check loop.
    pub tightenings: &'a Tightenings,
    /// Relative gap at which a program counts as solved.
    pub gap: f64,
    /// When to stop.
    pub control: &'a Control,
}

/// Replicas by site, and the budgets that they were found under.
#[derive(Clone, Debug)]
pub struct Incumbent {
    /// Replicas of each site.
    pub replicas: Vec<u32>,
    /// Budget of each task, by pipeline.
    pub budgets: Budgets,
}

/// The best that was found for one goal.
#[derive(Clone, Debug)]
pub struct Found {
    /// The best; `None` if nothing feasible was found.
    pub incumbent: Option<Incumbent>,
    /// Its objective.
    pub objective: f64,
    /// No plan has a lower one.
    pub bound: f64,
    /// Optimal, infeasible, stopped or failed.
    pub ending: Ending,
}

impl Search<'_> {
    /// The best for `goal` with a weighted accuracy of at least `floor`.
    #[must_use]
    pub fn best(&self, goal: Goal, floor: Option<f64>) -> Found {
        match budgets::maximal(self.problem, self.space) {
            Some(vectors) => self.by_vectors(goal, floor, vectors),
            None => self.by_levels(goal, floor),
        }
    }

    fn formulation(&self, goal: Goal, floor: Option<f64>, budgets: Option<&Budgets>) -> Formulation<'_> {
        let mut formulation = Formulation::new(self.problem, self.space, self.tightenings, budgets);
        if let Some(floor) = floor {
            let accuracy = formulation.accuracy();
            formulation.program.row(floor, f64::INFINITY, accuracy);
        }
        match goal {
            Goal::Replicas => formulation.minimise_replicas(),
            Goal::Accuracy => formulation.maximise_accuracy(),
            Goal::Cost { switching } => formulation.minimise_cost(switching),
        }
        formulation
    }

    /// LP relaxations first; their bounds give the order, and the end once no rest can be better.
    fn by_vectors(&self, goal: Goal, floor: Option<f64>, vectors: Vec<Vec<f64>>) -> Found {
        let mut open = Vec::new();
        for vector in vectors {
            let budgets = vec![vector];
            let formulation = self.formulation(goal, floor, Some(&budgets));
            let relaxed = minimise(&formulation.program, true, self.gap, self.control);
            match relaxed.ending {
                Ending::Infeasible => {}
                Ending::Optimal => open.push((round_up(goal, relaxed.objective), budgets)),
                Ending::Stopped | Ending::Failed => open.push((f64::NEG_INFINITY, budgets)),
            }
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best = Found { incumbent: None, objective: f64::INFINITY, bound: f64::INFINITY, ending: Ending::Infeasible };
        for (relaxed, budgets) in open {
            if relaxed >= best.objective - self.gap * best.objective.abs() || self.control.must_stop() {
                best.bound = best.bound.min(relaxed);
                if best.incumbent.is_none() {
                    best.ending = Ending::Stopped;
                }
                continue;
            }
            let formulation = self.formulation(goal, floor, Some(&budgets));
            let solved = minimise(&formulation.program, false, self.gap, self.control);
            best.bound = best.bound.min(solved.bound.max(relaxed));
            let better = solved.values.is_some() && solved.objective < best.objective;
            if better {
                best.incumbent = self.incumbent(&formulation, &solved, Some(budgets));
                best.objective = solved.objective;
            }
            best.ending = worse(best.ending, solved.ending, better);
        }
        best.bound = best.bound.min(best.objective);
        best
    }

    fn by_levels(&self, goal: Goal, floor: Option<f64>) -> Found {
        let formulation = self.formulation(goal, floor, None);
        let solved = minimise(&formulation.program, false, self.gap, self.control);
        let incumbent = self.incumbent(&formulation, &solved, None);
        Found { incumbent, objective: solved.objective, bound: solved.bound, ending: solved.ending }
    }

    /// Whole replicas, and the budgets as given or as the level binaries chose them.
    fn incumbent(&self, formulation: &Formulation<'_>, solved: &Solved, budgets: Option<Budgets>) -> Option<Incumbent> {
        let values = solved.values.as_ref()?;
        let replicas = formulation.layout.replicas.iter().map(|x| x.map_or(0, |x| values[x].round() as u32)).collect();
        let chosen = |p: usize, t: usize, columns: &Vec<usize>| {
            let k = columns.iter().position(|&w| values[w] > 0.5).unwrap_or(0);
            self.space.levels[p][t][k]
        };
        let budgets = budgets.unwrap_or_else(|| {
            let pipelines = formulation.layout.level.iter().enumerate();
            pipelines.map(|(p, tasks)| tasks.iter().enumerate().map(|(t, c)| chosen(p, t, c)).collect()).collect()
        });
        Some(Incumbent { replicas, budgets })
    }
}

/// Replicas are whole, so a bound on them may be rounded up.
fn round_up(goal: Goal, bound: f64) -> f64 {
    if goal == Goal::Replicas { (bound - 1e-6).ceil() } else { bound }
}

/// A failure or a stop anywhere keeps the whole from being a proof.
fn worse(so_far: Ending, next: Ending, better: bool) -> Ending {
    match (so_far, next) {
        (Ending::Failed, _) | (_, Ending::Failed) => Ending::Failed,
        (Ending::Stopped, _) | (_, Ending::Stopped) => Ending::Stopped,
        (Ending::Infeasible, Ending::Optimal) if better => Ending::Optimal,
        (so_far, _) => so_far,
    }
}
