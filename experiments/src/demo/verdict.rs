//! How did a demo end?

use apportion_support::exit::Exit;
use serde::Serialize;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "missed", rename_all = "snake_case")]
pub enum DemoVerdict {
    /// All promises were kept.
    Kept,
    /// The machine was free, and these promises were broken.
    Missed(Vec<String>),
    /// These promises were broken while other work took the machine: the run shows nothing.
    Disturbed(Vec<String>),
    /// Requests failed.
    Broken(Vec<String>),
}

impl DemoVerdict {
    /// How the command ends; `None` if requests failed.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            Self::Kept => Some(Exit::Done),
            Self::Missed(_) => Some(Exit::Findings),
            Self::Disturbed(_) => Some(Exit::NoAnswer),
            Self::Broken(_) => None,
        }
    }

    /// The broken promises.
    pub fn broken_promises(&self) -> &[String] {
        match self {
            Self::Kept => &[],
            Self::Missed(missed) | Self::Disturbed(missed) | Self::Broken(missed) => missed,
        }
    }
}
