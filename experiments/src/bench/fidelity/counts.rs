//! What did agents count while a load was played? Their metrics say it.

use crate::live::scrape::MetricSample;
use serde::Serialize;
use std::collections::BTreeMap;

/// Two numbers that go together: a sum, and how many were summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountedSum {
    /// How many.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
}

impl CountedSum {
    /// The mean; 0 of nothing.
    #[must_use]
    pub fn mean(self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }

    /// Adds `times` as many.
    pub fn add(&mut self, other: Self, times: f64) {
        self.count += times * other.count;
        self.sum += times * other.sum;
    }
}

/// A variant at its task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedVariant {
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
}

/// Batches of one variant. Sums are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSums {
    /// Batches and their time.
    pub batches: CountedSum,
    /// Their time by the profile, each at its own size.
    pub profile_s: f64,
    /// Queries and the time that they waited.
    pub queries: CountedSum,
    /// Cumulated batches by the upper bound of their time over the profile's.
    pub ratios: BTreeMap<String, f64>,
}

/// Times of batches over the profile's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredRatio {
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl BatchSums {
    /// Adds `times` the other sums.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.batches.add(other.batches, times);
        self.profile_s += times * other.profile_s;
        self.queries.add(other.queries, times);
        for (bound, count) in &other.ratios {
            *self.ratios.entry(bound.clone()).or_default() += times * count;
        }
    }

    /// Adds a sample of a metric, if it is of batches.
    fn add_sample(&mut self, sample: &MetricSample) {
        match sample.name.as_str() {
            "apportion_batches_total" => self.batches.count += sample.value,
            "apportion_batch_seconds_total" => self.batches.sum += sample.value,
            "apportion_batch_profile_seconds_total" => self.profile_s += sample.value,
            "apportion_batch_queries_total" => self.queries.count += sample.value,
            "apportion_queue_seconds_total" => self.queries.sum += sample.value,
            "apportion_batch_slowness_ratio_bucket" => {
                *self.ratios.entry(sample.label("le").to_owned()).or_default() += sample.value;
            }
            _ => {}
        }
    }

    /// Queries of a batch, on average.
    #[must_use]
    pub fn mean_size(&self) -> u32 {
        CountedSum { sum: self.queries.count, ..self.batches }.mean().round().max(1.0) as u32
    }

    /// Median and 99th percentile of the batches' times over the profile's; `None` without batches.
    #[must_use]
    pub fn ratio(&self) -> Option<MeasuredRatio> {
        let parsed = |(bound, count): (&String, &f64)| Some((bound.parse().ok()?, *count));
        let mut buckets: Vec<(f64, f64)> = self.ratios.iter().filter_map(parsed).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = percentile(&buckets, 0.5)?;
        Some(MeasuredRatio { median, p99: percentile(&buckets, 0.99)?.max(median) })
    }
}

/// A percentile of cumulated counts by upper bound, linear within a bucket. Beyond the last finite bound it is that bound.
fn percentile(buckets: &[(f64, f64)], part: f64) -> Option<f64> {
    let total = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
    let wanted = part * total;
    let at = buckets.iter().position(|(_, count)| *count >= wanted)?;
    let (from, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    let (to, count) = buckets[at];
    if to.is_infinite() {
        return Some(from);
    }
    Some(from + (to - from) * (wanted - below) / (count - below))
}

/// What all agents counted of one pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentSums {
    /// Served requests at the gateways, and the seconds from their arrival to their answer.
    pub served: CountedSum,
    /// By variant.
    pub variants: BTreeMap<CountedVariant, BatchSums>,
}

impl AgentSums {
    /// Of these samples.
    #[must_use]
    pub fn of(samples: &[MetricSample], pipeline: &str) -> Self {
        let mut sums = Self::default();
        for sample in samples.iter().filter(|sample| sample.label("model_name") == pipeline) {
            match sample.name.as_str() {
                "apportion_request_duration_seconds_count" => sums.served.count += sample.value,
                "apportion_request_duration_seconds_sum" => sums.served.sum += sample.value,
                _ => {}
            }
            let [task, variant] = ["task_name", "variant_name"].map(|label| sample.label(label).to_owned());
            if !variant.is_empty() {
                sums.variants.entry(CountedVariant { task, variant }).or_default().add_sample(sample);
            }
        }
        sums
    }

