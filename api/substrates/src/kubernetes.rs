//! How are machines Pods of Kubernetes?
//!
//! Each machine is one Pod with one agent, and the Pod's name is the machine's. A Deployment would choose by itself which
//! Pod goes when there is one too many. But only a machine without replicas may go, so the service names the Pod.
//! Nothing brings a lost Pod back: the service asks for another machine. Kueue's queue takes such a Pod by its label.

mod pod;

use crate::agent::AgentAccess;
use crate::failure::SubstrateError;
use crate::machine::{MachineRequest, MachineState, ObservedMachine, ReleaseWay};
use crate::names::hardware_of;
use crate::settings::KubernetesMachines;
use apportion_kubernetes::{KubernetesClient, PodDeletion, PodIdentity, PodObservation, PodStage};
use pod::{fleet_selector, pod_request};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A Pod that has ended is kept for this long, for its log.
const KEEP_ENDED: Duration = Duration::from_secs(3_600);

/// Pods of one cluster.
pub(crate) struct KubernetesSubstrate {
    fleet: String,
    settings: KubernetesMachines,
    access: AgentAccess,
    cluster: KubernetesClient,
    /// Pods that have ended, by name: since when this process knows it.
    ended_since: Mutex<BTreeMap<String, Instant>>,
}

impl KubernetesSubstrate {
    pub(crate) fn new(fleet: &str, settings: KubernetesMachines, access: AgentAccess, cluster: KubernetesClient) -> Self {
        Self { fleet: fleet.to_owned(), settings, access, cluster, ended_since: Mutex::default() }
    }

    /// All machines, after those that ended long ago were deleted.
    pub(crate) async fn observe(&self) -> Result<Vec<ObservedMachine>, SubstrateError> {
        let pods = self.cluster.list_pods(&self.settings.namespace, &fleet_selector(&self.fleet)).await?;
        let pods: Vec<_> = pods.into_iter().filter(|pod| hardware_of(&self.fleet, &pod.name).is_some()).collect();
        self.delete_ended(&pods, Instant::now()).await;
        Ok(pods.into_iter().filter_map(|pod| observed(&self.fleet, pod)).collect())
    }

    /// Deletes the Pods that ended long ago. One that cannot be deleted is tried again at the next look.
    async fn delete_ended(&self, pods: &[PodObservation], now: Instant) {
        let old = {
            let mut since = self.ended_since.lock().await;
            ended_long_ago(&mut since, pods, now)
        };
        for pod in old {
            if let Err(error) = self.cluster.delete_pod(&self.identity(&pod.name, &pod.uid), PodDeletion::Graceful).await {
                tracing::warn!(machine = pod.name, %error, "a Pod that has ended could not be deleted");
            }
        }
    }

    fn identity(&self, name: &str, uid: &str) -> PodIdentity {
        PodIdentity { namespace: self.settings.namespace.clone(), name: name.to_owned(), uid: uid.to_owned() }
    }

    pub(crate) async fn start(&self, request: &MachineRequest) -> Result<String, SubstrateError> {
        let unknown = || SubstrateError::UnknownHardware { substrate: "kubernetes", hardware: request.hardware.clone() };
        let hardware = self.settings.hardware.get(&request.hardware).ok_or_else(unknown)?;
        let pod = pod_request(&self.fleet, &self.settings, hardware, &self.access, request);
        Ok(self.cluster.create_pod(&pod).await?)
    }

    /// The kubelet tells a running agent after the Pod's pause. A Pod without a node is gone at once.
    pub(crate) async fn release(&self, machine: &ObservedMachine, way: ReleaseWay) -> Result<(), SubstrateError> {
        let deletion = match way {
            ReleaseWay::Drain => PodDeletion::Graceful,
            ReleaseWay::Kill => PodDeletion::Immediate,
        };
        Ok(self.cluster.delete_pod(&self.identity(&machine.name, &machine.handle), deletion).await?)
    }
}

/// The machine of a Pod; `None` if the Pod belongs to another fleet. A Pod that was deleted has no time left, so a
/// successor is asked for while its agent still drains.
fn observed(fleet: &str, pod: PodObservation) -> Option<ObservedMachine> {
    let state = match pod.stage {
        PodStage::Unplaced => MachineState::Asked,
        PodStage::Starting => MachineState::Starting,
        PodStage::Running => MachineState::Running,
        PodStage::Deleted => MachineState::Ending,
        PodStage::Ended => MachineState::Lost,
    };
    let hardware = hardware_of(fleet, &pod.name)?.to_owned();
    let left = (pod.stage == PodStage::Deleted).then_some(Duration::ZERO);
    Some(ObservedMachine { name: pod.name, hardware, handle: pod.uid, state, left, limit: None, said: pod.said })
}

/// The Pods that have ended at least [`KEEP_ENDED`] ago, as far as `since` remembers. It notes those that end.
fn ended_long_ago<'a>(
    since: &mut BTreeMap<String, Instant>,
    pods: &'a [PodObservation],
    now: Instant,
) -> Vec<&'a PodObservation> {
    let ended: Vec<&PodObservation> = pods.iter().filter(|pod| pod.stage == PodStage::Ended).collect();
    since.retain(|name, _| ended.iter().any(|pod| pod.name == *name));
    let is_old = |pod: &&PodObservation| {
        let noted = *since.entry(pod.name.clone()).or_insert(now);
        now.saturating_duration_since(noted) >= KEEP_ENDED
    };
    ended.into_iter().filter(is_old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, stage: PodStage) -> PodObservation {
        PodObservation { name: name.into(), uid: format!("uid of {name}"), stage, said: "as said".into() }
    }

    #[test]
    fn a_pod_of_the_fleet_is_a_machine() {
        let row = |name: &str, stage: PodStage| {
            let machine = observed("app", pod(name, stage))?;
            let ObservedMachine { hardware, handle, state, left, said, .. } = machine;
            Some(format!("{hardware} {handle} {} {left:?} {said}", state.name()))
        };
        let cases = [
            (PodStage::Unplaced, "asked None"),
            (PodStage::Starting, "starting None"),
            (PodStage::Running, "running None"),
            (PodStage::Deleted, "ending Some(0ns)"),
            (PodStage::Ended, "lost None"),
        ];
        for (stage, state) in cases {
            assert_eq!(row("app.t4.0c", stage), Some(format!("t4 uid of app.t4.0c {state} as said")));
        }
        assert_eq!(row("app-2.t4.0c", PodStage::Running), None);
    }

    #[test]
    fn an_ended_pod_is_kept_for_an_hour() {
        let (mut since, begun) = (BTreeMap::new(), Instant::now());
        let pods = [pod("app.t4.01", PodStage::Ended), pod("app.t4.02", PodStage::Running)];
        let mut old = |pods: &[PodObservation], after: Duration| {
            let old = ended_long_ago(&mut since, pods, begun + after);
            old.into_iter().map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(old(&pods, Duration::ZERO), [""; 0]);
        assert_eq!(old(&pods, KEEP_ENDED - Duration::from_secs(1)), [""; 0]);
        assert_eq!(old(&pods, KEEP_ENDED), ["app.t4.01"]);
        assert_eq!(old(&pods[1..], KEEP_ENDED), [""; 0]);
        assert_eq!(old(&pods, KEEP_ENDED), [""; 0], "another one with its name is new");
    }
}
