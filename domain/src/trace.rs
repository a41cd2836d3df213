//! Traces: when queries arrive, or how many per second.

use crate::{Invalid, Moment};

/// Load over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Trace {
    /// One moment per query, never going backwards.
    Arrivals(Vec<Moment>),
    /// Queries per second in each listed second, seconds increasing; arrivals are drawn by the estimator's workload.
    Rates(Vec<(u64, f64)>),
}

/// Largest number of rows of a trace.
pub const TRACE_ROWS_MAX: usize = 200_000_000;

impl Trace {
    /// A trace of single arrivals.
    ///
    /// # Errors
    /// The first row (0 based, as pointer `/row`) that goes backwards; an empty trace.
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

    /// A trace of rates.
    ///
    /// # Errors
    /// The first row (0 based, as pointer `/row`) whose second does not increase or whose rate is no finite number of at
    /// least 0; an empty trace.
    pub fn rates(rows: Vec<(u64, f64)>) -> Result<Self, Invalid> {
        if rows.is_empty() || rows.len() > TRACE_ROWS_MAX {
            return Err(Invalid::new("", format!("{} rows", rows.len()), format!("1 to {TRACE_ROWS_MAX} seconds")));
        }
        if let Some(i) = rows.iter().position(|&(_, qps)| !(qps >= 0.0 && qps.is_finite())) {
            return Err(Invalid::new(format!("/{i}"), rows[i].1, "a rate of at least 0"));
        }
        match rows.windows(2).position(|w| w[1].0 <= w[0].0) {
            Some(i) => {
                let found = format!("second {} after {}", rows[i + 1].0, rows[i].0);
                Err(Invalid::new(format!("/{}", i + 1), found, "seconds that increase"))
            }
            None => Ok(Self::Rates(rows)),
        }
    }
}
