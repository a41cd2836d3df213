//! Which policies scale replicas during a run? Our tuner, any planner, and baselines that users run.
//!
//! Kubernetes' HPA and Ray Serve scale each group on its own, as a separate deployment, by their documented formulas and
//! defaults. The coarse-grained baseline of InferLine's evaluation scales whole pipelines.

mod coarse;
mod hpa;
mod ray_serve;
mod replanner;
mod tuner;

use apportion_serving::Outline;
pub use coarse::{Coarse, CoarseConfig};
pub use hpa::{Hpa, HpaConfig};
pub use ray_serve::{RayServe, RayServeConfig};
pub use replanner::{Offered, Replanner, ReplannerConfig};
pub use tuner::{TUNER_PERIOD, tuner};

/// Position of each group of an outline in the reports. Reports list a pipeline's groups by task, and the groups of a task
/// in the plan's order, after the `groups_before` groups of earlier pipelines.
fn places(outline: &Outline, groups_before: usize) -> Vec<usize> {
    let mut by_task: Vec<usize> = (0..outline.groups.len()).collect();
    by_task.sort_by_key(|&group| outline.groups[group].task);
    let mut places = vec![0; by_task.len()];
    by_task.into_iter().enumerate().for_each(|(at, group)| places[group] = groups_before + at);
    places
}
