//! Which workload has how many replicas, and who decides about them?

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use std::fmt;

/// The name under which we write.
pub const FIELD_MANAGER: &str = "apportion";

/// A kind of workload with a `/scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Deployment, Self::StatefulSet];
    /// Their names.
    pub const NAMES: &[&str] = &["Deployment", "StatefulSet"];

    /// Its name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in URLs and Roles.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
        }
    }

    pub(crate) fn api(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", self.name()), self.resource())
    }
}

/// The name of a workload in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadName {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// A field manager that owns `spec.replicas` of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicasOwner {
    /// Its name, for example `kubectl-create`.
    pub manager: String,
    /// When it wrote last, as the API says it.
    pub since: String,
}

/// A workload as the API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadState {
    /// `spec.replicas`.
    pub replicas: u32,
    /// `status.readyReplicas`.
    pub ready_replicas: u32,
    /// Its controller has seen the newest spec.
    pub is_observed: bool,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// The field managers that own the replicas.
    pub owners: Vec<ReplicasOwner>,
    /// The HorizontalPodAutoscaler that targets it.
    pub autoscaler: Option<String>,
}

impl WorkloadState {
    /// Whether all replicas are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_observed && self.ready_replicas >= self.replicas
    }

    /// Reads an object of the API. What is absent there counts as the API counts it: one replica, none ready.
    pub(crate) fn read(object: &DynamicObject) -> Self {
        let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        let (spec, status) = (&object.data["spec"], &object.data["status"]);
        let observed = status["observedGeneration"].as_i64().unwrap_or_default();
        Self {
            replicas: count(&spec["replicas"]).unwrap_or(1),
            ready_replicas: count(&status["readyReplicas"]).unwrap_or_default(),
            is_observed: observed >= object.metadata.generation.unwrap_or_default(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            owners: owners(object),
            autoscaler: None,
        }
    }
}

fn owners(object: &DynamicObject) -> Vec<ReplicasOwner> {
    let entries = object.metadata.managed_fields.iter().flatten();
    let owning = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| !fields["f:spec"]["f:replicas"].is_null())
    });
    let owner = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| ReplicasOwner {
        manager: entry.manager.clone().unwrap_or_default(),
        since: entry.time.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
    };
    owning.map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_of_the_replicas_are_read_from_managed_fields() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "time": "2026-11-24T19:15:03Z", "fieldsV1": fields});
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "generation": 2, "resourceVersion": "226", "managedFields": [
                entry("kube-controller-manager", json!({"f:status": {"f:replicas": {}}})),
                entry("kubectl-create", json!({"f:spec": {"f:replicas": {}, "f:template": {}}})),
            ]},
            "spec": {"replicas": 7}, "status": {"observedGeneration": 2, "readyReplicas": 6},
        }))
        .expect("an object");
        let state = WorkloadState::read(&object);
        assert_eq!((state.replicas, state.ready_replicas, state.is_observed, state.is_ready()), (7, 6, true, false));
        assert_eq!(state.version, "226");
        let found: Vec<_> = state.owners.iter().map(|owner| (owner.manager.as_str(), owner.since.as_str())).collect();
        assert_eq!(found, [("kubectl-create", "2026-11-24T19:15:03Z")]);
    }

    #[test]
    fn kinds_are_read_from_their_names() {
        assert_eq!(WorkloadKind::ALL.map(|kind| WorkloadKind::parse(kind.name())), WorkloadKind::ALL.map(Some));
        assert_eq!(WorkloadKind::ALL.map(WorkloadKind::name), WorkloadKind::NAMES);
        assert_eq!(WorkloadKind::parse("DaemonSet"), None);
    }
}
