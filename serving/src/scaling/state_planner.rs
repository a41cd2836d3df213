//! PARD's State Planner (sections 4.2 and 4.3): the part of the pipeline's state that the stations of each task use.
//!
//! Once in each [`PERIOD`] the driver hands over the stations' measurements, calls [`StatePlanner::synchronise`], and
//! brings each task's [`StationView`] to its stations. The driver decides how late it arrives.

use crate::mix::mix;
use crate::station::dropper::{ADMIT_ALL, Priority, StationView};
use crate::station::monitor::Monitor;
use apportion_domain::{Dropping, TimeSpan};

/// How often states are synchronised.
pub const PERIOD: TimeSpan = TimeSpan::from_nanos(1_000_000_000);
/// Periods in the window of queueing delays and of the smoothed load: 5 s, the middle of what the paper's section 5.4 finds
/// to make no difference.
pub const WINDOW_PERIODS: usize = 5;
/// The longest window.
pub const WINDOW_PERIODS_MAX: usize = 60;
/// The quantile of the aggregated batch wait that the planner uses (section 4.2).
pub const LAMBDA: f64 = 0.1;
/// Batch waits that are remembered for each task: the youngest ones.
pub const WAITS_MAX: usize = 2_048;
/// Draws from which the quantile of the aggregated batch wait is taken; its error is then below one part in 50 of its
/// spread.
pub const DRAWS: usize = 512;
/// Paths from one task to the end of the pipeline.
pub const PATHS_MAX: usize = 1_024;
/// `pard-oc`: a task is overloaded if queries queue for longer on average. The paper's thresholds are lost in our copy;
/// this and the two steps below are those of the method that it takes over (DAGOR, SoCC'18).
pub const OVERLOAD_QUEUEING: TimeSpan = TimeSpan::from_nanos(20_000_000);
/// `pard-oc`: the admitted part after an overloaded period, over the admitted part before.
const ADMIT_LESS: f64 = 0.95;
/// `pard-oc`: the same after another period.
const ADMIT_MORE: f64 = 1.01;
/// `pard-oc`: never less than this part is admitted, so that an empty system recovers.
const ADMIT_MIN: f64 = 0.01;

/// The window and the quantile of PARD's estimates (the sweeps of its section 5.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatePlannerSettings {
    /// Periods in the window of queueing delays and of the smoothed load, 1 to [`WINDOW_PERIODS_MAX`].
    pub window_periods: usize,
    /// The quantile of the aggregated batch wait that the planner uses, 0 to 1.
    pub lambda: f64,
}

impl Default for StatePlannerSettings {
    fn default() -> Self {
        Self { window_periods: WINDOW_PERIODS, lambda: LAMBDA }
    }
}

/// One task as it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Time of a batch of the configured size: d_k of the paper.
    pub execution: TimeSpan,
    /// The throughput of all of its replicas with full batches, in queries per second: T_m of the paper.
    pub throughput_qps: f64,
    /// Tasks that wait for this one, by position.
    pub after: Vec<usize>,
    /// The time of the hop into it.
    pub hop: TimeSpan,
}

/// The replicas of a group, or of a whole task, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Staffing {
    /// Time of a full batch; of several groups the mean, weighted by throughput.
    pub execution: TimeSpan,
    /// Throughput of all replicas with full batches, in queries per second.
    pub throughput_qps: f64,
}

impl Staffing {
    /// Of several groups together. Without throughput the execution is zero.
    pub fn together(groups: impl Iterator<Item = Self>) -> Self {
        let (mut sum, mut throughput_qps) = (0.0, 0.0);
        for group in groups {
            throughput_qps += group.throughput_qps;
            sum += group.execution.as_millis() * group.throughput_qps;
        }
        let mean_ms = if throughput_qps > 0.0 { sum / throughput_qps } else { 0.0 };
        Self { execution: TimeSpan::from_millis(mean_ms), throughput_qps }
    }
}

/// There are more than [`PATHS_MAX`] paths from some task to the end of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {PATHS_MAX} paths from one task to the end")]
pub struct TooManyPaths;

/// Measurements of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    arrived: u64,
    entered: u64,
    queueing_ns: u64,
    /// Longest queueing and longest batch wait.
    worst_ns: u64,
}

