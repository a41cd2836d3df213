//! What is the script of a job, and which options does it have?

use crate::agent::{AgentAccess, TOKEN_VARIABLE, arguments};
use crate::machine::MachineRequest;
use crate::settings::{SlurmHardware, SlurmOption, SlurmSettings};
use std::time::Duration;

/// An agent is told to leave so long before the end of its job's time.
const LEAVE_BEFORE: Duration = Duration::from_secs(60);

/// Who tells an agent that the time of its job is almost over?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndSignal {
    /// Slurm, by the option `--signal=B:TERM@60`.
    BySlurm,
    /// The script, by the time limit of the hardware type. A type without one gets Slurm's own signal at the limit.
    ByScript,
}

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

/// The script: the agent, and a trap that lets it leave the fleet. A script that counts the time itself runs the agent
/// under `timeout`, which passes signals on and ends with 124 when the time is over.
pub(super) fn job_script(
    settings: &SlurmSettings,
    hardware: &SlurmHardware,
    access: &AgentAccess,
    request: &MachineRequest,
    signal: EndSignal,
) -> String {
    let limit = hardware.time.as_deref().filter(|_| signal == EndSignal::ByScript).and_then(limit_of_option);
    let mut words: Vec<String> = limit.map(leave_after).into_iter().flat_map(timeout_words).collect();
    words.push(settings.agent.clone());
    words.extend(arguments(access, request, hardware.devices));
    for flag in ["--http", "--ingress-grpc", "--data"] {
        words.extend([flag.to_owned(), settings.listen.clone()]);
    }
    words.extend(settings.arguments.iter().chain(&hardware.arguments).cloned());
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let folder = settings.state_dir.as_deref().map_or_else(|| "\"$HOME\"/.apportion".to_owned(), shell_word);
    let (name, words) = (shell_word(&request.name), words.join(" "));
    let ended = match limit {
        Some(_) => "ended=$?\n[ \"$ended\" -eq 124 ] && rm -rf \"$state\" && exit 0\nexit \"$ended\"\n",
        None => "",
    };
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
         wait \"$agent\"\n{ended}"
    )
}

/// When an agent is told, counted from the start of its job.
fn leave_after(limit: Duration) -> Duration {
    limit.saturating_sub(LEAVE_BEFORE).max(limit / 2)
}

/// The agent stays in the group of processes by which Slurm finds those of a job.
fn timeout_words(after: Duration) -> [String; 4] {
    let seconds = after.as_secs().to_string();
    ["timeout", "--foreground", "--signal=TERM", seconds.as_str()].map(str::to_owned)
}

/// A time limit of `sbatch`: `MINUTES[:SECONDS]`, `HOURS:MINUTES:SECONDS` or `DAYS-HOURS[:MINUTES[:SECONDS]]`. `None` for a
/// word such as `UNLIMITED`.
fn limit_of_option(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(u64::from(days.parse::<u32>().ok()?)), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse::<u32>().ok().map(u64::from)).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return None,
    };
    // No sum of four numbers of 32 bits with these factors is too large.
    let seconds = days.unwrap_or(0) * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds))
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
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    fn request() -> MachineRequest {
        MachineRequest { name: "app.t4.0c9f".into(), hardware: "t4".into(), zone: None }
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

    /// A script that runs with a stand-in for the agent, which writes its arguments and what it was told.
    struct ScriptRun {
        folder: tempfile::TempDir,
        child: Child,
        begun: Instant,
    }

    impl ScriptRun {
        fn start(hardware: &SlurmHardware, signal: EndSignal) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let (agent, state) = (folder.path().join("an agent"), folder.path().join("state"));
            let program = "#!/bin/bash\ntrap 'echo left >>\"$OUT\"; exit 0' TERM\necho \"$*\" >\"$OUT\"\n\
                           while :; do sleep 0.05; done\n";
            std::fs::write(&agent, program).expect("written");
            std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("set");
            let settings = SlurmSettings {
                agent: agent.display().to_string(),
                arguments: vec!["it's".into()],
                state_dir: Some(state.display().to_string()),
                ..SlurmSettings::default()
            };
            let access = AgentAccess { join: "http://h:7071".into(), token: "secret".into() };
            let script = job_script(&settings, hardware, &access, &request(), signal);
            assert!(!script.contains("secret"), "{script}");
            let mut shell = Command::new("bash");
            let out = folder.path().join("out");
            shell.args(["-c", &script]).env("OUT", out).env(TOKEN_VARIABLE, "secret").stdin(Stdio::null());
            let child = shell.spawn().expect("bash");
            Self { folder, child, begun: Instant::now() }
        }

        fn wait_for(&self, words: &str) {
            let out = self.folder.path().join("out");
            while !std::fs::read_to_string(&out).is_ok_and(|text| text.contains(words)) {
                assert!(self.begun.elapsed() < Duration::from_secs(60), "no {words:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }

        fn tell(&self, signal: &str) {
            let told = Command::new("bash").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status();
            assert!(told.expect("bash").success());
        }

        /// It ends well, and nothing is left of its machine.
        fn until_ended(mut self) {
            self.wait_for("left");
            assert!(self.child.wait().expect("it ends").success());
            let state = self.folder.path().join("state/app.t4.0c9f");
            assert!(!state.exists(), "a machine that goes leaves nothing");
        }
    }

    #[test]
    fn the_script_runs_the_agent_and_lets_it_leave() {
        for signal in [EndSignal::BySlurm, EndSignal::ByScript] {
            let hardware = SlurmHardware { devices: 2, time: Some("04:00:00".into()), ..SlurmHardware::default() };
            let run = ScriptRun::start(&hardware, signal);
            run.wait_for("--join http://h:7071 --name app.t4.0c9f --hardware t4 --devices 2");
            run.wait_for("it's --state-dir");
            run.tell("TERM");
            run.until_ended();
        }
    }

    /// Nobody tells the script, and its limit is two seconds: the agent leaves after one.
    #[test]
    fn a_script_that_counts_leaves_before_its_time_is_over() {
        let hardware = SlurmHardware { time: Some("0:2".into()), ..SlurmHardware::default() };
        let run = ScriptRun::start(&hardware, EndSignal::ByScript);
        run.wait_for("--name app.t4.0c9f");
        run.until_ended();
    }

    #[test]
    fn time_limits_have_the_forms_of_sbatch() {
        for (text, seconds) in [
            ("90", 5_400),
            ("90:30", 5_430),
            ("04:00:00", 14_400),
            ("2-12", 216_000),
            ("1-00:30", 88_200),
            ("1-01:01:01", 90_061),
        ] {
            assert_eq!(limit_of_option(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "", "0", "1:2:3:4", "1-", "-1", "1-2:3:4:5", "99999999999"] {
            assert_eq!(limit_of_option(text), None, "{text}");
        }
        let after = |seconds| leave_after(Duration::from_secs(seconds)).as_secs();
        assert_eq!([after(14_400), after(120), after(60)], [14_340, 60, 30]);
    }
}
