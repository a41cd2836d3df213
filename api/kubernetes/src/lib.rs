//! What does the service read and write on Kubernetes?
//!
//! Example: a plan has three replicas of `find-l`, and the user's Deployment `serving/find-l` has one. [`next_turn`] says
//! "grow it to three"; [`KubernetesClient::scale`] patches its `/scale`; [`Watches`] show when three are ready. Agents of
//! our own are Pods: [`KubernetesClient::create_pod`] and its siblings.
//!
//! What belongs here: the decisions about one turn (`rollout`, pure), the client, the watches, and Pods. What never does:
//! plans, the database, which Pods there should be. Only this crate names `kube`. The commonest addition is a kind of
//! workload: a variant of [`WorkloadKind`].

mod cluster;
mod failure;
mod pods;
mod rollout;
mod watches;
mod workload;

pub use cluster::{KubernetesAccess, KubernetesClient};
pub use failure::KubernetesError;
pub use pods::{PODS_MAX, PodDeletion, PodIdentity, PodObservation, PodRequest, PodStage};
pub use rollout::{
    CATCH_UP, Obstacle, RolloutLimits, RolloutTurn, ScaleChange, ScaleReason, WorkloadGoal, WorkloadMemory, next_turn,
};
pub use watches::{NAMESPACES_MAX, Watches, WorkloadObservation};
pub use workload::{FIELD_MANAGER, ReplicasOwner, WorkloadKind, WorkloadName, WorkloadState};
