//! The greedy planner of InferLine (section 4.3, Algorithms 1 and 2) on the estimator.
//!
//! Algorithm 1: every task runs its most accurate variant at its smallest batch, one replica, on the hardware that is
//! fastest; replicas are added to the throughput bottleneck until the estimator meets the percentile on the load. Algorithm 2:
//! of the actions *double the batch*, *remove a replica*, *change the hardware*, the feasible one that saves most is taken,
//! until none is left. The paper orders hardware by speed and price alike; here every other hardware type is tried.
//!
//! Feasible means that the checker accepts the plan and the estimator meets every percentile. It proves nothing about what
//! it does not find: its plans are feasible without a bound. `judge` says how the answer is had cheaply, `minimise` is Algorithm 2,
//! and the tests hold both to the plain algorithm, which judges every action by a whole run.

mod assemble;
mod judge;
mod minimise;
#[cfg(test)]
mod tests;

use crate::PlanOptions;
use crate::limits::Limits;
use crate::replay::{self, Verdict};
use crate::report::{self, Candidate};
use apportion_domain::{
    Constraint, HardwareIndex, LatencyRule, Mode, ObjectiveStep, ObjectiveValue, PipelineIndex, Plan, PlanOutcome,
    PlanningReport, Problem, ProfileRow, Relaxation, SLACK, Share, Shortfall, StopReason, TaskIndex, VariantIndex,
};
use apportion_estimator::Workload;
use judge::Judge;

/// Most replicas of one task that Algorithm 1 tries.
const REPLICAS_MAX: u32 = 100_000;

/// How one task of one pipeline runs.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    pipeline: PipelineIndex,
    task: TaskIndex,
    variant: VariantIndex,
    hardware: HardwareIndex,
    share: Share,
    batch: u32,
    replicas: u32,
}

struct Greedy<'a> {
    problem: &'a Problem,
    workload: &'a Workload,
    limits: &'a Limits,
    judge: Judge,
}

/// Why Algorithm 1 has no start.
enum NoStart {
    Latency(PipelineIndex, f64),
    /// Neither devices nor replicas are enough for the load.
    Capacity,
    /// Nobody knows, because the limits or the size of the replays ended the search.
    Stopped(StopReason),
}

/// Plans greedily.
pub(crate) fn plan(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    let default = replay::default_workload(problem);
    let limits = options.limits();
    let workload = options.trace.as_ref().unwrap_or(&default);
    let search = limits.for_search();
    let judge = match Judge::new(problem, workload, &search) {
        Ok(judge) => judge,
        Err(stopped) => return report::unknown(options, stopped),
    };
    let greedy = Greedy { problem, workload, limits: &search, judge };
    let (settings, stopped) = match greedy.initialise().map(|start| greedy.minimise(start)) {
        Ok(done) => done,
        Err(NoStart::Latency(p, best)) => return too_slow(problem, options, p, best),
        Err(NoStart::Capacity) => return report::unknown(options, StopReason::TraceNotMet),
        Err(NoStart::Stopped(stopped)) => return report::unknown(options, stopped),
    };
    let Some(plan) = greedy.plan(&settings) else { return report::unknown(options, StopReason::Numerics) };
    let estimate = replay::replay(problem, &plan, greedy.workload, &limits.finishing()).map(|s| s.total);
    let candidate = Candidate { objective: objective(problem, &plan), plan, stopped: Some(stopped), basis: None };
    report::with_plan(problem, options, candidate, estimate, Vec::new())
}

fn too_slow(problem: &Problem, options: &PlanOptions, p: PipelineIndex, best: f64) -> (PlanOutcome, PlanningReport) {
    let pipeline = problem.pipeline(p);
    let shortfall = Shortfall {
        constraint: Constraint::Latency,
        place: pipeline.name.clone(),
        asked: pipeline.slo_ms,
        best,
        relax: Some(Relaxation { pointer: format!("/pipelines/{}/slo_ms", p.0), from: pipeline.slo_ms, to: best }),
    };
    // faster variants may do what the most accurate ones cannot: only the exact planner can say that nothing does
    let (_, mut report) = report::unknown(options, StopReason::Finished);
    report.explanation.shortfalls = vec![shortfall.clone()];
    match crate::milp::space::fastest(problem, p) {
        Ok(fastest) if fastest <= pipeline.slo_ms => (PlanOutcome::Unknown { stopped: StopReason::Finished }, report),
        _ => (PlanOutcome::Infeasible { shortfalls: vec![shortfall] }, report),
    }
}

fn objective(problem: &Problem, plan: &Plan) -> ObjectiveValue {
    let weights: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    let accuracy = problem.pipelines.iter().zip(&plan.pipelines).map(|(p, part)| p.weight * part.accuracy).sum::<f64>();
    let (step, value) = match problem.objective.mode {
        Mode::HardwareThenAccuracy => (Some(ObjectiveStep::Hardware), plan.replicas() as f64),
        Mode::MinCost => (None, plan.cost_per_hour),
        Mode::MaxAccuracy => (None, accuracy / weights.max(f64::MIN_POSITIVE)),
    };
    ObjectiveValue { step, value: Some(value), bound: None }
}

