//! How do the settings of all tasks become a plan: assignments, flows, accuracy, tables?

use super::settings::{SettingArithmetic, TaskSetting};
use crate::routing;
use apportion_domain::{Assignment, Flow, GroupName, Pipeline, PipelinePlan, Plan, Routing, TaskIndex, VariantIndex};

/// The plan of some settings; `None` if the checker rejects it.
pub(super) fn assemble(arithmetic: &SettingArithmetic<'_>, settings: &[TaskSetting]) -> Option<Plan> {
    let problem = arithmetic.problem;
    let part = |(p, pipeline): (usize, &Pipeline)| {
        let own: Vec<&TaskSetting> = settings.iter().filter(|s| s.pipeline.0 == p).collect();
        pipeline_plan(arithmetic, pipeline, &own, settings)
    };
    let pipelines: Vec<PipelinePlan> = problem.pipelines.iter().enumerate().map(part).collect();
    let mut plan = Plan { pipelines, cost_per_hour: 0.0 };
    plan.cost_per_hour = crate::exact::solution::plan::cost_per_hour(problem, &plan);
    routing::add_tables(problem, &mut plan, &vec![1.0; problem.pipelines.len()]);
    apportion_checker::check(problem, &plan).is_empty().then_some(plan)
}

/// The part of one pipeline. `own` are its settings.
fn pipeline_plan(
    arithmetic: &SettingArithmetic<'_>,
    pipeline: &Pipeline,
    own: &[&TaskSetting],
    settings: &[TaskSetting],
) -> PipelinePlan {
    let name = |s: &TaskSetting| GroupName {
        task: pipeline.task(s.task).name.clone(),
        variant: pipeline.variant(s.task, s.variant).name.clone(),
        hardware: arithmetic.problem.hardware_at(s.hardware).name.clone(),
        share: s.share,
    };
    let assignment = |s: &&TaskSetting| {
        let row = arithmetic.profile_row(s);
        let load = arithmetic.load_qps(s, settings);
        Assignment {
            group: name(s),
            batch: s.batch,
            replicas: s.replicas,
            traffic_share: if load > 0.0 { 1.0 } else { 0.0 },
            latency_budget_ms: pipeline.hop_charge_ms(s.task, row.latency_ms),
            utilisation: load / (f64::from(s.replicas) * row.throughput_qps()),
        }
    };
    let setting = |t: TaskIndex| own.iter().find(|s| s.task == t).expect("a setting of each task");
    let variants: Vec<VariantIndex> = (0..pipeline.tasks.len()).map(|t| setting(TaskIndex(t)).variant).collect();
    let mut flows: Vec<Flow> = Vec::new();
    for sink in pipeline.sinks() {
        let stages = pipeline.path_towards(sink, &variants);
        let path: Vec<GroupName> = stages.iter().map(|&(t, _)| name(setting(t))).collect();
        // a path that ends early ends for every sink below it
        if flows.iter().all(|f| f.path != path) {
            flows.push(Flow { path, share: 1.0 });
        }
    }
    PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps: pipeline.demand_qps,
        accuracy: pipeline.accuracy_of(&variants),
        serving: pipeline.serving.resolve(),
        assignments: own.iter().map(assignment).collect(),
        flows,
        routing: Routing::default(),
        ladder: vec![],
    }
}
