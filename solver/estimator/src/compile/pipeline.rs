//! Builds groups, stations, routers and module states from one pipeline's part of a plan.

use super::routes::{PlannedRoutes, variant_named};
use crate::error::SimulateError;
use crate::random::RandomStream;
use crate::state::durations::{DrawnTimes, ServiceTimes, TimeVariation};
use crate::state::fanout::{Fanout, threshold};
use crate::state::group::{CompiledGroup, NO_BUDGET, OneOf, OutEdge};
use crate::state::module_states::PipelineModules;
use crate::state::pipeline::PipelineState;
use crate::state::query::SimulatedQuery;
use apportion_domain::{
    Assignment, GroupName, Pipeline, PipelinePlan, Problem, Queueing, Route, RoutingPolicy, ServingPolicy, TaskIndex,
    TaskKind, TimeDistribution, TimeSpan, Variant, lognormal_sigma,
};
use apportion_serving::batcher::Batcher;
use apportion_serving::modules::StatePlannerSettings;
use apportion_serving::router::{GroupUse, Within};
use apportion_serving::station::QueuePolicy;
use apportion_serving::{Dropper, Outline, Router, StatePlanner, Station, group_capacity_qps, most_accurate_first};
use std::collections::BTreeMap;

/// Queries that one queue may hold: a guard of memory. More queries are dropped, with the reason `queue_full`.
pub const QUEUE_LEN_MAX: usize = 1 << 22;

/// Where the times of batches come from.
#[derive(Clone, Copy, Debug)]
pub struct TimeSource {
    /// The profile's times, or draws around them.
    pub times: ServiceTimes,
    /// The root seed of draws.
    pub seed: u64,
}

/// The stations of one group.
#[derive(Clone, Debug)]
pub struct GroupStations<'p> {
    /// The group.
    pub name: &'p GroupName,
    /// Its stations, by number.
    pub stations: Vec<u32>,
}

/// A group of a task that senders may send to.
#[derive(Clone, Copy, Debug)]
pub struct TaskGroup<'p> {
    /// The group.
    pub name: &'p GroupName,
    /// The throughput of one of its replicas with full batches, in queries per second.
    pub replica_qps: f64,
}

/// The backup table of senders to one task (Loki section 5.1).
#[derive(Clone, Debug, Default)]
pub struct Backup {
    /// Times of full batches of the task's groups; empty without rerouting.
    pub execution: Vec<TimeSpan>,
    /// Positions of the groups with capacity to spare, most accurate first.
    pub groups: Vec<u32>,
}

/// Compiles one pipeline's part of a plan, which was checked against the pipeline.
#[derive(Clone, Debug)]
pub struct PipelineCompiler<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The policies.
    pub serving: ServingPolicy,
    /// The part, with tables where the policies ask for them.
    pub part: PipelinePlan,
    /// Throughput of each group with full batches, in queries per second.
    capacities: BTreeMap<GroupName, f64>,
    /// By task, the time that the plan grants the later tasks.
    reserves: Vec<TimeSpan>,
    times: TimeSource,
    /// How PARD looks ahead.
    pub foresight: StatePlannerSettings,
}

impl<'a> PipelineCompiler<'a> {
    /// Checks the part and computes its tables.
    ///
    /// # Errors
    /// If it has a name that the pipeline does not know, or assigns a group twice.
    pub fn new(
        problem: &'a Problem,
        pipeline: &'a Pipeline,
        serving: ServingPolicy,
        part: &PipelinePlan,
        times: TimeSource,
    ) -> Result<Self, SimulateError> {
        let fails = |e: &dyn std::fmt::Display| SimulateError::Plan(format!("pipeline {:?}: {e}", pipeline.name));
        let mut capacities = BTreeMap::new();
        for a in part.assignments.iter().filter(|a| a.replicas > 0) {
            if a.batch == 0 {
                return Err(fails(&format!("{}: a batch of 0", a.group)));
            }
            let capacity = group_capacity_qps(pipeline, &problem.hardware, a).map_err(|e| fails(&e))?;
            if capacities.insert(a.group.clone(), capacity).is_some() {
                return Err(fails(&format!("{}: assigned twice", a.group)));
            }
        }
        let mut part = PipelinePlan { serving, ..part.clone() };
        let asks = serving.routing == RoutingPolicy::MostAccurateFirst;
        let needs_backup = serving.dropping.reroutes() && part.routing.backup.is_empty();
        if part.routing.tables.is_empty() && (asks || needs_backup) {
            // A part that asks for the tables of `most_accurate_first` and has none gets them. A part without any tables
            // whose queries are rerouted gets its backup table.
            let demand_qps = if part.demand_qps > 0.0 { part.demand_qps } else { pipeline.demand_qps };
            let routing = most_accurate_first(pipeline, &problem.hardware, &part.assignments, demand_qps);
            part.routing = routing.map_err(|e| fails(&e))?;
            if !asks {
                part.routing.tables.clear();
            }
        }
        let foresight = StatePlannerSettings::default();
        let mut compiler = Self { problem, pipeline, serving, part, capacities, reserves: Vec::new(), times, foresight };
        compiler.reserves = compiler.outline()?.reserves();
        Ok(compiler)
    }

