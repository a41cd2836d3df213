//! How does a planner without accuracy scaling plan? InferLine as Loki evaluates it (section 6.1).
//!
//! It knows the pipeline, but each task runs its most accurate variant. More demand means more replicas, until the devices
//! are used up. The exact planner solves the problem without the other variants: fewest replicas in
//! `hardware_then_accuracy`, least cost otherwise. So the only difference to the exact planner is accuracy scaling. With a
//! trace it has the check loop too.

use super::common::{
    BaselinePlan, LargestPart, PART_PRECISION, answer, demands, largest_part, no_plan, objective, with_part,
};
use crate::answer::infeasible;
use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{SearchOutcome, attempt};
use crate::options::PlanningOptions;
use crate::routing;
use crate::trace_check::check_loop;
use apportion_domain::{
    Deployed, PathAccuracy, Pipeline, PipelineDraft, PlanOutcome, PlanningReport, Problem, StopReason, TaskIndex,
    VariantIndex,
};

/// Plans with the most accurate variants alone.
pub(crate) fn plan(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let fixed = most_accurate_only(problem);
    let limits = options.limits().for_search();
    let plan_for = |part: f64| {
        let at = with_part(&fixed, part);
        match attempt(&at, &Tightening::none(&at), options.gap, &limits) {
            SearchOutcome::Plan(candidate) => Ok(Some(candidate.plan)),
            SearchOutcome::Infeasible => Ok(None),
            // under rule `path` the search may end as unknown before the limits do
            SearchOutcome::Unknown(stopped) if limits.exceeded() => Err(stopped),
            SearchOutcome::Unknown(_) => Ok(None),
        }
    };
    let LargestPart { part, mut plan } = match largest_part(PART_PRECISION, plan_for) {
        Ok(Some(found)) => found,
        Ok(None) => return no_plan(problem, options, infeasible::shortfalls(&fixed, &limits)),
        Err(stopped) => return report::report_unknown(options, stopped),
    };
    match &options.trace {
        Some(workload) if part >= 1.0 => {
            let (outcome, report) = check_loop::plan_on_trace(&fixed, options, workload);
            remove_proof(problem, outcome, report)
        }
        _ => {
            routing::add_tables(&with_part(problem, part), &mut plan, &vec![1.0; problem.pipelines.len()]);
            answer(problem, options, BaselinePlan { plan, part, rates: demands(problem) })
        }
    }
}

/// Removes the proof: a proof for the problem without the other variants does not hold for the problem.
fn remove_proof(problem: &Problem, outcome: PlanOutcome, mut report: PlanningReport) -> (PlanOutcome, PlanningReport) {
    let outcome = match outcome {
        PlanOutcome::Optimal(plan) => PlanOutcome::Feasible { plan, stopped: StopReason::Finished },
        other => other,
    };
    if let Some(plan) = outcome.plan() {
        report.objective = objective(problem, plan);
    }
    (outcome, report)
}

/// The problem without any variant that is not among the most accurate of its task.
pub(super) fn most_accurate_only(problem: &Problem) -> Problem {
    let kept: Vec<KeptVariants> = problem.pipelines.iter().map(KeptVariants::most_accurate).collect();
    let pipelines = problem.pipelines.iter().zip(&kept).map(|(p, kept)| kept.restrict(p, problem)).collect();
    let deployed = problem.deployed.iter().filter_map(|d| {
        let variant = kept[d.pipeline.get()].position(d.task, d.variant)?;
        Some(Deployed { variant, ..d.clone() })
    });
    let deployed = deployed.collect();
    problem
        .changed(|d| {
            d.pipelines = pipelines;
            d.deployed = deployed;
        })
        .expect("fewer variants make no problem invalid")
}

/// The variants of each task of a pipeline that stay.
struct KeptVariants {
    by_task: Vec<Vec<VariantIndex>>,
}

impl KeptVariants {
    fn most_accurate(pipeline: &Pipeline) -> Self {
        let tasks = (0..pipeline.tasks.len()).map(TaskIndex);
        Self { by_task: tasks.map(|t| pipeline.most_accurate(t).collect()).collect() }
    }

    /// The position of a variant among the kept variants.
    fn position(&self, task: TaskIndex, variant: VariantIndex) -> Option<VariantIndex> {
        self.by_task[task.get()].iter().position(|&v| v == variant).map(VariantIndex)
    }

    fn restrict(&self, pipeline: &Pipeline, problem: &Problem) -> Pipeline {
        let mut draft = PipelineDraft::clone(pipeline);
        for (task, kept) in draft.tasks.iter_mut().zip(&self.by_task) {
            task.variants = kept.iter().map(|&v| task.variants[v.get()].clone()).collect();
        }
        let entry = |e: &PathAccuracy| {
            let path = e.path.iter().map(|&(t, v)| Some((t, self.position(t, v)?))).collect::<Option<_>>()?;
            Some(PathAccuracy { path, accuracy: e.accuracy })
        };
        draft.path_accuracy = draft.path_accuracy.iter().filter_map(entry).collect();
        Pipeline::new(draft, &problem.hardware, "").expect("fewer variants make no pipeline invalid")
    }
}
