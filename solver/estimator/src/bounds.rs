//! What a run may take: how long its caller lets it go on, how many queries it serves, how much memory it holds.
//!
//! A run looks at its bounds every [`LOOK_EVERY`] queries, so that looking costs nothing that can be measured. A run that is cut
//! short has no estimate: it ends with a [`Cut`].

use crate::SimulateError;
use crate::fleet::Query;
use apportion_domain::{Pipeline, PipelinePlan, Plan, Problem, TaskIndex, Trace, VariantIndex};
use apportion_serving::Waiting;
use std::fmt;
use std::sync::Arc;

/// Most memory that a run holds for requests and queries in flight, in bytes: 512 MiB.
pub const BYTES_MAX: usize = 1 << 29;
/// Most places that a plan's stations, routers and tables have in a run: a sender has one for each replica that it sends to, a station
/// one for each query of its batch, and a prefix of a measured path one for each variant.
pub const PLACES_MAX: u64 = 1 << 26;
/// Queries between two looks at the bounds: some milliseconds.
pub const LOOK_EVERY: u64 = 1 << 15;
/// Memory of a query in flight: buffers double when they grow.
const QUERY_BYTES: usize = 2 * size_of::<Waiting<Query>>();

/// Says when a run is to end early; it is asked every [`LOOK_EVERY`] queries, from the run's thread.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// The run ends once `is_over` says so.
    #[must_use]
    pub fn when(is_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_over)))
    }

    /// Whether the run is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(when asked)" } else { "Stop(never)" })
    }
}

/// Why a run ended before each of its requests had an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// Its caller's [`Stop`] said so.
    #[error("it was stopped")]
    Stopped,
    /// More requests missed than its caller allows.
    #[error("{missed} requests had missed their objective, more than were allowed")]
    Missed {
        /// Requests that were late, dropped or failed by then.
        missed: u64,
    },
    /// It served more queries than its caller allows.
    #[error("it had served {visits_max} queries, as many as were allowed")]
    Visits {
        /// The caller's bound.
        visits_max: u64,
    },
    /// Its requests and queries in flight took more memory than [`BYTES_MAX`].
    #[error("its queries in flight took more than {} MiB", BYTES_MAX >> 20)]
    Memory,
}

/// The bounds of one run, and how much of them is used.
#[derive(Debug)]
pub struct Gauge {
    /// Queries until the next look.
    left: u64,
    /// Queries that were made or had arrived, and those of them that ended or were dropped.
    made: u64,
    ended: u64,
    /// Requests that had arrived at the last look.
    arrived: u64,
    /// Memory of all but queries at the last look.
    other_bytes: usize,
    visits_max: u64,
    stop: Stop,
    cut: Option<Cut>,
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new(Stop::default(), None)
    }
}

impl Gauge {
    /// Bounds of which nothing is used.
    #[must_use]
    pub fn new(stop: Stop, visits_max: Option<u64>) -> Self {
        let visits_max = visits_max.unwrap_or(u64::MAX);
        let (left, cut) = (0, None);
        Self { left, made: 0, ended: 0, arrived: 0, other_bytes: 0, visits_max, stop, cut }
    }

    /// So much was done: queries, or turns without any.
    #[inline(always)]
    pub fn spend(&mut self, queries: u64) {
        self.left = self.left.saturating_sub(queries);
    }

    /// So many queries are about to be made; how many of them may be before the bounds are looked at again, at least one. None, if
    /// the run is cut short.
    #[inline(always)]
    pub fn make(&mut self, queries: u64) -> u64 {
        if queries > self.left {
            return self.make_some(queries);
        }
        self.left -= queries;
        self.made += queries;
        queries
    }

    #[cold]
    #[inline(never)]
    fn make_some(&mut self, queries: u64) -> u64 {
        self.look();
        if self.cut.is_some() {
            return 0;
        }
        let some = queries.min(self.left);
        self.left -= some;
        self.made += some;
        some
    }

    /// So many queries ended, or were given up.
    #[inline(always)]
    pub fn end(&mut self, queries: u64) {
        self.ended += queries;
        self.spend(queries);
    }

    /// So many of those that ended went on, each as one other.
    #[inline(always)]
    pub fn pass(&mut self, queries: u64) {
        self.made += queries;
    }

    /// Whether it is time to look at the bounds.
    #[inline(always)]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Looks at the bounds, given the requests that have arrived and the memory of all but queries. Whether the run goes on: once
    /// it is cut short, it is always time to look.
    #[cold]
    #[inline(never)]
    pub fn look_at(&mut self, arrived: u64, other_bytes: usize) -> bool {
        (self.arrived, self.other_bytes) = (arrived, other_bytes);
        self.look();
        self.cut.is_none()
    }

