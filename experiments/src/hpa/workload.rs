//! Which workload does each side scale, and how is it written for Kubernetes?

use serde::Serialize;
use serde_json::{Value, json};

/// The field manager under which the benchmark writes.
pub const BENCH_MANAGER: &str = "apportion-bench";
/// The namespace of the metrics' Service.
pub const METRICS_NAMESPACE: &str = "metrics";
/// Group and version of the external metrics API.
pub const METRICS_VERSION: &str = "external.metrics.k8s.io/v1beta1";
/// The beginning of a metric's name; the name of a task follows.
pub const METRIC_PREFIX: &str = "queries-per-second-of-";

/// Who scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingSide {
    /// Kubernetes' HorizontalPodAutoscaler.
    Autoscaler,
    /// Our service: advisor and actuator.
    Service,
}

impl ScalingSide {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Autoscaler, Self::Service];

    /// Its namespace, which has its workloads and nothing else.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::Autoscaler => "hpa",
            Self::Service => "apportion",
        }
    }

    /// The side with this namespace.
    pub fn in_namespace(namespace: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|side| side.namespace() == namespace)
    }
}

/// A Deployment of one side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BenchWorkload {
    /// Its side.
    pub side: ScalingSide,
    /// Its name: the variant of its group.
    pub name: String,
}

impl BenchWorkload {
    /// Its path in the API.
    pub fn path(&self) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/{}", self.side.namespace(), self.name)
    }

    /// The Deployment. Without `replicas`, nobody owns its replicas.
    pub fn deployment(&self, replicas: Option<u32>) -> Value {
        let labels = json!({"app": self.name});
        let container = json!({"name": "server", "image": "registry.example.com/server"});
        let mut spec = json!({
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        });
        if let Some(replicas) = replicas {
            spec["replicas"] = replicas.into();
        }
        let metadata = json!({"name": self.name, "namespace": self.side.namespace()});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    }
}

/// The settings of one HorizontalPodAutoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoscalerSettings {
    /// The Deployment.
    pub workload: String,
    /// The task: the metric counts its queries.
    pub task: String,
    /// `averageValue`, in thousandths of a query per second for each replica.
    pub target_milli: u64,
    /// `maxReplicas`.
    pub replicas_max: u32,
    /// `behavior.scaleDown.stabilizationWindowSeconds`.
    pub down_window_s: u32,
}

impl AutoscalerSettings {
    /// The autoscaler, in this version of its API. `behavior` is written out: without it, controllers use an older rule for
    /// growth, at most twice the replicas or 4. With it, what is absent has the documented defaults.
    pub fn object(&self, version: &str) -> Value {
        let target = json!({"type": "AverageValue", "averageValue": format!("{}m", self.target_milli)});
        let external = json!({"metric": {"name": format!("{METRIC_PREFIX}{}", self.task)}, "target": target});
        json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": self.workload, "namespace": ScalingSide::Autoscaler.namespace()},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.workload},
                "minReplicas": 1, "maxReplicas": self.replicas_max,
                "metrics": [{"type": "External", "external": external}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": self.down_window_s}},
            },
        })
    }
}

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The Service by which Kubernetes finds the metrics on this machine.
pub fn metrics_service(port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": METRICS_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    })
}

/// The registration of the metrics. The certificate is of the benchmark's own making, so it is not checked.
pub fn metrics_registration(port: u16) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {
            "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"name": "metrics", "namespace": METRICS_NAMESPACE, "port": port},
        },
    })
}
