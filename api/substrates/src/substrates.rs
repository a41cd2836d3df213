//! Which substrate has a hardware type, and what is it asked?

use crate::agent::AgentAccess;
use crate::failure::SubstrateError;
use crate::kubernetes::KubernetesSubstrate;
use crate::local::LocalSubstrate;
use crate::machine::{MachineRequest, ObservedMachine, ReleaseWay};
use crate::names::machine_name;
use crate::settings::SubstrateSettings;
use crate::slurm::SlurmSubstrate;
use apportion_kubernetes::KubernetesClient;
use std::path::Path;

/// A kind of substrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubstrateKind {
    /// Child processes of the service.
    Local,
    /// Jobs of Slurm.
    Slurm,
    /// Pods of Kubernetes.
    Kubernetes,
}

impl SubstrateKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Local, Self::Slurm, Self::Kubernetes];

    /// Its name in settings and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The substrates of a service.
pub struct Substrates {
    settings: SubstrateSettings,
    local: Option<LocalSubstrate>,
    slurm: Option<SlurmSubstrate>,
    kubernetes: Option<KubernetesSubstrate>,
}

impl Substrates {
    /// The substrates that the settings name. Child processes keep their files in `data_dir`. Without a cluster there is no
    /// substrate `kubernetes`.
    #[must_use]
    pub fn new(
        settings: SubstrateSettings,
        access: &AgentAccess,
        data_dir: &Path,
        cluster: Option<KubernetesClient>,
    ) -> Self {
        let fleet = settings.fleet.clone();
        let local = settings.local.clone();
        let local = local.map(|local| LocalSubstrate::new(&fleet, local, access.clone(), data_dir.join("machines")));
        let slurm = settings.slurm.clone().map(|slurm| SlurmSubstrate::new(&fleet, slurm, access.clone()));
        let kubernetes = settings.kubernetes.clone().zip(cluster);
        let kubernetes = kubernetes.map(|(pods, cluster)| KubernetesSubstrate::new(&fleet, pods, access.clone(), cluster));
        Self { settings, local, slurm, kubernetes }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &SubstrateSettings {
        &self.settings
    }

    /// The kinds that the settings name.
    pub fn kinds(&self) -> impl Iterator<Item = SubstrateKind> {
        let local = self.local.is_some().then_some(SubstrateKind::Local);
        let slurm = self.slurm.is_some().then_some(SubstrateKind::Slurm);
        let kubernetes = self.kubernetes.is_some().then_some(SubstrateKind::Kubernetes);
        [local, slurm, kubernetes].into_iter().flatten()
    }

    fn local(&self) -> Result<&LocalSubstrate, SubstrateError> {
        self.local.as_ref().ok_or(SubstrateError::UnknownSubstrate(SubstrateKind::Local.name()))
    }

    fn slurm(&self) -> Result<&SlurmSubstrate, SubstrateError> {
        self.slurm.as_ref().ok_or(SubstrateError::UnknownSubstrate(SubstrateKind::Slurm.name()))
    }

    fn kubernetes(&self) -> Result<&KubernetesSubstrate, SubstrateError> {
        self.kubernetes.as_ref().ok_or(SubstrateError::UnknownSubstrate(SubstrateKind::Kubernetes.name()))
    }

    /// Devices of one machine of this type; `None` if the substrate does not have the type.
    #[must_use]
    pub fn devices_each(&self, kind: SubstrateKind, hardware: &str) -> Option<u32> {
        match kind {
            SubstrateKind::Local => Some(self.settings.local.as_ref()?.hardware.get(hardware)?.devices),
            SubstrateKind::Slurm => Some(self.settings.slurm.as_ref()?.hardware.get(hardware)?.devices),
            SubstrateKind::Kubernetes => Some(self.settings.kubernetes.as_ref()?.hardware.get(hardware)?.devices),
        }
    }

    /// The zones in which machines of this type can be asked for, by name; empty if the settings have none, and for child
    /// processes.
    #[must_use]
    pub fn zones(&self, kind: SubstrateKind, hardware: &str) -> Vec<String> {
        let of_slurm = || Some(self.settings.slurm.as_ref()?.hardware.get(hardware)?.zones.keys().cloned().collect());
        let of_kubernetes = || Some(self.settings.kubernetes.as_ref()?.hardware.get(hardware)?.zones.clone());
        let zones: Option<Vec<String>> = match kind {
            SubstrateKind::Local => None,
            SubstrateKind::Slurm => of_slurm(),
            SubstrateKind::Kubernetes => of_kubernetes(),
        };
        zones.unwrap_or_default()
    }

    /// The name of a new machine. `id` has hexadecimal digits that no other machine has.
    #[must_use]
    pub fn new_name(&self, hardware: &str, id: &str) -> String {
        machine_name(&self.settings.fleet, hardware, id)
    }

    /// The machines of this fleet. Those that have ended may be among them for a while.
    ///
    /// # Errors
    /// If the substrate does not answer, or not in the expected form. Then nothing is known of its machines.
    pub async fn observe(&self, kind: SubstrateKind) -> Result<Vec<ObservedMachine>, SubstrateError> {
        match kind {
            SubstrateKind::Local => self.local()?.observe().await,
            SubstrateKind::Slurm => self.slurm()?.observe().await,
            SubstrateKind::Kubernetes => self.kubernetes()?.observe().await,
        }
    }

    /// Asks for a machine; returns the substrate's name for it.
    ///
    /// # Errors
    /// If the substrate refuses or does not answer. In the second case the machine may come nevertheless.
    pub async fn start(&self, kind: SubstrateKind, request: &MachineRequest) -> Result<String, SubstrateError> {
        match kind {
            SubstrateKind::Local => self.local()?.start(request).await,
            SubstrateKind::Slurm => self.slurm()?.start(request).await,
            SubstrateKind::Kubernetes => self.kubernetes()?.start(request).await,
        }
    }

    /// Ends a machine, as it was observed.
    ///
    /// # Errors
    /// If the substrate does not do it.
    pub async fn release(
        &self,
        kind: SubstrateKind,
        machine: &ObservedMachine,
        way: ReleaseWay,
    ) -> Result<(), SubstrateError> {
        match kind {
            SubstrateKind::Local => self.local()?.release(machine, way).await,
            SubstrateKind::Slurm => self.slurm()?.release(machine, way).await,
            SubstrateKind::Kubernetes => self.kubernetes()?.release(machine, way).await,
        }
    }
}
