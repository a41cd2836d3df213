//! Problem and plan, compiled into what a run touches: stations, routers, fan-outs, all by number.

use crate::blueprint::Blueprint;
use crate::bounds::{Gauge, check_places, expected_visits};
use crate::durations::Spread;
use crate::fanout::Fanout;
use crate::floor::Floor;
use crate::joins::Joins;
use crate::paths::Paths;
use crate::random::Stream;
use crate::routes::Routes;
use crate::steering::Steered;
use crate::{SimulateError, SimulateOptions, Workload};
use apportion_domain::{
    AccuracyModel, Assignment, Dropping, Edge, GroupName, HardwareIndex, Moment, Partial, Pipeline, PipelinePlan, Plan,
    Problem, Queueing, Route, RoutingPolicy, ServingPolicy, Span, TaskIndex, TaskKind, Trace, VariantIndex,
};

/// Queries that one queue may hold: a guard of memory. What comes on top is dropped, reason `queue_full`.
pub const QUEUE_LEN_MAX: usize = 1 << 22;
/// Replicas of one plan that a run can simulate, and slots of its `continuous` tasks.
pub const REPLICAS_MAX: u64 = 1 << 22;

/// The budget of a group whose queries are never behind.
pub const NO_BUDGET: Span = Span::from_nanos(u64::MAX);

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
    /// Whether a request may have several queries of which one is dropped, and the others are to be found.
    pub is_tracked: bool,
    /// Whether a request never has more than one query, and its accuracy is that query's path's.
    pub is_single: bool,
    /// Until when none was tracked, if they are since.
    pub untracked_until: Option<Moment>,
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
    /// The number of each task's choice stream; those of its edges follow, in the file's order.
    pub streams: Vec<u32>,
    /// Its joins, if it has any.
    pub joins: Option<Joins>,
    /// Its stations.
    pub stations: Vec<u32>,
}

impl Line {
    /// Whether queries join the next queue at once, and nothing but that one hears of it.
    #[inline]
    pub fn passes_on(&self) -> bool {
        self.network.is_none() && self.joins.is_none() && !self.counts_outstanding
    }
}

/// One group of a plan.
#[derive(Debug)]
pub struct Group {
    /// Its pipeline.
    pub line: u32,
    /// Its batch in the plan, or its slots.
    pub batch: u32,
    /// Queries that a replica runs at a time, each on its own; 1 where they run in batches.
    pub slots: u32,
    /// How times spread around those of `service`, if they do.
    pub spread: Option<Spread>,
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
    /// How long a query may take here before it is behind; [`NO_BUDGET`] where nobody asks.
    pub budget: Span,
    /// Channels for which a path ends here for certain.
    pub closes: Vec<u32>,
    /// Whether every query counts for some channel, leaf or not.
    pub is_scored: bool,
    /// Whether each query makes exactly one other at the only child, and says no more about its request.
    pub passes_on: bool,
    /// Children.
    pub edges: Vec<OutEdge>,
    /// How one of the edges is chosen; `None` if all are taken.
    pub one_of: Option<OneOf>,
}

impl Group {
    /// Whether each query makes exactly one other at the only child, and says no more about its request.
    pub fn passes_on(edges: &[OutEdge], is_scored: bool) -> bool {
        !is_scored && matches!(edges, [edge] if matches!(edge.fanout, Fanout::Fixed(1)))
    }

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
pub struct Fleet<'a> {
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
    /// What was compiled, by pipeline; `None` where the plan serves nothing.
    pub blueprints: Vec<Option<Blueprint<'a>>>,
}

impl<'a> Fleet<'a> {
    /// Compiles.
    ///
    /// # Errors
    /// If the plan does not fit the problem, or asks for what is not simulated yet.
    pub fn new(p: &'a Problem, plan: &Plan, w: &Workload, options: &SimulateOptions) -> Result<Self, SimulateError> {
        if w.traces.len() != p.pipelines.len() {
            let (traces, pipelines) = (w.traces.len(), p.pipelines.len());
            return Err(SimulateError::Workload { traces, pipelines });
        }
        check_plan(p, plan)?;
        check_size(p, plan, w, options)?;
        let mut fleet = Self::default();
        fleet.floor.gauge = Gauge::new(options.stop.clone(), options.visits_max);
        for (pipeline, trace) in p.pipelines.iter().zip(&w.traces) {
            let first_task = fleet.tasks.len() as u32;
            let line_at = fleet.lines.len() as u32;
            fleet.tasks.extend(pipeline.tasks.iter().map(|t| (line_at, t.name.clone())));
            let part = plan.pipeline(&pipeline.name);
            let serving = options.serving.or(part.map(|part| part.serving)).unwrap_or_default();
            let streams = fleet.streams_of(pipeline, w.seed);
            let line = fleet.line(pipeline, serving, first_task, streams);
            fleet.lines.push(line);
            let blueprint = match part {
                None => refuse_traffic(pipeline, trace, "the plan has no part for it").map(|()| None)?,
                Some(part) => {
                    let times = (options.service, w.seed);
                    let mut blueprint = Blueprint::new(p, pipeline, serving, part, times)?;
                    blueprint.foresight = options.foresight;
                    fleet.compile(blueprint, trace)?
                }
            };
            fleet.blueprints.push(blueprint);
        }
        Ok(fleet)
    }

