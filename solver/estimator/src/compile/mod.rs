//! What does a run touch? Problem and plan, compiled into numbers: groups, stations, routers, fan-outs.
//!
//! Example: a plan with three replicas of one group becomes one [`CompiledGroup`], three stations, and the routers of their
//! senders. `docs/glossary.md` says each noun in one line, with its word in the papers.

mod pipeline;
mod routes;
pub mod size;

pub use pipeline::{Backup, PipelineCompiler, TaskGroup};

use crate::error::SimulateError;
use crate::input::ingresses::IngressSettings;
use crate::input::options::SimulateOptions;
use crate::input::workload::Workload;
use crate::random::RandomStream;
use crate::state::bounds::RunBounds;
use crate::state::group::CompiledGroup;
use crate::state::joins::{Joins, Scopes};
use crate::state::module_states::{ModuleStates, PipelineModules};
use crate::state::paths::PathAccuracies;
use crate::state::pipeline::PipelineState;
use crate::state::requests::RequestSlots;
use crate::state::serving::{ServingState, StationInfo};
use crate::state::statistics::{KeptResults, Statistics, TaskName};
use crate::state::{RunState, SlowReplicas, StaleServers};
use apportion_domain::{
    AccuracyModel, ArrivalTrace, Assignment, Dropping, Edge, Moment, Partial, Pipeline, Plan, Problem, Route,
    RoutingPolicy, ServingPolicy, TaskIndex, TimeSpan, VariantIndex,
};
use pipeline::{GroupStations, TimeSource};
use routes::PlannedRoutes;
use size::{check_ingresses, check_plan, check_size, refuse_traffic};

/// Problem and plan as numbers, before the first event.
#[derive(Debug, Default)]
pub struct CompiledPlan<'a> {
    /// Pipelines in the problem's order.
    pub pipelines: Vec<PipelineState>,
    /// Groups: pipelines in the problem's order, tasks in the file's, groups in the plan's.
    pub groups: Vec<CompiledGroup>,
    /// Stations, routers and network.
    pub serving: ServingState,
    /// Random streams of edges and choices.
    pub streams: Vec<RandomStream>,
    /// All servers.
    pub servers: u32,
    /// All tasks of the problem.
    pub tasks: Vec<TaskName>,
    /// Pipelines whose stations use module states.
    pub modules: Vec<PipelineModules>,
    /// By pipeline; `None` for pipelines that the plan does not serve.
    pub compilers: Vec<Option<PipelineCompiler<'a>>>,
}

impl<'a> CompiledPlan<'a> {
    /// Compiles a plan.
    ///
    /// # Errors
    /// If the plan does not fit the problem, or needs a feature that is not simulated.
    pub fn new(p: &'a Problem, plan: &Plan, w: &Workload, options: &SimulateOptions) -> Result<Self, SimulateError> {
        if w.traces.len() != p.pipelines.len() {
            let (traces, pipelines) = (w.traces.len(), p.pipelines.len());
            return Err(SimulateError::Workload { traces, pipelines });
        }
        check_plan(p, plan)?;
        check_size(p, plan, w, options)?;
        check_ingresses(p, plan, options.ingresses)?;
        let mut compiled = Self::default();
        compiled.serving.bounds = RunBounds::new(options.stop.clone(), options.visits_max);
        for (pipeline, trace) in p.pipelines.iter().zip(&w.traces) {
            let first_task = compiled.tasks.len() as u32;
            let number = compiled.pipelines.len() as u32;
            compiled.tasks.extend(pipeline.tasks.iter().map(|t| TaskName { pipeline: number, task: t.name.clone() }));
            let part = plan.pipeline(&pipeline.name);
            let serving = options.serving.or(part.map(|part| part.serving)).unwrap_or_default();
            let streams = compiled.streams_of(pipeline, w.seed);
            let state = compiled.pipeline_state(pipeline, serving, first_task, streams);
            let ingress_stream = compiled.ingress_stream(pipeline, options.ingresses, w.seed);
            let homes = options.ingresses.homes(w.seed, &pipeline.name);
            compiled.pipelines.push(PipelineState { ingress_stream, homes, ..state });
            let compiler = match part {
                None => refuse_traffic(pipeline, trace, "the plan has no part for it").map(|()| None)?,
                Some(part) => {
                    let times = TimeSource { times: options.service, seed: w.seed };
                    let mut compiler = PipelineCompiler::new(p, pipeline, serving, part, times)?;
                    compiler.foresight = options.foresight;
                    compiled.compile(compiler, trace, &IngressStart { settings: options.ingresses, seed: w.seed })?
                }
            };
            compiled.compilers.push(compiler);
        }
        Ok(compiled)
    }

