//! What does the estimator say of a load, as it is, and when it is told what was measured?

use super::clients::sum_of;
use super::counts::{AgentSums, CountedVariant};
use crate::live::figures::{Figures, RequestResult, longest_ms};
use crate::live::idle_start::{IdleStart, RUNS};
use anyhow::Result;
use apportion_domain::{ArrivalTrace, PipelineIndex, Plan, Problem, Profile};
use apportion_estimator::{ArrivalProcess, Arrivals, IngressSettings, Scenario, ServiceTimes, SimulateOptions, replay};
use std::collections::BTreeMap;
use std::time::Duration;

/// The problem with this time of a hop. A single agent has no hop. The time at the ingress is measured and added to each
/// request, so the file's does not count.
///
/// # Errors
/// If the time is invalid.
pub fn with_hop(problem: &Problem, index: PipelineIndex, hop_ms: Option<f64>) -> Result<Problem> {
    let pipeline = problem.pipeline(index).changed(&problem.hardware, |draft| {
        (draft.network_ms, draft.ingress_ms) = (hop_ms.unwrap_or(0.0), 0.0);
        if hop_ms.is_none() {
            draft.network_ms_per_mib = 0.0;
        }
    })?;
    Ok(problem.changed(|draft| draft.pipelines[index.get()] = pipeline)?)
}

/// One run of the estimator.
pub struct EstimatedRun {
    /// Its requests, without the time outside of gateways.
    results: Vec<RequestResult>,
    /// By task, the mean wait of a query in ms.
    pub waits_ms: BTreeMap<String, f64>,
}

impl EstimatedRun {
    /// Its figures if each request takes this much longer.
    fn figures(&self, later_ms: f64, slo_ms: f64) -> Figures {
        let later = |result: &RequestResult| {
            let took_ms = result.took_ms.map(|ms| (ms + later_ms).min(longest_ms(slo_ms)));
            RequestResult { in_time: result.in_time && took_ms.is_some_and(|ms| ms <= slo_ms), took_ms, ..*result }
        };
        Figures::of(&self.results.iter().map(later).collect::<Vec<_>>(), &[])
    }

    /// Mean latency in ms.
    pub fn mean_ms(&self) -> f64 {
        sum_of(self.results.iter().filter_map(|result| result.took_ms)).mean()
    }
}

/// The figures of runs whose requests take this much longer.
pub fn figures_of(runs: &[EstimatedRun], later_ms: f64, slo_ms: f64) -> Vec<Figures> {
    runs.iter().map(|run| run.figures(later_ms, slo_ms)).collect()
}

/// The plan in force, as the estimator replays it.
pub struct EstimatedPlan {
    /// The pipeline and the hardware.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// The pipeline.
    pub index: PipelineIndex,
    /// Ingresses that clients use in turn.
    pub ingresses: u32,
    /// The time without load at the start of each run.
    pub idle: Duration,
}

impl EstimatedPlan {
    /// Runs of the estimator. Batch times are drawn to match the profile's 99th percentiles. A steward runs, as on agents:
    /// it has been idle when the load begins, at some moment of its period.
    ///
    /// # Errors
    /// If the plan does not fit the problem.
    pub fn estimate_runs(&self, trace: &ArrivalTrace) -> Result<Vec<EstimatedRun>> {
        let options = SimulateOptions {
            service: ServiceTimes::P99Matched,
            ingresses: IngressSettings::in_turn(self.ingresses),
            requests: true,
            ..SimulateOptions::default()
        };
        let name = &self.problem.pipeline(self.index).name;
        let run = |seed: u64| -> Result<EstimatedRun> {
            let drawn = Arrivals::new(trace, ArrivalProcess::Poisson, seed, name);
            let arrivals: Vec<_> = drawn.map(|at| Duration::from_nanos(at.as_nanos())).collect();
            let begin = IdleStart::of_run(self.idle, seed);
            let workload = begin.workload(&self.problem, self.index, &arrivals)?;
            let scenario = Scenario { steward: true, gives_up: true, ..Scenario::default() };
            let simulation = replay(&self.problem, &self.plan, &workload, &options, scenario)?.simulation;
            let waiting = simulation.pipelines[self.index.get()].waiting.iter();
            let waits_ms = waiting.map(|of| (of.task.clone(), of.mean_ms)).collect();
            Ok(EstimatedRun { results: begin.results(&simulation, &self.problem, self.index), waits_ms })
        };
        (1..=RUNS).map(run).collect()
    }

