//! How do a user's own workloads on Kubernetes get the replicas of a plan?
//!
//! Example: a plan has three replicas of `find-l`, and the Deployment `serving/find-l` has one. [`next_turn`] says "grow it
//! to three"; [`KubernetesClient::scale`] patches its `/scale`; [`Watches`] show when three are ready.
//!
//! What belongs here: the decisions about one turn (`rollout`, pure), the client and the watches. What never does: plans,
//! the database. Only this crate names `kube`. The commonest addition is a kind of workload: a variant of [`WorkloadKind`].

mod cluster;
mod failure;
mod rollout;
mod watches;
mod workload;

pub use cluster::{KubernetesAccess, KubernetesClient};
pub use failure::KubernetesError;
pub use rollout::{
    CATCH_UP, Obstacle, RolloutLimits, RolloutTurn, ScaleChange, ScaleReason, WorkloadGoal, WorkloadMemory, next_turn,
};
pub use watches::{NAMESPACES_MAX, Watches, WorkloadObservation};
pub use workload::{FIELD_MANAGER, ReplicasOwner, WorkloadKind, WorkloadName, WorkloadState};
