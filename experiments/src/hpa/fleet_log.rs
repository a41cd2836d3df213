//! Which replicas did each side have, and when? Read from the watches of the Kubernetes API.

use super::workload::{BenchWorkload, ScalingSide};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The life of one Pod. Moments are from the start of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Its Deployment.
    pub workload: BenchWorkload,
    /// Its name.
    pub name: String,
    /// When the watch showed it first.
    pub created: Duration,
    /// When the watch showed that it is ready.
    pub ready: Option<Duration>,
    /// When the watch showed that it ends.
    pub gone: Option<Duration>,
}

impl PodRecord {
    /// Seconds between `from` and `until` in which it existed. A Pod that is not ready yet holds its device, too.
    pub fn seconds(&self, from: Duration, until: Duration) -> f64 {
        let end = self.gone.unwrap_or(until).min(until);
        end.saturating_sub(self.created.max(from)).as_secs_f64()
    }
}

/// The replicas that a Deployment's spec asks for, from this moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSetting {
    /// When the watch showed it.
    pub at: Duration,
    /// The Deployment.
    pub workload: BenchWorkload,
    /// `spec.replicas`.
    pub replicas: u32,
}

/// The log of both fleets.
#[derive(Clone, Debug, Default)]
pub struct FleetLog {
    /// All Pods, by their identifier.
    pub pods: BTreeMap<String, PodRecord>,
    /// First numbers and changes of the Deployments, in order.
    pub settings: Vec<ReplicaSetting>,
    /// Why a watch ended.
    pub failure: Option<String>,
}

/// The workload of an object: its namespace, and its name or label.
fn workload_of(object: &Value, name: &Value) -> Option<BenchWorkload> {
    let side = ScalingSide::in_namespace(object["metadata"]["namespace"].as_str()?)?;
    Some(BenchWorkload { side, name: name.as_str()?.to_owned() })
}

/// Whether the conditions of a Pod say that it is ready.
fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

impl FleetLog {
    /// Notes an event of the watch of Pods. Returns the Pod if it is new.
    pub fn note_pod(&mut self, kind: &str, pod: &Value, at: Duration) -> Option<PodRecord> {
        let workload = workload_of(pod, &pod["metadata"]["labels"]["app"])?;
        let uid = pod["metadata"]["uid"].as_str()?;
        let name = pod["metadata"]["name"].as_str()?.to_owned();
        let is_new = !self.pods.contains_key(uid);
        let new = || PodRecord { workload, name, created: at, ready: None, gone: None };
        let record = self.pods.entry(uid.to_owned()).or_insert_with(new);
        if kind == "DELETED" || !pod["metadata"]["deletionTimestamp"].is_null() {
            record.gone.get_or_insert(at);
        } else if is_ready(pod) {
            record.ready.get_or_insert(at);
        }
        is_new.then(|| record.clone())
    }

    /// Notes an event of the watch of Deployments.
    pub fn note_deployment(&mut self, deployment: &Value, at: Duration) {
        let Some(workload) = workload_of(deployment, &deployment["metadata"]["name"]) else { return };
        let asked = deployment["spec"]["replicas"].as_u64().and_then(|count| u32::try_from(count).ok());
        let Some(replicas) = asked else { return };
        if self.replicas_at(&workload, Duration::MAX) != Some(replicas) {
            self.settings.push(ReplicaSetting { at, workload, replicas });
        }
    }

    /// The replicas that a Deployment asked for at a moment; `None` before it was there.
    pub fn replicas_at(&self, workload: &BenchWorkload, at: Duration) -> Option<u32> {
        let mut of_workload = self.settings.iter().rev().filter(|setting| setting.workload == *workload);
        of_workload.find(|setting| setting.at <= at).map(|setting| setting.replicas)
    }

    /// The changes of a Deployment after its first number.
    pub fn changes(&self, workload: &BenchWorkload) -> impl Iterator<Item = &ReplicaSetting> {
        self.settings.iter().filter(move |setting| setting.workload == *workload).skip(1)
    }

    /// The Pods of a Deployment that are ready.
    pub fn ready(&self, workload: &BenchWorkload) -> u32 {
        let is_serving = |pod: &&PodRecord| pod.workload == *workload && pod.ready.is_some() && pod.gone.is_none();
        self.pods.values().filter(is_serving).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn find() -> BenchWorkload {
        BenchWorkload { side: ScalingSide::Autoscaler, name: "find-l".into() }
    }

    fn pod(uid: &str, status: &str) -> Value {
        let conditions = json!([{"type": "Ready", "status": status}]);
        json!({"metadata": {"uid": uid, "name": uid, "namespace": "hpa", "labels": {"app": "find-l"}},
            "status": {"conditions": conditions}})
    }

    #[test]
    fn a_pod_holds_its_device_from_creation_to_end() {
        let mut log = FleetLog::default();
        assert!(log.note_pod("ADDED", &pod("a", "False"), s(10)).is_some());
        assert!(log.note_pod("MODIFIED", &pod("a", "True"), s(15)).is_none());
        assert_eq!(log.ready(&find()), 1);
        log.note_pod("MODIFIED", &pod("a", "True"), s(20));
        log.note_pod("DELETED", &pod("a", "True"), s(40));
        let record = &log.pods["a"];
        assert_eq!((record.created, record.ready, record.gone), (s(10), Some(s(15)), Some(s(40))));
        assert_eq!(log.ready(&find()), 0);
        let of = |from, until| record.seconds(s(from), s(until));
        assert_eq!((of(0, 100), of(20, 30), of(50, 60), of(0, 5)), (30.0, 10.0, 0.0, 0.0));
    }

    #[test]
    fn pods_of_other_namespaces_are_not_recorded() {
        let mut log = FleetLog::default();
        let mut other = pod("a", "True");
        other["metadata"]["namespace"] = "kube-system".into();
        assert!(log.note_pod("ADDED", &other, s(1)).is_none() && log.pods.is_empty());
    }

    #[test]
    fn only_other_numbers_are_changes() {
        let mut log = FleetLog::default();
        let workload = find();
        for (at, replicas) in [(1, 3), (2, 3), (5, 6), (6, 6), (9, 2)] {
            log.note_deployment(&workload.deployment(Some(replicas)), s(at));
        }
        let changes: Vec<(Duration, u32)> = log.changes(&workload).map(|c| (c.at, c.replicas)).collect();
        assert_eq!(changes, [(s(5), 6), (s(9), 2)]);
        let at = |seconds| log.replicas_at(&workload, s(seconds));
        assert_eq!([at(0), at(1), at(4), at(5), at(8), at(100)], [None, Some(3), Some(3), Some(6), Some(6), Some(2)]);
    }
}