#[derive(Clone, Debug)]
struct State {
    module: Module,
    /// Youngest first; the present one is not among them.
    window: Vec<Period>,
    present: Period,
    /// Periods in the window that have happened.
    periods: usize,
    waits: Vec<TimeSpan>,
    next_wait: usize,
    /// `pard-oc`: the part that the task itself would admit.
    level: f64,
    view: StationView,
    /// Each path to the end, without the task itself.
    paths: Vec<Vec<u32>>,
}

/// The states of all tasks of one pipeline, and the views of their stations.
#[derive(Clone, Debug)]
pub struct StatePlanner {
    dropping: Dropping,
    slo: TimeSpan,
    /// Positions of the tasks, each before those that wait for it.
    order: Vec<usize>,
    states: Vec<State>,
    draws: Vec<u64>,
    lambda: f64,
}

impl StatePlanner {
    /// Whether stations under this policy need views.
    #[must_use]
    pub fn needs_views(dropping: Dropping) -> bool {
        let is_served_without = matches!(
            dropping,
            Dropping::Naive | Dropping::LastTask | Dropping::PerTask | Dropping::Reroute | Dropping::Nexus
        );
        !is_served_without
    }

    /// Whether the views under this policy follow measurements, so that stations need monitors and views change with the
    /// load. Other views only change with the plan.
    #[must_use]
    pub fn needs_measurements(dropping: Dropping) -> bool {
        let has_fixed_views = matches!(
            dropping,
            Dropping::ClipperPlusPlus | Dropping::NexusSplit | Dropping::PerTaskAhead | Dropping::RerouteAhead
        );
        Self::needs_views(dropping) && !has_fixed_views
    }

    /// Whether stations under this policy keep their queue by remaining time.
    #[must_use]
    pub fn sorts(dropping: Dropping) -> bool {
        Self::needs_measurements(dropping) && dropping != Dropping::PardFcfs
    }

    /// Of a pipeline whose requests may take `slo`. `modules` are in any order, without a cycle.
    ///
    /// # Errors
    /// If there are too many paths.
    pub fn new(dropping: Dropping, slo: TimeSpan, modules: Vec<Module>) -> Result<Self, TooManyPaths> {
        let order = order(&modules);
        let mut paths: Vec<Vec<Vec<u32>>> = vec![Vec::new(); modules.len()];
        for &m in order.iter().rev() {
            let mut of_module = Vec::new();
            for &next in &modules[m].after {
                of_module.extend(paths[next].iter().map(|path| [&[next as u32], path.as_slice()].concat()));
                if of_module.len() > PATHS_MAX {
                    return Err(TooManyPaths);
                }
            }
            if of_module.is_empty() {
                of_module.push(Vec::new());
            }
            paths[m] = of_module;
        }
        let state = |(module, paths)| State {
            module,
            window: vec![Period::default(); WINDOW_PERIODS],
            present: Period::default(),
            periods: 0,
            waits: Vec::new(),
            next_wait: 0,
            level: 1.0,
            view: StationView::default(),
            paths,
        };
        let states = modules.into_iter().zip(paths).map(state).collect();
        let mut planner = Self { dropping, slo, order, states, draws: Vec::new(), lambda: LAMBDA };
        planner.update_views();
        Ok(planner)
    }

    /// With this window and quantile. To be called before the first period.
    #[must_use]
    pub fn with_foresight(mut self, foresight: StatePlannerSettings) -> Self {
        let length = foresight.window_periods.clamp(1, WINDOW_PERIODS_MAX);
        self.states.iter_mut().for_each(|s| s.window = vec![Period::default(); length]);
        self.lambda = foresight.lambda;
        self
    }

    /// How many tasks there are.
    #[must_use]
    pub fn modules(&self) -> usize {
        self.states.len()
    }

    /// The view of a task's stations.
    #[must_use]
    pub fn view(&self, module: usize) -> StationView {
        self.states[module].view
    }

    /// Sets the batch time and the throughput of a task's replicas, as in [`Module`]. Another view follows at the end of
    /// the period.
    pub fn staff(&mut self, module: usize, staffing: Staffing) {
        let of = &mut self.states[module].module;
        (of.execution, of.throughput_qps) = (staffing.execution, staffing.throughput_qps);
    }

