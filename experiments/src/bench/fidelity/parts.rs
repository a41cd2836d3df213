//! Of what parts is the difference between a measured mean latency and its estimate?
//!
//! Example: clients saw 44 ms and the estimate has 40 ms. Queries waited 1 ms longer, batches took 2 ms longer than their
//! profile, and HTTP took .5 ms longer than before the loads. The rest of .5 ms is not measured.

use super::counts::{AgentSums, CountedSum};
use super::waits::ProcessorWaits;
use apportion_domain::{Pipeline, Profile, TaskIndex, lognormal_sigma};
use serde::Serialize;
use std::collections::BTreeMap;

/// What was measured before the first load.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredBefore {
    /// The time of a hop; `None` for a single agent.
    pub hop_ms: Option<f64>,
    /// The time of a request outside of its gateway.
    pub ingress_ms: f64,
    /// The time of a request in its agents, outside of queues, batches and hops.
    pub agent_ms: f64,
}

impl MeasuredBefore {
    /// Milliseconds that the estimator does not know: each request takes them more.
    pub fn added_ms(self) -> f64 {
        self.ingress_ms + self.agent_ms
    }
}

/// Means of one load.
#[derive(Clone, Debug)]
pub struct MeasuredMeans {
    /// Mean latency of the requests in ms, as clients saw it.
    pub mean_ms: f64,
    /// The part outside of the gateways.
    pub outside_ms: f64,
    /// What the agents counted.
    pub sums: AgentSums,
    /// The time of a hop, measured at the end of the load; `None` for a single agent.
    pub hop_ms: Option<f64>,
    /// How long threads waited for a processor.
    pub waits: ProcessorWaits,
}

/// The same from the estimator.
#[derive(Clone, Debug)]
pub struct EstimatedMeans {
    /// Mean latency of the requests in ms, with the times that single requests measured before the loads.
    pub mean_ms: f64,
    /// Their time outside of gateways.
    pub outside_ms: f64,
    /// Mean wait of a query in ms, by task.
    pub waits_ms: BTreeMap<String, f64>,
    /// The time of a hop.
    pub hop_ms: Option<f64>,
}

/// The difference of a load's mean latency, in ms, and its parts. Tasks count that are on the slowest path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyParts {
    /// Mean latency as clients saw it.
    pub measured_ms: f64,
    /// Mean latency by the estimator.
    pub estimated_ms: f64,
    /// The first minus the second: the sum of the parts.
    pub difference_ms: f64,
    /// HTTP, JSON and the clients, beyond the time that was measured before the loads.
    pub outside_ms: f64,
    /// Waits at replicas, beyond the estimator's.
    pub queues_ms: f64,
    /// Batches, beyond the mean of the times that the estimator draws.
    pub batches_ms: f64,
    /// Hops, beyond the time that was measured before the loads.
    pub hops_ms: f64,
    /// What is left, beyond the time in agents that was measured before the loads.
    pub rest_ms: f64,
    /// How long threads waited for a processor, for each request. It is within the parts above.
    pub waits: ProcessorWaits,
}

impl LatencyParts {
    /// Compares a load with its estimate.
    pub fn new(pipeline: &Pipeline, measured: &MeasuredMeans, estimated: &EstimatedMeans) -> Self {
        let of_task = |task: TaskIndex| measured.sums.of_task(&pipeline.task(task).name);
        let path = slowest_path(pipeline, |task| {
            let sums = of_task(task);
            sums.batches.mean() + sums.queries.mean()
        });
        let wait_ms = |task: &TaskIndex| {
            let expected_ms = estimated.waits_ms.get(&pipeline.task(*task).name).copied().unwrap_or(0.0);
            1e3 * of_task(*task).queries.mean() - expected_ms
        };
        let queues_ms = path.iter().map(wait_ms).sum::<f64>();
        let batches_ms = path.iter().map(|task| excess_ms(pipeline, *task, &measured.sums)).sum::<f64>();
        let hop_ms = measured.hop_ms.unwrap_or(0.0) - estimated.hop_ms.unwrap_or(0.0);
        let (hops_ms, outside_ms) = (path.len() as f64 * hop_ms, measured.outside_ms - estimated.outside_ms);
        let difference_ms = measured.mean_ms - estimated.mean_ms;
        Self {
            measured_ms: measured.mean_ms,
            estimated_ms: estimated.mean_ms,
            difference_ms,
            outside_ms,
            queues_ms,
            batches_ms,
            hops_ms,
            rest_ms: difference_ms - outside_ms - queues_ms - batches_ms - hops_ms,
            waits: measured.waits,
        }
    }
}

/// Milliseconds of a batch of a task beyond the mean of the times that the estimator draws for its size.
fn excess_ms(pipeline: &Pipeline, task: TaskIndex, sums: &AgentSums) -> f64 {
    let task = pipeline.task(task);
    let mut excess = CountedSum::default();
    for (of, sums) in sums.variants.iter().filter(|(of, _)| of.task == task.name) {
        let variant = task.variants.iter().find(|variant| variant.name == of.variant);
        let factor = variant.map_or(1.0, |variant| mean_over_median(&variant.profile, sums.mean_size()));
        excess.add(CountedSum { count: sums.batches.count, sum: sums.batches.sum - factor * sums.profile_s }, 1.0);
    }
    1e3 * excess.mean()
}