    /// Adds `times` the other sums: -1 takes an earlier reading off.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.served.add(other.served, times);
        for (variant, sums) in &other.variants {
            self.variants.entry(variant.clone()).or_default().add(sums, times);
        }
    }

    /// The batches of all variants of a task.
    #[must_use]
    pub fn of_task(&self, task: &str) -> BatchSums {
        let mut all = BatchSums::default();
        self.variants.iter().filter(|(of, _)| of.task == task).for_each(|(_, sums)| all.add(sums, 1.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::scrape::read_samples;

    /// Two variants of task `find` and one of `read`, with 10 requests that take 50 ms.
    const PAGE: &str = r#"
apportion_request_duration_seconds_sum{model_name="digits"} 0.5
apportion_request_duration_seconds_count{model_name="digits"} 10
apportion_request_duration_seconds_count{model_name="other"} 99
apportion_batches_total{model_name="digits",task_name="find",variant_name="find-l",accelerator_type="d"} 6
apportion_batch_seconds_total{model_name="digits",task_name="find",variant_name="find-l",accelerator_type="d"} 0.24
apportion_batch_profile_seconds_total{model_name="digits",task_name="find",variant_name="find-l",accelerator_type="d"} 0.21
apportion_batch_queries_total{model_name="digits",task_name="find",variant_name="find-l",accelerator_type="d"} 6
apportion_queue_seconds_total{model_name="digits",task_name="find",variant_name="find-l",accelerator_type="d"} 0.012
apportion_batches_total{model_name="digits",task_name="find",variant_name="find-m",accelerator_type="d"} 4
apportion_batch_queries_total{model_name="digits",task_name="find",variant_name="find-m",accelerator_type="d"} 4
apportion_batches_total{model_name="digits",task_name="read",variant_name="read-l",accelerator_type="d"} 10
apportion_batch_slowness_ratio_bucket{le="1.0",model_name="digits",task_name="read",variant_name="read-l"} 20
apportion_batch_slowness_ratio_bucket{le="1.5",model_name="digits",task_name="read",variant_name="read-l"} 60
apportion_batch_slowness_ratio_bucket{le="10.0",model_name="digits",task_name="read",variant_name="read-l"} 98
apportion_batch_slowness_ratio_bucket{le="+Inf",model_name="digits",task_name="read",variant_name="read-l"} 100
"#;

    fn sums() -> AgentSums {
        AgentSums::of(&read_samples(PAGE).expect("a page"), "digits")
    }

    #[test]
    fn counts_are_of_the_pipeline_and_its_variants() {
        let sums = sums();
        assert_eq!((sums.served, sums.served.mean()), (CountedSum { count: 10.0, sum: 0.5 }, 0.05));
        let find = sums.of_task("find");
        assert_eq!((find.batches.count, find.queries.count), (10.0, 10.0));
        assert!(find.mean_size() == 1 && (find.queries.mean() - 0.0012).abs() < 1e-9, "{find:?}");
        assert_eq!(sums.variants.len(), 3);
    }

    #[test]
    fn percentiles_of_ratios_are_linear_within_a_bucket() {
        let ratio = sums().of_task("read").ratio().expect("batches");
        // 50 of 100 lie three quarters of the way from the 20th to the 60th. The 99th is beyond the last finite bound.
        assert_eq!((ratio.median, ratio.p99), (1.375, 10.0));
        assert_eq!(sums().of_task("find").ratio(), None, "no buckets");
        assert_eq!(percentile(&[(1.0, 0.0)], 0.5), None);
    }

    #[test]
    fn an_earlier_reading_is_taken_off() {
        let (mut later, before) = (sums(), sums());
        later.add(&before, 1.0);
        later.add(&before, -1.0);
        assert_eq!(later, before);
    }
}