    /// Compiles one pipeline; `None` if its root has no replicas and nothing arrives.
    fn compile(&mut self, b: Blueprint<'a>, trace: &Trace) -> Result<Option<Blueprint<'a>>, SimulateError> {
        let line = self.lines.len() as u32 - 1;
        let root = b.pipeline.root();
        let by_task = b.by_task();
        if by_task[root.get()].is_empty() {
            return refuse_traffic(b.pipeline, trace, "its root has no replicas").map(|()| None);
        }
        let first_station = self.floor.stations.len() as u32;
        let routes = b.routes()?;
        let targets = self.targets(&b, &by_task);
        for (task, assignments) in by_task.iter().enumerate() {
            let mut senders = 0;
            for a in assignments {
                let of_line = (line, &self.lines[line as usize]);
                let group = b.group(of_line, TaskIndex(task), a, &mut self.streams)?;
                self.groups.push(group);
                self.stations(&b, (TaskIndex(task), a), &routes, &targets, &mut senders)?;
            }
        }
        self.lines[line as usize].frontend = Some(self.floor.routers.len() as u32);
        let router = b.router(None, root, &routes, &targets[root.get()], 0);
        self.floor.routers.push(router);
        self.lines[line as usize].stations = (first_station..self.floor.stations.len() as u32).collect();
        self.steer(&b, line)?;
        drop((by_task, routes, targets));
        Ok(Some(b))
    }

    fn line(&mut self, p: &Pipeline, serving: ServingPolicy, first_task: u32, streams: Vec<u32>) -> Line {
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
        Line {
            slo: Span::from_millis(p.slo_ms),
            network: (network > Span::ZERO).then(|| self.floor.network.line(network)),
            partial: p.partial == Partial::Allow,
            is_tracked: is_tracked(p, serving),
            is_single: !has_siblings(p) && weights.len() == 1 && !by_task,
            untracked_until: None,
            counts_outstanding: serving.routing == RoutingPolicy::Jsq,
            frontend: None,
            paths: Paths::new(p),
            weights,
            channels,
            by_task,
            first_task,
            streams,
            joins: Joins::new(p),
            stations: Vec::new(),
        }
    }

    /// The number of each task's choice stream; those of its edges follow, in the file's order.
    fn streams_of(&mut self, p: &Pipeline, seed: u64) -> Vec<u32> {
        let mut first = Vec::with_capacity(p.tasks.len());
        for (t, task) in p.tasks.iter().enumerate() {
            first.push(self.streams.len() as u32);
            self.streams.push(Stream::new(seed, &format!("route/{}/{}", p.name, task.name)));
            for edge in p.children(TaskIndex(t)) {
                let child = &p.task(edge.to).name;
                self.streams.push(Stream::new(seed, &format!("fanout/{}/{}/{child}", p.name, task.name)));
            }
        }
        first
    }

    /// Numbers of the stations that each group is about to get.
    fn targets<'p>(&self, b: &Blueprint<'_>, by_task: &[Vec<&'p Assignment>]) -> Vec<Vec<(&'p GroupName, Vec<u32>)>> {
        let mut next = self.floor.stations.len() as u32;
        let mut of_group = |a: &&'p Assignment| {
            let count = if b.is_central() { 1 } else { a.replicas };
            next += count;
            (&a.group, (next - count..next).collect())
        };
        by_task.iter().map(|task| task.iter().map(&mut of_group).collect()).collect()
    }

    /// The stations of the group that was compiled last.
    fn stations(
        &mut self,
        b: &Blueprint<'_>,
        (task, a): (TaskIndex, &Assignment),
        routes: &Routes<'_>,
        targets: &[Vec<(&GroupName, Vec<u32>)>],
        senders: &mut u32,
    ) -> Result<(), SimulateError> {
        let group_at = self.groups.len() as u32 - 1;
        let slots = b.slots(task, a);
        let (stations, servers) = if b.is_central() { (1, a.replicas * slots) } else { (a.replicas, slots) };
        for _ in 0..stations {
            let router = self.floor.routers.len() as u32;
            let group = &self.groups[group_at as usize];
            let Group { line, task_of_line, .. } = *group;
            let place = Place { group: group_at, line, task_of_line, router, server: self.servers };
            for (at, edge) in b.pipeline.children(task).enumerate() {
                let router = b.router(Some(&a.group), edge.to, routes, &targets[edge.to.get()], *senders);
                if !group.edges[at].fanout.is_zero() && router.is_none() && edge.ratio > 0.0 {
                    return Err(b.without_replicas(edge.to));
                }
                self.floor.routers.push(router);
            }
            self.floor.stations.push(b.station(group, task, a, servers));
            self.floor.places.push(place);
            self.servers += servers;
            *senders += 1;
        }
        Ok(())
    }

