//! How are machines child processes of the service?
//!
//! Each machine has a folder with its name: the log of its agent, the agent's state, and the number of its process. Agents
//! serve on when the service ends; the next service finds them by these files. An agent that ends by itself starts again
//! after a pause, a few times in a row.

mod folder;
mod process;

use crate::agent::{AgentAccess, TOKEN_VARIABLE, arguments};
use crate::failure::SubstrateError;
use crate::machine::{MachineRequest, MachineState, ObservedMachine, ReleaseWay};
use crate::names::hardware_of;
use crate::settings::LocalSettings;
use folder::{MachineFolder, folders_in};
use process::{AgentProcess, ProcessSignal};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

/// Pause before the first restart. It doubles with each one.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a restart.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(60);
/// An agent that ran for longer has its restarts back.
const STEADY_AFTER: Duration = Duration::from_secs(600);
/// Exit statuses of an agent for which another start changes nothing: wrong flags, and refused by the service.
const HOPELESS: [i32; 2] = [2, 3];

/// An agent of this service, as this process remembers it.
struct LocalChild {
    /// Its process; `None` if another service process started it.
    child: Option<Child>,
    started_at: Instant,
    restarts: u32,
    /// The next start, while none runs.
    starts_at: Option<Instant>,
}

/// Child processes of the service.
pub(crate) struct LocalSubstrate {
    fleet: String,
    settings: LocalSettings,
    access: AgentAccess,
    folder: PathBuf,
    children: Mutex<BTreeMap<String, LocalChild>>,
}

impl LocalSubstrate {
    pub(crate) fn new(fleet: &str, settings: LocalSettings, access: AgentAccess, folder: PathBuf) -> Self {
        Self { fleet: fleet.to_owned(), settings, access, folder, children: Mutex::default() }
    }

    /// All machines, after those that are due have started again.
    pub(crate) async fn observe(&self) -> Result<Vec<ObservedMachine>, SubstrateError> {
        let mut children = self.children.lock().await;
        let mut machines = Vec::new();
        for folder in folders_in(&self.folder)? {
            let Some(hardware) = hardware_of(&self.fleet, folder.name()).map(str::to_owned) else { continue };
            let known = children.entry(folder.name().to_owned()).or_insert_with(|| LocalChild {
                child: None,
                started_at: Instant::now(),
                restarts: 0,
                starts_at: None,
            });
            let Some(look) = self.look(&folder, known, &hardware)? else { continue };
            machines.push(ObservedMachine {
                name: folder.name().to_owned(),
                hardware,
                handle: folder.name().to_owned(),
                state: look.state,
                left: None,
                limit: None,
                said: look.said,
            });
        }
        children.retain(|name, _| machines.iter().any(|machine| machine.name == *name));
        Ok(machines)
    }

    /// Looks at one machine; `None` once nothing is left of it.
    fn look(&self, folder: &MachineFolder, known: &mut LocalChild, hardware: &str) -> Result<Option<Look>, SubstrateError> {
        if let Some(why) = folder.ended()? {
            return Ok(folder.is_kept()?.then_some(Look { state: MachineState::Lost, said: why }));
        }
        // A child that has ended stays in the table of processes until it is waited for.
        let status = known.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        let process = folder.process()?.filter(AgentProcess::is_running).filter(|_| status.is_none());
        if let Some(process) = process {
            let state = if folder.is_ending()? { MachineState::Ending } else { MachineState::Running };
            return Ok(Some(Look { state, said: format!("process {} runs", process.number()) }));
        }
        if folder.is_ending()? {
            folder.remove()?;
            return Ok(None);
        }
        if let Some(at) = known.starts_at {
            if at > Instant::now() {
                return Ok(Some(Look { state: MachineState::Starting, said: "its agent starts again soon".to_owned() }));
            }
            known.starts_at = None;
            self.spawn(folder, known, hardware)?;
            return Ok(Some(Look { state: MachineState::Starting, said: "its agent starts again".to_owned() }));
        }
        let ended = status.map_or_else(|| "its agent has ended".to_owned(), |status| format!("its agent ended: {status}"));
        if known.started_at.elapsed() > STEADY_AFTER {
            known.restarts = 0;
        }
        let is_hopeless = status.and_then(|status| status.code()).is_some_and(|code| HOPELESS.contains(&code));
        if is_hopeless || known.restarts >= self.settings.restarts_max {
            folder.note_ended(&ended)?;
            return Ok(Some(Look { state: MachineState::Lost, said: ended }));
        }
        let pause = RESTART_PAUSE.saturating_mul(1 << known.restarts.min(16)).min(RESTART_PAUSE_MAX);
        known.restarts += 1;
        known.starts_at = Some(Instant::now() + pause);
        tracing::warn!(machine = folder.name(), ended, pause_s = pause.as_secs(), "an agent starts again");
        Ok(Some(Look { state: MachineState::Starting, said: ended }))
    }

    pub(crate) async fn start(&self, request: &MachineRequest) -> Result<String, SubstrateError> {
        let mut children = self.children.lock().await;
        let folder = MachineFolder::create(&self.folder, &request.name)?;
        let mut child = LocalChild { child: None, started_at: Instant::now(), restarts: 0, starts_at: None };
        if let Err(error) = self.spawn(&folder, &mut child, &request.hardware) {
            folder.remove()?;
            return Err(error);
        }
        children.insert(request.name.clone(), child);
        Ok(request.name.clone())
    }

