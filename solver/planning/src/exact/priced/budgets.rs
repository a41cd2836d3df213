//! Which budget vectors are looked at? All maximal ones if they are few, else some, and later the neighbours of good ones.
//!
//! A vector gives each task a time budget in milliseconds. Budgets of 0 mean that the task does not run; only optional
//! tasks have them. A larger budget never hurts, so only maximal vectors matter.

use crate::exact::model::latency::{delays, finish_times, optional_tasks, remaining_times};
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{LatencyRule, Pipeline, SLACK, TaskIndex};

/// Most vectors that are listed.
const VECTORS_MAX: usize = 1_500;
/// Most partial vectors that the list may look at.
const VISITED_MAX: usize = 30_000;

/// Budget vectors of one pipeline.
pub(super) struct BudgetVectors {
    pub vectors: Vec<Vec<f64>>,
    /// Whether these are all maximal vectors.
    pub is_complete: bool,
}

/// The possible budgets of one pipeline.
pub(super) struct BudgetLevels<'a> {
    pipeline: &'a Pipeline,
    rule: LatencyRule,
    slo: f64,
    /// By task, increasing.
    levels: Vec<Vec<f64>>,
    /// The least time after each task.
    rest: Vec<f64>,
}

/// A list that grows by depth first search.
struct Listing<'a> {
    levels: &'a [Vec<f64>],
    order: &'a [TaskIndex],
    vectors: Vec<Vec<f64>>,
    visited: usize,
}

impl<'a> BudgetLevels<'a> {
    pub fn new(pipeline: &'a Pipeline, part: &PipelineSpace) -> Self {
        let optional = optional_tasks(pipeline);
        let with_off = |(levels, &optional): (&Vec<f64>, &bool)| {
            let off = optional.then_some(0.0);
            off.into_iter().chain(levels.iter().copied()).collect()
        };
        let levels: Vec<Vec<f64>> = part.levels.iter().zip(&optional).map(with_off).collect();
        let least: Vec<f64> = levels.iter().map(|of| of.first().copied().unwrap_or(0.0)).collect();
        let rest = remaining_times(pipeline, part.rule, &least);
        let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
        Self { pipeline, rule: part.rule, slo, levels, rest }
    }

    /// The maximal vectors, or some of them.
    pub fn list(&self) -> BudgetVectors {
        let mut levels = self.levels.clone();
        let mut is_complete = true;
        loop {
            let order = self.pipeline.order();
            let mut listing = Listing { levels: &levels, order, vectors: Vec::new(), visited: 0 };
            let mut charges = vec![0.0; levels.len()];
            let mut finish = vec![0.0; levels.len()];
            if self.extend(&mut listing, 0, &mut charges, &mut finish) {
                return BudgetVectors { vectors: listing.vectors, is_complete };
            }
            is_complete = false;
            let widest = (0..levels.len()).max_by_key(|&t| levels[t].len()).unwrap_or(0);
            halve(&mut levels[widest]);
        }
    }

    /// Adds all maximal vectors that begin with these charges. Whether the list stayed within its bounds.
    fn extend(&self, listing: &mut Listing<'_>, at: usize, charges: &mut Vec<f64>, finish: &mut Vec<f64>) -> bool {
        listing.visited += 1;
        if listing.visited > VISITED_MAX {
            return false;
        }
        let Some(&task) = listing.order.get(at) else {
            if self.is_maximal(listing.levels, charges) {
                listing.vectors.push(charges.clone());
            }
            return listing.vectors.len() <= VECTORS_MAX;
        };
        let t = task.get();
        let into = self.pipeline.edges_into(task).filter(|e| delays(self.rule, e));
        let before = into.map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        let levels = &listing.levels[t];
        let fitting = levels.partition_point(|level| before + level + self.rest[t] <= self.slo);
        // a task at the end takes all the time that is left
        let is_last = !self.pipeline.edges_from(task).any(|e| delays(self.rule, e));
        for &level in &levels[if is_last { fitting.saturating_sub(1) } else { 0 }..fitting] {
            charges[t] = level;
            finish[t] = before + level;
            if !self.extend(listing, at + 1, charges, finish) {
                return false;
            }
        }
        true
    }

    fn fits(&self, charges: &[f64]) -> bool {
        finish_times(self.pipeline, self.rule, charges).iter().all(|&f| f <= self.slo)
    }

    /// Whether no task could have its next level.
    fn is_maximal(&self, levels: &[Vec<f64>], charges: &[f64]) -> bool {
        let mut raised = charges.to_vec();
        (0..charges.len()).all(|t| {
            let Some(&above) = levels[t].iter().find(|&&level| level > charges[t]) else { return true };
            raised[t] = above;
            let fits = self.fits(&raised);
            raised[t] = charges[t];
            !fits
        })
    }

    /// Vectors near another one: one task gets its next or previous level, another one makes room if it must, and all
    /// tasks then grow as far as they can.
    pub fn neighbours(&self, vector: &[f64]) -> Vec<Vec<f64>> {
        let mut found: Vec<Vec<f64>> = Vec::new();
        for t in 0..vector.len() {
            let levels = &self.levels[t];
            let at = levels.partition_point(|&level| level < vector[t]);
            for to in [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter(|&to| to < levels.len()) {
                let mut changed = vector.to_vec();
                changed[t] = levels[to];
                for other in (0..vector.len()).filter(|&other| other != t) {
                    if let Some(near) = self.make_room(changed.clone(), t, other)
                        && near != vector
                        && !found.contains(&near)
                    {
                        found.push(near);
                    }
                }
            }
        }
        found
    }

    /// Lowers task `other` until the charges fit, and then raises all tasks but `fixed`, the later ones first.
    fn make_room(&self, mut charges: Vec<f64>, fixed: usize, other: usize) -> Option<Vec<f64>> {
        while !self.fits(&charges) {
            charges[other] = *self.levels[other].iter().rev().find(|&&level| level < charges[other])?;
        }
        let tasks = charges.len();
        for t in (1..=tasks).map(|i| (other + i) % tasks).filter(|&t| t != fixed).chain([fixed]) {
            while let Some(&above) = self.levels[t].iter().find(|&&level| level > charges[t]) {
                let before = std::mem::replace(&mut charges[t], above);
                if !self.fits(&charges) {
                    charges[t] = before;
                    break;
                }
            }
        }
        Some(charges)
    }
}

/// Removes every second level, but not the first and the last; of two, the last.
fn halve(levels: &mut Vec<f64>) {
    if levels.len() == 2 {
        levels.truncate(1);
    }
    let last = levels.len().saturating_sub(1);
    let mut at = 0;
    levels.retain(|_| {
        at += 1;
        (at - 1) % 2 == 0 || at - 1 == last
    });
}