    /// Plans the module states, where the policy looks at them, and tells the stations what is known at the start.
    fn steer(&mut self, b: &Blueprint<'_>, line: u32) -> Result<(), SimulateError> {
        let stations = self.lines[line as usize].stations.clone();
        let Some(steered) = Steered::of(b, line, stations)? else { return Ok(()) };
        steered.tell_all(Moment::ZERO, &mut self.floor);
        self.steered.push(steered);
        Ok(())
    }
}

/// Whether a request may have several queries of which one is dropped, and the others are to be found.
pub fn is_tracked(p: &Pipeline, serving: ServingPolicy) -> bool {
    p.partial == Partial::Deny && serving.dropping != Dropping::Naive && has_siblings(p)
}

/// Whether a query may make several, whatever the plan.
fn has_siblings(p: &Pipeline) -> bool {
    let may_make_several = |t: TaskIndex| {
        let fanout = |edge: &Edge| {
            let variants = (0..p.task(t).variants.len()).map(VariantIndex);
            let counts = p.task(t).variants.iter().filter_map(|v| v.fanout_counts.get(&edge.to));
            let is_many = counts.flat_map(|c| &c.0).any(|&(count, _)| count > 1);
            is_many || variants.map(|v| p.fanout(edge, v)).any(|mean| mean > 1.0)
        };
        (p.task(t).route == Route::All && p.children(t).count() > 1) || p.children(t).any(fanout)
    };
    (0..p.tasks.len()).map(TaskIndex).any(may_make_several)
}

/// Whether a plan speaks of this problem's pipelines, and of no more replicas than can be simulated.
///
/// # Errors
/// If not.
pub fn check_plan(p: &Problem, plan: &Plan) -> Result<(), SimulateError> {
    if let Some(unknown) = plan.pipelines.iter().find(|q| p.pipeline_named(&q.name).is_none()) {
        return Err(SimulateError::Plan(format!("the problem has no pipeline {:?}", unknown.name)));
    }
    if plan.replicas() > REPLICAS_MAX {
        return Err(too_large("replicas", plan.replicas() as f64, REPLICAS_MAX));
    }
    let is_continuous =
        |q: &Pipeline, a: &Assignment| q.task_named(&a.group.task).is_some_and(|t| q.task(t).kind == TaskKind::Continuous);
    let of = |part| p.pipeline_named(part).map(|at| p.pipeline(at));
    let parts = plan.pipelines.iter().filter_map(|part| Some((of(&part.name)?, part)));
    let slots = parts.flat_map(|(q, part)| part.assignments.iter().filter(move |a| is_continuous(q, a)));
    let slots: u64 = slots.map(|a| u64::from(a.replicas) * u64::from(a.batch)).sum();
    if slots > REPLICAS_MAX {
        return Err(too_large("slots of continuous tasks", slots as f64, REPLICAS_MAX));
    }
    Ok(())
}

/// Whether a run is expected to stay within its bounds.
fn check_size(p: &Problem, plan: &Plan, w: &Workload, options: &SimulateOptions) -> Result<(), SimulateError> {
    let is_central = |part: &PipelinePlan| options.serving.unwrap_or(part.serving).queueing == Queueing::Central;
    check_places(p, plan, is_central)?;
    let expected = expected_visits(p, plan, &w.traces);
    match options.visits_max {
        Some(most) if expected.is_nan() || expected > most as f64 => {
            Err(too_large("queries that the run is expected to serve", expected, most))
        }
        _ => Ok(()),
    }
}

fn too_large(what: &'static str, found: f64, most: u64) -> SimulateError {
    SimulateError::TooLarge { what, found, most: most as f64 }
}

fn refuse_traffic(p: &Pipeline, trace: &Trace, why: &str) -> Result<(), SimulateError> {
    let silent = match trace {
        Trace::Arrivals(moments) => moments.is_empty(),
        Trace::Rates(rows) => rows.iter().all(|r| r.1 == 0.0),
    };
    if silent { Ok(()) } else { Err(SimulateError::Plan(format!("pipeline {:?}: {why}", p.name))) }
}
