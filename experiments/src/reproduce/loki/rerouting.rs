//! When does Loki's rerouting (section 5.2) help? With a faster variant of the next task that has capacity to spare.

use crate::reproduce::lab::{
    BuiltIn, Lab, bursts_between, drop_rate, in_parallel, load, mean, replay_with_scenario, with_pipeline,
};
use crate::reproduce::report::{Claim, ClaimVerdict, TitledTable};
use anyhow::anyhow;
use apportion_domain::{
    Assignment, Dropping, GroupName, PipelinePlan, Plan, Problem, Profile, ProfileRow, ServingPolicy, Share,
};
use apportion_estimator::{ArrivalProcess, LateQueries, Scenario};
use apportion_serving::most_accurate_first;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, percent};

/// Two tasks. The second has two variants; the large one takes 80 ms for four queries.
const PROBLEM: &str = "
version: 1
objective: {mode: max_accuracy}
hardware: [{name: gpu, count: 40}]
pipelines:
  - name: chain
    demand_qps: 500
    slo_ms: 1000
    tasks:
      - {name: detect, variants: [{name: detect, accuracy: 1, profile: [
          {hardware: gpu, batch: 1, latency_ms: 7}, {hardware: gpu, batch: 2, latency_ms: 9}, {hardware: gpu, batch: 4, latency_ms: 13}]}]}
      - {name: describe, variants: [
          {name: large, accuracy: 1, profile: [
            {hardware: gpu, batch: 1, latency_ms: 50}, {hardware: gpu, batch: 2, latency_ms: 60}, {hardware: gpu, batch: 4, latency_ms: 80}]},
          {name: small, accuracy: 0.8, profile: [
            {hardware: gpu, batch: 1, latency_ms: 50}, {hardware: gpu, batch: 2, latency_ms: 60}, {hardware: gpu, batch: 4, latency_ms: 80}]}]}
    edges: [{from: detect, to: describe}]
";

const BATCH: u32 = 4;

/// Time of a full batch of the first task in ms, before it is changed.
const FIRST_MS: f64 = 13.0;
/// Time of a full batch of the second task's large variant, in ms.
const LARGE_MS: f64 = 80.0;

/// Factors on the time and on the replicas of the first task.
const FIRST: [u32; 2] = [1, 5];

/// Replicas of the first task, before that.
const FIRST_REPLICAS: u32 = 2;
/// Replicas of the second task's large variant.
const LARGE_REPLICAS: u32 = 10;
/// Replicas of the second task's small variant.
const SMALL_REPLICAS: u32 = 2;

/// Time of the small variant's batches over the large one's.
const SMALL: [f64; 3] = [0.5, 0.25, 0.1];

/// The loads.
const LOADS: [Bursts; 3] =
    [Bursts { calm: 0.5, burst: 1.1 }, Bursts { calm: 0.7, burst: 1.2 }, Bursts { calm: 0.9, burst: 1.0 }];

/// No dropping, last-task, per-task, rerouting.
const POLICIES: [Dropping; 4] = [Dropping::Naive, Dropping::LastTask, Dropping::PerTask, Dropping::Reroute];

/// A load with bursts, in parts of what the first task serves.
#[derive(Clone, Copy)]
struct Bursts {
    /// Between bursts.
    calm: f64,
    /// In bursts.
    burst: f64,
}

/// One plan made by hand, under one load.
#[derive(Clone, Copy)]
struct Case {
    first: u32,
    small: f64,
    load: Bursts,
}

/// The results of one case.
struct CaseRun {
    /// The missed shares, in the order of [`POLICIES`].
    missed: [f64; 4],
    /// The fates of late queries under the last policy.
    late: LateQueries,
}

impl Case {
    fn all() -> Vec<Self> {
        let cases_of =
            |first| SMALL.iter().flat_map(move |&small| LOADS.iter().map(move |&load| Self { first, small, load }));
        FIRST.into_iter().flat_map(cases_of).collect()
    }

    fn first_ms(self) -> f64 {
        FIRST_MS * f64::from(self.first)
    }

    /// The pipeline. Its SLO is the charge of planning for the two batches.
    fn problem(self) -> Result<Problem, Failure> {
        let scaled = |profile: &mut Profile, factor: f64| {
            let scaled = |r: &ProfileRow| ProfileRow { latency_ms: factor * r.latency_ms, ..r.clone() };
            *profile = Profile::new(profile.rows().iter().map(scaled).collect());
        };
        with_pipeline(&(BuiltIn { name: "rerouting", text: PROBLEM }).problem()?, 0, |d| {
            scaled(&mut d.tasks[0].variants[0].profile, f64::from(self.first));
            scaled(&mut d.tasks[1].variants[1].profile, self.small);
            d.slo_ms = d.queue_factor * (self.first_ms() + LARGE_MS);
        })
    }

    /// The plan: the large variant takes all queries of the demand, the small one is idle.
    fn plan(self, problem: &Problem) -> Result<Plan, Failure> {
        let assignment = |task: &str, variant: &str, replicas, traffic_share| Assignment {
            group: GroupName { task: task.into(), variant: variant.into(), hardware: "gpu".into(), share: Share::WHOLE },
            batch: BATCH,
            replicas,
            traffic_share,
            latency_budget_ms: 0.0,
            utilisation: 0.0,
        };
        let assignments = vec![
            assignment("detect", "detect", FIRST_REPLICAS * self.first, 1.0),
            assignment("describe", "large", LARGE_REPLICAS, 1.0),
            assignment("describe", "small", SMALL_REPLICAS, 0.0),
        ];
        let pipeline = &problem.pipelines[0];
        let routing = most_accurate_first(pipeline, &problem.hardware, &assignments, pipeline.demand_qps);
        let part = PipelinePlan {
            name: pipeline.name.clone(),
            demand_qps: pipeline.demand_qps,
            accuracy: 1.0,
            serving: ServingPolicy::default(),
            assignments,
            flows: vec![],
            routing: routing.map_err(|e| anyhow!("{e}"))?,
            ladder: vec![],
        };
        Ok(Plan { pipelines: vec![part], cost_per_hour: 0.0 })
    }