    /// The state of a run before its first event.
    #[must_use]
    pub fn into_state(self, options: &SimulateOptions) -> RunState {
        let channels_max = self.pipelines.iter().map(|p| p.weights.len()).max().unwrap_or(0);
        let kept = KeptResults {
            has_requests: options.requests,
            class_window: options.class_window,
            misses_max: options.misses_max,
        };
        let statistics = Statistics::new(self.pipelines.len(), self.tasks, self.servers, kept);
        RunState {
            now: Moment::ZERO,
            pipelines: self.pipelines,
            groups: self.groups,
            serving: self.serving,
            streams: self.streams,
            requests: RequestSlots::new(channels_max),
            scopes: Scopes::default(),
            modules: ModuleStates::new(self.modules),
            statistics,
            journal: None,
            has_changes: false,
            slow: SlowReplicas::default(),
            stale: StaleServers::default(),
        }
    }

    /// Compiles one pipeline; `None` if its root has no replicas and nothing arrives.
    fn compile(
        &mut self,
        compiler: PipelineCompiler<'a>,
        trace: &ArrivalTrace,
        ingresses: &IngressStart,
    ) -> Result<Option<PipelineCompiler<'a>>, SimulateError> {
        let number = self.pipelines.len() as u32 - 1;
        let root = compiler.pipeline.root();
        let by_task = compiler.by_task();
        if by_task[root.get()].is_empty() {
            return refuse_traffic(compiler.pipeline, trace, "its root has no replicas").map(|()| None);
        }
        let first_station = self.serving.stations.len() as u32;
        let routes = compiler.routes()?;
        let wiring = Wiring { compiler: &compiler, routes: &routes, targets: self.targets(&compiler, &by_task) };
        for (task, assignments) in by_task.iter().enumerate() {
            let mut senders = 0;
            for a in assignments {
                let state = &self.pipelines[number as usize];
                let group = compiler.group(state, TaskIndex(task), a, &mut self.streams)?;
                self.groups.push(group);
                self.add_stations(&wiring, TaskIndex(task), a, &mut senders)?;
            }
        }
        let first = self.serving.routers.len() as u32;
        let mut turns = ingresses.turns(&compiler.pipeline.name);
        for ingress in 0..ingresses.settings.count.get() {
            let router = compiler.router(None, root, &routes, &wiring.targets[root.get()], ingress);
            let queries = turns.draw();
            self.serving.routers.push(router.map(|router| router.of_ingress().turned(queries)));
        }
        self.pipelines[number as usize].ingresses = first..self.serving.routers.len() as u32;
        self.pipelines[number as usize].stations = (first_station..self.serving.stations.len() as u32).collect();
        self.add_module_states(&compiler, number)?;
        drop(wiring);
        drop((by_task, routes));
        Ok(Some(compiler))
    }

    fn pipeline_state(
        &mut self,
        p: &Pipeline,
        serving: ServingPolicy,
        first_task: u32,
        streams: Vec<u32>,
    ) -> PipelineState {
        let mut link = |hop_ms: f64| {
            let hop = TimeSpan::from_millis(hop_ms);
            (hop > TimeSpan::ZERO).then(|| self.serving.network.link(hop))
        };
        let tasks = || (0..p.tasks.len()).map(TaskIndex);
        let links: Vec<Option<usize>> = tasks().map(|t| link(p.hop_ms(t))).collect();
        let resend_links = tasks().map(|t| link(p.transfer_ms(t))).collect();
        let by_task = p.accuracy_model == AccuracyModel::TaskMean && p.path_accuracy.is_empty();
        let is_sink = |t: TaskIndex| p.children(t).next().is_none();
        let mut weights = Vec::new();
        let mut channel = |t: TaskIndex| {
            (by_task || is_sink(t)).then(|| {
                weights.push(if by_task { 1.0 } else { p.leaf_weight(t) });
                weights.len() as u32 - 1
            })
        };
        let channels = tasks().map(&mut channel).collect();
        PipelineState {
            number: self.pipelines.len() as u32,
            slo: TimeSpan::from_millis(p.slo_ms),
            has_hops: links.iter().any(Option::is_some),
            links,
            resend_links,
            root: p.root().get() as u32,
            partial: p.partial,
            is_tracked: is_tracked(p, serving),
            is_single: !has_siblings(p) && weights.len() == 1 && !by_task,
            untracked_until: None,
            counts_outstanding: serving.routing == RoutingPolicy::Jsq,
            ingresses: 0..0,
            ingress_stream: None,
            homes: Vec::new(),
            paths: PathAccuracies::new(p),
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
            self.streams.push(RandomStream::new(seed, &format!("route/{}/{}", p.name, task.name)));
            for edge in p.children(TaskIndex(t)) {
                let child = &p.task(edge.to).name;
                self.streams.push(RandomStream::new(seed, &format!("fanout/{}/{}/{child}", p.name, task.name)));
            }
        }
        first
    }

    /// The stream that draws the ingress of each request, where clients choose at random.
    fn ingress_stream(&mut self, p: &Pipeline, ingresses: IngressSettings, seed: u64) -> Option<u32> {
        ingresses.are_drawn().then(|| {
            self.streams.push(RandomStream::new(seed, &format!("ingress/{}", p.name)));
            self.streams.len() as u32 - 1
        })
    }

    /// Numbers of the stations that each group is about to get.
    fn targets<'p>(&self, compiler: &PipelineCompiler<'_>, by_task: &[Vec<&'p Assignment>]) -> Vec<Vec<GroupStations<'p>>> {
        let mut next = self.serving.stations.len() as u32;
        let mut of_group = |a: &&'p Assignment| {
            let count = if compiler.is_central() { 1 } else { a.replicas };
            next += count;
            GroupStations { name: &a.group, stations: (next - count..next).collect() }
        };
        by_task.iter().map(|task| task.iter().map(&mut of_group).collect()).collect()
    }

    /// Adds the stations of the group that was compiled last. `senders` counts the stations of its task: each sender starts
    /// its turns at another replica.
    fn add_stations(
        &mut self,
        wiring: &Wiring<'_>,
        task: TaskIndex,
        a: &Assignment,
        senders: &mut u32,
    ) -> Result<(), SimulateError> {
        let Wiring { compiler, routes, targets } = wiring;
        let group_at = self.groups.len() as u32 - 1;
        let slots = compiler.slots(task, a);
        let (stations, servers) = if compiler.is_central() { (1, a.replicas * slots) } else { (a.replicas, slots) };
        for _ in 0..stations {
            let router = self.serving.routers.len() as u32;
            let group = &self.groups[group_at as usize];
            let CompiledGroup { pipeline, task_in_pipeline, has_slots, .. } = *group;
            let server = self.servers;
            let info = StationInfo { group: group_at, pipeline, task_in_pipeline, router, server, has_slots, joined: 0 };
            for (at, edge) in compiler.pipeline.children(task).enumerate() {
                let router = compiler.router(Some(&a.group), edge.to, routes, &targets[edge.to.get()], *senders);
                if !group.edges[at].fanout.is_zero() && router.is_none() && edge.ratio > 0.0 {
                    return Err(compiler.without_replicas(edge.to));
                }
                self.serving.routers.push(router);
            }
            self.serving.stations.push(compiler.station(group, task, a, servers));
            self.serving.infos.push(info);
            self.servers += servers;
            *senders += 1;
        }
        Ok(())
    }

    /// Adds the module states of a pipeline whose policy uses them, and sends the stations their first views.
    fn add_module_states(&mut self, compiler: &PipelineCompiler<'_>, number: u32) -> Result<(), SimulateError> {
        let stations = self.pipelines[number as usize].stations.clone();
        let Some(modules) = compiler.module_states(number, stations)? else { return Ok(()) };
        modules.send_views(Moment::ZERO, &mut self.serving);
        self.modules.push(modules);
        Ok(())
    }
}

