//! How is a trace read from CSV and written to it? Columns are `arrival_ms` (one row per query), or `second,qps` (with
//! further columns of rates by name).

use crate::bad_input::{BadInput, clipped, near_named};
use crate::profile_csv::field;
use crate::states::TraceKind;
use apportion_domain::{ArrivalTrace, Invalid, Moment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{self, Write};
use utoipa::ToSchema;

/// Column of a trace of single arrivals.
const ARRIVAL: &str = "arrival_ms";
/// First column of a trace of rates.
const SECOND: &str = "second";
/// The default column of rates.
const RATE: &str = "qps";
/// Largest time of a row: about 285 years, so that the clock cannot wrap.
const MILLIS_MAX: f64 = 9e12;
/// Most digits before the point that the fast parser reads.
const FAST_DIGITS_MAX: usize = 12;
/// Decimals of a millisecond down to the nanosecond.
const NANO_DIGITS: usize = 6;

/// The columns of a trace of single arrivals, as a Table Schema.
pub(crate) fn arrivals_schema() -> Value {
    let bounds = json!({"required": true, "minimum": 0, "maximum": MILLIS_MAX});
    let about = "Moment at which a query arrives, in milliseconds. Rows never go backwards.";
    json!({"title": "Trace of arrivals as CSV", "fields": [field(ARRIVAL, "number", about, bounds)]})
}

/// The columns of a trace of rates, as a Table Schema.
pub(crate) fn rates_schema() -> Value {
    let second = field(
        SECOND,
        "integer",
        "Second that has the rate. A second without a row has no queries.",
        json!({"required": true, "minimum": 0}),
    );
    let about = "Queries per second. Further columns of rates have names of their own.";
    let rate = field(RATE, "number", about, json!({"required": true, "minimum": 0}));
    json!({"title": "Trace of rates as CSV", "fields": [second, rate]})
}

/// Reads a trace. `column` chooses a column of rates by name.
///
/// # Errors
/// The first refused row with its line: an empty trace, a row that goes backwards, a malformed number.
pub fn read_trace(file: &str, text: impl AsRef<[u8]>, column: Option<&str>) -> Result<ArrivalTrace, BadInput> {
    let bytes = text.as_ref();
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let (header, body) = split_line(bytes);
    let header = String::from_utf8_lossy(header).into_owned();
    let names: Vec<&str> = header.split(',').map(|n| n.trim().trim_matches('"')).collect();
    let parsed = match names.as_slice() {
        [ARRIVAL] => match column {
            Some(name) if name != ARRIVAL => {
                Err((1, Invalid::new("", format!("column {name:?}"), "no column: the file lists arrivals")))
            }
            _ => read_arrivals(body),
        },
        [SECOND, rates @ ..] if !rates.is_empty() => {
            rate_column(rates, column).map_err(|e| (1, e)).and_then(|index| read_rates(body, index))
        }
        _ if header.trim().is_empty() => Err((1, Invalid::new("", "an empty file", header_expected()))),
        _ => Err((1, Invalid::new("", format!("the header {:?}", clipped(&header)), header_expected()))),
    };
    parsed.map_err(|(line, e)| BadInput::one(file, format!("line {line}"), e.value, e.expected))
}

fn header_expected() -> String {
    format!("a header \"{ARRIVAL}\" or \"{SECOND},{RATE}\"")
}

type Refused = (u64, Invalid);

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&b| b == b'\n') {
        Some(end) => (trimmed(&bytes[..end]), &bytes[end + 1..]),
        None => (trimmed(bytes), &[]),
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

fn rate_column(rates: &[&str], column: Option<&str>) -> Result<usize, Invalid> {
    let position = |name: &str| rates.iter().position(|r| *r == name).map(|i| i + 1);
    match column {
        Some(name) => position(name)
            .ok_or_else(|| Invalid::new("", format!("column {name:?}"), near_named("column", name, rates.iter().copied()))),
        None if rates.len() == 1 => Ok(1),
        None => position(RATE)
            .ok_or_else(|| Invalid::new("", "no column chosen", format!("one of the columns {}", rates.join(", ")))),
    }
}

fn invalid(line: u64, value: &[u8], expected: &str) -> Refused {
    (line, Invalid::new("", clipped(&format!("{:?}", String::from_utf8_lossy(value))), expected))
}

fn read_arrivals(mut body: &[u8]) -> Result<ArrivalTrace, Refused> {
    /// Fewest bytes of a row, for the capacity.
    const ROW_BYTES: usize = 8;
    let mut moments: Vec<Moment> = Vec::with_capacity(body.len() / ROW_BYTES);
    let (mut line, mut last) = (1_u64, Moment::ZERO);
    while !body.is_empty() {
        line += 1;
        let (row, rest) = split_line(body);
        body = rest;
        if row.is_empty() {
            continue;
        }
        let moment = fast_moment(row).or_else(|| slow_moment(row));
        let moment = moment.ok_or_else(|| invalid(line, row, "a time in milliseconds of at least 0"))?;
        if moment < last {
            let found = format!("{} after {}", moment.as_millis(), last.as_millis());
            return Err((line, Invalid::new("", found, "arrivals that never go backwards")));
        }
        last = moment;
        moments.push(moment);
    }
    ArrivalTrace::arrivals(moments).map_err(|e| (line, e))
}

/// Exact milliseconds with at most six decimals; `None` for other forms of numbers.
fn fast_moment(row: &[u8]) -> Option<Moment> {
    let mut nanos: u64 = 0;
    let mut digits = 0;
    let mut bytes = row.iter();
    let mut point = false;
    for &b in bytes.by_ref() {
        match b {
            b'0'..=b'9' => nanos = nanos * 10 + u64::from(b - b'0'),
            b'.' => {
                point = true;
                break;
            }
            _ => return None,
        }
        digits += 1;
        if digits > FAST_DIGITS_MAX {
            return None;
        }
    }
    let mut decimals = 0;
    for &b in bytes {
        if !b.is_ascii_digit() || decimals == NANO_DIGITS {
            return None;
        }
        nanos = nanos * 10 + u64::from(b - b'0');
        decimals += 1;
    }
    if digits == 0 || (point && decimals == 0) {
        return None;
    }
    const SCALE: [u64; NANO_DIGITS + 1] = [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    Some(Moment::from_nanos(nanos * SCALE[decimals]))
}

fn slow_moment(row: &[u8]) -> Option<Moment> {
    let millis: f64 = std::str::from_utf8(row).ok()?.parse().ok()?;
    (0.0..=MILLIS_MAX).contains(&millis).then(|| Moment::from_millis(millis))
}

fn read_rates(mut body: &[u8], column: usize) -> Result<ArrivalTrace, Refused> {
    let mut rows: Vec<(u64, f64)> = Vec::new();
    let mut line = 1;
    while !body.is_empty() {
        line += 1;
        let (row, rest) = split_line(body);
        body = rest;
        if row.is_empty() {
            continue;
        }
        let mut cells = row.split(|&b| b == b',').map(trimmed);
        let second = cells.next().unwrap_or_default();
        let rate = cells.nth(column - 1).ok_or_else(|| invalid(line, row, "as many cells as the header has"))?;
        let text = |cell| std::str::from_utf8(cell).ok();
        let second_at: u64 = text(second)
            .and_then(|s| s.parse().ok())
            .filter(|&s: &u64| (s as f64) * 1e3 <= MILLIS_MAX)
            .ok_or_else(|| invalid(line, second, "a whole second of at least 0"))?;
        let qps: f64 = text(rate)
            .and_then(|s| s.parse().ok())
            .filter(|q: &f64| q.is_finite() && *q >= 0.0)
            .ok_or_else(|| invalid(line, rate, "a rate of at least 0"))?;
        if let Some(&(before, _)) = rows.last().filter(|(before, _)| *before >= second_at) {
            let found = format!("second {second_at} after {before}");
            return Err((line, Invalid::new("", found, "seconds that increase")));
        }
        rows.push((second_at, qps));
    }
    ArrivalTrace::rates(rows).map_err(|e| (line, e))
}

/// Writes a trace in its own form.
///
/// # Errors
/// The writer's.
pub fn write_trace(trace: &ArrivalTrace, out: &mut impl Write) -> io::Result<()> {
    match trace {
        ArrivalTrace::Arrivals(moments) => {
            writeln!(out, "{ARRIVAL}")?;
            for m in moments {
                writeln!(out, "{}", decimal_millis(m.as_nanos()))?;
            }
        }
        ArrivalTrace::Rates(rows) => {
            writeln!(out, "{SECOND},{RATE}")?;
            for (second, qps) in rows {
                writeln!(out, "{second},{qps}")?;
            }
        }
    }
    Ok(())
}

/// Nanoseconds as exact milliseconds with six decimals.
pub(crate) fn decimal_millis(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000)
}

/// The figures of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceSummary {
    /// The rows: arrivals or rates.
    pub form: TraceKind,
    /// Rows.
    pub rows: u64,
    /// Time from the origin to the last arrival, or to the end of the last second.
    pub duration_s: f64,
    /// Number of queries; the expected number for rates.
    pub queries: f64,
    /// Queries divided by the duration.
    pub mean_qps: f64,
    /// Largest number of queries in one second.
    pub peak_qps: f64,
    /// Coefficient of variation of the gaps between arrivals; null for rates, and with fewer than three arrivals.
    pub gap_cv: Option<f64>,
    /// Mean rate in each of at most [`PROFILE_PARTS_MAX`] nearly equal parts of the duration.
    pub profile: Vec<f64>,
}

