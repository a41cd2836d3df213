//! How is an outcome of the planner written as a plan file?

use crate::evidence::group_profiles;
use crate::explanation::{self, ExplanationFile, finite};
use crate::plan::{
    AssignmentFile, BackupFile, EstimateFile, FlowFile, GroupFile, JudgedOnFile, JudgedPipelineFile, LadderStepFile,
    ObjectiveFile, PathNode, PipelinePlanFile, PlanFile, PlannerFile, RoundFile, RoutingEntryFile, RoutingFile,
    RoutingTableFile, SecondsOfFile, ServingFile, TaskEstimateFile,
};
use apportion_domain::{
    Assignment, CheckRound, Estimate, Flow, GroupName, JudgedOn, JudgedPipeline, LadderStep, Mode, ObjectiveValue,
    PipelinePlan, PlanOutcome, PlanningReport, Problem, Routing, SecondsOf, ServingPolicy, Share, TaskWaiting,
};

impl PlanFile {
    /// The file of an outcome.
    #[must_use]
    pub fn from_outcome(problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport) -> Self {
        let plan = outcome.plan();
        Self {
            version: crate::problem::VERSION,
            status: outcome.status().name().to_owned(),
            objective: objective(Some(problem.objective.mode), &report.objective),
            cost_per_hour: plan.map(|p| p.cost_per_hour),
            replicas: plan.map(apportion_domain::Plan::replicas),
            pipelines: plan.map(|p| p.pipelines.iter().map(pipeline).collect()).unwrap_or_default(),
            scaling: None,
            estimate: report.estimate.as_ref().map(EstimateFile::from),
            planner: PlannerFile {
                name: report.planner.clone(),
                seconds: report.seconds,
                seconds_of: Some(SecondsOfFile::from(&report.seconds_of)),
                stopped: outcome.stopped().map(|s| s.name().to_owned()),
                rounds: report.rounds.iter().map(|r| round(problem.objective.mode, r)).collect(),
                warnings: report.warnings.clone(),
            },
            explanation: ExplanationFile {
                profiles: plan.map(|p| group_profiles(problem, p)).unwrap_or_default(),
                ..explanation::file(&report.explanation, outcome)
            },
        }
    }

    /// The text of the file, indented.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan has text keys only")
    }
}

impl ObjectiveFile {
    /// The value of the objective in this mode.
    #[must_use]
    pub fn of(mode: Mode, value: &ObjectiveValue) -> Self {
        objective(Some(mode), value)
    }
}

pub(crate) fn objective(mode: Option<Mode>, value: &ObjectiveValue) -> ObjectiveFile {
    ObjectiveFile {
        mode: mode.map_or("scaling", Mode::name).to_owned(),
        step: value.step.map(|s| s.name().to_owned()),
        value: value.value.and_then(finite),
        bound: value.bound.and_then(finite),
        gap: value.gap().and_then(finite),
    }
}

fn pipeline(p: &PipelinePlan) -> PipelinePlanFile {
    PipelinePlanFile {
        name: p.name.clone(),
        demand_qps: p.demand_qps,
        accuracy: p.accuracy,
        serving: ServingFile::from(p.serving),
        assignments: p.assignments.iter().map(assignment).collect(),
        flows: p.flows.iter().map(flow).collect(),
        routing: routing(&p.routing),
        ladder: p.ladder.iter().map(step).collect(),
    }
}

fn step(s: &LadderStep) -> LadderStepFile {
    LadderStepFile { rate_qps: s.rate_qps, replicas: s.replicas.clone() }
}

impl From<ServingPolicy> for ServingFile {
    fn from(s: ServingPolicy) -> Self {
        Self {
            queueing: s.queueing.name().to_owned(),
            batching: s.batching.name().to_owned(),
            routing: s.routing.name().to_owned(),
            dropping: s.dropping.name().to_owned(),
        }
    }
}

fn assignment(a: &Assignment) -> AssignmentFile {
    AssignmentFile {
        task: a.group.task.clone(),
        variant: a.group.variant.clone(),
        hardware: a.group.hardware.clone(),
        share: a.group.share.value(),
        batch: a.batch,
        replicas: a.replicas,
        traffic_share: a.traffic_share,
        latency_budget_ms: a.latency_budget_ms,
        utilisation: a.utilisation,
    }
}

