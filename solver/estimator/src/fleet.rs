//! Problem and plan, compiled into what a run touches: stations, routers, fan-outs, all by number.

use crate::fanout::{Fanout, threshold};
use crate::floor::Floor;
use crate::joins::Joins;
use crate::paths::Paths;
use crate::random::Stream;
use crate::routes::{Routes, variant_named};
use crate::steering::Steered;
use crate::{SimulateError, SimulateOptions, Workload};
use apportion_domain::{
    AccuracyModel, Assignment, Dropping, GroupName, HardwareIndex, Partial, Pipeline, PipelinePlan, Plan, Problem,
    Queueing, Route, RoutingPolicy, ServingPolicy, Span, TaskIndex, TaskKind, Trace,
};
use apportion_serving::router::Within;
use apportion_serving::{Router, group_capacity_qps, most_accurate_first};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Queries that one queue may hold: a guard of memory. What comes on top is dropped, reason `queue_full`.
pub const QUEUE_LEN_MAX: usize = 1 << 22;
/// Replicas of one plan that a run can simulate.
pub const REPLICAS_MAX: u64 = 1 << 22;

/// A query in a run.
///
/// To a station, queries of the same request are equal, so that one input cancels them all.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Slot of its request.
    pub request: u32,
    /// Where it stands in the table of path accuracies.
    pub node: u32,
    /// Accuracy accumulated over the stages passed.
    pub stages: f64,
    /// The router that sent it.
    pub router: u32,
    /// The router's slot for it.
    pub pick: u32,
    /// Where it stands in the joins of its pipeline.
    pub scope: u32,
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

/// One pipeline of a run.
#[derive(Debug)]
pub struct Line {
    /// How long a request may take.
    pub slo: Span,
    /// Line of the network that its hops take; `None` if they take no time.
    pub network: Option<usize>,
    /// Whether dropped parts are left out of the answer.
    pub partial: bool,
    /// Whether senders want to know when their queries end.
    pub counts_outstanding: bool,
    /// The frontend's router; `None` if the plan serves nothing of it.
    pub frontend: Option<u32>,
    /// Accuracies of paths.
    pub paths: Paths,
    /// Weight of each channel of the accuracy.
    pub weights: Vec<f64>,
    /// Channel of each task: the sinks' or, where every stage counts on its own (`task_mean`), all of them.
    pub channels: Vec<Option<u32>>,
    /// Whether every stage counts on its own.
    pub by_task: bool,
    /// Number of its first task among all tasks of the problem.
    pub first_task: u32,
    /// Its joins, if it has any.
    pub joins: Option<Joins>,
    /// Its stations.
    pub stations: Vec<u32>,
}

/// One group of a plan.
#[derive(Debug)]
pub struct Group {
    /// Its pipeline.
    pub line: u32,
    /// Its name.
    pub name: GroupName,
    /// Its hardware.
    pub hardware: HardwareIndex,
    /// How long a replica of it takes to load.
    pub load: Span,
    /// Its task, among all tasks of the problem.
    pub task: u32,
    /// Its task in its pipeline.
    pub task_of_line: u32,
    /// The channel for which each of its stages counts on its own, if so.
    pub stage_channel: Option<u32>,
    /// Accuracy of its variant.
    pub accuracy: f64,
    /// Stages on the path up to here.
    pub depth: u32,
    /// Its step in the table of path accuracies.
    pub step: Option<u32>,
    /// Time of a batch of `i + 1` queries.
    pub service: Vec<Span>,
    /// How long a query may take here before it is behind; the largest span where nobody asks.
    pub budget: Span,
    /// Channels for which a path ends here for certain.
    pub closes: Vec<u32>,
    /// Whether every query counts for some channel, leaf or not.
    pub is_scored: bool,
    /// Children.
    pub edges: Vec<OutEdge>,
    /// How one of the edges is chosen; `None` if all are taken.
    pub one_of: Option<OneOf>,
}

impl Group {
    /// The edges that a query takes.
    #[inline]
    pub fn chosen(&self, streams: &mut [Stream]) -> std::ops::Range<usize> {
        match &self.one_of {
            None => 0..self.edges.len(),
            Some(choice) => {
                let bits = streams[choice.stream as usize].bits();
                let at = choice.cumulated.partition_point(|&c| c <= bits).min(self.edges.len() - 1);
                at..at + 1
            }
        }
    }
}

/// One way out of a group.
#[derive(Clone, Debug)]
pub struct OutEdge {
    /// How many queries are made.
    pub fanout: Fanout,
    /// The edge's random stream.
    pub stream: u32,
    /// The child, in its pipeline.
    pub to: u32,
}

/// A choice among edges.
#[derive(Clone, Debug)]
pub struct OneOf {
    /// Cumulated probability of each edge in 2^-64.
    pub cumulated: Vec<u64>,
    /// The task's random stream.
    pub stream: u32,
}