    /// Takes the measurements of a station of a task in this period, and clears its monitor.
    pub fn observe(&mut self, module: usize, monitor: &mut Monitor) {
        let state = &mut self.states[module];
        let present = &mut state.present;
        present.arrived += monitor.arrived;
        present.entered += monitor.entered;
        present.queueing_ns = present.queueing_ns.saturating_add(monitor.queueing_ns);
        present.worst_ns = present.worst_ns.max((monitor.queueing_max + monitor.wait_max).as_nanos());
        for &wait in monitor.waits() {
            if state.waits.len() < WAITS_MAX {
                state.waits.push(wait);
            } else {
                state.waits[state.next_wait] = wait;
            }
            state.next_wait = (state.next_wait + 1) % WAITS_MAX;
        }
        monitor.clear();
    }

    /// Ends the period. Returns whether a query arrived in the window.
    pub fn synchronise(&mut self) -> bool {
        for state in &mut self.states {
            state.window.rotate_right(1);
            state.window[0] = std::mem::take(&mut state.present);
            state.periods = (state.periods + 1).min(state.window.len());
        }
        self.update_views();
        self.states.iter().any(|s| s.window.iter().any(|p| p.arrived > 0))
    }

    fn update_views(&mut self) {
        let budgets = self.budgets();
        for (m, budget) in budgets.into_iter().enumerate() {
            self.states[m].level = self.states[m].next_level();
            let priority = self.priority(m);
            let forward = self.forward(m);
            self.states[m].view = StationView { forward, budget, priority, admit: ADMIT_ALL };
        }
        if self.dropping == Dropping::PardOc {
            self.admit();
        }
    }

    /// L_sub of equation 1: the largest over the paths to the end.
    fn forward(&mut self, module: usize) -> TimeSpan {
        let mut draws = std::mem::take(&mut self.draws);
        let mut largest = 0;
        for path in &self.states[module].paths {
            largest = largest.max(self.forward_on_path(path, &mut draws));
        }
        self.draws = draws;
        TimeSpan::from_nanos(largest)
    }

    fn forward_on_path(&self, path: &[u32], draws: &mut Vec<u64>) -> u64 {
        let later = || path.iter().map(|&m| &self.states[m as usize]);
        let execution: u64 = later().map(|s| s.module.execution.as_nanos() + s.module.hop.as_nanos()).sum();
        let queueing = || later().map(State::queueing_ns).sum::<u64>();
        let wait = match self.dropping {
            Dropping::PardBack => return 0,
            Dropping::PardSf => return execution,
            Dropping::PardLower => 0,
            Dropping::PardUpper => later().map(|s| s.module.execution.as_nanos()).sum(),
            _ => self.aggregated_wait(path, draws),
        };
        execution + queueing() + wait
    }

    /// The quantile of the sum of one batch wait of each task on a path, taken as independent (section 4.2). The paper
    /// draws recent waits at random. Here the draws are a lattice (a Kronecker sequence with a dimension for each task),
    /// which is as even and the same in every run.
    fn aggregated_wait(&self, path: &[u32], draws: &mut Vec<u64>) -> u64 {
        draws.clear();
        draws.resize(DRAWS, 0);
        for &m in path {
            let waits = &self.states[m as usize].waits;
            if waits.is_empty() {
                continue;
            }
            let step = mix(u64::from(m)) | 1;
            for (at, draw) in (1..).zip(draws.iter_mut()) {
                let place = step.wrapping_mul(at);
                *draw += waits[((u128::from(place) * waits.len() as u128) >> 64) as usize].as_nanos();
            }
        }
        let rank = ((self.lambda * DRAWS as f64).ceil() as usize).clamp(1, DRAWS) - 1;
        *draws.select_nth_unstable(rank).1
    }

    /// Each task's part of the SLO: in proportion to its time on the longest path through it (`clipper++`, section 5.1).
    /// The time is that of a batch or, for `pard-wcl`, the worst that was measured with it (section 5.3).
    fn budgets(&self) -> Vec<TimeSpan> {
        let time = |s: &State| {
            let measured = if self.dropping == Dropping::PardWcl { s.worst_ns() } else { 0 };
            s.module.execution.as_nanos() + measured + s.module.hop.as_nanos()
        };
        let mut before = vec![0_u64; self.states.len()];
        for &m in &self.order {
            let through = before[m] + time(&self.states[m]);
            for &next in &self.states[m].module.after {
                before[next] = before[next].max(through);
            }
        }
        let mut after = vec![0_u64; self.states.len()];
        for &m in self.order.iter().rev() {
            let longest = |&next: &usize| time(&self.states[next]) + after[next];
            after[m] = self.states[m].module.after.iter().map(longest).max().unwrap_or(0);
        }
        let part = |(m, s): (usize, &State)| {
            let path = u128::from(before[m] + time(s) + after[m]).max(1);
            let part = u128::from(self.slo.as_nanos()) * u128::from(time(s)) / path;
            TimeSpan::from_nanos((part as u64).saturating_sub(s.module.hop.as_nanos()))
        };
        self.states.iter().enumerate().map(part).collect()
    }

