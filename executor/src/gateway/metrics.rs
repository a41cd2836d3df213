//! Which metrics does the agent have? They have base units, and the labels that comparable systems use.

use super::Gateway;
use super::ledger::BUCKETS_S;
use crate::agent::NodeView;
use crate::backend::Provider;
use crate::devices::DeviceStatus;
use crate::refused::ReachedLimit;
use crate::status::Control;
use apportion_node::node::HostedHeadroom;
use apportion_node::node::counts::{Batches, Labels, RATIO_BOUNDS, RatioCounts};
use apportion_node::wire::ReplicaLoad;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;

/// The families of one scrape, in the order of the page.
#[derive(Debug, Default)]
struct Page(Vec<Family>);

/// A metric's name with its samples, one for each set of label values.
#[derive(Debug)]
struct Family {
    name: &'static str,
    kind: MetricType,
    help: &'static str,
    samples: Vec<(OwnedLabels, Value)>,
}

type OwnedLabels = Vec<(&'static str, String)>;

/// The value of a sample.
#[derive(Debug)]
enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Box<Histogram>),
}

/// A histogram: each bucket has its upper bound and its own count.
#[derive(Debug)]
struct Histogram {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl From<u64> for Value {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl Page {
    fn family(&mut self, name: &'static str, kind: MetricType, help: &'static str) {
        self.0.push(Family { name, kind, help, samples: Vec::new() });
    }

    /// Adds a sample to the last family.
    fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter().map(|(key, of)| (*key, (*of).to_owned())).collect();
        self.0.last_mut().expect("a family comes before its samples").samples.push((labels, value.into()));
    }