/// What a station belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its group.
    pub group: u32,
    /// Its group's pipeline.
    pub line: u32,
    /// Its group's task, in its pipeline.
    pub task_of_line: u32,
    /// Router of the group's first edge from here; the others follow.
    pub router: u32,
    /// Number of its first server among all servers.
    pub server: u32,
}

/// Everything that a run touches.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Pipelines in the problem's order.
    pub lines: Vec<Line>,
    /// Groups: pipelines in the problem's order, tasks in the file's, groups in the plan's.
    pub groups: Vec<Group>,
    /// Stations, routers and network.
    pub floor: Floor,
    /// Random streams of edges and choices.
    pub streams: Vec<Stream>,
    /// All servers.
    pub servers: u32,
    /// Name of each task with its pipeline's number.
    pub tasks: Vec<(u32, String)>,
    /// Pipelines whose stations look at module states.
    pub steered: Vec<Steered>,
}

impl Fleet {
    /// Compiles.
    ///
    /// # Errors
    /// If the plan does not fit the problem, or asks for what is not simulated yet.
    pub fn new(p: &Problem, plan: &Plan, w: &Workload, options: &SimulateOptions) -> Result<Self, SimulateError> {
        if w.traces.len() != p.pipelines.len() {
            let (traces, pipelines) = (w.traces.len(), p.pipelines.len());
            return Err(SimulateError::Workload { traces, pipelines });
        }
        if let Some(unknown) = plan.pipelines.iter().find(|q| p.pipeline_named(&q.name).is_none()) {
            return Err(SimulateError::Plan(format!("the problem has no pipeline {:?}", unknown.name)));
        }
        if plan.replicas() > REPLICAS_MAX {
            return Err(SimulateError::Plan(format!("{} replicas are more than {REPLICAS_MAX}", plan.replicas())));
        }
        let mut fleet = Self::default();
        for (pipeline, trace) in p.pipelines.iter().zip(&w.traces) {
            let part = plan.pipeline(&pipeline.name);
            let serving = options.serving.or(part.map(|part| part.serving)).unwrap_or_default();
            refuse_unsupported(pipeline)?;
            Compiler { problem: p, pipeline, serving, seed: w.seed, fleet: &mut fleet, reserve_ms: Vec::new() }
                .compile(part, trace)?;
        }
        Ok(fleet)
    }
}

fn refuse_unsupported(pipeline: &Pipeline) -> Result<(), SimulateError> {
    let name = &pipeline.name;
    let refuse = |what: String| Err(SimulateError::Unsupported { pipeline: name.clone(), what });
    if let Some(task) = pipeline.tasks.iter().find(|t| t.kind == TaskKind::Continuous) {
        return refuse(format!("the continuous task {:?}", task.name));
    }
    Ok(())
}

/// Compiles one pipeline.
pub(crate) struct Compiler<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) serving: ServingPolicy,
    seed: u64,
    pub(crate) fleet: &'a mut Fleet,
    /// By task, what the plan grants to the tasks after it: see [`reserves_ms`].
    pub(crate) reserve_ms: Vec<f64>,
}

