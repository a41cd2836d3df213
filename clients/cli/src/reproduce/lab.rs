//! What the comparisons share: settings, problems, traces, planning and replaying.

use super::metrics::quantile;
use crate::exit::Failure;
use crate::input;
use anyhow::anyhow;
use apportion_domain::{Dropping, Pipeline, PipelineDraft, Plan, Problem, ServingPolicy, Trace};
use apportion_estimator::{
    ArrivalProcess, Cut, Foresight, Replay, Scenario, SimulateError, SimulateOptions, Simulation, Workload,
    expected_requests, simulate,
};
use apportion_planning::{PlanOptions, Planner, plan};
use apportion_wire::{ProblemFile, read_problem};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest search of one planner for one plan.
const PLAN_TIME_MAX: Duration = Duration::from_secs(5);

/// The settings of a run.
pub struct Lab {
    /// The folder of shared data, if there is one.
    pub data: Option<PathBuf>,
    /// Tiny settings: the whole path of code, no figures worth quoting.
    pub quick: bool,
    /// Seed of the load that plans are made on; the next seed is the load that they are judged on.
    pub seed: u64,
    /// Shows what is being done.
    pub bar: ProgressBar,
}

impl Lab {
    /// Seed of the load on which plans are judged.
    pub fn held_out(&self) -> u64 {
        self.seed.wrapping_add(1)
    }