    /// The same plan with batch times as agents measured them: the profile's, times the median and the 99th percentile of
    /// the measured ratios. Variants without batches keep the profile's.
    ///
    /// # Errors
    /// If a time is invalid.
    pub fn told(&self, sums: &AgentSums) -> Result<Self> {
        let pipeline = self.problem.pipeline(self.index).changed(&self.problem.hardware, |draft| {
            for task in &mut draft.tasks {
                for variant in &mut task.variants {
                    let key = CountedVariant { task: task.name.clone(), variant: variant.name.clone() };
                    let Some(ratio) = sums.variants.get(&key).and_then(|sums| sums.ratio()) else { continue };
                    let mut rows = variant.profile.rows().to_vec();
                    for row in &mut rows {
                        row.p99_ms = Some(row.latency_ms * ratio.p99);
                        row.latency_ms *= ratio.median;
                        row.by_shape.clear(); // the ratios are those of batches of all shapes
                    }
                    variant.profile = Profile::new(rows);
                }
            }
        })?;
        let problem = self.problem.changed(|draft| draft.pipelines[self.index.get()] = pipeline)?;
        Ok(Self { problem, plan: self.plan.clone(), ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures::{digits, plan_for};
    use crate::live::idle_start::LEAD;
    use crate::live::scrape::read_samples;

    fn estimated(ingresses: u32) -> EstimatedPlan {
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let plan = plan_for(&problem, 90.0);
        let index = problem.pipeline_named("digits").expect("it is there");
        EstimatedPlan { problem, plan, index, ingresses, idle: LEAD }
    }

    fn rates(qps: f64) -> ArrivalTrace {
        ArrivalTrace::rates((0..10).map(|second| (second, qps)).collect()).expect("rates")
    }

    fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
        sum_of(numbers).mean()
    }

    #[test]
    fn requests_count_from_the_beginning_of_their_load() {
        for run in estimated(1).estimate_runs(&rates(20.0)).expect("the plan fits") {
            assert!(!run.results.is_empty() && run.results.iter().all(|result| result.at < Duration::from_secs(10)));
        }
    }

    #[test]
    fn a_load_may_have_no_request() {
        let runs = estimated(1).estimate_runs(&rates(1e-9)).expect("the plan fits");
        assert!(runs.len() == RUNS as usize && runs.iter().all(|run| run.results.is_empty()));
    }

    #[test]
    fn several_ingresses_make_queries_wait_longer() {
        let wait_ms = |ingresses: u32| {
            let runs = estimated(ingresses).estimate_runs(&rates(60.0)).expect("the plan fits");
            assert_eq!(runs.len(), RUNS as usize);
            mean(runs.iter().map(|run| run.waits_ms["find"]))
        };
        let (one, three) = (wait_ms(1), wait_ms(3));
        assert!(one < three, "{one} ms and {three} ms");
    }

    #[test]
    fn told_times_take_the_place_of_the_profiles() {
        let batches = "{model_name=\"digits\",task_name=\"find\",variant_name=\"find-0\"";
        let page = format!(
            "apportion_batch_slowness_ratio_bucket{batches},le=\"1.0\"}} 0\n\
             apportion_batch_slowness_ratio_bucket{batches},le=\"2.0\"}} 100\n"
        );
        let sums = AgentSums::of(&read_samples(&page).expect("a page"), "digits");
        let plain = estimated(1);
        let told = plain.told(&sums).expect("valid times");
        let row = |of: &EstimatedPlan, variant: &str| {
            let pipeline = of.problem.pipeline(of.index);
            let variants = pipeline.tasks.iter().flat_map(|task| &task.variants);
            let mut found = variants.filter(|v| v.name == variant).map(|v| v.profile.rows()[0].clone());
            found.next().expect("it has a profile")
        };
        let (was, is) = (row(&plain, "find-0"), row(&told, "find-0"));
        assert!((is.latency_ms / was.latency_ms - 1.5).abs() < 1e-9, "{was:?}, {is:?}");
        assert!((is.p99_ms.expect("measured") / was.latency_ms - 1.99).abs() < 1e-9, "{is:?}");
        assert_eq!(row(&plain, "read-0"), row(&told, "read-0"), "nothing was measured");
    }

    #[test]
    fn time_outside_of_gateways_is_part_of_latency() {
        let result = |took_ms| RequestResult { at: Duration::ZERO, in_time: true, took_ms };
        let results = vec![result(Some(10.0)), result(Some(399.5)), result(None)];
        let run = EstimatedRun { results, waits_ms: BTreeMap::new() };
        let [plain, later] = [0.0, 1.0].map(|ms| run.figures(ms, 400.0));
        assert_eq!((plain.attainment, later.attainment), (2.0 / 3.0, 1.0 / 3.0));
        assert_eq!((plain.p50_ms, later.p50_ms, later.p99_ms), (10.0, 11.0, 400.5));
    }
}