    /// The page as OpenMetrics text.
    fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        for Family { name, kind, help, samples } in &self.0 {
            // The encoder writes the suffix of counters.
            let base = name.strip_suffix("_total").unwrap_or(name);
            let mut metric = encoder.encode_descriptor(base, help, None, *kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    value.encode(*kind, &mut metric)?;
                } else {
                    value.encode(*kind, &mut metric.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, kind: MetricType, metric: &mut MetricEncoder) -> std::fmt::Result {
        match (self, kind) {
            (Self::Whole(n), MetricType::Counter) => metric.encode_counter::<NoLabelSet, _, u64>(n, None),
            (Self::Real(x), MetricType::Counter) => metric.encode_counter::<NoLabelSet, _, u64>(x, None),
            (Self::Whole(n), _) => metric.encode_gauge(n),
            (Self::Real(x), _) => metric.encode_gauge(x),
            (Self::Histogram(d), _) => metric.encode_histogram::<NoLabelSet>(d.sum, d.count, &d.buckets, None),
        }
    }
}

/// All metrics of this agent.
#[must_use]
pub fn text(gateway: &Gateway) -> String {
    let (view, mut page) = (gateway.view(), Page::default());
    let name = "apportion_agent_info";
    page.family(name, MetricType::Gauge, "How this agent runs batches; emulated: it plays profiles back and runs nothing.");
    let provider = view.provider.map_or("", Provider::name);
    let version = env!("CARGO_PKG_VERSION");
    page.sample(&[("backend", view.backend.name()), ("provider", provider), ("version", version)], 1_u64);
    control(&gateway.handle.status.control(), &mut page);
    devices(&gateway.handle.devices.read_all(), &mut page);
    requests(gateway, &view, &mut page);
    choices(&view, &mut page);
    batches(&view, &mut page);
    ratios(&view, &mut page);
    drops(&view, &mut page);
    queues(&view, &mut page);
    headrooms(&view.headrooms, &mut page);
    bounds(&mut page);
    page.text()
}

/// What the control plane says to this agent, which serves on whatever that is.
fn control(said: &Control, page: &mut Page) {
    let name = "apportion_control_attended";
    page.family(name, MetricType::Gauge, "1 while the control stream is up and the agent was welcome.");
    page.sample(&[], u64::from(said.is_attended));
    let name = "apportion_control_losses_total";
    page.family(name, MetricType::Counter, "Control streams that ended or were not to be had.");
    page.sample(&[], said.losses);
    let name = "apportion_control_refusals_total";
    page.family(name, MetricType::Counter, "Refusals of this agent by its control plane, by reason.");
    for (reason, count) in &said.refusals {
        page.sample(&[("reason", reason)], *count);
    }
}

/// What ran into a bound.
fn bounds(page: &mut Page) {
    let name = "apportion_bounds_refused_total";
    page.family(name, MetricType::Counter, "What clients and other agents were refused because of a bound, by bound.");
    for bound in ReachedLimit::ALL {
        page.sample(&[("bound", bound.name())], bound.counted());
    }
}

/// Of each device what is known of it, by the labels of Triton's metrics.
fn devices(seen: &[DeviceStatus], page: &mut Page) {
    type Read = fn(&DeviceStatus) -> Option<Value>;
    let families: [(&str, &str, Read); 3] = [
        ("apportion_device_memory_used_bytes", "Memory of the device in use, by anybody.", |s| {
            s.memory_used.map(Value::Whole)
        }),
        ("apportion_device_memory_total_bytes", "All memory of the device.", |s| s.memory_total.map(Value::Whole)),
        ("apportion_device_utilization_ratio", "Part of the last moment in which the device ran anything.", |s| {
            s.utilisation.map(Value::Real)
        }),
    ];
    for (name, help, read) in families {
        let known: Vec<_> = seen.iter().filter_map(|s| Some((s, read(s)?))).collect();
        if known.is_empty() {
            continue;
        }
        page.family(name, MetricType::Gauge, help);
        for (device, value) in known {
            page.sample(&[("device", &device.device.to_string()), ("gpu_uuid", &device.uuid)], value);
        }
    }
}

fn requests(gateway: &Gateway, view: &NodeView, page: &mut Page) {
    let name = "apportion_requests_total";
    page.family(name, MetricType::Counter, "Requests at this gateway that were taken, by how they ended.");
    for (pipeline, outcomes) in view.totals.iter() {
        for (outcome, count) in ["ok", "late", "dropped", "failed"].iter().zip(outcomes) {
            page.sample(&[("model_name", pipeline), ("outcome", outcome)], *count);
        }
    }
    let entries = gateway.ledger.entries();
    let name = "apportion_requests_refused_total";
    page.family(name, MetricType::Counter, "Requests at this gateway that got an error for an answer, by its reason.");
    for (pipeline, entry) in &entries {
        for (cause, count) in &entry.refused {
            page.sample(&[("model_name", pipeline), ("reason", cause.name())], *count);
        }
    }
    let name = "apportion_request_duration_seconds";
    page.family(name, MetricType::Histogram, "From arrival to answer of the requests that were served.");
    for (pipeline, entry) in entries.iter().filter(|(_, e)| e.served.count > 0) {
        let buckets = BUCKETS_S.into_iter().chain([f64::INFINITY]).zip(entry.durations).collect();
        let durations = Histogram { sum: entry.served.ns as f64 / 1e9, count: entry.served.count, buckets };
        page.sample(&[("model_name", pipeline)], Value::Histogram(Box::new(durations)));
    }
}

/// Choices of variants for requests that say what they need.
fn choices(view: &NodeView, page: &mut Page) {
    let name = "apportion_choices_total";
    let help = "Choices of variants for requests at this gateway that say what they need, by result.";
    page.family(name, MetricType::Counter, help);
    for (pipeline, c) in view.choices.iter() {
        let results = [("chosen", c.made), ("unloaded", c.unloaded), ("not_ready", c.not_ready), ("unmet", c.unmet)];
        for (result, count) in results {
            page.sample(&[("model_name", pipeline), ("result", result)], count);
        }
    }
    let name = "apportion_choice_regret_total";
    let help = "Price of a query on the chosen variants beyond that on the cheapest ones on offer that would do, summed.";
    page.family(name, MetricType::Counter, help);
    for (pipeline, c) in view.choices.iter() {
        page.sample(&[("model_name", pipeline)], c.regret_nano as f64 / 1e9);
    }
}

fn batches(view: &NodeView, page: &mut Page) {
    type Read = fn(&Batches) -> Value;
    let families: [(&str, &str, Read); 7] = [
        ("apportion_batches_failed_total", "Batches that failed.", |b| b.failed.into()),
        ("apportion_batch_queries_alone_total", "Queries that ran alone because their batch had failed.", |b| {
            b.alone.into()
        }),
        ("apportion_batches_total", "Batches that this agent's replicas began.", |b| b.batches.into()),
        ("apportion_batch_queries_total", "Queries in those batches.", |b| b.queries.into()),
        ("apportion_batch_seconds_total", "Time of the batches that ended.", |b| (b.busy_ns as f64 / 1e9).into()),
        ("apportion_batch_profile_seconds_total", "Time by the profile of the batches that ended well.", |b| {
            (b.ended_well.expected.beside_ns as f64 / 1e9).into()
        }),
        ("apportion_queue_seconds_total", "Time that the queries waited at their replicas.", |b| {
            (b.waited_ns as f64 / 1e9).into()
        }),
    ];
    for (name, help, read) in families {
        page.family(name, MetricType::Counter, help);
        for (l, counted) in view.batches.iter() {
            page.sample(&group(l), read(counted));
        }
    }
}

/// How the times of batches compare with the profile.
fn ratios(view: &NodeView, page: &mut Page) {
    let name = "apportion_batch_slowness_ratio";
    page.family(name, MetricType::Histogram, "Time of the batches that ended well over their time by the profile.");
    for (labels, counted) in view.batches.iter() {
        let RatioCounts { counts, sum_ppm } = counted.ratios;
        let buckets = RATIO_BOUNDS.into_iter().chain([f64::INFINITY]).zip(counts).collect();
        let histogram = Histogram { sum: sum_ppm as f64 / 1e6, count: counts.iter().sum(), buckets };
        page.sample(&group(labels), Value::Histogram(Box::new(histogram)));
    }
}

/// Queries that were shed at this agent's replicas, by reason.
fn drops(view: &NodeView, page: &mut Page) {
    let name = "apportion_queries_dropped_total";
    page.family(name, MetricType::Counter, "Queries that were dropped at this agent's replicas, by reason.");
    for (l, counted) in view.batches.iter() {
        for (reason, count) in &counted.drops {
            let [a, b, c, d] = group(l);
            page.sample(&[a, b, c, d, ("reason", reason)], *count);
        }
    }
}

fn group(l: &Labels) -> [(&'static str, &str); 4] {
    [("model_name", &l.pipeline), ("task_name", &l.task), ("variant_name", &l.variant), ("accelerator_type", &l.hardware)]
}

/// Each replica's queue, and how its batches compare with the profile.
fn queues(view: &NodeView, page: &mut Page) {
    type Read = fn(usize, &ReplicaLoad) -> Option<Value>;
    let families: [(&str, &str, Read); 3] = [
        ("apportion_replica_queries", "Queries that wait or run at each of this agent's replicas.", |n, _| {
            Some((n as u64).into())
        }),
        (
            "apportion_replica_slowness_ratio",
            "Time of its batches of the last second over what the profile says.",
            |_, load| (load.slowness_ppm > 0).then(|| Value::Real(f64::from(load.slowness_ppm) / 1e6)),
        ),
        (
            "apportion_replica_interfered",
            "1 if it has been slower than profiled for some seconds, though not overloaded.",
            |_, load| Some(u64::from(load.is_disturbed).into()),
        ),
    ];
    let labels: Vec<(String, Labels)> = view.queues.iter().map(|(id, _)| (id.to_string(), replica(view, *id))).collect();
    for (name, help, read) in families {
        page.family(name, MetricType::Gauge, help);
        for ((id, queries), (number, labels)) in view.queues.iter().zip(&labels) {
            let load = view.loads.get(id).copied().unwrap_or_default();
            let [a, b, c, d] = group(labels);
            if let Some(value) = read(*queries, &load) {
                page.sample(&[a, b, c, d, ("replica", number)], value);
            }
        }
    }
}

/// The headrooms of the ladders whose stewards this agent hosts.
fn headrooms(hosted: &BTreeMap<String, HostedHeadroom>, page: &mut Page) {
    type Read = fn(&HostedHeadroom) -> Value;
    let families: [(&str, &str, Read); 4] = [
        ("apportion_ladder_headroom", "Factor on the load whose replicas the ladder's steward wants.", |h| {
            h.headroom.into()
        }),
        ("apportion_ladder_leap_reserve", "Factor on the load, or on its long mean, that holds leaps of the load.", |h| {
            h.leap_reserve.into()
        }),
        ("apportion_ladder_budget_left_ratio", "Part of the permitted misses that is left to the ladder's steward.", |h| {
            h.budget_left_ratio.into()
        }),
        ("apportion_ladder_saturated", "1 while the headroom is at its maximum and more requests miss than may.", |h| {
            u64::from(h.is_saturated).into()
        }),
    ];
    for (name, help, read) in families {
        page.family(name, MetricType::Gauge, help);
        for (pipeline, headroom) in hosted {
            page.sample(&[("model_name", pipeline)], read(headroom));
        }
    }
}

/// What a replica is of. One that is retired is in no plan any more; it has no other label than its number.
fn replica(view: &NodeView, id: u64) -> Labels {
    let mut all = view.layout.pipelines.iter().flat_map(|(name, p)| p.replicas.iter().map(move |r| (name, p, r)));
    let Some((pipeline, p, replica)) = all.find(|(_, _, r)| r.id == id) else { return Labels::default() };
    let group = &p.groups[&replica.group];
    let (task, variant, hardware) = (p.tasks[group.task].name.clone(), group.variant.clone(), group.hardware.clone());
    Labels { pipeline: pipeline.clone(), task, variant, hardware }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_device_is_not_said() {
        let mut page = Page::default();
        devices(&[], &mut page);
        let known = DeviceStatus { device: 1, uuid: "GPU-1".into(), memory_used: Some(5), ..DeviceStatus::default() };
        devices(&[known, DeviceStatus::default()], &mut page);
        let text = page.text();
        let samples: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(samples, ["apportion_device_memory_used_bytes{device=\"1\",gpu_uuid=\"GPU-1\"} 5"]);
    }

    #[test]
    fn the_host_of_a_steward_shows_its_headroom() {
        let mut page = Page::default();
        let seen = HostedHeadroom { headroom: 1.25, leap_reserve: 1.5, budget_left_ratio: -0.5, is_saturated: true };
        headrooms(&[("p".to_owned(), seen)].into(), &mut page);
        let text = page.text();
        let samples: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let expected = [
            "apportion_ladder_headroom{model_name=\"p\"} 1.25",
            "apportion_ladder_leap_reserve{model_name=\"p\"} 1.5",
            "apportion_ladder_budget_left_ratio{model_name=\"p\"} -0.5",
            "apportion_ladder_saturated{model_name=\"p\"} 1",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn label_values_have_only_the_escapes_of_prometheus() {
        let mut page = Page::default();
        page.family("m_total", MetricType::Counter, "Help.");
        page.sample(&[("model_name", "a\"b\\c\nd\te\u{301}")], 2_u64);
        let sample = "m_total{model_name=\"a\\\"b\\\\c\\nd\te\u{301}\"} 2\n";
        assert_eq!(page.text(), format!("# HELP m Help.\n# TYPE m counter\n{sample}# EOF\n"));
    }

    #[test]
    fn histograms_have_cumulative_buckets() {
        let mut page = Page::default();
        page.family("d", MetricType::Histogram, "Help.");
        let buckets = vec![(0.5, 2), (1.0, 0), (f64::INFINITY, 1)];
        page.sample(&[("model_name", "p")], Value::Histogram(Box::new(Histogram { sum: 4.5, count: 3, buckets })));
        let text = page.text();
        let samples: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let expected = [
            "d_sum{model_name=\"p\"} 4.5",
            "d_count{model_name=\"p\"} 3",
            "d_bucket{le=\"0.5\",model_name=\"p\"} 2",
            "d_bucket{le=\"1.0\",model_name=\"p\"} 2",
            "d_bucket{le=\"+Inf\",model_name=\"p\"} 3",
        ];
        assert_eq!(samples, expected);
    }
}