impl Greedy<'_> {
    /// Algorithm 1.
    fn initialise(&self) -> Result<Vec<Setting>, NoStart> {
        let mut settings = Vec::new();
        for (p, pipeline) in self.problem.pipelines.iter().enumerate() {
            let p = PipelineIndex(p);
            for t in (0..pipeline.tasks.len()).map(TaskIndex) {
                settings.push(self.fastest(p, t).ok_or(NoStart::Capacity)?);
            }
            let service = self.service_ms(p, &settings);
            if service > pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) {
                return Err(NoStart::Latency(p, service));
            }
        }
        loop {
            // which replica comes next does not depend on the verdict
            let more = self.bottleneck(&settings).map(|bottleneck| {
                let mut more = settings.clone();
                more[bottleneck].replicas += 1;
                more
            });
            match self.is_feasible_before(&settings, more.as_deref()) {
                Verdict::Holds => return Ok(settings),
                Verdict::Misses => self.limits.reason().map_or(Ok(()), |reason| Err(NoStart::Stopped(reason)))?,
                Verdict::Cut(stopped) => return Err(NoStart::Stopped(stopped)),
            }
            settings = more.ok_or(NoStart::Capacity)?;
        }
    }

    /// Fewest replicas of a task.
    fn least(&self, s: &Setting) -> u32 {
        let pipeline = self.problem.pipeline(s.pipeline);
        pipeline.task(s.task).min_replicas.max(1 + pipeline.survive)
    }

    /// The most accurate variant of a task on the hardware and share that run its smallest batch fastest.
    fn fastest(&self, p: PipelineIndex, t: TaskIndex) -> Option<Setting> {
        let pipeline = self.problem.pipeline(p);
        let mut best: Option<(f64, Setting)> = None;
        for v in pipeline.most_accurate(t) {
            let variant = pipeline.variant(t, v);
            for (hardware, share) in variant.profile.places() {
                let exists = self.problem.hardware_at(hardware).count != Some(0);
                let row = &variant.profile.on(hardware, share)[0];
                let fits = exists && self.problem.fits_memory(variant.memory_mib, hardware, share);
                if fits && best.as_ref().is_none_or(|(latency, _)| row.latency_ms < *latency) {
                    let replicas = pipeline.task(t).min_replicas.max(1 + pipeline.survive);
                    let setting = Setting { pipeline: p, task: t, variant: v, hardware, share, batch: row.batch, replicas };
                    best = Some((row.latency_ms, setting));
                }
            }
        }
        best.map(|(_, setting)| setting)
    }

    fn row(&self, s: &Setting) -> &ProfileRow {
        let variant = self.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        variant.profile.row(s.hardware, s.share, s.batch).expect("settings hold measured batches only")
    }

    /// Time of the longest way through the graph: every task one batch, waiting as the queue factor says.
    fn service_ms(&self, p: PipelineIndex, settings: &[Setting]) -> f64 {
        let pipeline = self.problem.pipeline(p);
        let mut charges = vec![0.0; pipeline.tasks.len()];
        for s in settings.iter().filter(|s| s.pipeline == p) {
            charges[s.task.get()] = pipeline.hop_charge_ms(self.row(s).latency_ms);
        }
        crate::milp::space::finish_times(pipeline, LatencyRule::TaskBudget, &charges).into_iter().fold(0.0, f64::max)
    }

    /// The setting whose capacity over its load is least and that can still get a replica.
    fn bottleneck(&self, settings: &[Setting]) -> Option<usize> {
        let mut open: Vec<(f64, usize)> = Vec::new();
        for (i, s) in settings.iter().enumerate() {
            let pipeline = self.problem.pipeline(s.pipeline);
            let load = self.load(s, settings);
            let capacity = f64::from(s.replicas - pipeline.survive) * self.row(s).throughput_qps();
            open.push((capacity / load.max(f64::MIN_POSITIVE), i));
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // a bottleneck that cannot grow stays the bottleneck: more of anything else is waste
        let &(_, first) = open.first()?;
        let mut more = settings.to_vec();
        more[first].replicas += 1;
        (more[first].replicas <= REPLICAS_MAX && self.within_devices(&more)).then_some(first)
    }

    /// Queries per second at a setting.
    fn load(&self, s: &Setting, settings: &[Setting]) -> f64 {
        let pipeline = self.problem.pipeline(s.pipeline);
        let mut load = pipeline.demand_qps;
        let mut task = s.task;
        while let Some(edge) = pipeline.primary_parent(task) {
            let parent = settings.iter().find(|o| o.pipeline == s.pipeline && o.task == edge.from);
            load *= parent.map_or(0.0, |o| pipeline.fanout(edge, o.variant));
            task = edge.from;
        }
        load
    }

    fn within_devices(&self, settings: &[Setting]) -> bool {
        let mut eighths = vec![0_u64; self.problem.hardware.len()];
        for s in settings {
            eighths[s.hardware.get()] += u64::from(s.replicas) * u64::from(s.share.eighths());
        }
        let counts = self.problem.hardware.iter().zip(&eighths);
        counts.into_iter().all(|(h, e)| h.count.is_none_or(|count| e.div_ceil(8) <= u64::from(count)))
    }

    fn cost(&self, settings: &[Setting]) -> f64 {
        let mut eighths = vec![0_u64; self.problem.hardware.len()];
        for s in settings {
            eighths[s.hardware.get()] += u64::from(s.replicas) * u64::from(s.share.eighths());
        }
        // fractions of a device count: whole devices would hide savings that add up
        self.problem.hardware.iter().zip(eighths).map(|(h, e)| h.price_per_hour * e as f64 / 8.0).sum()
    }
}