/// Parts of [`TraceSummary::profile`].
pub const PROFILE_PARTS_MAX: usize = 60;

/// Summarises a trace.
#[must_use]
pub fn summarise(trace: &ArrivalTrace) -> TraceSummary {
    const NANOS: u64 = 1_000_000_000;
    let seconds: Vec<(u64, f64)> = match trace {
        ArrivalTrace::Rates(rows) => rows.clone(),
        ArrivalTrace::Arrivals(moments) => {
            let counts = moments.chunk_by(|a, b| a.as_nanos() / NANOS == b.as_nanos() / NANOS);
            counts.map(|c| (c[0].as_nanos() / NANOS, c.len() as f64)).collect()
        }
    };
    let (form, rows, duration_s, gap_cv) = match trace {
        ArrivalTrace::Rates(rows) => {
            let end = rows.last().map_or(0.0, |(second, _)| (second + 1) as f64);
            (TraceKind::Rates, rows.len(), end, None)
        }
        ArrivalTrace::Arrivals(moments) => {
            let end = moments.last().map_or(0.0, |m| m.as_millis() / 1e3);
            (TraceKind::Arrivals, moments.len(), end, gap_cv(moments))
        }
    };
    let counts = || seconds.iter().map(|&(_, count)| count);
    let queries: f64 = counts().sum();
    let whole = seconds.last().map_or(1, |(second, _)| second + 1);
    let parts = whole.min(PROFILE_PARTS_MAX as u64);
    let start_of = |part: u64| (u128::from(part) * u128::from(whole)).div_ceil(u128::from(parts)) as u64;
    let mut profile = vec![0.0; parts as usize];
    for (second, count) in &seconds {
        let part = (u128::from(*second) * u128::from(parts) / u128::from(whole)) as u64;
        profile[part as usize] += count / (start_of(part + 1) - start_of(part)) as f64;
    }
    TraceSummary {
        form,
        rows: rows as u64,
        duration_s,
        queries,
        mean_qps: if duration_s > 0.0 { queries / duration_s } else { 0.0 },
        peak_qps: counts().fold(0.0, f64::max),
        gap_cv,
        profile,
    }
}

