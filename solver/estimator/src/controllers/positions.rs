//! Where is a group of a plan in the reports?

use apportion_serving::Outline;

/// Position of each group of an outline in the reports. Reports list a pipeline's groups by task, and the groups of a task
/// in the plan's order, after the `groups_before` groups of earlier pipelines.
pub fn report_positions(outline: &Outline, groups_before: usize) -> Vec<usize> {
    let mut by_task: Vec<usize> = (0..outline.groups.len()).collect();
    by_task.sort_by_key(|&group| outline.groups[group].task);
    let mut positions = vec![0; by_task.len()];
    by_task.into_iter().enumerate().for_each(|(at, group)| positions[group] = groups_before + at);
    positions
}
