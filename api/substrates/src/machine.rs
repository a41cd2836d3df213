//! What does a substrate say of a machine, and what is it asked for?

use std::time::Duration;

/// How far a machine is, as its substrate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It waits for its turn.
    Asked,
    /// It has its place and starts.
    Starting,
    /// Its agent's process runs.
    Running,
    /// It ends.
    Ending,
    /// It has ended, or cannot begin.
    Lost,
}

impl MachineState {
    /// Its name in logs and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Lost => "lost",
        }
    }
}

/// A machine that a substrate shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedMachine {
    /// The name that we gave it. Its agent has the same name.
    pub name: String,
    /// The hardware type that we asked for.
    pub hardware: String,
    /// The substrate's own name for it, for example the number of a job.
    pub handle: String,
    /// Its state.
    pub state: MachineState,
    /// How long it may still run; `None`: no end is known.
    pub left: Option<Duration>,
    /// How long it may run in all; `None`: no limit is known.
    pub limit: Option<Duration>,
    /// The substrate's own words for its state.
    pub said: String,
}

/// One machine that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRequest {
    /// Its name, by [`crate::Substrates::new_name`].
    pub name: String,
    /// Its hardware type.
    pub hardware: String,
    /// The zone in which it shall stand, one of [`crate::Substrates::zones`]; `None`: any.
    pub zone: Option<String>,
}

/// How a machine is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseWay {
    /// Its agent leaves the fleet, finishes its work and ends. A machine that waits for its turn is taken back at once.
    Drain,
    /// It ends now.
    Kill,
}