fn gap_cv(moments: &[Moment]) -> Option<f64> {
    const ARRIVALS_MIN: usize = 3;
    if moments.len() < ARRIVALS_MIN {
        return None;
    }
    let gaps = || moments.windows(2).map(|w| w[1].since(w[0]).as_millis());
    let n = (moments.len() - 1) as f64;
    let mean = gaps().sum::<f64>() / n;
    let variance = gaps().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_time_gives_the_same_moment() {
        let text = "arrival_ms\r\n5\r\n5.0\n5.000001\n5.0000015\n6e0\n\n7.\n";
        let ArrivalTrace::Arrivals(moments) = read_trace("t", text, None).expect("a trace") else { panic!("arrivals") };
        let nanos: Vec<_> = moments.iter().map(|m| m.as_nanos()).collect();
        assert_eq!(nanos, [5_000_000, 5_000_000, 5_000_001, 5_000_002, 6_000_000, 7_000_000]);
    }

    #[test]
    fn a_bad_trace_is_refused_at_its_line() {
        let cases = [
            ("", "t: line 1: an empty file: expected a header"),
            ("arrival_ms\n", "t: line 1: 0 rows: expected 1 to"),
            ("arrival_ms\n1\n2\n1.5\n", "t: line 4: 1.5 after 2: expected arrivals that never go backwards"),
            ("arrival_ms\n1\nNaN\n", "t: line 3: \"NaN\": expected a time in milliseconds of at least 0"),
            ("arrival_ms\n-1\n", "t: line 2: \"-1\": expected a time"),
            ("arrival_ms\n1e300\n", "t: line 2: \"1e300\": expected a time"),
            ("second,qps\n0,1\n0,2\n", "t: line 3: second 0 after 0: expected seconds that increase"),
            ("second,qps\n0,NaN\n", "t: line 2: \"NaN\": expected a rate of at least 0"),
            ("second,qps\n0.5,1\n", "t: line 2: \"0.5\": expected a whole second"),
            ("second,qps\n0\n", "t: line 2: \"0\": expected as many cells"),
            ("second,qps\n", "t: line 1: 0 rows: expected 1 to"),
            ("time\n1\n", "t: line 1: the header \"time\": expected a header \"arrival_ms\" or \"second,qps\""),
        ];
        for (text, expected) in cases {
            let found = read_trace("t", text, None).expect_err(text).to_string();
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    #[test]
    fn a_column_is_chosen_by_name() {
        let text = "second,qps,yolo,bert\n0,9,1,2\n1,9,3,4\n";
        assert_eq!(read_trace("t", text, Some("bert")), Ok(ArrivalTrace::Rates(vec![(0, 2.0), (1, 4.0)])));
        assert_eq!(read_trace("t", text, None), Ok(ArrivalTrace::Rates(vec![(0, 9.0), (1, 9.0)])));
        let wrong = read_trace("t", text, Some("brt")).expect_err("no such column").to_string();
        assert_eq!(wrong, "t: line 1: column \"brt\": expected the column \"bert\"");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let moments = vec![Moment::from_nanos(1), Moment::from_nanos(1_500_000_000)];
        for trace in [ArrivalTrace::Arrivals(moments), ArrivalTrace::Rates(vec![(0, 1.5), (7, 0.1)])] {
            let mut text = Vec::new();
            write_trace(&trace, &mut text).expect("memory does not fail");
            assert_eq!(read_trace("t", text, None), Ok(trace));
        }
    }

    #[test]
    fn a_summary_counts_and_measures_burstiness() {
        let even = ArrivalTrace::Arrivals((0..10).map(|i| Moment::from_nanos(i * 500_000_000)).collect());
        let s = summarise(&even);
        assert_eq!((s.rows, s.queries, s.peak_qps, s.duration_s), (10, 10.0, 2.0, 4.5));
        assert_eq!(s.gap_cv, Some(0.0));
        assert_eq!(s.profile, [2.0; 5]);
        let uneven = summarise(&ArrivalTrace::Rates((0..100).map(|s| (s, 3.0)).collect()));
        assert_eq!(uneven.profile.len(), PROFILE_PARTS_MAX);
        assert!(uneven.profile.iter().all(|r| (r - 3.0).abs() < 1e-9), "{:?}", uneven.profile);
    }
}
