//! How are results of requests written as CSV? The columns are
//! `request,arrival_ms,finish_ms,latency_ms,outcome,drop_task,reason,accuracy`.

use crate::trace_csv::decimal_millis;
use apportion_domain::Moment;
use std::io::{self, Write};

const COLUMNS: [&str; 8] =
    ["request", "arrival_ms", "finish_ms", "latency_ms", "outcome", "drop_task", "reason", "accuracy"];

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// Its last leaf ended within the SLO.
    Ok,
    /// Its last leaf ended after the SLO.
    Late,
    /// It was dropped.
    Dropped,
    /// It failed.
    Failed,
}

impl RecordedOutcome {
    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Late => "late",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow<'a> {
    /// Number of the request, from 0 in the order of arrival.
    pub request: u64,
    /// When it arrived.
    pub arrival: Moment,
    /// End of its last leaf, or when it was dropped; `None` if neither happened.
    pub finish: Option<Moment>,
    /// Its outcome.
    pub outcome: RecordedOutcome,
    /// Task at which it was dropped.
    pub drop_task: Option<&'a str>,
    /// The reason if it was dropped or failed.
    pub reason: Option<&'a str>,
    /// Accuracy of its answer.
    pub accuracy: Option<f64>,
}

/// Writes results. Times have six decimals; a request without an answer has no latency.
///
/// # Errors
/// The writer's.
pub fn write_requests<'a>(rows: impl Iterator<Item = RequestRow<'a>>, out: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS)?;
    for row in rows {
        let answered = matches!(row.outcome, RecordedOutcome::Ok | RecordedOutcome::Late);
        let latency = row.finish.filter(|_| answered).map(|m| decimal_millis(m.since(row.arrival).as_nanos()));
        writer.write_record([
            row.request.to_string().as_str(),
            &decimal_millis(row.arrival.as_nanos()),
            &row.finish.map(|m| decimal_millis(m.as_nanos())).unwrap_or_default(),
            &latency.unwrap_or_default(),
            row.outcome.name(),
            row.drop_task.unwrap_or_default(),
            row.reason.unwrap_or_default(),
            &row.accuracy.map(|a| a.to_string()).unwrap_or_default(),
        ])?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_requests_have_no_latency() {
        let rows = [
            RequestRow {
                request: 0,
                arrival: Moment::from_nanos(1_500_000),
                finish: Some(Moment::from_nanos(12_000_001)),
                outcome: RecordedOutcome::Ok,
                drop_task: None,
                reason: None,
                accuracy: Some(0.5),
            },
            RequestRow {
                request: 1,
                arrival: Moment::ZERO,
                finish: None,
                outcome: RecordedOutcome::Dropped,
                drop_task: Some("t"),
                reason: Some("late"),
                accuracy: None,
            },
        ];
        let mut text = Vec::new();
        write_requests(rows.into_iter(), &mut text).expect("memory does not fail");
        let text = String::from_utf8(text).expect("text");
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(lines, ["0,1.500000,12.000001,10.500001,ok,,,0.5", "1,0.000000,,,dropped,t,late,"]);
    }
}
