//! How did a demo end?

use apportion_support::exit::Exit;
use serde::Serialize;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "missed", rename_all = "snake_case")]
pub enum Verdict {
    /// All promises were kept.
    Kept,
    /// The machine was free, and these were not kept.
    Missed(Vec<String>),
    /// These were not kept while other work took the machine: the run says nothing.
    Disturbed(Vec<String>),
    /// Requests failed.
    Broken(Vec<String>),
}

impl Verdict {
    /// What the shell is told; none if something broke.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            Self::Kept => Some(Exit::Done),
            Self::Missed(_) => Some(Exit::Findings),
            Self::Disturbed(_) => Some(Exit::NoAnswer),
            Self::Broken(_) => None,
        }
    }

    /// What was not kept.
    pub fn broken_promises(&self) -> &[String] {
        match self {
            Self::Kept => &[],
            Self::Missed(missed) | Self::Disturbed(missed) | Self::Broken(missed) => missed,
        }
    }
}
