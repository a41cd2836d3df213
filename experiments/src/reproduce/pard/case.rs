//! Which plans and loads do PARD's comparisons use, and how do policies fare on them?

use crate::reproduce::lab;
use crate::reproduce::lab::{Lab, PARD, Records, Seconds, bursts, load, replay, replay_foreseeing};
use apportion_domain::{Assignment, Dropping, Estimate, Plan, Problem};
use apportion_estimator::{ArrivalProcess, StatePlannerSettings, Workload};
use apportion_planning::Planner;
use apportion_support::exit::Failure;

/// The compared policies, the paper's first. There are two readings of nexus: `nexus` looks at the deadline of the request,
/// and `nexus-split` at the latency budget of the module, as section 5.1 says.
pub const POLICIES: [Dropping; 5] =
    [Dropping::Pard, Dropping::Nexus, Dropping::ClipperPlusPlus, Dropping::NexusSplit, Dropping::Naive];

/// The position of nexus with module budgets among [`POLICIES`].
pub const NEXUS_SPLIT: usize = 3;

/// The planned rate. Plans serve somewhat more, because replicas are whole.
pub const PLANNED_QPS: f64 = 300.0;

/// The seconds after an overloaded second that count as overloaded too: the length of the window over which PARD averages.
pub const DRAIN_SECONDS: usize = 5;

/// A load with a name.
pub struct BurstyTrace {
    pub name: String,
    pub rates: Vec<f64>,
}

/// Traces with rates that rise faster than a plan could follow.
pub fn traces(lab: &Lab) -> Result<Vec<BurstyTrace>, Failure> {
    let seconds = lab.full_or_quick(300, 12);
    let mut traces = vec![
        BurstyTrace { name: "bursts x1.5".into(), rates: bursts(seconds, 30.min(seconds / 2), 4, 1.5) },
        BurstyTrace { name: "bursts x2".into(), rates: bursts(seconds, 30.min(seconds / 2), 4, 2.0) },
        BurstyTrace { name: "bursts x4".into(), rates: bursts(seconds, 30.min(seconds / 2), 2, 4.0) },
    ];
    let files = [
        ("traces/ipa_window_bursty_1301160_1302360.csv", "qps", "twitter bursty"),
        ("traces/proteus_twitter_zipf_flat_bursty_300.csv", "qps", "twitter x zipf"),
        ("traces/anchor_ta300.csv", "qps", "twitter day in 300 s"),
    ];
    for (file, column, name) in files {
        if let Some(path) = lab.data_file(file) {
            traces.push(BurstyTrace { name: name.into(), rates: lab.rates(&path, Some(column), seconds)? });
        }
    }
    traces.truncate(lab.full_or_quick(usize::MAX, 1));
    Ok(traces)
}

/// Queries per second that each task of a plan serves with full batches.
pub fn capacities_qps(problem: &Problem, plan: &Plan) -> Vec<f64> {
    let pipeline = &problem.pipelines[0];
    let capacity_of_group = |a: &Assignment| -> f64 {
        let place = pipeline.task_named(&a.group.task).zip(problem.hardware_named(&a.group.hardware));
        let variant = place.and_then(|(t, h)| {
            let variant = pipeline.task(t).variants.iter().find(|v| v.name == a.group.variant)?;
            variant.profile.row(h, a.group.share, a.batch)
        });
        variant.map_or(0.0, |row| f64::from(a.replicas) * row.throughput_qps())
    };
    let assignments = &plan.pipelines[0].assignments;
    let task = |name: &str| -> f64 { assignments.iter().filter(|a| a.group.task == name).map(capacity_of_group).sum() };
    pipeline.tasks.iter().map(|t| task(&t.name)).collect()
}

/// A pipeline with its plan, and a load that exceeds the plan's capacity in a quarter of the seconds.
#[derive(Clone)]
pub struct OverloadCase {
    pub problem: Problem,
    pub plan: Plan,
    pub capacity_qps: f64,
    pub rates: Vec<f64>,
}

