//! How are the results of each request written as CSV?

use apportion_domain::Problem;
use apportion_estimator::{DropReason, RequestOutcome, RequestRecord, Simulation};
use apportion_wire::{RecordedOutcome, RequestRow, write_requests};
use std::io::{self, Write};

/// Writes one row per request, by pipeline, then by arrival, numbered from 0.
pub fn write(problem: &Problem, simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let task = |r: &RequestRecord| r.drop_task.map(|t| problem.pipeline(r.pipeline).task(t).name.as_str());
    write_requests((0..).zip(&simulation.requests).map(|(number, r)| row_of(number, r, task(r))), out)
}

fn row_of<'a>(number: u64, r: &RequestRecord, drop_task: Option<&'a str>) -> RequestRow<'a> {
    RequestRow {
        request: number,
        arrival: r.arrival,
        finish: r.finish,
        outcome: match r.outcome {
            RequestOutcome::Ok => RecordedOutcome::Ok,
            RequestOutcome::Late => RecordedOutcome::Late,
            RequestOutcome::Dropped => RecordedOutcome::Dropped,
            RequestOutcome::Failed => RecordedOutcome::Failed,
        },
        drop_task,
        reason: r.reason.map(DropReason::name),
        accuracy: r.finish.map(|_| r.accuracy),
    }
}
