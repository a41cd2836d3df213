//! How many queries per second does each pipeline have now? By Prometheus, by a trace, or by a number.

use super::server::{MetricsSource, needed};
use crate::workload::{PipelineRate, read_rate, read_traces};
use apportion_domain::{ArrivalTrace, Problem};
use apportion_support::exit::Failure;
use apportion_wire::BadInput;
use clap::Args;

/// Seconds over which the rate of a trace is averaged: the default period of replanning.
const WINDOW_SECONDS: u64 = 10;
/// Largest demand in queries per second, as for other commands.
const DEMAND_MAX_QPS: f64 = 1e9;

/// The arguments that say the demand. Each pipeline needs one of them.
#[derive(Args, Debug)]
pub struct DemandArgs {
    /// PromQL query for the queries per second at a pipeline's root, with one series; may be repeated.
    #[arg(long, value_name = "PIPELINE=PROMQL")]
    query: Vec<String>,
    /// Trace: F, PIPELINE=F or PIPELINE=F:COLUMN; may be repeated. The demand is that of the busiest ten seconds.
    #[arg(long)]
    trace: Vec<String>,
    /// Queries per second: QPS, or PIPELINE=QPS; may be repeated.
    #[arg(long)]
    qps: Vec<String>,
}

/// The demand of one pipeline as it was seen.
#[derive(Clone, Debug)]
pub struct SeenDemand {
    /// Queries per second at the root, without headroom.
    pub qps: f64,
    /// Where it was seen: `query`, `trace` or `qps`.
    pub source: &'static str,
    /// Age of the samples behind it, in seconds, if it is known.
    pub age_s: Option<f64>,
    /// The trace that it was seen in.
    pub trace: Option<ArrivalTrace>,
}

impl DemandArgs {
    /// The demand of each pipeline, in the problem's order.
    ///
    /// # Errors
    /// If a pipeline has no demand or several, or if one cannot be read.
    pub fn read(&self, problem: &Problem, metrics: Option<&MetricsSource>) -> Result<Vec<SeenDemand>, Failure> {
        let mut seen: Vec<Option<SeenDemand>> = vec![None; problem.pipelines.len()];
        let mut add = |pipeline: usize, option: &str, text: &str, demand: SeenDemand| -> Result<(), Failure> {
            let name = &problem.pipelines[pipeline].name;
            if seen[pipeline].is_some() {
                let found = format!("a second demand for {name:?}");
                return Err(BadInput::one(option, text, found, "one of --query, --trace and --qps").into());
            }
            seen[pipeline] = Some(demand);
            Ok(())
        };
        for text in &self.qps {
            let PipelineRate { pipeline, rate_qps } = read_rate(problem, "--qps", text)?;
            add(pipeline, "--qps", text, SeenDemand { qps: rate_qps, source: "qps", age_s: None, trace: None })?;
        }
        for (pipeline, trace) in read_traces(problem, &self.trace)?.into_iter().enumerate() {
            let Some(trace) = trace else { continue };
            let demand = SeenDemand { qps: busiest_qps(&trace), source: "trace", age_s: None, trace: Some(trace) };
            add(pipeline, "--trace", &problem.pipelines[pipeline].name, demand)?;
        }
        for text in &self.query {
            let (pipeline, promql) = named_query(problem, text)?;
            let option = format!("--query {}", problem.pipelines[pipeline].name);
            let reading = needed(metrics, "--query", text)?.read_one(&option, promql)?;
            let qps = reading.samples.value;
            if qps > DEMAND_MAX_QPS {
                let expected = format!("at most {DEMAND_MAX_QPS:e} queries per second");
                return Err(BadInput::one(&option, promql, qps, expected).into());
            }
            add(pipeline, "--query", text, SeenDemand { qps, source: "query", age_s: reading.age_s, trace: None })?;
        }
        let missing = problem.pipelines.iter().zip(&seen).find(|(_, seen)| seen.is_none());
        if let Some((pipeline, _)) = missing {
            let (found, expected) = ("no demand", "--query PIPELINE=PROMQL, --trace PIPELINE=FILE or --qps PIPELINE=QPS");
            return Err(BadInput::one("advise", format!("pipeline {}", pipeline.name), found, expected).into());
        }
        Ok(seen.into_iter().flatten().collect())
    }
}

/// The position of the pipeline and the query in `PIPELINE=PROMQL`.
fn named_query<'a>(problem: &Problem, text: &'a str) -> Result<(usize, &'a str), Failure> {
    let named = text.split_once('=').and_then(|(name, promql)| {
        let pipeline = problem.pipelines.iter().position(|p| p.name == name)?;
        Some((pipeline, promql))
    });
    named.ok_or_else(|| {
        let names: Vec<&str> = problem.pipelines.iter().map(|p| p.name.as_str()).collect();
        let expected = format!("PIPELINE=PROMQL with one of {}", names.join(", "));
        BadInput::one("--query", text, "no pipeline before the first =", expected).into()
    })
}

/// The highest mean over [`WINDOW_SECONDS`] of a trace, or the mean of a shorter trace.
fn busiest_qps(trace: &ArrivalTrace) -> f64 {
    const NANOS: u64 = 1_000_000_000;
    match trace {
        ArrivalTrace::Rates(rows) => busiest(rows.len(), |row| rows[row]),
        ArrivalTrace::Arrivals(moments) => busiest(moments.len(), |row| (moments[row].as_nanos() / NANOS, 1.0)),
    }
}

/// The highest mean of rows with rising seconds.
fn busiest(rows: usize, row: impl Fn(usize) -> (u64, f64)) -> f64 {
    let (mut first, mut sum, mut highest) = (0, 0.0, 0.0_f64);
    for last in 0..rows {
        let (second, queries) = row(last);
        sum += queries;
        while row(first).0 + WINDOW_SECONDS <= second {
            sum -= row(first).1;
            first += 1;
        }
        highest = highest.max(sum);
    }
    let seconds = rows.checked_sub(1).map_or(1, |last| row(last).0 + 1);
    highest / seconds.min(WINDOW_SECONDS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::Moment;

    #[test]
    fn a_trace_has_the_demand_of_its_busiest_seconds() {
        let step = |second: u64| (second, if (30..45).contains(&second) { 40.0 } else { 20.0 });
        let rates = ArrivalTrace::rates((0..60).map(step).collect()).expect("a trace");
        assert_eq!(busiest_qps(&rates), 40.0);
        let sparse = ArrivalTrace::rates(vec![(0, 10.0), (100, 30.0), (105, 20.0)]).expect("a trace");
        assert_eq!(busiest_qps(&sparse), 5.0);
        let short = ArrivalTrace::rates(vec![(0, 10.0), (1, 20.0)]).expect("a trace");
        assert_eq!(busiest_qps(&short), 15.0);
        let moments = (0..40).map(|n| Moment::from_millis(f64::from(n) * 500.0)).collect();
        assert_eq!(busiest_qps(&ArrivalTrace::arrivals(moments).expect("a trace")), 2.0);
    }
}
