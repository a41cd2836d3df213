//! How does the service get machines with agents, and give them back?
//!
//! Example: the fleet needs one more machine of `t4`. [`Substrates::start`] submits a job to Slurm whose script runs
//! `apportion-agent`. [`Substrates::observe`] shows the job: it waits, it runs, or it has ended. [`Substrates::release`]
//! lets the agent finish its work and ends the job.
//!
//! What belongs here: one seam for all substrates, their settings, child processes (`local`), jobs (`slurm`) and Pods
//! (`kubernetes`). What never does: how many machines there should be (the service's `decide::machines`), the database,
//! the API of Kubernetes (`api/kubernetes`). A substrate that does not answer is an error and never an empty list. The
//! commonest addition is a substrate: a module with `observe`, `start` and `release`, its settings, and its arms in
//! [`Substrates`].

mod agent;
mod checks;
mod failure;
mod kubernetes;
mod local;
mod machine;
mod names;
mod settings;
mod slurm;
mod substrates;

pub use agent::AgentAccess;
pub use checks::{DEVICES_EACH_MAX, RefusedSetting, ZONES_MAX};
pub use failure::SubstrateError;
pub use machine::{MachineRequest, MachineState, ObservedMachine, ReleaseWay};
pub use settings::{
    KubernetesHardware, KubernetesMachines, LocalHardware, LocalSettings, SlurmHardware, SlurmRest, SlurmSettings,
    SlurmZone, SubstrateSettings,
};
pub use substrates::{SubstrateKind, Substrates};
