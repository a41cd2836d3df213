//! Why has Kubernetes not done or said something?

use crate::workload::WorkloadName;
use kube::core::Status;
use std::sync::Arc;

/// Why Kubernetes has not done or said something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KubernetesError {
    /// The kubeconfig or the Pod's own access cannot be used.
    #[error("{place}: {why}")]
    Access {
        /// The file, or the folder of the service account.
        place: String,
        /// Why not.
        why: String,
    },
    /// The API does not answer.
    #[error("the Kubernetes API does not answer")]
    Unreachable(#[source] Arc<kube::Error>),
    /// A right is missing.
    #[error("RBAC forbids to {verb} {resource} in namespace {namespace}: expected a Role that grants it")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The resource, with its API group.
        resource: String,
        /// The namespace.
        namespace: String,
    },
    /// The workload does not exist.
    #[error("{0} does not exist")]
    NotFound(WorkloadName),
    /// Another field manager owns the replicas.
    #[error("{workload}: the API refuses to take spec.replicas from its owner: {said}")]
    Owned {
        /// The workload.
        workload: WorkloadName,
        /// The API's words, which name the owner.
        said: String,
    },
    /// The workload has changed since it was seen.
    #[error("{0} has changed meanwhile")]
    Stale(WorkloadName),
    /// The API refuses for another reason.
    #[error("the Kubernetes API refuses: {code} {said}")]
    Refused {
        /// The status.
        code: u16,
        /// Its words.
        said: String,
    },
    /// The list of a watch has not come yet.
    #[error("{resource} in namespace {namespace} are being listed")]
    NotListed {
        /// The resource, with its API group.
        resource: String,
        /// The namespace.
        namespace: String,
    },
    /// A list has too many Pods.
    #[error("Pods in namespace {namespace}: expected at most {max} of one fleet")]
    TooManyPods {
        /// The namespace.
        namespace: String,
        /// The most.
        max: usize,
    },
    /// There are too many namespaces.
    #[error("namespace {namespace}: expected at most {max} namespaces in all pipelines together")]
    TooManyNamespaces {
        /// The first one beyond.
        namespace: String,
        /// The most.
        max: usize,
    },
}

/// What was asked of the API.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) verb: &'static str,
    /// With its API group.
    pub(crate) resource: String,
    pub(crate) namespace: String,
}

impl Asked {
    pub(crate) fn of(verb: &'static str, workload: &WorkloadName, part: &str) -> Self {
        let resource = format!("{}.apps{part}", workload.kind.resource());
        Self { verb, resource, namespace: workload.namespace.clone() }
    }

    /// The error of an answer.
    pub(crate) fn failed(self, error: kube::Error) -> KubernetesError {
        match error {
            kube::Error::Api(status) => self.refused(&status),
            other => KubernetesError::Unreachable(Arc::new(other)),
        }
    }

    pub(crate) fn refused(self, status: &Status) -> KubernetesError {
        let Self { verb, resource, namespace } = self;
        match status.code {
            403 => KubernetesError::Forbidden { verb, resource, namespace },
            code => KubernetesError::Refused { code, said: status.message.clone() },
        }
    }
}