/// The mean of the times of a batch over their median. Times are lognormal, so the mean is above. The bench has one
/// hardware type, so a profile has one place.
fn mean_over_median(profile: &Profile, size: u32) -> f64 {
    let sigma = |(hardware, share)| {
        let (median, p99) = (profile.service(hardware, share, size)?, profile.service_p99(hardware, share, size)?);
        Some(lognormal_sigma(median, p99))
    };
    profile.places().next().and_then(sigma).map_or(1.0, |sigma| (sigma * sigma / 2.0).exp())
}

/// The tasks from the root to the task that ends last, by the times of single tasks.
fn slowest_path(pipeline: &Pipeline, time: impl Fn(TaskIndex) -> f64) -> Vec<TaskIndex> {
    let mut ends = vec![0.0; pipeline.tasks.len()];
    for &task in pipeline.order() {
        let before = pipeline.primary_parent(task).map_or(0.0, |edge| ends[edge.from.get()]);
        ends[task.get()] = before + time(task);
    }
    let last = pipeline.order().iter().copied().max_by(|a, b| ends[a.get()].total_cmp(&ends[b.get()]));
    let mut path: Vec<TaskIndex> =
        std::iter::successors(last, |task| pipeline.primary_parent(*task).map(|edge| edge.from)).collect();
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::super::counts::{BatchSums, CountedVariant};
    use super::*;
    use crate::demo::fixtures::digits;
    use apportion_domain::{HardwareIndex, ProfileRow, Share};

    fn sums(of: [(&str, f64, f64, f64); 2]) -> AgentSums {
        let variants = of.map(|(task, took_s, profile_s, waited_s)| {
            let batches = CountedSum { count: 10.0, sum: took_s };
            let queries = CountedSum { count: 20.0, sum: waited_s };
            let key = CountedVariant { task: task.to_owned(), variant: "v".to_owned() };
            (key, BatchSums { batches, queries, profile_s, ..BatchSums::default() })
        });
        AgentSums { variants: variants.into(), ..AgentSums::default() }
    }

    #[test]
    fn the_parts_sum_to_the_difference() {
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let pipeline = &problem.pipelines[0];
        let measured = MeasuredMeans {
            mean_ms: 50.0,
            outside_ms: 1.5,
            sums: sums([("find", 0.38, 0.36, 0.06), ("read", 0.05, 0.04, 0.04)]),
            hop_ms: Some(0.5),
            waits: ProcessorWaits { devices_ms: 0.25, ..ProcessorWaits::default() },
        };
        let waits_ms = [("find".to_owned(), 2.0), ("read".to_owned(), 1.5)].into();
        let estimated = EstimatedMeans { mean_ms: 42.0, outside_ms: 1.0, waits_ms, hop_ms: Some(0.25) };
        let parts = LatencyParts::new(pipeline, &measured, &estimated);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}: {expected}: {parts:?}");
        near(parts.difference_ms, 8.0);
        near(parts.outside_ms, 0.5);
        // Queries waited 3 and 2 ms.
        near(parts.queues_ms, 1.5);
        // Batches took 2 and 1 ms longer than their profile.
        near(parts.batches_ms, 3.0);
        near(parts.hops_ms, 0.5);
        near(parts.rest_ms, 2.5);
        near(parts.waits.devices_ms, 0.25);
    }

    #[test]
    fn batches_that_are_drawn_around_the_profile_exceed_nothing() {
        let (hardware, share) = (HardwareIndex(0), Share::WHOLE);
        // A standard deviation of the logarithm of .5: the mean is e^.125 times the median.
        let p99_ms = Some(10.0 * (0.5 * 2.326_347_874_f64).exp());
        let row = ProfileRow { p99_ms, ..ProfileRow::of_median(hardware, share, 1, 10.0) };
        let profile = Profile::new(vec![row]);
        assert!((mean_over_median(&profile, 1) - 0.125_f64.exp()).abs() < 1e-6);
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let name = problem.pipelines[0].tasks[0].variants[0].name.clone();
        let changed = problem.pipelines[0].changed(&problem.hardware, |draft| draft.tasks[0].variants[0].profile = profile);
        let batches = CountedSum { count: 10.0, sum: 0.1 * 0.125_f64.exp() };
        let queries = CountedSum { count: 10.0, sum: 0.0 };
        let of = BatchSums { batches, queries, profile_s: 0.1, ..BatchSums::default() };
        let variants = [(CountedVariant { task: "find".to_owned(), variant: name }, of)].into();
        let sums = AgentSums { variants, ..AgentSums::default() };
        assert!(excess_ms(&changed.expect("a valid pipeline"), TaskIndex(0), &sums).abs() < 1e-6);
    }

    #[test]
    fn the_slowest_path_ends_where_queries_end_last() {
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let path = slowest_path(&problem.pipelines[0], |_| 1.0);
        assert_eq!(path, [TaskIndex(0), TaskIndex(1)]);
    }
}
