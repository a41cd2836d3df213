//! The accuracy of a query's path.

use super::query::SimulatedQuery;
use apportion_domain::{AccuracyModel, Pipeline, TaskIndex, VariantIndex};
use std::collections::BTreeMap;

/// A node that no listed path goes through.
const OFF: u32 = 0;
/// The node before the root.
const START: u32 = 1;

/// Accuracies of paths, by the pipeline's formula or by the table of measured paths (`path_accuracy`).
///
/// The table is a trie of the listed paths' prefixes, flattened by step, so that its size is bounded by the problem's and a
/// step costs one load.
#[derive(Clone, Debug)]
pub struct PathAccuracies {
    steps: BTreeMap<(TaskIndex, VariantIndex), u32>,
    next: Vec<u32>,
    accuracy: Vec<Option<f64>>,
    product: bool,
}

/// A step of paths: one variant of one task.
#[derive(Clone, Copy, Debug)]
pub struct PathStep<'a> {
    next: &'a [u32],
    width: usize,
    /// `usize::MAX` if no listed path has it.
    step: usize,
    accuracy: f64,
    product: bool,
}

/// How far a query has come on its path.
#[derive(Clone, Copy, Debug)]
pub struct PathPoint {
    /// Its node in the table.
    pub node: u32,
    /// Accuracy accumulated over the tasks that it has passed.
    pub stages: f64,
}

impl PathStep<'_> {
    /// The point of a query after it.
    #[inline(always)]
    #[must_use]
    pub fn pass(self, query: &SimulatedQuery) -> PathPoint {
        let stages = if self.product { query.stages * self.accuracy } else { query.stages + self.accuracy };
        if query.node == OFF || self.step == usize::MAX {
            return PathPoint { node: OFF, stages };
        }
        PathPoint { node: self.next[query.node as usize * self.width + self.step], stages }
    }
}

impl PathAccuracies {
    /// Of one pipeline.
    #[must_use]
    pub fn new(pipeline: &Pipeline) -> Self {
        let product = pipeline.accuracy_model == AccuracyModel::Product;
        let mut paths = Self { steps: BTreeMap::new(), next: Vec::new(), accuracy: vec![None, None], product };
        for &stage in pipeline.path_accuracy.iter().flat_map(|e| &e.path) {
            let step = paths.steps.len() as u32;
            paths.steps.entry(stage).or_insert(step);
        }
        let width = paths.steps.len();
        paths.next = vec![OFF; 2 * width];
        for entry in &pipeline.path_accuracy {
            let mut node = START;
            for stage in &entry.path {
                let at = node as usize * width + paths.steps[stage] as usize;
                if paths.next[at] == OFF {
                    paths.next[at] = paths.accuracy.len() as u32;
                    paths.accuracy.push(None);
                    paths.next.resize(paths.next.len() + width, OFF);
                }
                node = paths.next[at];
            }
            paths.accuracy[node as usize] = Some(entry.accuracy);
        }
        paths
    }

    /// The number of a step, for [`PathAccuracies::stage`]; `None` if no listed path has it.
    #[must_use]
    pub fn step(&self, task: TaskIndex, variant: VariantIndex) -> Option<u32> {
        self.steps.get(&(task, variant)).copied()
    }

    /// The point of a query before the root.
    #[must_use]
    pub fn start(&self) -> PathPoint {
        let node = if self.steps.is_empty() { OFF } else { START };
        PathPoint { node, stages: if self.product { 1.0 } else { 0.0 } }
    }

    /// The effect of a step on a query's node and accuracy. `step` is its number here.
    #[inline]
    #[must_use]
    pub fn stage(&self, step: Option<u32>, accuracy: f64) -> PathStep<'_> {
        let step = step.map_or(usize::MAX, |step| step as usize);
        PathStep { next: &self.next, width: self.steps.len(), step, accuracy, product: self.product }
    }

    /// Whether each path's accuracy is the product of those of its variants: no path was measured.
    #[inline]
    #[must_use]
    pub fn is_plain_product(&self) -> bool {
        self.product && self.steps.is_empty()
    }

    /// Accuracy of a path that ends at this point and is `depth` tasks long: the table's, otherwise by the pipeline's
    /// formula.
    #[inline]
    #[must_use]
    pub fn accuracy(&self, point: PathPoint, depth: u32) -> f64 {
        match self.accuracy[point.node as usize] {
            Some(measured) => measured,
            None if self.product => point.stages,
            None => point.stages / f64::from(depth),
        }
    }
}
