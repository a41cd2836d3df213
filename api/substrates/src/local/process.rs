//! Which process is an agent, and how is it told to end?
//!
//! A number of a process may be given to another one later. So a process is known by its number and the moment of its
//! start, as the kernel counts it.

use std::fmt;
use std::fs;

/// A process of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentProcess {
    number: u32,
    /// Clock ticks from the start of the machine to that of the process.
    started: u64,
}

/// What a process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    Terminate,
    Kill,
}

/// A line of `/proc/NUMBER/stat`, in parts.
struct ProcessStat {
    state: char,
    started: u64,
}

/// Fields of `man proc_pid_stat`, counted from the state, which follows the name in parentheses.
const STARTED_FIELD: usize = 19;

fn stat(number: u32) -> Option<ProcessStat> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name may have spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(STARTED_FIELD - 1)?.parse().ok()?;
    Some(ProcessStat { state, started })
}

impl AgentProcess {
    /// The process with this number now.
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(Self { number, started: stat(number)?.started })
    }

    /// The process that [`fmt::Display`] has written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, started) = text.trim().split_once(' ')?;
        Some(Self { number: number.parse().ok()?, started: started.parse().ok()? })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it runs. One that has ended and is not waited for does not.
    pub(super) fn is_running(&self) -> bool {
        stat(self.number).is_some_and(|stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Sends a signal. A process that has just ended hears nothing.
    #[allow(unsafe_code)] // the standard library sends no signal but SIGKILL
    pub(super) fn tell(&self, signal: ProcessSignal) {
        let signal = match signal {
            ProcessSignal::Terminate => libc::SIGTERM,
            ProcessSignal::Kill => libc::SIGKILL,
        };
        let Ok(number) = i32::try_from(self.number) else { return };
        if number > 1 {
            // SAFETY: kill touches no memory of this process, and the number is that of one process, not of a group.
            let _gone = unsafe { libc::kill(number, signal) };
        }
    }
}

impl fmt::Display for AgentProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let own = AgentProcess::of(std::process::id()).expect("this process runs");
        assert!(own.is_running());
        assert_eq!(AgentProcess::parse(&own.to_string()), Some(own));
        let earlier = AgentProcess { started: own.started.wrapping_sub(1), ..own };
        assert!(!earlier.is_running(), "the number belongs to another process by now");
        for wrong in ["", "17", "17 x", "x 17", "-1 5"] {
            assert_eq!(AgentProcess::parse(wrong), None, "{wrong}");
        }
    }
}