fn flow(f: &Flow) -> FlowFile {
    FlowFile { path: f.path.iter().map(PathNode::from).collect(), share: f.share }
}

impl From<&GroupName> for PathNode {
    fn from(g: &GroupName) -> Self {
        let (task, variant, hardware) = (g.task.clone(), g.variant.clone(), g.hardware.clone());
        if g.share == Share::WHOLE {
            Self::Whole(task, variant, hardware)
        } else {
            Self::Part(task, variant, hardware, g.share.value())
        }
    }
}

impl From<&GroupName> for GroupFile {
    fn from(g: &GroupName) -> Self {
        Self { task: g.task.clone(), variant: g.variant.clone(), hardware: g.hardware.clone(), share: g.share.value() }
    }
}

fn routing(r: &Routing) -> RoutingFile {
    let table = |t: &apportion_domain::RoutingTable| RoutingTableFile {
        from: t.from.as_ref().map(GroupFile::from),
        to: t.to_task.clone(),
        entries: t
            .entries
            .iter()
            .map(|e| RoutingEntryFile {
                variant: e.to.variant.clone(),
                hardware: e.to.hardware.clone(),
                share: e.to.share.value(),
                fraction: e.fraction,
            })
            .collect(),
    };
    let backup = |b: &apportion_domain::BackupEntry| BackupFile {
        task: b.group.task.clone(),
        variant: b.group.variant.clone(),
        hardware: b.group.hardware.clone(),
        share: b.group.share.value(),
        capacity_qps: b.capacity_qps,
    };
    RoutingFile { tables: r.tables.iter().map(table).collect(), backup: r.backup.iter().map(backup).collect() }
}

impl From<&Estimate> for EstimateFile {
    fn from(e: &Estimate) -> Self {
        Self {
            method: e.method.name().to_owned(),
            seed: e.seed,
            requests: e.requests,
            ok: e.ok,
            late: e.late,
            dropped: e.dropped,
            failed: e.failed,
            attainment: e.attainment,
            p50_ms: finite(e.p50_ms),
            p99_ms: finite(e.p99_ms),
            accuracy: finite(e.accuracy),
            cost_per_hour: e.cost_per_hour,
            judged_on: e.judged_on.as_ref().map(JudgedOnFile::from),
            tasks: e.waiting.iter().map(TaskEstimateFile::from).collect(),
        }
    }
}

impl From<&JudgedOn> for JudgedOnFile {
    fn from(j: &JudgedOn) -> Self {
        let of_pipeline = |p: &JudgedPipeline| JudgedPipelineFile {
            pipeline: p.pipeline.clone(),
            percentile: p.percentile,
            requests: p.requests,
            attainment: p.attainment,
            attainment_low: p.attainment_low,
            attainment_high: p.attainment_high,
            verdict: p.verdict.name().to_owned(),
        };
        Self {
            verdict: j.verdict.name().to_owned(),
            load: j.load.name().to_owned(),
            samples: j.samples,
            first_seed: j.first_seed,
            pipelines: j.pipelines.iter().map(of_pipeline).collect(),
        }
    }
}

impl From<&TaskWaiting> for TaskEstimateFile {
    fn from(w: &TaskWaiting) -> Self {
        Self {
            pipeline: w.pipeline.clone(),
            task: w.task.clone(),
            queries: w.queries,
            waiting_mean_ms: w.mean_ms,
            waiting_p99_ms: w.p99_ms,
            queueing_ms: w.queueing_ms,
            batch_wait_ms: w.batch_wait_ms,
            service_ms: w.service_ms,
            batch: w.batch,
            utilisation: w.utilisation,
        }
    }
}

fn round(mode: Mode, r: &CheckRound) -> RoundFile {
    RoundFile {
        round: r.round,
        headroom: r.headroom.iter().cloned().collect(),
        charge_ms: r.charge_ms.iter().cloned().collect(),
        objective: objective(Some(mode), &r.objective),
        replicas: r.replicas,
        attainment: r.attainment,
        p99_ms: finite(r.p99_ms),
        judged_on: r.judged_on.as_ref().map(JudgedOnFile::from),
    }
}

impl From<&SecondsOf> for SecondsOfFile {
    fn from(of: &SecondsOf) -> Self {
        let SecondsOf { search, replay, shortfalls, explanation, ladder } = *of;
        Self { search, replay, shortfalls, explanation, ladder }
    }
}