    /// The same for another part, of the same run, served by these policies.
    ///
    /// # Errors
    /// As [`PipelineCompiler::new`].
    pub fn with_part(&self, part: &PipelinePlan, serving: ServingPolicy) -> Result<Self, SimulateError> {
        let other = Self::new(self.problem, self.pipeline, serving, part, self.times)?;
        Ok(Self { foresight: self.foresight, ..other })
    }

    /// Whether each query of a task runs on its own, in one of as many slots as the plan's batch size says.
    #[must_use]
    pub fn is_continuous(&self, task: TaskIndex) -> bool {
        self.pipeline.task(task).kind == TaskKind::Continuous
    }

    /// Queries that a replica of a group runs at a time, each on its own; 1 where they run in batches.
    #[must_use]
    pub fn slots(&self, task: TaskIndex, a: &Assignment) -> u32 {
        if self.is_continuous(task) { a.batch } else { 1 }
    }

    /// How times of a group spread: in a `continuous` task each query's own, lognormal if the profile has a 99th
    /// percentile, else exponential; elsewhere as the run was asked. Of a profile by shape, each shape has its own spread.
    #[must_use]
    pub fn time_distribution(&self, task: TaskIndex, a: &Assignment) -> Option<DrawnTimes> {
        let is_continuous = self.is_continuous(task);
        if !is_continuous && self.times.times == ServiceTimes::Median {
            return None;
        }
        let variant = variant_named(self.pipeline, task, &a.group.variant)?;
        let hardware = self.problem.hardware_named(&a.group.hardware)?;
        let profile = &self.pipeline.variant(task, variant).profile;
        let sizes = if is_continuous { a.batch..=a.batch } else { 1..=a.batch };
        let by_shape: Vec<_> = sizes.map(|size| profile.shapes(hardware, a.group.share, size)).collect();
        if by_shape.iter().any(|shapes| !shapes.is_empty()) {
            return Some(DrawnTimes::ByShape(by_shape));
        }
        let median_and_p99 = |size| {
            let p99 = profile.service_p99(hardware, a.group.share, size)?;
            Some((profile.service(hardware, a.group.share, size)?, p99))
        };
        if is_continuous {
            return median_and_p99(a.batch).map(|(median, p99)| DrawnTimes::Around(TimeDistribution::of_slot(median, p99)));
        }
        let sigma = |size| median_and_p99(size).map(|(median, p99)| lognormal_sigma(median, p99));
        let sigmas: Vec<f64> = (1..=a.batch).map(sigma).collect::<Option<_>>()?;
        // without a percentile above a median nothing is drawn
        sigmas.iter().any(|sigma| *sigma > 0.0).then_some(DrawnTimes::Around(TimeDistribution::Lognormal(sigmas)))
    }

    /// Whether the replicas of a group share one queue.
    #[must_use]
    pub fn is_central(&self) -> bool {
        self.serving.queueing == Queueing::Central
    }

    /// By task, the groups with replicas.
    #[must_use]
    pub fn by_task(&self) -> Vec<Vec<&Assignment>> {
        let of_task =
            |name: &str| self.part.assignments.iter().filter(|a| a.replicas > 0 && a.group.task == name).collect();
        self.pipeline.tasks.iter().map(|task| of_task(&task.name)).collect()
    }

