//! When do queries arrive, or how many arrive each second?

use crate::{Invalid, Moment};

/// Load over time.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrivalTrace {
    /// The moment of each query, in order.
    Arrivals(Vec<Moment>),
    /// `(second, queries per second)`, by increasing second. A second that is not listed has no queries. The workload of
    /// the estimator draws the arrivals.
    Rates(Vec<(u64, f64)>),
}

/// Largest number of rows of a trace.
pub const TRACE_ROWS_MAX: usize = 200_000_000;

impl ArrivalTrace {
    /// A trace of single arrivals.
    ///
    /// # Errors
    /// The first row (counted from 0, as pointer `/row`) that is before the row above it. An empty trace, and a trace of
    /// more than [`TRACE_ROWS_MAX`] rows.
    pub fn arrivals(moments: Vec<Moment>) -> Result<Self, Invalid> {
        if moments.is_empty() || moments.len() > TRACE_ROWS_MAX {
            return Err(Invalid::new("", format!("{} rows", moments.len()), format!("1 to {TRACE_ROWS_MAX} arrivals")));
        }
        match moments.windows(2).position(|w| w[1] < w[0]) {
            Some(i) => {
                let found = format!("{} after {}", moments[i + 1].as_millis(), moments[i].as_millis());
                Err(Invalid::new(format!("/{}", i + 1), found, "arrivals that never go backwards"))
            }
            None => Ok(Self::Arrivals(moments)),
        }
    }

    /// A trace of rates: `(second, queries per second)`.
    ///
    /// # Errors
    /// The first row (counted from 0, as pointer `/row`) whose rate is not a finite number of at least 0, or whose second
    /// does not increase. An empty trace, and a trace of more than [`TRACE_ROWS_MAX`] rows.
    pub fn rates(rows: Vec<(u64, f64)>) -> Result<Self, Invalid> {
        if rows.is_empty() || rows.len() > TRACE_ROWS_MAX {
            return Err(Invalid::new("", format!("{} rows", rows.len()), format!("1 to {TRACE_ROWS_MAX} seconds")));
        }
        let is_rate = |qps: f64| qps >= 0.0 && qps.is_finite();
        if let Some((i, &(_, qps))) = rows.iter().enumerate().find(|(_, (_, qps))| !is_rate(*qps)) {
            return Err(Invalid::new(format!("/{i}"), qps, "a rate of at least 0"));
        }
        let seconds = || rows.iter().map(|&(second, _)| second);
        match seconds().zip(seconds().skip(1)).enumerate().find(|(_, (before, second))| second <= before) {
            Some((i, (before, second))) => {
                let found = format!("second {second} after {before}");
                Err(Invalid::new(format!("/{}", i + 1), found, "seconds that increase"))
            }
            None => Ok(Self::Rates(rows)),
        }
    }
}