    /// `full`, or `quick` with tiny settings.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Says what is being done.
    pub fn now(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// A file of the data folder, if there is such a folder.
    pub fn data_file(&self, name: &str) -> Option<PathBuf> {
        self.data.as_ref().map(|folder| folder.join(name))
    }

    /// A problem of the data folder, else the one that is built in.
    pub fn problem(&self, data: &str, name: &str, built_in: &str) -> Result<Problem, Failure> {
        match self.data_file(data) {
            Some(file) => input::problem(&file.display().to_string()),
            None => built_in_problem(name, built_in),
        }
    }

    /// The first seconds of a trace of rates in the data folder, moved to start at 0.
    pub fn rates(&self, file: &Path, column: Option<&str>, seconds: usize) -> Result<Vec<f64>, Failure> {
        match input::trace(&file.display().to_string(), column)? {
            Trace::Rates(rows) => Ok(rows.into_iter().take(seconds).map(|(_, qps)| qps).collect()),
            Trace::Arrivals(_) => Err(anyhow!("{}: a trace of rates is needed", file.display()).into()),
        }
    }

    /// A plan, without explanation; `None` if the planner finds none.
    pub fn plan(&self, problem: &Problem, planner: Planner, trace: Option<Workload>) -> Option<Plan> {
        self.plan_within(PLAN_TIME_MAX, problem, planner, trace)
    }

    /// The same with a ladder up to so many times the demand, if there is to be one.
    pub fn plan_with_ladder(
        &self,
        problem: &Problem,
        planner: Planner,
        trace: Option<Workload>,
        ladder: Option<f64>,
    ) -> Option<Plan> {
        plan(problem, &PlanOptions { ladder, ..options(PLAN_TIME_MAX, planner, trace) }).0.plan().cloned()
    }

    /// The same with another limit on the time.
    pub fn plan_within(
        &self,
        time_max: Duration,
        problem: &Problem,
        planner: Planner,
        trace: Option<Workload>,
    ) -> Option<Plan> {
        plan(problem, &options(time_max, planner, trace)).0.plan().cloned()
    }
}

/// A search of at most so long, from now on.
fn options(time_max: Duration, planner: Planner, trace: Option<Workload>) -> PlanOptions {
    let start = Instant::now();
    let elapsed = Arc::new(move || start.elapsed());
    PlanOptions { planner, time_limit: Some(time_max), trace, explain: false, ..PlanOptions::new(elapsed) }
}

/// Threads on which independent runs are made.
const THREADS_MAX: usize = 2;

/// What `of` makes of each item, on two threads, in the items' order; the first failure if there is one.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> Result<R, Failure> + Sync) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<R, Failure>)> {
        let one = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, of(item)))
        };
        std::iter::from_fn(one).collect()
    };
    let mut done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS_MAX.min(items.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect::<Vec<_>>()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A problem that is part of the program.
pub fn built_in_problem(name: &str, text: &str) -> Result<Problem, Failure> {
    match read_problem(name, text)? {
        ProblemFile::Allocation(problem) => Ok(problem),
        ProblemFile::Scaling(_) => Err(anyhow!("{name} is a scaling problem").into()),
    }
}

/// A problem of one pipeline with that pipeline changed.
pub fn with_pipeline(problem: &Problem, index: usize, change: impl FnOnce(&mut PipelineDraft)) -> Result<Problem, Failure> {
    let pipeline: Pipeline = problem.pipelines[index]
        .changed(&problem.hardware, change)
        .map_err(|e| anyhow!("the changed pipeline is invalid: {e:?}"))?;
    let changed = problem.changed(|d| {
        d.pipelines = vec![pipeline];
        d.deployed.clear();
    });
    Ok(changed.map_err(|e| anyhow!("the changed problem is invalid: {e:?}"))?)
}

/// A load from rates by second.
pub fn load(rates: &[f64], arrivals: ArrivalProcess, seed: u64) -> Workload {
    let rows = (0..).zip(rates.iter().copied()).collect();
    Workload { traces: vec![Trace::Rates(rows)], arrivals, seed }
}

/// A constant load.
pub fn constant(qps: f64, seconds: usize, arrivals: ArrivalProcess, seed: u64) -> Workload {
    load(&vec![qps; seconds], arrivals, seed)
}

/// Rates with this mean.
pub fn scaled(rates: &[f64], mean: f64) -> Vec<f64> {
    let now = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    rates.iter().map(|r| if now > 0.0 { r * mean / now } else { mean }).collect()
}

/// The rate that a share `q` of the seconds stays below.
pub fn rate_quantile(rates: &[f64], q: f64) -> f64 {
    quantile(rates, q)
}

/// Share of missed requests beyond which a run is not worth finishing.
const HOPELESS: f64 = 0.25;

/// Replays a plan under a policy, and gives up once a quarter of the requests of a constant load has missed; `None` then.
pub fn replay_unless_hopeless(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
) -> Result<Option<Simulation>, Failure> {
    let expected: f64 = workload.traces.iter().map(expected_requests).sum();
    let misses_max = (HOPELESS * expected) as u64;
    let own = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let serving = Some(ServingPolicy { dropping, ..own });
    let options = SimulateOptions { misses_max: Some(misses_max), serving, ..SimulateOptions::default() };
    match simulate(problem, plan, workload, &options) {
        Ok(run) => Ok(Some(run)),
        Err(SimulateError::Cut(Cut::Missed { .. })) => Ok(None),
        Err(error) => Err(anyhow::Error::new(error).into()),
    }
}

/// Replays a plan under a policy.
pub fn replay(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    requests: bool,
) -> Result<Simulation, Failure> {
    replay_with(problem, plan, workload, dropping, SimulateOptions { requests, ..SimulateOptions::default() })
}

/// The same for PARD, which looks ahead in this way.
pub fn replay_foreseeing(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    foresight: Foresight,
) -> Result<Simulation, Failure> {
    let options = SimulateOptions { requests: true, foresight, ..SimulateOptions::default() };
    replay_with(problem, plan, workload, Dropping::Pard, options)
}

/// Replays a plan under a policy with changes; requests are recorded.
pub fn replay_with_scenario(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    scenario: Scenario<'_>,
) -> Result<Replay, Failure> {
    let own = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let serving = Some(ServingPolicy { dropping, ..own });
    let options = SimulateOptions { requests: true, serving, ..SimulateOptions::default() };
    Ok(apportion_estimator::replay(problem, plan, workload, &options, scenario).map_err(anyhow::Error::new)?)
}

fn replay_with(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    options: SimulateOptions,
) -> Result<Simulation, Failure> {
    let own = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let options = SimulateOptions { serving: Some(ServingPolicy { dropping, ..own }), ..options };
    Ok(simulate(problem, plan, workload, &options).map_err(anyhow::Error::new)?)
}

/// A bursty trace of our own, mean about 1: a slow wave, and every so often a burst that doubles the rate for some seconds.
/// A fixed pattern, so that a run needs no data.
pub fn bursts(seconds: usize, every: usize, length: usize, height: f64) -> Vec<f64> {
    let wave = |s: usize| 1.0 + 0.2 * (s as f64 / 40.0 * std::f64::consts::TAU).sin();
    let rate = |s: usize| if s % every >= every - length { height * wave(s) } else { wave(s) };
    scaled(&(0..seconds).map(rate).collect::<Vec<_>>(), 1.0)
}

/// Rates that are `burst` in the last two of every twenty seconds and `calm` else.
pub fn bursts_between(seconds: usize, calm: f64, burst: f64) -> Vec<f64> {
    (0..seconds).map(|s| if s % 20 >= 18 { burst } else { calm }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_results_keep_their_order_and_failures_come_through() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(in_parallel(&items, |i| Ok(i * i)).ok(), Some(items.iter().map(|i| i * i).collect()));
        assert!(in_parallel(&items, |i| if *i == 57 { Err(anyhow!("no").into()) } else { Ok(*i) }).is_err());
        assert_eq!(in_parallel(&[] as &[u64], |i| Ok(*i)).ok(), Some(vec![]));
    }

    #[test]
    fn rates_keep_their_shape_when_scaled() {
        assert_eq!(scaled(&[1.0, 3.0], 10.0), [5.0, 15.0]);
        assert_eq!(scaled(&[0.0, 0.0], 2.0), [2.0, 2.0]);
        let burst = bursts(120, 30, 5, 2.0);
        let mean = burst.iter().sum::<f64>() / 120.0;
        assert!((mean - 1.0).abs() < 1e-9 && burst[29] > 1.5 * burst[20], "{mean}");
    }
}
