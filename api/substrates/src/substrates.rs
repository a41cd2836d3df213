//! Which substrate has a hardware type, and what is it asked?

use crate::agent::AgentAccess;
use crate::failure::SubstrateError;
use crate::local::LocalSubstrate;
use crate::machine::{MachineRequest, ObservedMachine, ReleaseWay};
use crate::names::machine_name;
use crate::settings::SubstrateSettings;
use crate::slurm::SlurmSubstrate;
use std::path::Path;

/// A kind of substrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubstrateKind {
    /// Child processes of the service.
    Local,
    /// Jobs of Slurm.
    Slurm,
}

impl SubstrateKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Local, Self::Slurm];

    /// Its name in settings and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
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
}

impl Substrates {
    /// The substrates that the settings name. Child processes keep their files in `data_dir`.
    #[must_use]
    pub fn new(settings: SubstrateSettings, access: &AgentAccess, data_dir: &Path) -> Self {
        let fleet = settings.fleet.clone();
        let local = settings.local.clone();
        let local = local.map(|local| LocalSubstrate::new(&fleet, local, access.clone(), data_dir.join("machines")));
        let slurm = settings.slurm.clone().map(|slurm| SlurmSubstrate::new(&fleet, slurm, access.clone()));
        Self { settings, local, slurm }
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
        local.into_iter().chain(slurm)
    }

    /// Devices of one machine of this type; `None` if the substrate does not have the type.
    #[must_use]
    pub fn devices_each(&self, kind: SubstrateKind, hardware: &str) -> Option<u32> {
        match kind {
            SubstrateKind::Local => Some(self.settings.local.as_ref()?.hardware.get(hardware)?.devices),
            SubstrateKind::Slurm => Some(self.settings.slurm.as_ref()?.hardware.get(hardware)?.devices),
        }
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
        match (kind, &self.local, &self.slurm) {
            (SubstrateKind::Local, Some(local), _) => local.observe().await,
            (SubstrateKind::Slurm, _, Some(slurm)) => slurm.observe().await,
            _ => Err(SubstrateError::UnknownSubstrate(kind.name())),
        }
    }

    /// Asks for a machine; returns the substrate's name for it.
    ///
    /// # Errors
    /// If the substrate refuses. After [`SubstrateError::Late`] the machine may come nevertheless.
    pub async fn start(&self, kind: SubstrateKind, request: &MachineRequest) -> Result<String, SubstrateError> {
        match (kind, &self.local, &self.slurm) {
            (SubstrateKind::Local, Some(local), _) => local.start(request).await,
            (SubstrateKind::Slurm, _, Some(slurm)) => slurm.start(request).await,
            _ => Err(SubstrateError::UnknownSubstrate(kind.name())),
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
        match (kind, &self.local, &self.slurm) {
            (SubstrateKind::Local, Some(local), _) => local.release(machine, way).await,
            (SubstrateKind::Slurm, _, Some(slurm)) => slurm.release(machine, way).await,
            _ => Err(SubstrateError::UnknownSubstrate(kind.name())),
        }
    }
}
