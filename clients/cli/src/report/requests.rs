//! What do a simulation's requests say together? Their classes over time, and the tail of their latency.

use apportion_wire::{BadInput, CsvLines};
use csv::{ReaderBuilder, StringRecord};
use serde::Serialize;

/// Most requests of one file.
const REQUESTS_MAX: usize = 5_000_000;
/// Most windows over the time of a run: more than a chart has pixels to show apart.
const WINDOWS_MAX: usize = 300;
/// Most points of the tail's curve.
const TAIL_POINTS_MAX: usize = 200;
/// Latest arrival and longest latency: a year. A longer one is a typing error.
const TIME_MS_MAX: f64 = 365.0 * 86_400_000.0;
/// The columns that are read. `simulate --requests` writes them and others.
const COLUMNS: [&str; 3] = ["arrival_ms", "latency_ms", "outcome"];
/// The outcomes, in the order of [`RequestFigures`].
const OUTCOMES: [&str; 4] = ["ok", "late", "dropped", "failed"];

/// The requests of a run in figures. Lists that begin at the same place belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestFigures {
    /// All requests.
    pub total: usize,
    /// Those with an answer, in time or late.
    pub answered: usize,
    /// Median latency of the answers; `None` without an answer.
    pub median_ms: Option<f64>,
    /// Length of a window of arrivals.
    pub window_s: f64,
    /// Starts of the windows.
    pub start_s: Vec<f64>,
    /// In time, by window of their arrival.
    pub ok: Vec<u64>,
    /// Late, by window.
    pub late: Vec<u64>,
    /// Dropped, by window.
    pub dropped: Vec<u64>,
    /// Failed, by window.
    pub failed: Vec<u64>,
    /// Rising latencies.
    pub latency_ms: Vec<f64>,
    /// The share of the answers that took longer than each of them; above 0.
    pub slower: Vec<f64>,
}

/// One row.
struct ReadRequest {
    arrival_ms: f64,
    latency_ms: Option<f64>,
    /// Place in [`OUTCOMES`].
    outcome: usize,
}

/// Reads the requests that `simulate --requests` wrote.
///
/// # Errors
/// Of the first row that is wrong, with its line; and if there is no row, or more than [`REQUESTS_MAX`].
pub fn read_requests(file: &str, text: &str) -> Result<RequestFigures, BadInput> {
    read_bounded(file, text, REQUESTS_MAX)
}

fn read_bounded(file: &str, text: &str, requests_max: usize) -> Result<RequestFigures, BadInput> {
    let mut reader = ReaderBuilder::new().from_reader(text.as_bytes());
    let broken = |e: csv::Error| {
        let line = e.position().map_or(1, csv::Position::line);
        BadInput::one(file, format!("line {line}"), "a row of another length", "CSV with equally many cells in each row")
    };
    let header = reader.headers().map_err(broken)?.clone();
    let places = COLUMNS.map(|name| header.iter().position(|column| column.trim() == name));
    let [Some(arrival), Some(latency), Some(outcome)] = places else {
        let found = format!("the columns {:?}", header.iter().take(10).collect::<Vec<_>>());
        return Err(BadInput::one(file, "line 1", found, format!("the columns {}", COLUMNS.join(", "))));
    };
    let mut lines = CsvLines::new(text);
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = format!("line {}", lines.line_of(&record));
        if rows.len() == requests_max {
            return Err(BadInput::one(file, line, "one more request", format!("at most {requests_max}")));
        }
        let row = read_row(&record, [arrival, latency, outcome]);
        rows.push(row.map_err(|(found, expected)| BadInput::one(file, &line, format!("{found:?}"), expected))?);
    }
    if rows.is_empty() {
        return Err(BadInput::one(file, "line 1", "0 rows", "at least one request"));
    }
    Ok(figures(&rows))
}

/// One row, or the cell that is wrong with the right form.
fn read_row(record: &StringRecord, [arrival, latency, outcome]: [usize; 3]) -> Result<ReadRequest, (String, &'static str)> {
    let cell = |at: usize| record.get(at).unwrap_or_default().trim();
    let time = |at: usize| cell(at).parse::<f64>().ok().filter(|ms| (0.0..=TIME_MS_MAX).contains(ms));
    let wrong = |at: usize, expected| (cell(at).to_owned(), expected);
    let word = OUTCOMES.iter().position(|name| *name == cell(outcome));
    let found = word.ok_or_else(|| wrong(outcome, "ok, late, dropped or failed"))?;
    let is_answered = matches!(OUTCOMES[found], "ok" | "late");
    let in_ms = "a time in ms from 0 to a year";
    Ok(ReadRequest {
        arrival_ms: time(arrival).ok_or_else(|| wrong(arrival, in_ms))?,
        latency_ms: is_answered.then(|| time(latency).ok_or_else(|| wrong(latency, in_ms))).transpose()?,
        outcome: found,
    })
}

fn figures(rows: &[ReadRequest]) -> RequestFigures {
    let last_s = rows.iter().map(|row| row.arrival_ms).fold(0.0, f64::max) / 1e3;
    let window_s = window_of(last_s);
    let windows = (last_s / window_s) as usize + 1;
    let mut counts: [Vec<u64>; 4] = std::array::from_fn(|_| vec![0; windows]);
    for row in rows {
        let at = (row.arrival_ms / 1e3 / window_s) as usize;
        counts[row.outcome][at.min(windows - 1)] += 1;
    }
    let mut latencies: Vec<f64> = rows.iter().filter_map(|row| row.latency_ms).collect();
    latencies.sort_by(f64::total_cmp);
    let (latency_ms, slower) = tail(&latencies).into_iter().unzip();
    let [ok, late, dropped, failed] = counts;
    RequestFigures {
        total: rows.len(),
        answered: latencies.len(),
        median_ms: latencies.get(latencies.len().saturating_sub(1) / 2).copied(),
        window_s,
        start_s: (0..windows).map(|at| at as f64 * window_s).collect(),
        ok,
        late,
        dropped,
        failed,
        latency_ms,
        slower,
    }
}

