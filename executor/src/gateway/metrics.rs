//! What does Prometheus read? Base units, and the labels that comparable systems use.

use super::Gateway;
use super::ledger::BUCKETS_S;
use crate::agent::View;
use crate::backend::Provider;
use crate::devices::Seen;
use crate::refused::Bound;
use crate::status::Control;
use apportion_node::node::counts::{Batches, Labels};
use apportion_node::wire::Load;
use std::fmt::Write;

/// Text in Prometheus' format, one family after the other.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> = labels.iter().map(|(key, v)| format!("{key}=\"{}\"", escape(v))).collect();
        writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")).expect("a string takes all");
    }
}

/// All metrics of this agent.
#[must_use]
pub fn text(gateway: &Gateway) -> String {
    let (view, mut page) = (gateway.view(), Page(String::new()));
    let name = "apportion_agent_info";
    page.family(name, "gauge", "How this agent runs batches; emulated: it plays profiles back and runs nothing.");
    let provider = view.provider.map_or("", Provider::name);
    let version = env!("CARGO_PKG_VERSION");
    page.sample(name, &[("backend", view.backend.name()), ("provider", provider), ("version", version)], 1);
    control(&gateway.handle.status.control(), &mut page);
    devices(&gateway.handle.devices.read_all(), &mut page);
    requests(gateway, &view, &mut page);
    batches(&view, &mut page);
    drops(&view, &mut page);
    queues(&view, &mut page);
    bounds(&mut page);
    page.0
}

/// What the control plane says to this agent, which serves on whatever that is.
fn control(said: &Control, page: &mut Page) {
    let name = "apportion_control_attended";
    page.family(name, "gauge", "1 while the control stream is up and the agent was welcome.");
    page.sample(name, &[], u8::from(said.is_attended));
    let name = "apportion_control_losses_total";
    page.family(name, "counter", "Control streams that ended or were not to be had.");
    page.sample(name, &[], said.losses);
    let name = "apportion_control_refusals_total";
    page.family(name, "counter", "Refusals of this agent by its control plane, by reason.");
    for (reason, count) in &said.refusals {
        page.sample(name, &[("reason", reason)], count);
    }
}

/// What ran into a bound.
fn bounds(page: &mut Page) {
    let name = "apportion_bounds_refused_total";
    page.family(name, "counter", "What clients and other agents were refused because of a bound, by bound.");
    for bound in Bound::ALL {
        page.sample(name, &[("bound", bound.name())], bound.counted());
    }
}

/// Of each device what is known of it, by the labels of Triton's metrics.
fn devices(seen: &[Seen], page: &mut Page) {
    type Read = fn(&Seen) -> Option<f64>;
    let families: [(&str, &str, Read); 3] = [
        ("apportion_device_memory_used_bytes", "Memory of the device in use, by anybody.", |s| {
            s.memory_used.map(|b| b as f64)
        }),
        ("apportion_device_memory_total_bytes", "All memory of the device.", |s| s.memory_total.map(|b| b as f64)),
        ("apportion_device_utilization_ratio", "Part of the last moment in which the device ran anything.", |s| {
            s.utilisation
        }),
    ];
    for (name, help, read) in families {
        let known: Vec<_> = seen.iter().filter_map(|s| Some((s, read(s)?))).collect();
        if known.is_empty() {
            continue;
        }
        page.family(name, "gauge", help);
        for (device, value) in known {
            page.sample(name, &[("device", &device.device.to_string()), ("gpu_uuid", &device.uuid)], value);
        }
    }
}

fn requests(gateway: &Gateway, view: &View, page: &mut Page) {
    let name = "apportion_requests_total";
    page.family(name, "counter", "Requests at this gateway that were taken, by how they ended.");
    for (pipeline, outcomes) in view.totals.iter() {
        for (outcome, count) in ["ok", "late", "dropped", "failed"].iter().zip(outcomes) {
            page.sample(name, &[("model_name", pipeline), ("outcome", outcome)], count);
        }
    }
    let entries = gateway.ledger.entries();
    let name = "apportion_requests_refused_total";
    page.family(name, "counter", "Requests at this gateway that got an error for an answer, by its reason.");
    for (pipeline, entry) in &entries {
        for (cause, count) in &entry.refused {
            page.sample(name, &[("model_name", pipeline), ("reason", cause.name())], count);
        }
    }
    let name = "apportion_request_duration_seconds";
    page.family(name, "histogram", "From arrival to answer of the requests that were served.");
    for (pipeline, entry) in entries.iter().filter(|(_, e)| e.served.count > 0) {
        let mut below = 0;
        let bounds = BUCKETS_S.iter().map(f64::to_string).chain(["+Inf".to_string()]);
        for (bound, count) in bounds.zip(entry.durations) {
            below += count;
            page.sample(&format!("{name}_bucket"), &[("model_name", pipeline), ("le", &bound)], below);
        }
        page.sample(&format!("{name}_sum"), &[("model_name", pipeline)], entry.served.ns as f64 / 1e9);
        page.sample(&format!("{name}_count"), &[("model_name", pipeline)], entry.served.count);
    }
}

