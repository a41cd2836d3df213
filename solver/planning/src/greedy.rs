//! The greedy planner of InferLine (section 4.3, Algorithms 1 and 2) on the estimator.
//!
//! Algorithm 1: every task runs its most accurate variant at its smallest batch, one replica, on the hardware that is
//! fastest; replicas are added to the throughput bottleneck until the estimator meets the percentile on the load. Algorithm 2:
//! of the actions *double the batch*, *remove a replica*, *change the hardware*, the feasible one that saves most is taken,
//! until none is left. The paper orders hardware by speed and price alike; here every other hardware type is tried.
//!
//! Feasible means that the checker accepts the plan and the estimator meets every percentile. It proves nothing about what
//! it does not find: its plans are feasible without a bound.

use crate::limits::Limits;
use crate::report::{self, Candidate};
use crate::{PlanOptions, replay, routing};
use apportion_domain::{
    AccuracyModel, Assignment, Constraint, Flow, GroupName, HardwareIndex, LatencyRule, Mode, ObjectiveStep,
    ObjectiveValue, Pipeline, PipelineIndex, PipelinePlan, Plan, PlanOutcome, PlanningReport, Problem, ProfileRow,
    Relaxation, Routing, SLACK, Share, Shortfall, StopReason, TaskIndex, VariantIndex,
};
use apportion_estimator::Workload;

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
}

/// Why Algorithm 1 has no start.
enum NoStart {
    Latency(PipelineIndex, f64),
    /// Neither devices nor replicas are enough for the load.
    Capacity,
}

/// Plans greedily.
pub(crate) fn plan(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    let default = replay::default_workload(problem);
    let limits = options.limits();
    let greedy = Greedy { problem, workload: options.trace.as_ref().unwrap_or(&default), limits: &limits };
    let (settings, stopped) = match greedy.initialise().map(|start| greedy.minimise(start)) {
        Ok(done) => done,
        Err(NoStart::Latency(p, best)) => return too_slow(problem, options, p, best),
        Err(NoStart::Capacity) => {
            return report::unknown(options, limits.reason().unwrap_or(StopReason::TraceNotMet));
        }
    };
    let Some(plan) = greedy.plan(&settings) else { return report::unknown(options, StopReason::Numerics) };
    let estimate = replay::replay(problem, &plan, greedy.workload).map(|s| s.total);
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
        while !self.is_feasible(&settings) {
            if self.limits.stopped() {
                return Err(NoStart::Capacity);
            }
            let bottleneck = self.bottleneck(&settings).ok_or(NoStart::Capacity)?;
            settings[bottleneck].replicas += 1;
        }
        Ok(settings)
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

    /// Whether the checker accepts the plan and the estimator meets every percentile.
    fn is_feasible(&self, settings: &[Setting]) -> bool {
        self.within_devices(settings)
            && self.plan(settings).is_some_and(|plan| {
                replay::replay(self.problem, &plan, self.workload)
                    .is_some_and(|s| replay::misses(self.problem, &s.pipelines).iter().all(|&miss| miss <= 0.0))
            })
    }

    /// Algorithm 2.
    fn minimise(&self, mut settings: Vec<Setting>) -> (Vec<Setting>, StopReason) {
        loop {
            let before = self.cost(&settings);
            let mut best: Option<(f64, Vec<Setting>)> = None;
            for i in 0..settings.len() {
                for candidate in self.actions(&settings, i) {
                    if let Some(reason) = self.limits.reason() {
                        return (settings, reason);
                    }
                    let saving = before - self.cost(&candidate);
                    let promising = saving >= 0.0 && best.as_ref().is_none_or(|(most, _)| saving > *most);
                    if promising && self.is_feasible(&candidate) {
                        best = Some((saving, candidate));
                    }
                }
            }
            match best {
                Some((_, better)) => settings = better,
                None => return (settings, StopReason::Finished),
            }
        }
    }

    /// What may be done to one task: remove a replica, change its hardware, double its batch.
    fn actions(&self, settings: &[Setting], i: usize) -> Vec<Vec<Setting>> {
        let mut actions = Vec::new();
        let with = |changed: Setting| {
            let mut all = settings.to_vec();
            all[i] = changed;
            all
        };
        if let Some(fewer) = self.fewer(&settings[i]) {
            actions.push(with(fewer));
        }
        actions.extend(self.other_hardware(settings, i));
        if let Some(larger) = self.doubled(&settings[i]) {
            actions.push(with(larger));
        }
        actions
    }

    fn fewer(&self, s: &Setting) -> Option<Setting> {
        let pipeline = self.problem.pipeline(s.pipeline);
        let least = pipeline.task(s.task).min_replicas.max(1 + pipeline.survive);
        (s.replicas > least).then(|| Setting { replicas: s.replicas - 1, ..s.clone() })
    }

    /// The largest measured batch of at most twice the present one.
    fn doubled(&self, s: &Setting) -> Option<Setting> {
        let profile = &self.problem.pipeline(s.pipeline).variant(s.task, s.variant).profile;
        let rows = profile.on(s.hardware, s.share);
        let larger = rows.iter().rev().find(|r| r.batch <= s.batch.saturating_mul(2))?;
        (larger.batch > s.batch).then(|| Setting { batch: larger.batch, ..s.clone() })
    }

    /// The task on each cheaper place, all else frozen: initialised there, then minimised locally; kept if it saves.
    fn other_hardware(&self, settings: &[Setting], i: usize) -> Vec<Vec<Setting>> {
        let s = &settings[i];
        let before = self.cost(settings);
        let variant = self.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        let least = self.problem.pipeline(s.pipeline).task(s.task).min_replicas;
        let survive = self.problem.pipeline(s.pipeline).survive;
        let mut found = Vec::new();
        for (hardware, share) in variant.profile.places().filter(|&place| place != (s.hardware, s.share)) {
            if !self.problem.fits_memory(variant.memory_mib, hardware, share) {
                continue;
            }
            let mut local = settings.to_vec();
            let batch = variant.profile.on(hardware, share)[0].batch;
            local[i] = Setting { hardware, share, batch, replicas: least.max(1 + survive), ..s.clone() };
            let load = self.load(&local[i], &local);
            loop {
                // the largest batch that saves replicas comes first: grow it while that is feasible, else add a replica
                if self.cost(&local) >= before || !self.within_devices(&local) || self.limits.stopped() {
                    break;
                }
                let capacity = f64::from(local[i].replicas - survive) * self.row(&local[i]).throughput_qps();
                if capacity + SLACK >= load && self.is_feasible(&local) {
                    found.push(local);
                    break;
                }
                let doubled = self.doubled(&local[i]).map(|larger| {
                    let mut all = local.clone();
                    all[i] = larger;
                    all
                });
                match doubled.filter(|all| {
                    let pipeline = self.problem.pipeline(s.pipeline);
                    self.service_ms(s.pipeline, all) <= pipeline.slo_ms
                }) {
                    Some(all) => local = all,
                    None => {
                        local[i].batch = batch;
                        local[i].replicas += 1;
                    }
                }
            }
        }
        found
    }

    /// The plan of some settings; `None` if the checker rejects it.
    fn plan(&self, settings: &[Setting]) -> Option<Plan> {
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
