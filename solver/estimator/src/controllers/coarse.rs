//! The coarse-grained tuner of InferLine's evaluation (SoCC'20, section 6): the whole pipeline is one black box, and
//! AutoScale (Gandhi et al., TOCS 2012) says how many boxes there are.
//!
//! Our copy of InferLine lacks the formula; this is our reading. The throughput of one box is known, and so is the number
//! of queries that it holds at that throughput. The load in boxes is the larger of arrivals over throughput and held
//! queries over the number that a box holds. AutoScale counts the requests in the system, so it sees a queue that the rate
//! does not show. A queue counts at most as much as the arrivals: boxes need time to load, and the queue must not cost
//! boxes long after it is gone. Boxes are added when the load exceeds them. Boxes are removed when they were too many for
//! two minutes, AutoScale's wait before an idle server leaves. Each task has as many replicas as there are boxes. In a plan
//! that does not consist of boxes, all groups grow in proportion.

use super::positions::report_positions;
use crate::error::SimulateError;
use crate::scenario::{Controller, Observation, ScenarioEvent};
use apportion_domain::{Moment, Pipeline, Plan, Problem, TimeSpan};
use apportion_serving::Outline;
use apportion_serving::modules::Staffing;
use std::collections::VecDeque;

/// The load of held queries is at most this many times the load of arrivals.
const QUEUE_MAX: f64 = 2.0;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoarseConfig {
    /// How often it looks.
    pub period: TimeSpan,
    /// Looks whose mean the load is.
    pub looks: usize,
    /// How long replicas must have been too many before they go.
    pub wait_down: TimeSpan,
    /// The most replicas of a group.
    pub replicas_max: u32,
}

impl Default for CoarseConfig {
    fn default() -> Self {
        Self {
            period: TimeSpan::from_nanos(1_000_000_000),
            looks: 5,
            wait_down: TimeSpan::from_nanos(120_000_000_000),
            replicas_max: 1 << 16,
        }
    }
}

/// A planned pipeline as a black box.
#[derive(Clone, Debug)]
struct Boxed {
    name: String,
    planned: Vec<u32>,
    /// Requests per second that the plan serves with full batches: those of its slowest task.
    capacity_qps: f64,
    /// Queries that it holds then, by Little's law, if each takes as long at its tasks as planning charges.
    held: f64,
    /// Position of each of its groups in the reports.
    places: Vec<usize>,
    /// The last looks, oldest first.
    looks: VecDeque<Look>,
    /// Loads within the wait, oldest first.
    loads: VecDeque<Load>,
    /// The number of plans that it asked for last.
    target: f64,
}

/// The queries of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Queries that arrived.
    arrived: u64,
    /// Queries that waited or ran at its end.
    held: u64,
}

/// The load at one moment.
#[derive(Clone, Copy, Debug)]
struct Load {
    at: Moment,
    /// The number of plans that would serve it.
    plans: f64,
}

impl Boxed {
    fn of(pipeline: &Pipeline, outline: &Outline, groups_before: usize) -> Self {
        let planned: Vec<u32> = outline.groups.iter().map(|g| g.replicas).collect();
        let scales = outline.scales();
        let tasks = scales.iter().enumerate().filter(|(_, scale)| **scale > 0.0);
        let tasks = tasks.map(|(task, scale)| (outline.staffing(&planned, task), scale));
        let capacity_qps =
            tasks.clone().map(|(staffing, scale)| staffing.throughput_qps / scale).fold(f64::INFINITY, f64::min);
        let charge_ms = |(staffing, scale): (Staffing, &f64)| scale * outline.queue_factor * staffing.execution.as_millis();
        let time_ms: f64 = tasks.map(charge_ms).sum();
        Self {
            name: pipeline.name.clone(),
            planned,
            capacity_qps,
            held: capacity_qps * time_ms / 1e3,
            places: report_positions(outline, groups_before),
            looks: VecDeque::new(),
            loads: VecDeque::new(),
            target: 1.0,
        }
    }

    /// The load of the last looks, in plans.
    fn load(&self, period: TimeSpan) -> f64 {
        let arrived: u64 = self.looks.iter().map(|look| look.arrived).sum();
        let held: u64 = self.looks.iter().map(|look| look.held).sum();
        let n = self.looks.len() as f64;
        let arriving = arrived as f64 * 1e3 / (n * period.as_millis()) / self.capacity_qps;
        arriving.max((held as f64 / n / self.held).min(QUEUE_MAX * arriving))
    }

    /// Replicas of a group for this number of plans, at least one.
    fn replicas(&self, group: usize, plans: f64, replicas_max: u32) -> u32 {
        let wanted = (f64::from(self.planned[group]) * plans - 1e-9).ceil();
        wanted.clamp(1.0, f64::from(replicas_max)) as u32
    }