    /// Runs all policies.
    fn run(self, lab: &Lab) -> Result<CaseRun, Failure> {
        let problem = self.problem()?;
        let plan = self.plan(&problem)?;
        let capacity_qps = f64::from(BATCH * FIRST_REPLICAS) * 1e3 / FIRST_MS;
        let (calm, burst) = (self.load.calm * capacity_qps, self.load.burst * capacity_qps);
        let workload =
            load(&bursts_between(lab.full_or_quick(200, 20), calm, burst), ArrivalProcess::Poisson, lab.held_out_seed());
        let (mut missed, mut late) = ([0.0; 4], LateQueries::default());
        for (missed, policy) in missed.iter_mut().zip(POLICIES) {
            let run = replay_with_scenario(&problem, &plan, &workload, policy, Scenario::default())?;
            (*missed, late) = (drop_rate(&run.simulation.total), run.late);
        }
        Ok(CaseRun { missed, late })
    }
}

/// A share of some queries in percent.
pub fn percent_of(of: u64, all: u64) -> String {
    percent(of as f64 / all.max(1) as f64)
}

/// Compares the policies on hand-made plans, with the paper's claim.
pub fn compare_hand_made_plans(lab: &Lab) -> Result<(TitledTable, Claim), Failure> {
    let cases = Case::all();
    lab.show_step("loki-dropping: plans by hand");
    let runs = in_parallel(&cases, |case| case.run(lab))?;
    let header = ["first", "small", "load", "none", "last-task", "per-task", "rerouting", "behind", "beyond", "rerouted"];
    let mut table = TextTable::new(&header);
    for (case, CaseRun { missed, late }) in cases.iter().zip(&runs) {
        let name =
            [number(case.first_ms()), number(case.small * LARGE_MS), format!("{} / {}", case.load.calm, case.load.burst)];
        let shares = [percent_of(late.beyond, late.behind), percent_of(late.rerouted, late.behind)];
        let missed = missed.iter().map(|m| percent(*m));
        table.row(name.into_iter().chain(missed).chain([late.behind.to_string()]).chain(shares).collect());
    }
    Ok((TitledTable { title: "Plans made by hand (times in ms)".into(), table }, claim(&cases, &runs)))
}

fn claim(cases: &[Case], runs: &[CaseRun]) -> Claim {
    let runs_of = |first: u32, small: f64| -> Vec<&[f64; 4]> {
        let is_so = |case: &Case| case.first == first && case.small == small;
        cases.iter().zip(runs).filter(|(case, _)| is_so(case)).map(|(_, run)| &run.missed).collect()
    };
    let is_best = |missed: &&[f64; 4]| missed[..3].iter().all(|m| missed[3] <= *m);
    let line = |first: u32, small: f64| {
        let rows = runs_of(first, small);
        let mean = |p: usize| percent(mean(&rows.iter().map(|m| m[p]).collect::<Vec<_>>()));
        let best = rows.iter().copied().filter(|m| is_best(m)).count();
        let (first_ms, small_ms) = (FIRST_MS * f64::from(first), small * LARGE_MS);
        format!(
            "{first_ms:.0} ms, then {small_ms:.0} instead of {:.0}: {best} of {} ({} against {})",
            LARGE_MS,
            rows.len(),
            mean(3),
            mean(1)
        )
    };
    let lines: Vec<String> =
        FIRST.iter().flat_map(|&f| SMALL.iter().map(move |&s| (f, s))).map(|(f, s)| line(f, s)).collect();
    let is_reached = runs_of(FIRST[0], SMALL[2]).iter().all(is_best);
    Claim {
        claimed: "Rerouting misses least (section 6.3); here where the next task has a faster variant with all its \
                  capacity to spare, after a \
                  short first task"
            .into(),
        seen: format!(
            "least of the four, by the first task and the faster variant (its mean against last-task \
                       dropping's): {}",
            lines.join("; ")
        ),
        verdict: ClaimVerdict::of(is_reached),
        why: "The delay of a query must be less than the time that the faster batch saves. So the first task's batches \
              must be short beside the second's, and the small variant's too. No planner made such a plan here: it \
              would leave the small variant idle."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_variant_is_idle_without_rerouting() {
        let case = Case { first: 1, small: 0.1, load: LOADS[2] };
        let problem = case.problem().expect("a pipeline");
        let plan = case.plan(&problem).expect("a plan");
        let routing = &plan.pipelines[0].routing;
        assert!(routing.tables.iter().flat_map(|t| &t.entries).all(|e| e.to.variant != "small"), "{routing:?}");
        let spare: Vec<(&str, f64)> =
            routing.backup.iter().map(|b| (b.group.variant.as_str(), b.capacity_qps.round())).collect();
        assert_eq!(spare, [("detect", 115.0), ("small", 1000.0)]);
        assert!((problem.pipelines[0].slo_ms - 186.0).abs() < 1e-9);
        let lab = Lab::quick();
        let CaseRun { missed, late } = case.run(&lab).expect("a run");
        assert!(late.rerouted > 0 && late.rerouted + late.beyond <= late.behind, "{late:?}");
        assert!(missed[3] < missed[2], "{missed:?}");
    }
}
