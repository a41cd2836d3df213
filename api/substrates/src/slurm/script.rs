//! What is the script of a job, and which options does it have?

use crate::agent::{AgentAccess, TOKEN_VARIABLE, arguments};
use crate::machine::MachineRequest;
use crate::settings::{SlurmHardware, SlurmOption, SlurmSettings};

/// The options of `sbatch` for a machine.
///
/// With `--signal=B:TERM@60` the script gets SIGTERM 60 s before its time is over. With `--requeue` a preempted job, or one
/// whose node fails, waits for its turn again.
pub(super) fn job_options(settings: &SlurmSettings, hardware: &SlurmHardware, request: &MachineRequest) -> Vec<String> {
    let mut options = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", request.name),
        format!("--comment=Apportion, hardware type {}", request.hardware),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", hardware.cpus.unwrap_or(hardware.devices)),
        "--signal=B:TERM@60".to_owned(),
        "--requeue".to_owned(),
        "--open-mode=append".to_owned(),
        "--output=%x.log".to_owned(),
        "--export=ALL".to_owned(),
    ];
    options.extend(settings.directory.iter().map(|directory| format!("--chdir={directory}")));
    options.extend(hardware.options().map(|SlurmOption { name, value }| format!("--{name}={value}")));
    options
}

/// The script: the agent, and a trap that lets it leave the fleet.
pub(super) fn job_script(
    settings: &SlurmSettings,
    hardware: &SlurmHardware,
    access: &AgentAccess,
    request: &MachineRequest,
) -> String {
    let mut words = vec![settings.agent.clone()];
    words.extend(arguments(access, &request.name, &request.hardware, hardware.devices));
    for flag in ["--http", "--ingress-grpc", "--data"] {
        words.extend([flag.to_owned(), settings.listen.clone()]);
    }
    words.extend(settings.arguments.iter().chain(&hardware.arguments).cloned());
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let folder = settings.state_dir.as_deref().map_or_else(|| "\"$HOME\"/.apportion".to_owned(), shell_word);
    let (name, words) = (shell_word(&request.name), words.join(" "));
    format!(
        "#!/bin/bash\n\
         set -uo pipefail\n\
         : \"${{{TOKEN_VARIABLE}:?the job has lost the token of the agents}}\"\n\
         state={folder}/{name}\n\
         mkdir -p \"$state\"\n\
         agent=\n\
         # The time is almost over, or the service gives the machine back: the agent finishes its work.\n\
         leave() {{\n    [ -n \"$agent\" ] && kill -TERM \"$agent\" && wait \"$agent\"\n    rm -rf \"$state\"\n    exit 0\n}}\n\
         trap leave TERM\n\
         {words} --state-dir \"$state\" &\n\
         agent=$!\n\
         wait \"$agent\"\n"
    )
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/=,@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn request() -> MachineRequest {
        MachineRequest { name: "app.t4.0c9f".into(), hardware: "t4".into() }
    }

    #[test]
    fn options_have_the_words_of_the_hardware_type() {
        let hardware = SlurmHardware {
            devices: 2,
            gres: Some("gpu:t4:2".into()),
            constraint: Some("t4".into()),
            time: Some("04:00:00".into()),
            ..SlurmHardware::default()
        };
        let options = job_options(&SlurmSettings::default(), &hardware, &request());
        for expected in [
            "--job-name=app.t4.0c9f",
            "--cpus-per-task=2",
            "--gres=gpu:t4:2",
            "--constraint=t4",
            "--time=04:00:00",
            "--signal=B:TERM@60",
            "--requeue",
        ] {
            assert!(options.iter().any(|option| option == expected), "{expected}: {options:?}");
        }
        assert!(!options.iter().any(|option| option.starts_with("--partition")), "{options:?}");
    }

    /// Runs the script with a stand-in for the agent, which writes its arguments and what it was told.
    #[test]
    fn the_script_runs_the_agent_and_lets_it_leave() {
        let folder = tempfile::tempdir().expect("a folder");
        let (agent, state) = (folder.path().join("an agent"), folder.path().join("state"));
        let program = "#!/bin/bash\ntrap 'echo left >>\"$OUT\"; exit 0' TERM\necho \"$*\" >\"$OUT\"\n\
                       while :; do sleep 0.05; done\n";
        std::fs::write(&agent, program).expect("written");
        std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("set");
        let script = job_script(
            &SlurmSettings {
                agent: agent.display().to_string(),
                arguments: vec!["it's".into()],
                state_dir: Some(state.display().to_string()),
                ..SlurmSettings::default()
            },
            &SlurmHardware { devices: 2, ..SlurmHardware::default() },
            &AgentAccess { join: "http://h:7071".into(), token: "secret".into() },
            &request(),
        );
        assert!(!script.contains("secret"), "{script}");
        let out = folder.path().join("out");
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).env("OUT", &out).env(TOKEN_VARIABLE, "secret").stdin(Stdio::null());
        let mut child = shell.spawn().expect("bash");
        let begun = Instant::now();
        let said = |words: &str| std::fs::read_to_string(&out).is_ok_and(|text| text.contains(words));
        let wait_for = |words: &str| {
            while !said(words) {
                assert!(begun.elapsed() < Duration::from_secs(60), "no {words:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait_for("--join http://h:7071 --name app.t4.0c9f --hardware t4 --devices 2");
        wait_for("it's --state-dir");
        let told = Command::new("bash").args(["-c", &format!("kill -TERM {}", child.id())]).status().expect("bash");
        assert!(told.success());
        wait_for("left");
        assert!(child.wait().expect("it ends").success());
        assert!(!state.join("app.t4.0c9f").exists(), "a machine that goes leaves nothing");
    }
}
