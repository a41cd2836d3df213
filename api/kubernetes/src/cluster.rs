//! How does the service reach a cluster, and how does it read and scale one workload?

use crate::failure::{Asked, KubernetesError};
use crate::workload::{FIELD_MANAGER, WorkloadName, WorkloadState};
use kube::api::{Api, Patch, PatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicObject, Status};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// The manager by which API servers that do not track `/scale` (Kubernetes up to 1.21) mean everybody.
const UNTRACKED: &str = "before-first-apply";
/// Longest time of one answer. A watch has its own.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Longest time of a connection's start.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How the service reaches the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesAccess {
    /// By the service account of its own Pod.
    InCluster,
    /// By the current context of a kubeconfig.
    Kubeconfig(PathBuf),
}

/// A client of one cluster.
#[derive(Clone)]
pub struct KubernetesClient {
    client: kube::Client,
}

impl KubernetesClient {
    /// A client. It asks nothing yet.
    ///
    /// # Errors
    /// If the access cannot be used.
    pub async fn new(access: &KubernetesAccess) -> Result<Self, KubernetesError> {
        let place = match access {
            KubernetesAccess::InCluster => "the service account of this Pod".to_owned(),
            KubernetesAccess::Kubeconfig(path) => path.display().to_string(),
        };
        let wrong = |why: String| KubernetesError::Access { place: place.clone(), why };
        let mut config = match access {
            KubernetesAccess::InCluster => Config::incluster().map_err(|error| wrong(error.to_string()))?,
            KubernetesAccess::Kubeconfig(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| wrong(error.to_string()))?;
                let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
                config.map_err(|error| wrong(error.to_string()))?
            }
        };
        config.connect_timeout = Some(CONNECT_MAX);
        let client = kube::Client::try_from(config).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { client })
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    fn api(&self, workload: &WorkloadName) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &workload.namespace, &workload.kind.api())
    }

    /// Reads a workload.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub async fn read(&self, workload: &WorkloadName) -> Result<WorkloadState, KubernetesError> {
        let api = self.api(workload);
        match within(api.get_opt(&workload.name)).await {
            Ok(Some(object)) => Ok(WorkloadState::read(&object)),
            Ok(None) => Err(KubernetesError::NotFound(workload.clone())),
            Err(error) => Err(Asked::of("get", workload, "").failed(error)),
        }
    }

    /// Writes the replicas of a workload through `/scale`, if it is still as it was seen.
    ///
    /// The write is a server-side apply that never forces. API servers that do not track the owners of `/scale` answer that
    /// everybody owns it. For them `seen` says who owns the replicas, and the write names the version that was seen.
    ///
    /// # Errors
    /// If another field manager owns the replicas, if the workload has changed, or if the API refuses.
    pub async fn scale(&self, workload: &WorkloadName, seen: &WorkloadState, replicas: u32) -> Result<(), KubernetesError> {
        if let Some(owner) = seen.owners.iter().find(|owner| owner.manager != FIELD_MANAGER) {
            let said = format!("field manager {} owns it", owner.manager);
            return Err(KubernetesError::Owned { workload: workload.clone(), said });
        }
        let metadata = json!({"name": workload.name, "namespace": workload.namespace, "resourceVersion": seen.version});
        let scale = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}
        });
        let applied = self.patch(workload, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(&scale)).await;
        let refused = match applied {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let kube::Error::Api(status) = &refused else { return Err(failed(workload, refused)) };
        if !is_untracked(status) {
            return Err(failed(workload, refused));
        }
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.patch(workload, &parameters, &Patch::Merge(&scale)).await.map_err(|error| failed(workload, error))
    }

    async fn patch(
        &self,
        workload: &WorkloadName,
        parameters: &PatchParams,
        patch: &Patch<&serde_json::Value>,
    ) -> Result<(), kube::Error> {
        let api = self.api(workload);
        within(api.patch_scale(&workload.name, parameters, patch)).await.map(|_| ())
    }
}

/// An answer, or an error after [`ANSWER_MAX`].
pub(crate) async fn within<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = |_| kube::Error::Service(format!("no answer within {} s", ANSWER_MAX.as_secs()).into());
    tokio::time::timeout(ANSWER_MAX, answer).await.map_err(late)?
}

/// The field managers that a refusal names.
fn managers(status: &Status) -> impl Iterator<Item = &str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.filter(|cause| cause.reason == "FieldManagerConflict").map(|cause| cause.message.as_str())
}

/// Whether the refusal only names the manager of what is not tracked, or ourselves under another operation.
fn is_untracked(status: &Status) -> bool {
    let is_known = |said: &str| [UNTRACKED, FIELD_MANAGER].iter().any(|name| said.contains(&format!("\"{name}\"")));
    status.code == 409 && managers(status).count() > 0 && managers(status).all(is_known)
}

fn failed(workload: &WorkloadName, error: kube::Error) -> KubernetesError {
    match &error {
        kube::Error::Api(status) if status.code == 404 => KubernetesError::NotFound(workload.clone()),
        kube::Error::Api(status) if status.code == 409 => match managers(status).count() {
            0 => KubernetesError::Stale(workload.clone()),
            _ => KubernetesError::Owned { workload: workload.clone(), said: status.message.clone() },
        },
        _ => Asked::of("patch", workload, "/scale").failed(error),
    }
}
