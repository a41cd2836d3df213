//! Why does a scaling problem have no plan, and which smallest single change of its file gives one?
//!
//! First, a cause that no number of replicas can fix: an application has no variant within its SLO. Then one value at a
//! time is relaxed, and a search says how far:
//!
//! - the total of a resource: its least use if all others hold;
//! - the load of an application: the largest capacity that it can have beside the others;
//! - an SLO: the least latency of a variant whose growth gives a plan.
//!
//! All three results are exact.

use super::greedy;
use super::ilp;
use super::ilp::IlpGoal;
use super::program::{Program, ReplicaCounts};
use super::search::{MinimumResult, minimise};
use apportion_domain::pipeline::escape;
use apportion_domain::{Application, Constraint, Relaxation, ScalingProblem, Shortfall};
use apportion_mip::Ending;
use apportion_mip::RunLimits;
use std::time::Duration;

/// Most applications whose load and SLO are relaxed. Those with the largest loads come first.
const APPLICATIONS_MAX: usize = 24;
/// Longest and least time for the search. It gets the least time even if solving has used up the limit of the run.
const TIME_MAX: Duration = Duration::from_secs(10);
const TIME_MIN: Duration = Duration::from_millis(300);
/// Share of the remaining time for each search.
const TIME_SHARE: f64 = 0.1;

/// The shortfalls of an infeasible problem; never empty.
pub(crate) fn shortfalls(problem: &ScalingProblem, program: &Program, limits: &RunLimits) -> Vec<Shortfall> {
    let left = limits.time_left().map_or(TIME_MAX, |left| left.clamp(TIME_MIN, TIME_MAX));
    let limits = limits.without_listener().for_finishing().ending_at((limits.elapsed)() + left);
    let relax = ScalingRelaxations { problem, program, limits: &limits };
    let hopeless: Vec<usize> =
        (0..program.covers.len()).filter(|&i| program.covers[i].capacity_max() < program.covers[i].needed).collect();
    match hopeless.as_slice() {
        [] => relax.relax_scarce_resources(),
        [i] => relax.relax_application(*i),
        _ => hopeless.into_iter().map(|i| relax.too_slow(i)).collect(),
    }
}

/// What a larger total of one resource does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LargerTotal {
    /// It makes the problem feasible, without any other change.
    GivesPlan,
    /// Other values must change too.
    IsNotEnough,
}

/// Searches for single changes of a scaling problem that make it feasible.
struct ScalingRelaxations<'a> {
    problem: &'a ScalingProblem,
    program: &'a Program,
    limits: &'a RunLimits,
}