    fn look(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let begun = self.arrived + self.made;
        let in_flight = begun.saturating_sub(self.ended) as usize;
        let bytes = in_flight.saturating_mul(QUERY_BYTES).saturating_add(self.other_bytes);
        self.cut = match () {
            () if self.stop.is_asked() => Some(Cut::Stopped),
            () if begun > self.visits_max => Some(Cut::Visits { visits_max: self.visits_max }),
            () if bytes > BYTES_MAX => Some(Cut::Memory),
            () => None,
        };
        self.left = if self.cut.is_some() { 0 } else { LOOK_EVERY };
    }

    /// Why the run is cut short, if it is.
    #[inline(always)]
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }
}

/// Requests that a trace brings: as many as it lists, or as its rates make in the mean.
#[must_use]
pub fn expected_requests(trace: &Trace) -> f64 {
    match trace {
        Trace::Arrivals(moments) => moments.len() as f64,
        Trace::Rates(rows) => rows.iter().map(|row| row.1).sum(),
    }
}

/// Queries that a run of `plan` serves in the mean, over all tasks: what it takes grows with them. `traces` has one for each
/// pipeline of the problem; what the plan does not know counts for nothing.
#[must_use]
pub fn expected_visits(problem: &Problem, plan: &Plan, traces: &[Trace]) -> f64 {
    let of = |(pipeline, trace): (&Pipeline, &Trace)| {
        let part = plan.pipeline(&pipeline.name)?;
        Some(expected_requests(trace) * visits(pipeline, part).iter().sum::<f64>())
    };
    problem.pipelines.iter().zip(traces).filter_map(of).sum()
}

/// By task, the queries that one of the root's makes there in the mean.
fn visits(pipeline: &Pipeline, part: &PipelinePlan) -> Vec<f64> {
    let mut visits = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        visits[t.get()] = match pipeline.primary_parent(t) {
            None => 1.0,
            Some(edge) => {
                let of_variant = |(v, share): (VariantIndex, f64)| share * pipeline.fanout(edge, v);
                visits[edge.from.get()] * shares(pipeline, part, edge.from).into_iter().map(of_variant).sum::<f64>()
            }
        };
    }
    visits
}

/// The parts of a task's queries that its variants get: those of the plan, else in proportion to replicas and batch.
fn shares(pipeline: &Pipeline, part: &PipelinePlan, task: TaskIndex) -> Vec<(VariantIndex, f64)> {
    let of = |t: TaskIndex| &pipeline.task(t).name;
    let assigned = || part.assignments.iter().filter(|a| a.group.task == *of(task) && a.replicas > 0);
    let planned: f64 = assigned().map(|a| a.traffic_share).sum();
    let weight = |a: &apportion_domain::Assignment| match planned > 0.0 {
        true => a.traffic_share,
        false => f64::from(a.replicas) * f64::from(a.batch),
    };
    let total: f64 = assigned().map(weight).sum();
    let variants = &pipeline.task(task).variants;
    let share = |a: &apportion_domain::Assignment| {
        let at = variants.iter().position(|v| v.name == a.group.variant)?;
        Some((VariantIndex(at), weight(a) / total))
    };
    assigned().filter_map(share).collect()
}

/// Refuses a plan whose stations and routers would not fit into memory, before any is built.
///
/// # Errors
/// If there are more than [`PLACES_MAX`] places.
pub fn check_places(
    problem: &Problem,
    plan: &Plan,
    is_central: impl Fn(&PipelinePlan) -> bool,
) -> Result<(), SimulateError> {
    let mut places = 0_u64;
    for part in &plan.pipelines {
        let Some(p) = problem.pipeline_named(&part.name) else { continue };
        let pipeline = problem.pipeline(p);
        let central = is_central(part);
        let stations = |name: &str| -> u64 {
            let of_task = part.assignments.iter().filter(|a| a.replicas > 0 && a.group.task == name);
            of_task.map(|a| if central { 1 } else { u64::from(a.replicas) }).sum()
        };
        let by_task: Vec<u64> = pipeline.tasks.iter().map(|t| stations(&t.name)).collect();
        let routed = pipeline.edges.iter().filter(|e| e.primary);
        let routed = routed.map(|e| by_task[e.from.get()].saturating_mul(by_task[e.to.get()]));
        let batches = part.assignments.iter().map(|a| {
            let stations = if central { 1 } else { u64::from(a.replicas) };
            stations.saturating_mul(u64::from(a.batch))
        });
        // the table of measured paths has a row for each of their prefixes, with a place for each variant
        let variants: usize = pipeline.tasks.iter().map(|t| t.variants.len()).sum();
        let prefixes: usize = pipeline.path_accuracy.iter().map(|e| e.path.len()).sum();
        let measured = (prefixes as u64).saturating_mul(variants.min(prefixes) as u64);
        places = routed.chain(batches).chain([measured]).fold(places, u64::saturating_add);
    }
    match places > PLACES_MAX {
        true => Err(SimulateError::TooLarge {
            what: "places in batches, routers and tables of paths",
            found: places as f64,
            most: PLACES_MAX as f64,
        }),
        false => Ok(()),
    }
}
