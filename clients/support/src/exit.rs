//! How does a command end, and which exit code does the shell get?

use apportion_wire::BadInput;
use std::process::ExitCode;

/// The result of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code 0: the command did its work.
    Done,
    /// Exit code 3: there is provably no plan.
    Infeasible,
    /// Exit code 4: `check` has findings, or a demo broke a promise.
    Findings,
    /// Exit code 5: the command stopped without an answer.
    NoAnswer,
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Exit code 2: the input is wrong. The text says where, what was found, and what is expected.
    #[error("{0}")]
    BadInput(String),
    /// Exit code 1: any other failure.
    #[error("{0:#}")]
    Broken(anyhow::Error),
}

/// The result of a command.
pub type CommandResult = Result<Exit, Failure>;

impl From<BadInput> for Failure {
    fn from(e: BadInput) -> Self {
        Self::BadInput(e.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(e: anyhow::Error) -> Self {
        Self::Broken(e)
    }
}

/// The exit code of an outcome. A failure is printed to stderr.
pub fn exit_code(outcome: CommandResult) -> ExitCode {
    match outcome {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Infeasible) => ExitCode::from(3),
        Ok(Exit::Findings) => ExitCode::from(4),
        Ok(Exit::NoAnswer) => ExitCode::from(5),
        Err(Failure::BadInput(text)) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
        Err(Failure::Broken(error)) => {
            eprintln!("apportion: {error:#}");
            ExitCode::FAILURE
        }
    }
}
