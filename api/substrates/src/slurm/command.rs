//! How is a command of Slurm run? With a time limit, a bounded output, and few variables of the environment.

use crate::failure::SubstrateError;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Longest time of a command. A slurmctld that is away lets its clients wait for longer. A part of the service must show a
/// sign of life each 10 s, so a command ends earlier.
const COMMAND_MAX: Duration = Duration::from_secs(8);
/// Most bytes of an output: about 100,000 jobs.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Most characters of a command's complaint in an error.
const SAID_CHARS_MAX: usize = 400;
/// The variables that a command, and with `sbatch` its job, takes from the service. Others may be secret.
pub(super) const VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "TZ", "SLURM_CONF", "SLURM_CLUSTERS"];

/// One run of a command.
pub(super) struct SlurmCommand {
    name: &'static str,
    command: Command,
    input: String,
}

impl SlurmCommand {
    pub(super) fn new(name: &'static str, folder: Option<&Path>) -> Self {
        let mut command = match folder {
            Some(folder) => Command::new(folder.join(name)),
            None => Command::new(name),
        };
        command.env_clear().kill_on_drop(true);
        command.envs(VARIABLES.into_iter().filter_map(|variable| Some((variable, std::env::var_os(variable)?))));
        Self { name, command, input: String::new() }
    }

    pub(super) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(super) fn input(mut self, text: String) -> Self {
        self.input = text;
        self
    }

    /// Its output.
    pub(super) async fn run(mut self, arguments: &[&str]) -> Result<String, SubstrateError> {
        self.command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = self.name;
        let failed = |source| SubstrateError::Start { program: name.to_owned(), source };
        let child = self.command.spawn().map_err(failed)?;
        let said = tokio::time::timeout(COMMAND_MAX, communicate(child, self.input)).await;
        let said = said.map_err(|_| SubstrateError::Late { command: name, within: COMMAND_MAX })?.map_err(failed)?;
        match said.is_success {
            true => Ok(said.output),
            false => Err(SubstrateError::Failed { command: name, said: clipped(said.complaint.trim()) }),
        }
    }
}

/// What a command has said.
struct CommandAnswer {
    output: String,
    complaint: String,
    is_success: bool,
}

async fn communicate(mut child: Child, input: String) -> std::io::Result<CommandAnswer> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command that has ended meanwhile says why by its status.
            let _broken_pipe = stdin.write_all(input.as_bytes()).await;
        }
        Ok::<usize, std::io::Error>(0)
    };
    let read_output = async {
        match stdout {
            Some(stdout) => stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await,
            None => Ok(0),
        }
    };
    let read_complaint = async {
        match stderr {
            Some(stderr) => stderr.take(OUTPUT_BYTES_MAX).read_to_end(&mut complaint).await,
            None => Ok(0),
        }
    };
    tokio::try_join!(write, read_output, read_complaint)?;
    let is_success = child.wait().await?.success();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(CommandAnswer { output: text(&output), complaint: text(&complaint), is_success })
}

fn clipped(text: &str) -> String {
    text.chars().take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_has_its_input_and_few_variables() {
        let folder = Some(Path::new("/bin"));
        let script = "echo \"$APPORTION_TOKEN-$CARGO_MANIFEST_DIR-$(cat)\"";
        let command = SlurmCommand::new("sh", folder).variable("APPORTION_TOKEN", "secret").input("text".into());
        assert_eq!(command.run(&["-c", script]).await.expect("it runs"), "secret--text\n");
    }

    #[tokio::test]
    async fn a_failure_has_the_words_of_the_command() {
        let command = SlurmCommand::new("sh", Some(Path::new("/bin")));
        let said = command.run(&["-c", "echo no node >&2; exit 1"]).await.expect_err("it fails").to_string();
        assert_eq!(said, "sh has failed: no node");
        let absent = SlurmCommand::new("no-such-command", None).run(&[]).await.expect_err("it is not there");
        assert_eq!(absent.to_string(), "no-such-command cannot be started");
    }
}
