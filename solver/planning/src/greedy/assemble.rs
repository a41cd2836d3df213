//! Settings as a plan: assignments, flows, accuracy, tables.

use super::{Greedy, Setting};
use crate::routing;
use apportion_domain::{
    AccuracyModel, Assignment, Flow, GroupName, Pipeline, PipelinePlan, Plan, Routing, TaskIndex, VariantIndex,
};

impl Greedy<'_> {
    /// The plan of some settings; `None` if the checker rejects it.
    pub(super) fn plan(&self, settings: &[Setting]) -> Option<Plan> {
        let problem = self.problem;
        let part = |(p, pipeline): (usize, &Pipeline)| {
            let own: Vec<&Setting> = settings.iter().filter(|s| s.pipeline.0 == p).collect();
            self.part(pipeline, &own, settings)
        };
        let pipelines: Vec<PipelinePlan> = problem.pipelines.iter().enumerate().map(part).collect();
        let mut plan = Plan { pipelines, cost_per_hour: 0.0 };
        plan.cost_per_hour = crate::milp::extract::cost_per_hour(problem, &plan);
        routing::add_tables(problem, &mut plan, &vec![1.0; problem.pipelines.len()]);
        apportion_checker::check(problem, &plan).is_empty().then_some(plan)
    }

    fn part(&self, pipeline: &Pipeline, own: &[&Setting], settings: &[Setting]) -> PipelinePlan {
        let name = |s: &Setting| GroupName {
            task: pipeline.task(s.task).name.clone(),
            variant: pipeline.variant(s.task, s.variant).name.clone(),
            hardware: self.problem.hardware_at(s.hardware).name.clone(),
            share: s.share,
        };
        let assignment = |s: &&Setting| {
            let row = self.row(s);
            let load = self.load(s, settings);
            Assignment {
                group: name(s),
                batch: s.batch,
                replicas: s.replicas,
                traffic_share: if load > 0.0 { 1.0 } else { 0.0 },
                latency_budget_ms: pipeline.hop_charge_ms(row.latency_ms),
                utilisation: load / (f64::from(s.replicas) * row.throughput_qps()),
            }
        };
        let mut accuracy = 0.0;
        let mut flows: Vec<Flow> = Vec::new();
        for sink in pipeline.sinks() {
            let route = route(pipeline, own, sink);
            accuracy += pipeline.leaf_weight(sink) * pipeline.path_accuracy(&stages(&route));
            let path: Vec<GroupName> = route.iter().map(|s| name(s)).collect();
            if flows.iter().all(|f| f.path != path) {
                flows.push(Flow { path, share: 1.0 });
            }
        }
        if pipeline.accuracy_model == AccuracyModel::TaskMean {
            let reached = own.iter().filter(|s| s.task == pipeline.root() || self.reaches(pipeline, own, s.task));
            let total: f64 = reached.map(|s| pipeline.variant(s.task, s.variant).accuracy).sum();
            accuracy = total / pipeline.tasks.len() as f64;
        }
        PipelinePlan {
            name: pipeline.name.clone(),
            demand_qps: pipeline.demand_qps,
            accuracy,
            serving: pipeline.serving.resolve(),
            assignments: own.iter().map(assignment).collect(),
            flows,
            routing: Routing::default(),
            ladder: vec![],
        }
    }

    /// Whether queries get to a task at all.
    fn reaches(&self, pipeline: &Pipeline, own: &[&Setting], task: TaskIndex) -> bool {
        route(pipeline, own, task).last().is_some_and(|s| s.task == task)
    }
}

/// The settings from the root towards `end`, as far as queries get.
fn route<'a>(pipeline: &Pipeline, own: &[&'a Setting], end: TaskIndex) -> Vec<&'a Setting> {
    let mut tasks = vec![end];
    while let Some(edge) = pipeline.primary_parent(tasks[tasks.len() - 1]) {
        tasks.push(edge.from);
    }
    let mut route: Vec<&Setting> = Vec::new();
    for &t in tasks.iter().rev() {
        if let (Some(last), Some(edge)) = (route.last(), pipeline.primary_parent(t))
            && pipeline.fanout(edge, last.variant) <= 0.0
        {
            break;
        }
        route.extend(own.iter().find(|s| s.task == t));
    }
    route
}

fn stages(route: &[&Setting]) -> Vec<(TaskIndex, VariantIndex)> {
    route.iter().map(|s| (s.task, s.variant)).collect()
}