    fn spawn(&self, folder: &MachineFolder, known: &mut LocalChild, hardware: &str) -> Result<(), SubstrateError> {
        let unknown = || SubstrateError::UnknownHardware { substrate: "local", hardware: hardware.to_owned() };
        let settings = self.settings.hardware.get(hardware).ok_or_else(unknown)?;
        let mut command = Command::new(&self.settings.agent);
        let request = MachineRequest { name: folder.name().to_owned(), hardware: hardware.to_owned(), zone: None };
        command.args(arguments(&self.access, &request, settings.devices));
        command.arg("--state-dir").arg(folder.state_dir());
        command.args(&self.settings.arguments).args(&settings.arguments).env(TOKEN_VARIABLE, &self.access.token);
        let log = folder.open_log()?;
        let errors = log.try_clone().map_err(folder.failed())?;
        // A Ctrl-C at the service's terminal is not for the agents: they serve on.
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let failed = |source| SubstrateError::Start { program: self.settings.agent.display().to_string(), source };
        let child = command.spawn().map_err(failed)?;
        if let Some(process) = child.id().and_then(AgentProcess::of) {
            folder.note_process(&process)?;
        }
        known.started_at = Instant::now();
        known.child = Some(child);
        Ok(())
    }

    pub(crate) async fn release(&self, machine: &ObservedMachine, way: ReleaseWay) -> Result<(), SubstrateError> {
        let _children = self.children.lock().await;
        let Some(folder) = MachineFolder::open(&self.folder, &machine.name) else { return Ok(()) };
        folder.note_ending()?;
        if let Some(process) = folder.process()?.filter(AgentProcess::is_running) {
            let signal = match way {
                ReleaseWay::Drain => ProcessSignal::Terminate,
                ReleaseWay::Kill => ProcessSignal::Kill,
            };
            process.tell(signal);
        }
        Ok(())
    }
}

/// The state of a machine, with the reason.
struct Look {
    state: MachineState,
    said: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LocalHardware;
    use std::os::unix::fs::PermissionsExt;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A substrate whose agents are this program of bash.
    fn substrate(folder: &tempfile::TempDir, program: &str) -> LocalSubstrate {
        let agent = folder.path().join("agent");
        std::fs::write(&agent, format!("#!/bin/bash\n{program}\n")).expect("written");
        std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("set");
        again(folder)
    }

    /// Another service process on the same folder.
    fn again(folder: &tempfile::TempDir) -> LocalSubstrate {
        let hardware = [("cpu".to_owned(), LocalHardware::default())].into();
        let agent = folder.path().join("agent");
        let settings = LocalSettings { agent, restarts_max: 1, hardware, ..LocalSettings::default() };
        let access = AgentAccess { join: "http://h:1".into(), token: "secret".into() };
        LocalSubstrate::new("app", settings, access, folder.path().join("machines"))
    }

    fn request() -> MachineRequest {
        MachineRequest { name: "app.cpu.01".into(), hardware: "cpu".into(), zone: None }
    }

    /// Waits until the only machine has this state; `None`: until there is none.
    async fn until(substrate: &LocalSubstrate, state: Option<MachineState>) -> Vec<ObservedMachine> {
        let begun = Instant::now();
        loop {
            let machines = substrate.observe().await.expect("observed");
            if machines.first().map(|machine| machine.state) == state {
                return machines;
            }
            assert!(begun.elapsed() < PATIENCE, "{state:?}: {machines:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn an_agent_drains_and_its_machine_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let local = substrate(
            &folder,
            "trap 'echo drained; exit 0' TERM\necho \"$* $APPORTION_TOKEN\"\nwhile [ -e \"$0\" ]; do sleep 0.1; done",
        );
        assert!(local.observe().await.expect("observed").is_empty());
        local.start(&request()).await.expect("started");
        let machines = until(&local, Some(MachineState::Running)).await;
        assert_eq!((machines[0].name.as_str(), machines[0].hardware.as_str()), ("app.cpu.01", "cpu"));
        let log = folder.path().join("machines/app.cpu.01/agent.log");
        let begun = Instant::now();
        while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("--name app.cpu.01") && text.contains("secret"))
        {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        local.release(&machines[0], ReleaseWay::Drain).await.expect("told");
        until(&local, None).await;
    }

    #[tokio::test]
    async fn another_service_process_finds_its_machines() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = substrate(&folder, "exec sleep 600");
        first.start(&request()).await.expect("started");
        until(&first, Some(MachineState::Running)).await;
        let second = again(&folder);
        let machines = until(&second, Some(MachineState::Running)).await;
        second.release(&machines[0], ReleaseWay::Kill).await.expect("told");
        // The first one is its parent still, and takes note of its end.
        until(&first, None).await;
        until(&second, None).await;
    }

    #[tokio::test]
    async fn an_agent_that_ends_starts_again_and_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let local = substrate(&folder, "echo begun; exit 1");
        local.start(&request()).await.expect("started");
        let machines = until(&local, Some(MachineState::Lost)).await;
        assert!(machines[0].said.contains("exit status: 1"), "{machines:?}");
        let log = std::fs::read_to_string(folder.path().join("machines/app.cpu.01/agent.log")).expect("a log");
        assert_eq!(log.lines().count(), 2, "it started twice: {log}");
    }

    #[tokio::test]
    async fn a_refused_agent_is_given_up_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let local = substrate(&folder, "echo begun; exit 3");
        local.start(&request()).await.expect("started");
        until(&local, Some(MachineState::Lost)).await;
        let log = std::fs::read_to_string(folder.path().join("machines/app.cpu.01/agent.log")).expect("a log");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}
