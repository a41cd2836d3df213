//! Which groups does a plan have, with what the problem says about them?

use apportion_domain::{Assignment, Batching, PipelinePlan, Plan, Problem, Share};
use apportion_wire::BadInput;
use std::collections::BTreeMap;

/// A group of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportGroup<'a> {
    /// The plan of its pipeline.
    pub pipeline: &'a PipelinePlan,
    /// Its place among the assignments of that plan.
    pub position: usize,
    /// The group with its replicas and its batch.
    pub assignment: &'a Assignment,
    /// Time of a full batch in milliseconds.
    pub latency_ms: f64,
    /// How long a free replica may let a query wait for a fuller batch, in milliseconds. With `wait_until` it is the budget
    /// without the batch and without the network; with other batching it is 0.
    pub wait_ms: f64,
    /// Memory of the variant in MiB, if the problem says it.
    pub memory_mib: Option<f64>,
    /// Most replicas: what the devices of the type can hold, or twice the plan's if they are not counted.
    pub replicas_max: u32,
}

impl ExportGroup<'_> {
    /// Pipeline, task, variant and hardware, and the share of a device if it is not 1.
    pub(crate) fn raw_name(&self) -> Vec<String> {
        let group = &self.assignment.group;
        let mut parts = vec![self.pipeline.name.clone()];
        parts.extend([&group.task, &group.variant, &group.hardware].map(String::clone));
        if group.share != Share::WHOLE {
            parts.push(format!("{}of8", group.share.eighths()));
        }
        parts
    }

    /// The key of its model file.
    pub(crate) fn model_key(&self) -> (String, String, String) {
        let group = &self.assignment.group;
        (self.pipeline.name.clone(), group.task.clone(), group.variant.clone())
    }

    /// The least replicas: those of the first step of the ladder, at least one.
    pub(crate) fn replicas_min(&self) -> u32 {
        let step = self.pipeline.ladder.first().and_then(|step| step.replicas.get(self.position));
        step.copied().unwrap_or(self.assignment.replicas).clamp(1, self.assignment.replicas)
    }
}

/// Whole devices of each hardware type of these groups.
pub(crate) fn devices_of(groups: &[ExportGroup<'_>]) -> BTreeMap<String, u64> {
    let mut eighths: BTreeMap<String, u64> = BTreeMap::new();
    for group in groups {
        let assignment = group.assignment;
        let all = u64::from(assignment.replicas) * u64::from(assignment.group.share.eighths());
        *eighths.entry(assignment.group.hardware.clone()).or_default() += all;
    }
    eighths.into_iter().map(|(name, all)| (name, all.div_ceil(8))).collect()
}

/// The groups of a plan, in its order.
///
/// # Errors
/// If the plan has no replicas, or names what the problem does not have.
pub fn export_groups<'a>(problem: &Problem, plan: &'a Plan, file: &str) -> Result<Vec<ExportGroup<'a>>, BadInput> {
    let mut groups = Vec::new();
    for (p, pipeline) in plan.pipelines.iter().enumerate() {
        for (a, assignment) in pipeline.assignments.iter().enumerate() {
            let at = format!("/pipelines/{p}/assignments/{a}");
            groups.push(group_of(problem, pipeline, a, assignment).map_err(|(value, expected)| {
                BadInput::one(file, at.as_str(), value, format!("{expected}: plan and problem belong together"))
            })?);
        }
    }
    if groups.is_empty() {
        return Err(BadInput::one(file, "/pipelines", "no replicas", "a plan with at least one replica"));
    }
    Ok(groups)
}

fn group_of<'a>(
    problem: &Problem,
    pipeline: &'a PipelinePlan,
    position: usize,
    assignment: &'a Assignment,
) -> Result<ExportGroup<'a>, (String, &'static str)> {
    let group = &assignment.group;
    let index = problem.pipeline_named(&pipeline.name);
    let index = index.ok_or_else(|| (format!("pipeline {:?}", pipeline.name), "a pipeline of the problem"))?;
    let known = problem.pipeline(index);
    let task = known.task_named(&group.task).ok_or_else(|| (format!("task {:?}", group.task), "a task of the pipeline"))?;
    let variant = known.task(task).variants.iter().find(|v| v.name == group.variant);
    let variant = variant.ok_or_else(|| (format!("variant {:?}", group.variant), "a variant of the task"))?;
    let hardware = problem.hardware_named(&group.hardware);
    let hardware = hardware.ok_or_else(|| (format!("hardware {:?}", group.hardware), "a hardware type of the problem"))?;
    let row = variant.profile.row(hardware, group.share, assignment.batch);
    let row = row.ok_or_else(|| {
        (format!("batch {} on {} of {:?}", assignment.batch, group.share, group.hardware), "a row of the variant's profile")
    })?;
    let per_device = u32::from(8 / group.share.eighths());
    let counted = problem.hardware_at(hardware).count.map(|count| count.saturating_mul(per_device));
    let doubled = assignment.replicas.saturating_mul(2);
    let wait_ms = match pipeline.serving.batching {
        Batching::WaitUntil => assignment.latency_budget_ms - row.latency_ms - known.hop_ms(task),
        Batching::AtStart | Batching::Forming => 0.0,
    };
    Ok(ExportGroup {
        pipeline,
        position,
        assignment,
        latency_ms: row.latency_ms,
        wait_ms: wait_ms.max(0.0),
        memory_mib: variant.memory_mib,
        replicas_max: counted.unwrap_or(doubled).max(assignment.replicas),
    })
}