    /// The shares of each sender's queries.
    ///
    /// # Errors
    /// If a table or a flow names a group that the plan does not assign.
    pub fn routes(&self) -> Result<PlannedRoutes<'_>, SimulateError> {
        PlannedRoutes::new(self.pipeline, &self.part, &self.capacities)
    }

    /// The error for a task without replicas to which queries are sent.
    #[must_use]
    pub fn without_replicas(&self, task: TaskIndex) -> SimulateError {
        let name = &self.pipeline.task(task).name;
        SimulateError::Plan(format!("pipeline {:?}: task {name:?} has no replicas", self.pipeline.name))
    }

    /// A group.
    ///
    /// # Errors
    /// If it has a name that the problem does not know, or its fan-out cannot be drawn.
    pub fn group(
        &self,
        state: &PipelineState,
        task: TaskIndex,
        a: &Assignment,
        streams: &mut Vec<RandomStream>,
    ) -> Result<CompiledGroup, SimulateError> {
        let p = self.pipeline;
        let unknown = |what: &str| SimulateError::Plan(format!("pipeline {:?}: {}: {what}", p.name, a.group));
        let variant = variant_named(p, task, &a.group.variant).ok_or_else(|| unknown("no such variant"))?;
        let hardware = self.problem.hardware_named(&a.group.hardware).ok_or_else(|| unknown("no such hardware"))?;
        let v = p.variant(task, variant);
        let service = self.service(a).ok_or_else(|| unknown("no profile on this hardware"))?;
        let stream = state.streams[task.get()];
        let mut edges = Vec::new();
        for (at, edge) in p.children(task).enumerate() {
            let fanout = Fanout::of(p, edge, v).map_err(|mean| unknown(&format!("a fan-out of {mean}")))?;
            edges.push(OutEdge { fanout, stream: stream + 1 + at as u32, to: edge.to.get() as u32 });
        }
        let spread = self.time_distribution(task, a).map(|distribution| {
            streams.push(RandomStream::new(self.times.seed, &format!("service/{}/{}", p.name, a.group)));
            TimeVariation { distribution, stream: streams.len() as u32 - 1 }
        });
        let stage_channel = state.channels[task.get()].filter(|_| state.by_task);
        let closes = if state.by_task { Vec::new() } else { closes(p, task, &edges, &state.channels) };
        let is_scored = stage_channel.is_some() || !closes.is_empty();
        Ok(CompiledGroup {
            pipeline: state.number,
            batch: a.batch,
            slots: self.slots(task, a),
            has_slots: self.is_continuous(task),
            spread,
            name: a.group.clone(),
            hardware,
            load: TimeSpan::from_millis(v.load_ms),
            task: state.first_task + task.get() as u32,
            task_in_pipeline: task.get() as u32,
            stage_channel,
            is_scored,
            passes_on: !is_scored && CompiledGroup::makes_one_child(&edges),
            accuracy: v.accuracy,
            is_fallback: is_fallback(&p.task(task).variants, v.accuracy),
            depth: depth(p, task),
            step: state.paths.step(task, variant),
            budget: self.budget(service.last().copied().unwrap_or(TimeSpan::ZERO)),
            service,
            closes,
            edges,
            one_of: (p.task(task).route == Route::OneOf).then(|| OneOf { cumulated: cumulated(p, task), stream }),
        })
    }

    /// Time of a batch of `i + 1` queries of a group; of a single query where each runs on its own, with all slots taken.
    #[must_use]
    pub fn service(&self, a: &Assignment) -> Option<Vec<TimeSpan>> {
        let task = self.pipeline.task_named(&a.group.task)?;
        let variant = variant_named(self.pipeline, task, &a.group.variant)?;
        let hardware = self.problem.hardware_named(&a.group.hardware)?;
        let profile = &self.pipeline.variant(task, variant).profile;
        if self.is_continuous(task) {
            return profile.service(hardware, a.group.share, a.batch).map(|time| vec![time]);
        }
        (1..=a.batch).map(|size| profile.service(hardware, a.group.share, size)).collect()
    }

    /// How long a query may take at a group before it is behind (Loki section 5.2): its wait and its batch together,
    /// `queue_factor` batches as in the latency rules. The network is not part of it.
    #[must_use]
    pub fn budget(&self, execution: TimeSpan) -> TimeSpan {
        match self.serving.dropping.looks_back() {
            true => TimeSpan::from_millis(self.pipeline.queue_factor * execution.as_millis()),
            false => NO_BUDGET,
        }
    }

    /// How the servers of a group form batches.
    #[must_use]
    pub fn batcher(&self, task: TaskIndex, batch: u32) -> Batcher {
        if self.is_continuous(task) {
            return Batcher::AtStart { batch_max: 1 };
        }
        Batcher::of(self.serving.batching, batch, self.reserves[task.get()])
    }

    /// Sets how a station of a task orders, drops and measures, by the plan's policies.
    pub fn set_policy_of(&self, task: TaskIndex, station: &mut Station<SimulatedQuery>) {
        let is_last = self.pipeline.children(task).next().is_none();
        let dropping = self.serving.dropping;
        let is_monitored = StatePlanner::needs_measurements(dropping);
        let dropper = Dropper::of(dropping, is_last);
        station.set_policy(QueuePolicy { dropper, is_by_remaining_time: StatePlanner::sorts(dropping), is_monitored });
    }

    /// A station of a group with this many servers.
    #[must_use]
    pub fn station(&self, group: &CompiledGroup, task: TaskIndex, a: &Assignment, servers: u32) -> Station<SimulatedQuery> {
        let station = Station::new(servers, self.batcher(task, a.batch), Dropper::Never, QUEUE_LEN_MAX);
        let mut station = station.with_service(group.service.clone());
        self.set_policy_of(task, &mut station);
        station
    }

    /// Time of a full batch of a group.
    #[must_use]
    pub fn execution(&self, a: &Assignment) -> Option<TimeSpan> {
        let task = self.pipeline.task_named(&a.group.task)?;
        let variant = variant_named(self.pipeline, task, &a.group.variant)?;
        let hardware = self.problem.hardware_named(&a.group.hardware)?;
        self.pipeline.variant(task, variant).profile.service(hardware, a.group.share, a.batch)
    }

    /// How replicas are chosen within a group.
    #[must_use]
    pub fn within(&self) -> Within {
        match self.serving.routing {
            RoutingPolicy::Jsq => Within::LeastOutstanding,
            RoutingPolicy::Stride | RoutingPolicy::MostAccurateFirst => Within::Turns,
        }
    }

    /// A sender's router to the stations of a task; `None` if there are none.
    #[must_use]
    pub fn router(
        &self,
        from: Option<&GroupName>,
        to: TaskIndex,
        routes: &PlannedRoutes<'_>,
        targets: &[GroupStations<'_>],
        phase: u32,
    ) -> Option<Router> {
        let names: Vec<&GroupName> = targets.iter().map(|t| t.name).collect();
        let weights = routes.weights(from, &names);
        let groups: Vec<(f64, &[u32])> =
            weights.into_iter().zip(targets).map(|(w, t)| (w, t.stations.as_slice())).collect();
        let router = Router::new(self.within(), &groups, phase)?;
        Some(if self.serving.dropping.reroutes() {
            let Backup { execution, groups } = self.backup(routes, to, &names);
            router.with_backup(execution, groups)
        } else {
            router
        })
    }

    /// The use of each group of a task for one sender. Groups that the plan does not have stand in, with the throughput of
    /// one of their replicas as weight.
    #[must_use]
    pub fn parts(&self, from: Option<&GroupName>, routes: &PlannedRoutes<'_>, groups: &[TaskGroup<'_>]) -> Vec<GroupUse> {
        let names = groups.iter().map(|g| g.name);
        let planned: Vec<&GroupName> = names.filter(|name| self.capacities.contains_key(*name)).collect();
        let mut weights = planned.iter().zip(routes.weights(from, &planned));
        let part = |group: &TaskGroup<'_>| match self.part.assignments.iter().find(|a| a.group == *group.name) {
            Some(a) if a.replicas > 0 => {
                let fraction = weights.next().map_or(0.0, |(_, weight)| weight);
                GroupUse { fraction, planned: a.replicas, stand_in: 0.0 }
            }
            _ => GroupUse { fraction: 0.0, planned: 0, stand_in: group.replica_qps },
        };
        groups.iter().map(part).collect()
    }

    /// The backup table for senders to a task with these groups.
    #[must_use]
    pub fn backup(&self, routes: &PlannedRoutes<'_>, to: TaskIndex, groups: &[&GroupName]) -> Backup {
        let assigned = |g: &&GroupName| routes.assignments().iter().find(|a| a.group == **g);
        let execution = |g: &&GroupName| assigned(g).and_then(|a| self.execution(a)).unwrap_or(TimeSpan::ZERO);
        let accuracy = |g: &GroupName| {
            let variant = variant_named(self.pipeline, to, &g.variant);
            variant.map_or(0.0, |v| self.pipeline.variant(to, v).accuracy)
        };
        let mut backup: Vec<u32> = (0..groups.len() as u32).filter(|&g| routes.is_backup(groups[g as usize])).collect();
        backup.sort_by(|&a, &b| accuracy(groups[b as usize]).total_cmp(&accuracy(groups[a as usize])));
        Backup { execution: groups.iter().map(execution).collect(), groups: backup }
    }

    /// The planner of the module states; `None` if the policy does not use them.
    ///
    /// # Errors
    /// If the pipeline has too many paths for it.
    pub fn state_planner(&self) -> Result<Option<StatePlanner>, SimulateError> {
        let planner = self.outline()?.state_planner().map_err(|e| SimulateError::Unsupported {
            pipeline: self.pipeline.name.clone(),
            what: format!("dropping {:?} with {e}", self.serving.dropping.name()),
        })?;
        Ok(planner.map(|planner| planner.with_foresight(self.foresight)))
    }

    /// The module states of this pipeline. `None` if its policy does not use them.
    ///
    /// # Errors
    /// If the pipeline has too many paths for them.
    pub fn module_states(&self, pipeline: u32, stations: Vec<u32>) -> Result<Option<PipelineModules>, SimulateError> {
        // Reports and views are small: only the constant part of a hop counts.
        let network = TimeSpan::from_millis(self.pipeline.network_ms);
        let is_fixed = !StatePlanner::needs_measurements(self.serving.dropping);
        let modules = |planner| PipelineModules { pipeline, planner, stations, delay: network + network, is_fixed };
        Ok(self.state_planner()?.map(modules))
    }

    /// The part in numbers.
    fn outline(&self) -> Result<Outline, SimulateError> {
        let fails = |e| SimulateError::Plan(format!("pipeline {:?}: {e}", self.pipeline.name));
        Outline::of(self.pipeline, &self.problem.hardware, &self.part).map_err(fails)
    }
}