    /// Takes one more look. Returns the number of plans that it wants from now on.
    fn decide(&mut self, config: &CoarseConfig, now: Moment, look: Look) -> f64 {
        self.looks.push_back(look);
        if self.looks.len() > config.looks {
            self.looks.pop_front();
        }
        let load = self.load(config.period);
        self.loads.push_back(Load { at: now, plans: load });
        let mut knows_all = false;
        while self.loads.front().is_some_and(|l| now.since(l.at) >= config.wait_down) {
            self.loads.pop_front();
            knows_all = true;
        }
        let highest = self.loads.iter().map(|l| l.plans).fold(load, f64::max);
        // Until the wait is over, the target does not fall.
        if load > self.target || knows_all {
            self.target = highest;
        }
        self.target
    }
}

/// The coarse-grained tuner of all pipelines of a plan.
#[derive(Clone, Debug)]
pub struct Coarse {
    config: CoarseConfig,
    pipelines: Vec<Option<Boxed>>,
}

impl Coarse {
    /// Of a plan, with these settings.
    ///
    /// # Errors
    /// If the plan does not fit the problem.
    pub fn new(problem: &Problem, plan: &Plan, config: CoarseConfig) -> Result<Self, SimulateError> {
        let mut groups_before = 0;
        let mut pipelines = Vec::new();
        for p in &problem.pipelines {
            let Some(part) = plan.pipeline(&p.name) else {
                pipelines.push(None);
                continue;
            };
            let outline = Outline::of(p, &problem.hardware, part);
            let outline = outline.map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", p.name)))?;
            pipelines.push(Some(Boxed::of(p, &outline, groups_before)));
            groups_before += outline.groups.len();
        }
        Ok(Self { config, pipelines })
    }
}

impl Controller for Coarse {
    fn period(&self) -> TimeSpan {
        self.config.period
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        let mut commands = Vec::new();
        for (boxed, arrivals) in self.pipelines.iter_mut().zip(&seen.arrivals) {
            let Some(boxed) = boxed else { continue };
            let arrived = arrivals.iter().map(|a| u64::from(a.count)).sum();
            let own = seen.groups.iter().filter(|g| g.pipeline == boxed.name);
            let held = own.map(|g| g.queued + g.running).sum();
            let plans = boxed.decide(&self.config, seen.at, Look { arrived, held });
            for (group, &at) in boxed.places.iter().enumerate() {
                let replicas = boxed.replicas(group, plans, self.config.replicas_max);
                if replicas != seen.groups[at].ready + seen.groups[at].loading {
                    commands.push((TimeSpan::ZERO, seen.groups[at].to_have(replicas)));
                }
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two replicas of one task that serve 100 queries/s together and hold 20 then; the wait is ten seconds.
    fn boxed() -> Boxed {
        Boxed {
            name: "p".into(),
            planned: vec![2],
            capacity_qps: 100.0,
            held: 20.0,
            places: vec![0],
            looks: VecDeque::new(),
            loads: VecDeque::new(),
            target: 1.0,
        }
    }

    /// A script: in each second the queries that arrived, the queries that were held, and the replicas wanted.
    fn check(script: &[(u64, u64, u32)]) {
        let wait_down = TimeSpan::from_millis(10_000.0);
        let config = CoarseConfig { looks: 2, wait_down, replicas_max: 9, ..CoarseConfig::default() };
        let mut boxed = boxed();
        for (turn, &(arrived, held, expected)) in script.iter().enumerate() {
            let now = Moment::from_millis(1e3 * (turn + 1) as f64);
            let plans = boxed.decide(&config, now, Look { arrived, held });
            assert_eq!(boxed.replicas(0, plans, config.replicas_max), expected, "second {}", turn + 1);
        }
    }

    #[test]
    fn overload_scales_up_at_once() {
        // The mean of two looks: 95, 100, 110 -> 2.2 replicas, 160 -> 3.2; and as many as there may be.
        check(&[(90, 0, 2), (100, 0, 2), (100, 0, 2), (120, 0, 3), (200, 0, 4), (2_000, 0, 9)]);
    }

    #[test]
    fn a_queue_counts_as_load() {
        // 20 held is the plan's own load, and 20 and 40 are 1.5 plans. More than twice the arrivals, 1.6 plans, does not
        // count.
        check(&[(80, 20, 2), (80, 20, 2), (80, 40, 3), (80, 40, 4), (80, 4_000, 4)]);
    }

    #[test]
    fn scale_down_follows_the_highest_load_of_the_wait() {
        let mut script = vec![(200, 0, 4)];
        // Means of 150 and then 100: the first second counts until the 10th, the second until the 11th.
        script.extend([(100, 0, 4); 9]);
        script.extend([(100, 0, 3), (100, 0, 2), (40, 0, 2)]);
        // The 13th second's mean of 70 counts until the 23rd.
        script.extend([(40, 0, 2); 9]);
        script.push((40, 0, 1));
        check(&script);
    }
}