    /// Section 4.3: by the load factor mu, offered load of the last period over throughput, and kept as it was while mu is
    /// within [`State::boundary`] of 1.
    fn priority(&self, module: usize) -> Priority {
        let state = &self.states[module];
        match self.dropping {
            Dropping::PardHbf => return Priority::HighBudgetFirst,
            Dropping::PardLbf => return Priority::LowBudgetFirst,
            _ => {}
        }
        let offered = state.window[0].arrived as f64;
        let throughput = state.module.throughput_qps * (PERIOD.as_millis() / 1e3);
        let mu = if throughput > 0.0 { offered / throughput } else { 0.0 };
        let eps = if self.dropping == Dropping::PardInstant { 0.0 } else { state.boundary() };
        if mu > 1.0 + eps {
            Priority::HighBudgetFirst
        } else if mu < 1.0 - eps {
            Priority::LowBudgetFirst
        } else {
            state.view.priority
        }
    }

    /// `pard-oc`: a task admits no more than the least of the tasks that it leads to.
    fn admit(&mut self) {
        let mut least: Vec<f64> = self.states.iter().map(|s| s.level).collect();
        for &m in self.order.iter().rev() {
            least[m] = self.states[m].module.after.iter().map(|&next| least[next]).fold(least[m], f64::min);
        }
        for (state, level) in self.states.iter_mut().zip(least) {
            state.view.admit = (level * f64::from(ADMIT_ALL)).round() as u32;
        }
    }
}

impl State {
    /// Mean queueing delay over the window, the youngest period weighing most (linearly, footnote 5 of the paper).
    fn queueing_ns(&self) -> u64 {
        let weights = (1..=self.window.len() as u128).rev();
        let (mut sum, mut count) = (0_u128, 0_u128);
        for (weight, period) in weights.zip(&self.window) {
            sum += weight * u128::from(period.queueing_ns);
            count += weight * u128::from(period.entered);
        }
        sum.checked_div(count).map_or(0, |mean| mean as u64)
    }

    /// eps of section 4.3, which widens with bursts: how far the periods of the window are from their mean, over that mean,
    /// on the mean; 0 if nothing came. The formula is lost in our copy. It says that the smoothed load is part of it and
    /// what it does; of the readings that fit, this one agrees best with the paper's results
    /// (`docs/reference/reproduce.md` compares them).
    fn boundary(&self) -> f64 {
        let offered = || self.window[..self.periods].iter().map(|p| p.arrived as f64);
        let sum: f64 = offered().sum();
        if sum <= 0.0 {
            return 0.0;
        }
        let mean = sum / self.periods as f64;
        offered().map(|o| (o - mean).abs()).sum::<f64>() / sum
    }

    fn worst_ns(&self) -> u64 {
        self.window.iter().map(|p| p.worst_ns).max().unwrap_or(0)
    }

    fn next_level(&self) -> f64 {
        let last = &self.window[0];
        let mean = last.queueing_ns.checked_div(last.entered).unwrap_or(0);
        let factor = if mean > OVERLOAD_QUEUEING.as_nanos() { ADMIT_LESS } else { ADMIT_MORE };
        (self.level * factor).clamp(ADMIT_MIN, 1.0)
    }
}

/// Positions, each before those that come after it.
fn order(modules: &[Module]) -> Vec<usize> {
    let mut before = vec![0_usize; modules.len()];
    modules.iter().flat_map(|m| &m.after).for_each(|&next| before[next] += 1);
    let mut order: Vec<usize> = (0..modules.len()).filter(|&m| before[m] == 0).collect();
    let mut at = 0;
    while at < order.len() {
        for &next in &modules[order[at]].after {
            before[next] -= 1;
            if before[next] == 0 {
                order.push(next);
            }
        }
        at += 1;
    }
    assert!(order.len() == modules.len(), "a pipeline has no cycle");
    order
}