/// The ingresses at the start of a run.
struct IngressStart {
    settings: IngressSettings,
    seed: u64,
}

/// Draws how many queries each ingress has sent before the run. Several ingresses have taken turns for long, and where each
/// of them stands is chance. A single ingress begins with its first turn.
struct IngressTurns(Option<RandomStream>);

impl IngressStart {
    fn turns(&self, pipeline: &str) -> IngressTurns {
        let is_several = self.settings.count.get() > 1;
        IngressTurns(is_several.then(|| RandomStream::new(self.seed, &format!("turns/{pipeline}"))))
    }
}

impl IngressTurns {
    /// An ingress has sent fewer queries than this. They are several rounds of all but the largest groups.
    const QUERIES: u64 = 1_024;

    fn draw(&mut self) -> u32 {
        self.0.as_mut().map_or(0, |stream| (stream.bits() % Self::QUERIES) as u32)
    }
}

/// The destinations of one pipeline's queries.
struct Wiring<'r> {
    compiler: &'r PipelineCompiler<'r>,
    routes: &'r PlannedRoutes<'r>,
    /// By task: the stations of its groups.
    targets: Vec<Vec<GroupStations<'r>>>,
}

/// Whether the other queries of a request must be found when one of them is dropped.
pub fn is_tracked(p: &Pipeline, serving: ServingPolicy) -> bool {
    p.partial == Partial::Deny && serving.dropping != Dropping::Naive && has_siblings(p)
}

/// Whether a query of this pipeline may make several queries, under some plan.
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
