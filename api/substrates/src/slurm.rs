//! How are machines jobs of Slurm?
//!
//! Each machine is one batch job with one agent. The job's name is the machine's, so the jobs are found again after a
//! restart of the service. Slurm is asked by the commands `sbatch`, `squeue` and `scancel` (`man sbatch`; read with Slurm
//! 22.05), or by slurmrestd.

mod command;
mod queue;
mod rest;
mod script;

use crate::agent::{AgentAccess, TOKEN_VARIABLE};
use crate::failure::SubstrateError;
use crate::machine::{MachineRequest, MachineState, ObservedMachine, ReleaseWay};
use crate::settings::SlurmSettings;
use command::SlurmCommand;
use queue::{QUEUE_FORMAT, read_queue};
use rest::{RestClient, read_jobs, submission};
use script::{EndSignal, job_options, job_script};
use std::time::{SystemTime, UNIX_EPOCH};

/// Jobs of Slurm.
pub(crate) struct SlurmSubstrate {
    fleet: String,
    settings: SlurmSettings,
    access: AgentAccess,
    /// `None`: commands are run.
    rest: Option<RestClient>,
}

impl SlurmSubstrate {
    pub(crate) fn new(fleet: &str, settings: SlurmSettings, access: AgentAccess) -> Self {
        let rest = settings.rest.clone().map(RestClient::new);
        Self { fleet: fleet.to_owned(), settings, access, rest }
    }

    fn command(&self, name: &'static str) -> SlurmCommand {
        SlurmCommand::new(name, self.settings.commands.as_deref())
    }

    pub(crate) async fn observe(&self) -> Result<Vec<ObservedMachine>, SubstrateError> {
        if let Some(rest) = &self.rest {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return read_jobs(&self.fleet, &rest.jobs().await?, now);
        }
        let format = format!("--format={QUEUE_FORMAT}");
        let text = self.command("squeue").run(&["--noheader", "--me", "--states=all", &format]).await?;
        read_queue(&self.fleet, &text)
    }

    pub(crate) async fn start(&self, request: &MachineRequest) -> Result<String, SubstrateError> {
        let unknown = || SubstrateError::UnknownHardware { substrate: "slurm", hardware: request.hardware.clone() };
        let hardware = self.settings.hardware.get(&request.hardware).ok_or_else(unknown)?;
        let hardware = &hardware.in_zone(request.zone.as_deref());
        if let Some(rest) = &self.rest {
            return rest.submit(&submission(&self.settings, hardware, &self.access, request)).await;
        }
        let options = job_options(&self.settings, hardware, request);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let script = job_script(&self.settings, hardware, &self.access, request, EndSignal::BySlurm);
        let sbatch = self.command("sbatch").variable(TOKEN_VARIABLE, &self.access.token).input(script);
        let text = sbatch.run(&options).await?;
        // With several clusters: JOB;CLUSTER.
        let number = text.trim().split(';').next().unwrap_or_default();
        let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        let wrong = || SubstrateError::Output { command: "sbatch", found: text.clone(), expected: "the number of a job" };
        is_number.then(|| number.to_owned()).ok_or_else(wrong)
    }

    /// A running agent is told by its script's trap: SIGTERM to the batch shell alone.
    pub(crate) async fn release(&self, machine: &ObservedMachine, way: ReleaseWay) -> Result<(), SubstrateError> {
        let drains = way == ReleaseWay::Drain && machine.state == MachineState::Running;
        let handle = machine.handle.as_str();
        if let Some(rest) = &self.rest {
            return rest.kill(handle, if drains { "TERM" } else { "KILL" }).await;
        }
        let arguments = if drains { vec!["--batch", "--signal=TERM", handle] } else { vec![handle] };
        self.command("scancel").run(&arguments).await.map(|_| ())
    }
}