/// The shortest of 1, 2, 5, 10, 20, 50, ... seconds with which at most [`WINDOWS_MAX`] windows cover a run.
fn window_of(last_s: f64) -> f64 {
    let mut scale = 1.0;
    loop {
        let fits = |step: &f64| (last_s / (step * scale)).floor() + 1.0 <= WINDOWS_MAX as f64;
        if let Some(step) = [1.0, 2.0, 5.0].iter().find(|step| fits(step)) {
            return step * scale;
        }
        scale *= 10.0;
    }
}

/// Latencies with the share of answers above each. The shares fall by equal factors, so that the far tail has points too.
fn tail(sorted: &[f64]) -> Vec<(f64, f64)> {
    let all = sorted.len();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let Some(last) = all.checked_sub(1) else { return points };
    for step in 0..TAIL_POINTS_MAX {
        let share = (all as f64).powf(-(step as f64) / TAIL_POINTS_MAX as f64);
        let latency = sorted[last - ((all as f64 * share) as usize).min(last)];
        let slower = all - sorted.partition_point(|other| *other <= latency);
        if slower > 0 && points.last().is_none_or(|(before, _)| *before < latency) {
            points.push((latency, slower as f64 / all as f64));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(rows: &[(u32, Option<u32>, &str)]) -> String {
        let mut text = "request,arrival_ms,finish_ms,latency_ms,outcome\n".to_owned();
        for (at, (arrival, latency, outcome)) in rows.iter().enumerate() {
            let latency = latency.map_or_else(String::new, |ms| ms.to_string());
            text += &format!("{at},{arrival},,{latency},{outcome}\n");
        }
        text
    }

    #[test]
    fn classes_are_counted_by_window_of_arrival() {
        let rows = [(0, Some(10), "ok"), (500, Some(700), "late"), (2500, None, "dropped"), (2600, None, "failed")];
        let read = read_requests("r.csv", &csv(&rows)).expect("requests");
        assert_eq!((read.total, read.answered, read.median_ms, read.window_s), (4, 2, Some(10.0), 1.0));
        assert_eq!((read.ok, read.late), (vec![1, 0, 0], vec![1, 0, 0]));
        assert_eq!((read.dropped, read.failed, read.start_s), (vec![0, 0, 1], vec![0, 0, 1], vec![0.0, 1.0, 2.0]));
        assert_eq!((read.latency_ms, read.slower), (vec![10.0], vec![0.5]));
    }

    #[test]
    fn the_tail_agrees_with_a_count() {
        let latencies: Vec<u32> = (0..5000).map(|n| (n * n) % 977).collect();
        let rows: Vec<_> = latencies.iter().map(|ms| (0, Some(*ms), "ok")).collect();
        let read = read_requests("r.csv", &csv(&rows)).expect("requests");
        assert!((2..=TAIL_POINTS_MAX).contains(&read.latency_ms.len()));
        for (latency, slower) in read.latency_ms.iter().zip(&read.slower) {
            let counted = latencies.iter().filter(|ms| f64::from(**ms) > *latency).count();
            assert_eq!(*slower, counted as f64 / 5000.0, "{latency} ms");
        }
        assert!(read.slower.last().is_some_and(|share| *share <= 0.01), "{:?}", read.slower.last());
    }

    #[test]
    fn a_long_run_has_few_windows() {
        for (last_ms, window_s) in [(299_000, 1.0), (300_000, 2.0), (86_400_000, 500.0), (4_000_000_000, 20_000.0)] {
            let read = read_requests("r.csv", &csv(&[(0, Some(1), "ok"), (last_ms, Some(1), "ok")])).expect("requests");
            assert_eq!((read.window_s, read.ok.iter().sum::<u64>()), (window_s, 2));
            assert!(read.ok.len() <= WINDOWS_MAX, "{last_ms}");
        }
    }

    #[test]
    fn a_wrong_row_is_refused_with_its_line() {
        let rows = [
            ("arrival_ms,outcome\n1,ok\n", "line 1: the columns [\"arrival_ms\", \"outcome\"]: expected the columns"),
            ("arrival_ms,latency_ms,outcome\n", "line 1: 0 rows"),
            ("arrival_ms,latency_ms,outcome\n1,2,ok\n1,2,okay\n", "line 3: \"okay\": expected ok, late"),
            ("arrival_ms,latency_ms,outcome\n-1,2,ok\n", "line 2: \"-1\": expected a time"),
            ("arrival_ms,latency_ms,outcome\n1,inf,ok\n", "line 2: \"inf\": expected a time"),
            ("arrival_ms,latency_ms,outcome\n1,,late\n", "line 2: \"\": expected a time"),
            ("arrival_ms,latency_ms,outcome\n1,2\n", "line 2: a row of another length"),
        ];
        for (text, expected) in rows {
            let refused = read_requests("r.csv", text).expect_err(text).to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn more_requests_than_allowed_are_refused() {
        let text = csv(&[(0, Some(1), "ok"), (1, Some(1), "ok"), (2, Some(1), "ok")]);
        assert!(read_bounded("r.csv", &text, 3).is_ok());
        let refused = read_bounded("r.csv", &text, 2).expect_err("three").to_string();
        assert_eq!(refused, "r.csv: line 4: one more request: expected at most 2");
    }
}