impl Compiler<'_> {
    fn compile(mut self, part: Option<&PipelinePlan>, trace: &Trace) -> Result<(), SimulateError> {
        let line = self.fleet.lines.len() as u32;
        let first_task = self.fleet.tasks.len() as u32;
        self.fleet.tasks.extend(self.pipeline.tasks.iter().map(|t| (line, t.name.clone())));
        self.line(first_task);
        let Some(part) = part else { return self.refuse_traffic(trace, "the plan has no part for it") };
        let part = &*self.with_tables(part)?;
        let by_task = self.assignments(part)?;
        if by_task[self.pipeline.root().get()].is_empty() {
            return self.refuse_traffic(trace, "its root has no replicas");
        }
        let mut capacities = BTreeMap::new();
        for a in by_task.iter().flatten() {
            let capacity = group_capacity_qps(self.pipeline, &self.problem.hardware, a)
                .map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", self.pipeline.name)))?;
            capacities.insert(&a.group, capacity);
        }
        self.reserve_ms = self.reserves_ms(&by_task);
        let first_station = self.fleet.floor.stations.len() as u32;
        let routes = Routes::new(self.pipeline, part, &capacities)?;
        let (streams, targets) = (self.streams(), self.targets(&by_task));
        for (task, assignments) in by_task.iter().enumerate() {
            let mut senders = 0;
            for a in assignments {
                self.group(line, TaskIndex(task), a, streams[task])?;
                self.stations(TaskIndex(task), a, &routes, &targets, &mut senders)?;
            }
        }
        let root = self.pipeline.root();
        self.fleet.lines[line as usize].frontend = Some(self.fleet.floor.routers.len() as u32);
        let router = self.router(None, root, &routes, &targets, 0);
        self.fleet.floor.routers.push(router);
        self.fleet.lines[line as usize].stations = (first_station..self.fleet.floor.stations.len() as u32).collect();
        self.steer(&by_task, &capacities, line)
    }

    /// The part with the tables of `most_accurate_first`, where it asks for them and has none, and with its backup table, where
    /// queries are rerouted and the part has no tables at all.
    fn with_tables<'p>(&self, part: &'p PipelinePlan) -> Result<Cow<'p, PipelinePlan>, SimulateError> {
        let asks = self.serving.routing == RoutingPolicy::MostAccurateFirst;
        let needs_backup = self.serving.dropping == Dropping::Reroute && part.routing.backup.is_empty();
        if !part.routing.tables.is_empty() || !(asks || needs_backup) {
            return Ok(Cow::Borrowed(part));
        }
        let hardware = &self.problem.hardware;
        let routing = most_accurate_first(self.pipeline, hardware, &part.assignments, self.pipeline.demand_qps);
        let mut routing = routing.map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", self.pipeline.name)))?;
        if !asks {
            routing.tables.clear();
        }
        Ok(Cow::Owned(PipelinePlan { routing, ..part.clone() }))
    }

    fn refuse_traffic(&self, trace: &Trace, why: &str) -> Result<(), SimulateError> {
        let silent = match trace {
            Trace::Arrivals(moments) => moments.is_empty(),
            Trace::Rates(rows) => rows.iter().all(|r| r.1 == 0.0),
        };
        if silent { Ok(()) } else { Err(SimulateError::Plan(format!("pipeline {:?}: {why}", self.pipeline.name))) }
    }

    fn line(&mut self, first_task: u32) {
        let p = self.pipeline;
        let network = Span::from_millis(p.network_ms);
        let by_task = p.accuracy_model == AccuracyModel::TaskMean && p.path_accuracy.is_empty();
        let is_sink = |t: TaskIndex| p.children(t).next().is_none();
        let mut weights = Vec::new();
        let mut channel = |t: TaskIndex| {
            (by_task || is_sink(t)).then(|| {
                weights.push(if by_task { 1.0 } else { p.leaf_weight(t) });
                weights.len() as u32 - 1
            })
        };
        let channels = (0..p.tasks.len()).map(TaskIndex).map(&mut channel).collect();
        self.fleet.lines.push(Line {
            slo: Span::from_millis(p.slo_ms),
            network: (network > Span::ZERO).then(|| self.fleet.floor.network.line(network)),
            partial: p.partial == Partial::Allow,
            counts_outstanding: self.serving.routing == RoutingPolicy::Jsq,
            frontend: None,
            paths: Paths::new(p),
            weights,
            channels,
            by_task,
            first_task,
            joins: Joins::new(p),
            stations: Vec::new(),
        });
    }

    fn assignments<'p>(&self, part: &'p PipelinePlan) -> Result<Vec<Vec<&'p Assignment>>, SimulateError> {
        let mut by_task: Vec<Vec<&Assignment>> = vec![Vec::new(); self.pipeline.tasks.len()];
        for a in part.assignments.iter().filter(|a| a.replicas > 0) {
            let unknown = |what: &str| SimulateError::Plan(format!("pipeline {:?}: {}: {what}", part.name, a.group));
            let task = self.pipeline.task_named(&a.group.task).ok_or_else(|| unknown("no such task"))?;
            if a.batch == 0 {
                return Err(unknown("a batch of 0"));
            }
            if by_task[task.get()].iter().any(|b| b.group == a.group) {
                return Err(unknown("assigned twice"));
            }
            by_task[task.get()].push(a);
        }
        Ok(by_task)
    }

    /// The number of each task's choice stream; those of its edges follow, in the file's order.
    fn streams(&mut self) -> Vec<u32> {
        let mut first = Vec::with_capacity(self.pipeline.tasks.len());
        let pipeline = &self.pipeline.name;
        for (t, task) in self.pipeline.tasks.iter().enumerate() {
            first.push(self.fleet.streams.len() as u32);
            self.fleet.streams.push(Stream::new(self.seed, &format!("route/{pipeline}/{}", task.name)));
            for edge in self.pipeline.children(TaskIndex(t)) {
                let child = &self.pipeline.task(edge.to).name;
                self.fleet.streams.push(Stream::new(self.seed, &format!("fanout/{pipeline}/{}/{child}", task.name)));
            }
        }
        first
    }

    /// Numbers of the stations that each group is about to get.
    fn targets<'p>(&self, by_task: &[Vec<&'p Assignment>]) -> Vec<Vec<(&'p GroupName, Vec<u32>)>> {
        let mut next = self.fleet.floor.stations.len() as u32;
        let mut of_group = |a: &&'p Assignment| {
            let count = if self.serving.queueing == Queueing::Central { 1 } else { a.replicas };
            next += count;
            (&a.group, (next - count..next).collect())
        };
        by_task.iter().map(|task| task.iter().map(&mut of_group).collect()).collect()
    }

    fn group(&mut self, line: u32, task: TaskIndex, a: &Assignment, stream: u32) -> Result<(), SimulateError> {
        let p = self.pipeline;
        let unknown = |what: &str| SimulateError::Plan(format!("pipeline {:?}: {}: {what}", p.name, a.group));
        let variant = variant_named(p, task, &a.group.variant).ok_or_else(|| unknown("no such variant"))?;
        let hardware = self.problem.hardware_named(&a.group.hardware).ok_or_else(|| unknown("no such hardware"))?;
        let v = p.variant(task, variant);
        let service = (1..=a.batch).map(|size| v.profile.service(hardware, a.group.share, size));
        let service: Option<Vec<Span>> = service.collect();
        let service = service.ok_or_else(|| unknown("no profile on this hardware"))?;
        let mut edges = Vec::new();
        for (at, edge) in p.children(task).enumerate() {
            let fanout = Fanout::of(p, edge, v).map_err(|mean| unknown(&format!("a fan-out of {mean}")))?;
            edges.push(OutEdge { fanout, stream: stream + 1 + at as u32, to: edge.to.get() as u32 });
        }
        let line_of = &self.fleet.lines[line as usize];
        let stage_channel = line_of.channels[task.get()].filter(|_| line_of.by_task);
        let closes = if line_of.by_task { Vec::new() } else { closes(p, task, &edges, &line_of.channels) };
        self.fleet.groups.push(Group {
            line,
            name: a.group.clone(),
            hardware,
            load: Span::from_millis(v.load_ms),
            task: line_of.first_task + task.get() as u32,
            task_of_line: task.get() as u32,
            stage_channel,
            is_scored: stage_channel.is_some() || !closes.is_empty(),
            accuracy: v.accuracy,
            depth: depth(p, task),
            step: line_of.paths.step(task, variant),
            budget: self.budget(service.last().copied().unwrap_or(Span::ZERO)),
            service,
            closes,
            edges,
            one_of: (p.task(task).route == Route::OneOf).then(|| OneOf { cumulated: cumulated(p, task), stream }),
        });
        Ok(())
    }

    fn stations(
        &mut self,
        task: TaskIndex,
        a: &Assignment,
        routes: &Routes<'_>,
        targets: &[Vec<(&GroupName, Vec<u32>)>],
        senders: &mut u32,
    ) -> Result<(), SimulateError> {
        let group = self.fleet.groups.len() as u32 - 1;
        let (stations, servers) =
            if self.serving.queueing == Queueing::Central { (1, a.replicas) } else { (a.replicas, 1) };
        for _ in 0..stations {
            let router = self.fleet.floor.routers.len() as u32;
            let Group { line, task_of_line, .. } = self.fleet.groups[group as usize];
            let place = Place { group, line, task_of_line, router, server: self.fleet.servers };
            for (at, edge) in self.pipeline.children(task).enumerate() {
                let router = self.router(Some(&a.group), edge.to, routes, targets, *senders);
                let makes = !self.fleet.groups[group as usize].edges[at].fanout.is_zero();
                if makes && router.is_none() && edge.ratio > 0.0 {
                    let name = &self.pipeline.task(edge.to).name;
                    let what = format!("pipeline {:?}: task {name:?} has no replicas", self.pipeline.name);
                    return Err(SimulateError::Plan(what));
                }
                self.fleet.floor.routers.push(router);
            }
            let station = self.station(task, a, servers);
            self.fleet.floor.stations.push(station);
            self.fleet.floor.places.push(place);
            self.fleet.servers += servers;
            *senders += 1;
        }
        Ok(())
    }

    fn router(
        &self,
        from: Option<&GroupName>,
        to: TaskIndex,
        routes: &Routes<'_>,
        targets: &[Vec<(&GroupName, Vec<u32>)>],
        phase: u32,
    ) -> Option<Router> {
        let within = match self.serving.routing {
            RoutingPolicy::Jsq => Within::LeastOutstanding,
            RoutingPolicy::Stride | RoutingPolicy::MostAccurateFirst => Within::Turns,
        };
        let names: Vec<&GroupName> = targets[to.get()].iter().map(|t| t.0).collect();
        let weights = routes.weights(from, &names);
        let groups: Vec<(f64, &[u32])> =
            weights.into_iter().zip(&targets[to.get()]).map(|(w, t)| (w, t.1.as_slice())).collect();
        let router = Router::new(within, &groups, phase)?;
        Some(if self.serving.dropping == Dropping::Reroute { self.with_backup(router, routes, to, &names) } else { router })
    }
}

/// Stages on the path from the root to a task, both included.
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