/// Tasks on the path from the root to a task, both included.
fn depth(pipeline: &Pipeline, task: TaskIndex) -> u32 {
    1 + pipeline.primary_parent(task).map_or(0, |edge| depth(pipeline, edge.from))
}

/// Channels of the sinks for which a path ends at a task: itself, or those below children at which it never makes a query.
fn closes(pipeline: &Pipeline, task: TaskIndex, edges: &[OutEdge], channels: &[Option<u32>]) -> Vec<u32> {
    if edges.is_empty() {
        return channels[task.get()].into_iter().collect();
    }
    let mut below: Vec<TaskIndex> =
        pipeline.children(task).zip(edges).filter(|(_, out)| out.fanout.is_zero()).map(|(edge, _)| edge.to).collect();
    let mut sinks = Vec::new();
    while let Some(t) = below.pop() {
        let before = below.len();
        below.extend(pipeline.children(t).map(|e| e.to));
        if below.len() == before {
            sinks.extend(channels[t.get()]);
        }
    }
    sinks.sort_unstable();
    sinks
}

/// Whether a task has a measured variant that is more accurate than this.
fn is_fallback(variants: &[Variant], accuracy: f64) -> bool {
    variants.iter().any(|other| other.accuracy > accuracy && !other.profile.rows().is_empty())
}

/// Cumulated probabilities of the edges out of a task.
fn cumulated(pipeline: &Pipeline, task: TaskIndex) -> Vec<u64> {
    let total: f64 = pipeline.children(task).map(|e| e.ratio).sum();
    let mut sum = 0.0;
    let cumulate = |edge: &apportion_domain::Edge| {
        sum += edge.ratio / total;
        threshold(sum)
    };
    let mut parts: Vec<u64> = pipeline.children(task).map(cumulate).collect();
    let full = parts.iter().position(|&c| c == parts[parts.len() - 1]).unwrap_or(0);
    parts[full..].fill(u64::MAX);
    parts
}