impl OverloadCase {
    pub fn workload(&self, seed: u64) -> Workload {
        load(&self.rates, ArrivalProcess::Poisson, seed)
    }
}

pub fn make_case(
    lab: &Lab,
    pipeline: usize,
    slo_ms: Option<f64>,
    trace: &BurstyTrace,
) -> Result<Option<OverloadCase>, Failure> {
    let Some((problem, plan)) = planned(lab, pipeline, slo_ms, PLANNED_QPS)? else { return Ok(None) };
    // every request visits every task once
    let capacity_qps = capacities_qps(&problem, &plan).into_iter().fold(f64::INFINITY, f64::min);
    let at = lab::rate_quantile(&trace.rates, PROVISIONED);
    let rates: Vec<f64> = trace.rates.iter().map(|r| r * capacity_qps / at).collect();
    Ok(Some(OverloadCase { problem, plan, capacity_qps, rates }))
}

/// One of the four pipelines, with a plan for a rate.
fn planned(lab: &Lab, pipeline: usize, slo_ms: Option<f64>, qps: f64) -> Result<Option<(Problem, Plan)>, Failure> {
    let all = PARD.problem()?;
    let problem = lab::with_pipeline(&all, pipeline, |d| {
        d.demand_qps = qps;
        d.slo_ms = slo_ms.unwrap_or(d.slo_ms);
    })?;
    Ok(lab.plan(&problem, Planner::Milp, None).map(|plan| (problem, plan)))
}

/// The result of one policy on one load.
pub struct PolicyResult {
    pub policy: Dropping,
    pub goodput: Option<f64>,
    pub estimate: Estimate,
}

/// Runs policies on one draw of a case's load. Results are in their order.
pub fn run_policies(case: &OverloadCase, policies: &[Dropping], seed: u64) -> Result<Vec<PolicyResult>, Failure> {
    let workload = case.workload(seed);
    let run_policy = |&policy: &Dropping| {
        let run = replay(&case.problem, &case.plan, &workload, policy, Records::Keep)?;
        let seconds = Seconds::of(&run.requests);
        let overloaded = seconds.overloaded(case.capacity_qps, DRAIN_SECONDS);
        Ok(PolicyResult { policy, goodput: seconds.goodput_qps(&overloaded), estimate: run.total })
    };
    policies.iter().map(run_policy).collect()
}

/// Runs PARD on one draw of a case's load, with these settings of its estimate.
pub fn run_with_foresight(
    case: &OverloadCase,
    foresight: StatePlannerSettings,
    seed: u64,
) -> Result<PolicyResult, Failure> {
    let run = replay_foreseeing(&case.problem, &case.plan, &case.workload(seed), foresight)?;
    let seconds = Seconds::of(&run.requests);
    let overloaded = seconds.overloaded(case.capacity_qps, DRAIN_SECONDS);
    Ok(PolicyResult { policy: Dropping::Pard, goodput: seconds.goodput_qps(&overloaded), estimate: run.total })
}

/// The seeds of the draws on which policies are compared in pairs. Plans are made on the seed before.
pub fn seeds(lab: &Lab) -> Vec<u64> {
    (0..lab.full_or_quick(5, 2)).map(|i| lab.held_out_seed().wrapping_add(i)).collect()
}

/// Goodput of `a` over that of `b`, where both are known.
pub fn ratio(a: &PolicyResult, b: &PolicyResult) -> Option<f64> {
    Some(a.goodput? / b.goodput.filter(|g| *g > 0.0)?)
}

/// The share of the seconds that stays below the plan's capacity. Bursts exceed it.
pub const PROVISIONED: f64 = 0.75;

/// The first six names.
pub fn first_names(cases: &[String]) -> String {
    const SHOWN_MAX: usize = 6;
    let shown = cases.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    if cases.len() > SHOWN_MAX { format!("{shown}, and {} more", cases.len() - SHOWN_MAX) } else { shown }
}
