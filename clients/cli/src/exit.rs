//! How a command ends, and what the shell is told.

use apportion_wire::BadInput;
use std::process::ExitCode;

/// A command that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 3: proven that there is no plan.
    Infeasible,
    /// 4: `check` found something, or a demo did not keep what it promises.
    Findings,
    /// 5: stopped without an answer.
    NoAnswer,
}

/// A command that did not.
#[derive(Debug)]
pub enum Failure {
    /// 2: the input is wrong; the text says where, what, and what would be right.
    BadInput(String),
    /// 1: something broke.
    Broken(anyhow::Error),
}

/// What a command returns.
pub type Outcome = Result<Exit, Failure>;

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

/// The exit code; failures are printed to stderr.
pub fn code(outcome: Outcome) -> ExitCode {
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