fn batches(view: &View, page: &mut Page) {
    type Read = fn(&Batches) -> f64;
    let families: [(&str, &str, Read); 6] = [
        ("apportion_batches_failed_total", "Batches that failed.", |b| b.failed as f64),
        ("apportion_batch_queries_alone_total", "Queries that ran alone because their batch had failed.", |b| {
            b.alone as f64
        }),
        ("apportion_batches_total", "Batches that this agent's replicas began.", |b| b.batches as f64),
        ("apportion_batch_queries_total", "Queries in those batches.", |b| b.queries as f64),
        ("apportion_batch_seconds_total", "Time of the batches that ended.", |b| b.busy_ns as f64 / 1e9),
        ("apportion_queue_seconds_total", "Time that the queries waited at their replicas.", |b| b.waited_ns as f64 / 1e9),
    ];
    for (name, help, read) in families {
        page.family(name, "counter", help);
        for (l, counted) in view.batches.iter() {
            page.sample(name, &group(l), read(counted));
        }
    }
}

/// Queries that were shed at this agent's replicas, by reason.
fn drops(view: &View, page: &mut Page) {
    let name = "apportion_queries_dropped_total";
    page.family(name, "counter", "Queries that were dropped at this agent's replicas, by reason.");
    for (l, counted) in view.batches.iter() {
        for (reason, count) in &counted.drops {
            let [a, b, c, d] = group(l);
            page.sample(name, &[a, b, c, d, ("reason", reason)], count);
        }
    }
}

fn group(l: &Labels) -> [(&str, &str); 4] {
    [("model_name", &l.pipeline), ("task_name", &l.task), ("variant_name", &l.variant), ("accelerator_type", &l.hardware)]
}

/// Each replica's queue, and how its batches compare with the profile.
fn queues(view: &View, page: &mut Page) {
    type Read = fn(usize, &Load) -> Option<f64>;
    let families: [(&str, &str, Read); 3] = [
        ("apportion_replica_queries", "Queries that wait or run at each of this agent's replicas.", |n, _| Some(n as f64)),
        (
            "apportion_replica_slowness_ratio",
            "Time of its batches of the last second over what the profile says.",
            |_, load| (load.slowness_ppm > 0).then(|| f64::from(load.slowness_ppm) / 1e6),
        ),
        (
            "apportion_replica_interfered",
            "1 if it has been slower than profiled for some seconds, though not overloaded.",
            |_, load| Some(f64::from(u8::from(load.is_disturbed))),
        ),
    ];
    let labels: Vec<(String, Labels)> = view.queues.iter().map(|(id, _)| (id.to_string(), replica(view, *id))).collect();
    for (name, help, read) in families {
        page.family(name, "gauge", help);
        for ((id, queries), (number, labels)) in view.queues.iter().zip(&labels) {
            let load = view.loads.get(id).copied().unwrap_or_default();
            let [a, b, c, d] = group(labels);
            if let Some(value) = read(*queries, &load) {
                page.sample(name, &[a, b, c, d, ("replica", number)], value);
            }
        }
    }
}

/// What a replica is of. One that is retired is in no plan any more; it has no other label than its number.
fn replica(view: &View, id: u64) -> Labels {
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
        let mut page = Page(String::new());
        devices(&[], &mut page);
        assert_eq!(page.0, "");
        let known = Seen { device: 1, uuid: "GPU-1".into(), memory_used: Some(5), ..Seen::default() };
        devices(&[known, Seen::default()], &mut page);
        let samples: Vec<&str> = page.0.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(samples, ["apportion_device_memory_used_bytes{device=\"1\",gpu_uuid=\"GPU-1\"} 5"]);
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.sample("m", &[("model_name", "a\"b\\c\nd")], 2);
        assert_eq!(page.0, "m{model_name=\"a\\\"b\\\\c\\nd\"} 2\n");
    }
}
