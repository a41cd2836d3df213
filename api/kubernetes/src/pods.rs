//! How does the service run Pods of its own, and how far is each?
//!
//! Example: [`KubernetesClient::create_pod`] asks for a Pod. [`KubernetesClient::list_pods`] shows it as
//! [`PodStage::Unplaced`] until a node has room. [`KubernetesClient::delete_pod`] lets it end in order.

#[cfg(test)]
mod tests;

use crate::cluster::{KubernetesClient, within};
use crate::failure::{Asked, KubernetesError};
use crate::workload::FIELD_MANAGER;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most Pods of one list.
pub const PODS_MAX: usize = 10_000;
/// Most Pods of one answer of the API. A list has several answers.
const PAGE_PODS_MAX: u32 = 500;
/// Most characters of the words for a stage.
const SAID_CHARS_MAX: usize = 400;

/// How far a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStage {
    /// It has no node yet.
    Unplaced,
    /// It has a node, and its container does not run, or not at this moment.
    Starting,
    /// Its container runs.
    Running,
    /// It was deleted, and its container ends.
    Deleted,
    /// Its container has ended and does not start again.
    Ended,
}

/// A Pod as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObservation {
    /// Its name.
    pub name: String,
    /// `metadata.uid`: another Pod with the same name has another one.
    pub uid: String,
    /// Its stage.
    pub stage: PodStage,
    /// The API's words for the stage.
    pub said: String,
}

/// A Pod to create.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRequest {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its `spec`.
    pub spec: Value,
}

/// One Pod and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`.
    pub uid: String,
}

/// How a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodDeletion {
    /// Its container is told, and has `terminationGracePeriodSeconds`.
    Graceful,
    /// The API forgets it now, though its node may not have answered.
    Immediate,
}

impl KubernetesClient {
    fn pods(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), namespace, &pod_resource())
    }

    /// The Pods of a namespace that a selector of labels (`key=value,key=value`) selects, in the order of the API.
    ///
    /// # Errors
    /// If the API does not give the whole list, or if it has more than [`PODS_MAX`] Pods.
    pub async fn list_pods(&self, namespace: &str, selector: &str) -> Result<Vec<PodObservation>, KubernetesError> {
        let pods = within(self.read_pages(namespace, selector)).await;
        let pods = pods.map_err(|error| asked("list", namespace).failed(error))?;
        match pods.len() > PODS_MAX {
            true => Err(KubernetesError::TooManyPods { namespace: namespace.to_owned(), max: PODS_MAX }),
            false => Ok(pods),
        }
    }

    async fn read_pages(&self, namespace: &str, selector: &str) -> Result<Vec<PodObservation>, kube::Error> {
        let api = self.pods(namespace);
        let mut parameters = ListParams::default().labels(selector).limit(PAGE_PODS_MAX);
        let mut pods = Vec::new();
        loop {
            let page = api.list(&parameters).await?;
            pods.extend(page.items.iter().map(PodObservation::read));
            match page.metadata.continue_.filter(|token| !token.is_empty() && pods.len() <= PODS_MAX) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(pods),
            }
        }
    }

    /// Creates a Pod, and returns its `metadata.uid`.
    ///
    /// # Errors
    /// If the API refuses. If it does not answer, the Pod may be there nevertheless.
    pub async fn create_pod(&self, request: &PodRequest) -> Result<String, KubernetesError> {
        let data = json!({"spec": request.spec});
        let mut pod = DynamicObject::new(&request.name, &pod_resource()).within(&request.namespace).data(data);
        pod.metadata.labels = Some(request.labels.clone());
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match within(self.pods(&request.namespace).create(&parameters, &pod)).await {
            Ok(created) => Ok(created.metadata.uid.unwrap_or_default()),
            Err(error) => Err(asked("create", &request.namespace).failed(error)),
        }
    }

    /// Deletes a Pod. One that is gone, or has given its name to another one, is deleted already.
    ///
    /// # Errors
    /// If the API refuses or does not answer.
    pub async fn delete_pod(&self, pod: &PodIdentity, deletion: PodDeletion) -> Result<(), KubernetesError> {
        let grace_period_seconds = match deletion {
            PodDeletion::Graceful => None,
            PodDeletion::Immediate => Some(0),
        };
        let preconditions = Some(Preconditions { uid: Some(pod.uid.clone()), ..Preconditions::default() });
        let parameters = DeleteParams { grace_period_seconds, preconditions, ..DeleteParams::default() };
        match within(self.pods(&pod.namespace).delete(&pod.name, &parameters)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(asked("delete", &pod.namespace).failed(error)),
        }
    }
}

fn pod_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

fn asked(verb: &'static str, namespace: &str) -> Asked {
    Asked { verb, resource: "pods".to_owned(), namespace: namespace.to_owned() }
}

impl PodObservation {
    /// Reads an object of the API.
    fn read(object: &DynamicObject) -> Self {
        let status = &object.data["status"];
        let phase = status["phase"].as_str().unwrap_or("Pending");
        let has_node = object.data["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let container = &status["containerStatuses"][0]["state"];
        let stage = match phase {
            "Succeeded" | "Failed" => PodStage::Ended,
            _ if object.metadata.deletion_timestamp.is_some() => PodStage::Deleted,
            "Pending" if !has_node => PodStage::Unplaced,
            "Pending" => PodStage::Starting,
            // A container that has ended starts again, after a pause.
            _ if container["waiting"].is_object() || container["terminated"].is_object() => PodStage::Starting,
            _ => PodStage::Running,
        };
        let why = match stage {
            PodStage::Unplaced => words(unscheduled(status)),
            PodStage::Starting | PodStage::Ended => [container_words(container), words(status)].concat(),
            PodStage::Running | PodStage::Deleted => Vec::new(),
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let deleted = if stage == PodStage::Deleted { " and was deleted" } else { "" };
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(": ")) };
        Self {
            said: format!("Pod {name} is {phase}{deleted}{why}").chars().take(SAID_CHARS_MAX).collect(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            name,
            stage,
        }
    }
}

/// The condition that says why a Pod has no node; null if the API does not say it.
fn unscheduled(status: &Value) -> &Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "PodScheduled").unwrap_or(&Value::Null)
}

/// Reason and message of a part of a status, where it has them.
fn words(part: &Value) -> Vec<String> {
    let texts = [&part["reason"], &part["message"]].into_iter().filter_map(Value::as_str);
    texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// The words for a container that waits or has ended.
fn container_words(state: &Value) -> Vec<String> {
    match state["terminated"]["exitCode"].as_i64() {
        Some(code) => [words(&state["terminated"]), vec![format!("exit status {code}")]].concat(),
        None => words(&state["waiting"]),
    }
}
