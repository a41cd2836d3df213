//! What does `squeue` say of our jobs?
//!
//! Example: `17|RUNNING|3:58:20|4:00:00|None|apportion.t4.0c9f3e21ab44`. The name is last, because it may have any sign.
//! Lines of other jobs are skipped; a line of ours in another form is an error, so that nothing is concluded from it.

use crate::failure::SubstrateError;
use crate::machine::{MachineState, ObservedMachine};
use crate::names::hardware_of;
use std::time::Duration;

/// The columns: number, state, time left, time limit, reason, name.
pub(super) const QUEUE_FORMAT: &str = "%i|%T|%L|%l|%r|%j";
const COLUMNS: usize = 6;

/// The machines of a fleet in an output of `squeue`.
pub(super) fn read_queue(fleet: &str, text: &str) -> Result<Vec<ObservedMachine>, SubstrateError> {
    let mut machines = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = |expected| SubstrateError::Output { command: "squeue", found: line.to_owned(), expected };
        let columns: Vec<&str> = line.splitn(COLUMNS, '|').collect();
        let &[number, state, left, limit, reason, name] = columns.as_slice() else {
            return Err(wrong("six columns, as in --format"));
        };
        let name = name.trim_end();
        let Some(hardware) = hardware_of(fleet, name) else { continue };
        let found = state_of(state).ok_or_else(|| wrong("a state of jobs that man squeue lists"))?;
        let left = time_of(left).ok_or_else(|| wrong("the time left, [DAYS-]HOURS:MINUTES:SECONDS"))?;
        let limit = time_of(limit).ok_or_else(|| wrong("a time limit, [DAYS-]HOURS:MINUTES:SECONDS"))?;
        machines.push(ObservedMachine {
            name: name.to_owned(),
            hardware: hardware.to_owned(),
            handle: number.to_owned(),
            state: found,
            // The time of a job that waits has not begun.
            left: left.0.filter(|_| found == MachineState::Running),
            limit: limit.0,
            said: format!("job {number} is {state} ({reason})"),
        });
    }
    Ok(machines)
}

/// The state of a machine, by its job's (`JOB STATE CODES` of `man squeue`).
pub(super) fn state_of(state: &str) -> Option<MachineState> {
    Some(match state {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => MachineState::Asked,
        "CONFIGURING" => MachineState::Starting,
        "RUNNING" | "RESIZING" | "SIGNALING" | "SUSPENDED" => MachineState::Running,
        "COMPLETING" | "STAGE_OUT" | "STOPPED" => MachineState::Ending,
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL" | "OUT_OF_MEMORY" | "PREEMPTED"
        | "REVOKED" | "TIMEOUT" => MachineState::Lost,
        _ => return None,
    })
}

/// A time of Slurm; `None` within for a time without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JobTime(Option<Duration>);

/// `[DAYS-]HOURS:MINUTES:SECONDS`, `MINUTES:SECONDS`, or a word for a time that is not known or has no end.
fn time_of(text: &str) -> Option<JobTime> {
    let text = text.trim();
    match text {
        "UNLIMITED" | "NOT_SET" | "INVALID" | "N/A" | "Partition_Limit" => return Some(JobTime(None)),
        _ => {}
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (number(days)?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match *parts.as_slice() {
        [minutes, seconds] if days == 0 => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => {
            hours.checked_mul(3_600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?
        }
        _ => return None,
    };
    let seconds = days.checked_mul(86_400)?.checked_add(seconds)?;
    Some(JobTime(Some(Duration::from_secs(seconds))))
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_jobs_are_read_and_others_skipped() {
        let text = "17|RUNNING|3:58:20|4:00:00|None|app.t4.0c9f\n18|PENDING|4:00:00|4:00:00|(Resources)|app.t4.0c9e\n\
                    19|RUNNING|1:00|UNLIMITED|None|other|a.b\n20|WHATEVER|x|y|z|app-2.t4.0c9f\n\n\
                    21|FAILED|INVALID|4:00:00|NonZeroExitCode|app.a100.01\n";
        let machines = read_queue("app", text).expect("it is read");
        let row = |m: &ObservedMachine| {
            let left = m.left.map(|left| left.as_secs());
            format!("{} {} {} {left:?} {:?} {}", m.handle, m.hardware, m.state.name(), m.limit, m.said)
        };
        assert_eq!(
            machines.iter().map(row).collect::<Vec<_>>(),
            [
                "17 t4 running Some(14300) Some(14400s) job 17 is RUNNING (None)",
                "18 t4 asked None Some(14400s) job 18 is PENDING ((Resources))",
                "21 a100 lost None Some(14400s) job 21 is FAILED (NonZeroExitCode)",
            ]
        );
    }

    #[test]
    fn a_line_of_ours_in_another_form_is_an_error() {
        for line in [
            "17|NAPPING|1:00|1:00|None|app.t4.0c9f",
            "17|RUNNING|soon|1:00|None|app.t4.0c9f",
            "17|RUNNING|1:00|1:00:00:00|None|app.t4.0c9f",
            "slurm_load_jobs error: Unable to contact slurm controller",
        ] {
            let said = read_queue("app", line).expect_err(line).to_string();
            assert!(said.starts_with("squeue: ") && said.contains("expected"), "{said}");
        }
    }

    #[test]
    fn times_have_days_or_no_end() {
        let seconds = |text: &str| time_of(text).and_then(|time| time.0).map(|time| time.as_secs());
        for (text, expected) in [("0:00", 0), ("12:05", 725), ("1:00:00", 3_600), ("2-01:00:00", 176_400)] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        assert_eq!(time_of("UNLIMITED"), Some(JobTime(None)));
        for wrong in ["", "5", "1-05:00", "-1:00", "1:-5", "1e3:00", "99999999999999999999:00"] {
            assert_eq!(time_of(wrong), None, "{wrong}");
        }
    }
}