impl ScalingRelaxations<'_> {
    fn application(&self, i: usize) -> &Application {
        &self.problem.applications[i]
    }

    /// Every load can be covered, but not all within the resources.
    fn relax_scarce_resources(&self) -> Vec<Shortfall> {
        let mut found: Vec<Shortfall> = (0..self.program.totals.len()).filter_map(|t| self.relax_resource(t)).collect();
        let mut applications: Vec<usize> = (0..self.program.covers.len()).collect();
        applications.sort_by(|&a, &b| self.program.covers[b].needed.total_cmp(&self.program.covers[a].needed));
        applications.truncate(APPLICATIONS_MAX);
        found.extend(applications.iter().filter_map(|&i| self.relax_load(i)));
        found.extend(applications.iter().filter_map(|&i| self.relax_slo(i)));
        if found.is_empty() {
            found = (0..self.program.totals.len()).filter_map(|t| self.resource_without_others(t)).collect();
        }
        if found.is_empty() {
            let asked = self.problem.applications.iter().map(Application::needed_qps).sum();
            let place = "all applications".to_owned();
            found.push(Shortfall { constraint: Constraint::Load, place, asked, best: 0.0, relax: None });
        }
        found
    }

    /// No variant can cover the load of one application, so changes elsewhere cannot help.
    fn relax_application(&self, i: usize) -> Vec<Shortfall> {
        let found: Vec<Shortfall> = [self.relax_slo(i), self.relax_load(i)].into_iter().flatten().collect();
        if found.is_empty() { vec![self.too_slow(i)] } else { found }
    }

    /// No variant is within the SLO, the running replicas are not enough, and no single change helps.
    fn too_slow(&self, i: usize) -> Shortfall {
        let application = self.application(i);
        let fastest = application.variants.iter().map(|v| v.latency_ms).fold(f64::INFINITY, f64::min);
        Shortfall {
            constraint: Constraint::Latency,
            place: application.name.clone(),
            asked: application.slo_ms,
            best: fastest,
            relax: None,
        }
    }

    /// The least total of a resource.
    fn relax_resource(&self, t: usize) -> Option<Shortfall> {
        let counts = self.solve(&self.program.least_use(t))?;
        self.resource_shortfall(t, self.program.used(&counts, t), LargerTotal::GivesPlan)
    }

    /// The least total of a resource if no other resource is limited. No single change helps, but this resource is too
    /// small.
    fn resource_without_others(&self, t: usize) -> Option<Shortfall> {
        let mut program = self.program.least_use(t);
        program.totals.fill(f64::INFINITY);
        let counts = self.solve(&program)?;
        self.resource_shortfall(t, self.program.used(&counts, t), LargerTotal::IsNotEnough)
    }

    /// The shortfall of a resource of which `needed` is used; `None` if its total is enough.
    fn resource_shortfall(&self, t: usize, needed: f64, larger: LargerTotal) -> Option<Shortfall> {
        let (name, &total) = self.problem.resources.iter().nth(t)?;
        let pointer = format!("/scaling/resources/{}", escape(name));
        (needed > total).then(|| Shortfall {
            constraint: Constraint::Capacity,
            place: name.clone(),
            asked: needed,
            best: total,
            relax: (larger == LargerTotal::GivesPlan).then_some(Relaxation { pointer, from: total, to: needed }),
        })
    }

    /// The largest load of an application: its largest capacity beside the others, less its slack. If the slack alone
    /// is larger, the slack is relaxed.
    fn relax_load(&self, i: usize) -> Option<Shortfall> {
        if self.limits.exceeded() || !self.is_feasible(&self.without_load(i)) {
            return None;
        }
        let answer = ilp::solve(self.program, IlpGoal::Capacity(i), &self.limits.with_share_of_time(TIME_SHARE), None);
        let counts = answer.counts.filter(|_| answer.ending == Ending::Optimal)?;
        let application = self.application(i);
        let capacity = self.program.covers[i].capacity(&counts[i]);
        let missing = application.needed_qps() - capacity;
        let (key, from) = match () {
            () if missing <= application.load_qps => ("load_qps", application.load_qps),
            () if missing <= application.slack_qps => ("slack_qps", application.slack_qps),
            () => return None,
        };
        let to = (from - missing).max(0.0);
        (missing > 0.0).then(|| Shortfall {
            constraint: Constraint::Load,
            place: application.name.clone(),
            asked: application.needed_qps(),
            best: capacity,
            relax: Some(Relaxation { pointer: format!("/scaling/applications/{i}/{key}"), from, to }),
        })
    }

    fn without_load(&self, i: usize) -> Program {
        let mut program = self.program.clone();
        program.covers[i].needed = 0.0;
        program
    }

    /// The least SLO of an application that gives a plan. It is the latency of one of its variants. A longer SLO lets more
    /// variants grow, so bisection over the latencies finds it.
    fn relax_slo(&self, i: usize) -> Option<Shortfall> {
        let application = self.application(i);
        let mut latencies: Vec<f64> =
            application.variants.iter().filter(|v| !application.may_grow(v)).map(|v| v.latency_ms).collect();
        latencies.sort_by(f64::total_cmp);
        let works = |slo_ms: f64| self.is_feasible(&self.with_slo(i, slo_ms));
        if !works(*latencies.last()?) {
            return None;
        }
        let first = first_that_works(&latencies, works);
        let best = latencies[first];
        Some(Shortfall {
            constraint: Constraint::Latency,
            place: application.name.clone(),
            asked: application.slo_ms,
            best,
            relax: Some(Relaxation {
                pointer: format!("/scaling/applications/{i}/slo_ms"),
                from: application.slo_ms,
                to: best,
            }),
        })
    }

    fn with_slo(&self, i: usize, slo_ms: f64) -> Program {
        let mut problem = self.problem.clone();
        problem.applications[i].slo_ms = slo_ms;
        Program::new(&problem)
    }

    fn is_feasible(&self, program: &Program) -> bool {
        greedy::counts(program, self.limits).is_ok() || self.solve(program).is_some()
    }

    fn solve(&self, program: &Program) -> Option<ReplicaCounts> {
        if self.limits.exceeded() {
            return None;
        }
        let start = greedy::counts(program, self.limits).ok();
        match minimise(program, start.as_ref(), &self.limits.with_share_of_time(TIME_SHARE)) {
            MinimumResult::Found { counts, stopped: None, .. } => Some(counts),
            _ => None,
        }
    }
}

/// Position of the first value that works, where the last one does and all after the first do.
fn first_that_works(values: &[f64], works: impl Fn(f64) -> bool) -> usize {
    let (mut low, mut high) = (0, values.len() - 1);
    while low < high {
        let middle = low.midpoint(high);
        if works(values[middle]) { high = middle } else { low = middle + 1 }
    }
    low
}
