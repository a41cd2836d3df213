//! Which load does a command line describe? The demands and traces of `--demand` and `--trace`.

use crate::args;
use apportion_api::analyses::load::seconds_of;
pub use apportion_api::analyses::load::with_demand;
use apportion_api::analyses::simulation::SimulatedTimes;
use apportion_domain::{ArrivalTrace, Moment, Problem};
use apportion_estimator::{ArrivalProcess, DEFAULT_SEED, Workload};
use apportion_support::exit::Failure;
use apportion_support::input::read_trace;
use apportion_wire::BadInput;
use clap::{Args, ValueEnum};
use std::path::Path;

/// The arguments that describe a load.
#[derive(Args, Debug)]
pub struct WorkloadArgs {
    /// Trace: F, PIPELINE=F or PIPELINE=F:COLUMN; may be repeated. Without one: the demand, for 60 s.
    #[arg(long)]
    pub trace: Vec<String>,
    /// Root of all random streams.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
    /// How arrivals are drawn from rates: poisson, uniform or gamma:CV.
    #[arg(long, default_value = "poisson", value_parser = args::arrivals)]
    pub arrivals: ArrivalProcess,
}

impl WorkloadArgs {
    /// The trace of each pipeline of a problem, where the command line names one.
    ///
    /// # Errors
    /// As [`read_traces`].
    pub fn read(&self, problem: &Problem) -> Result<Vec<Option<ArrivalTrace>>, Failure> {
        read_traces(problem, &self.trace)
    }
}

/// Times of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BatchTimesFlag {
    /// The profile's median.
    Median,
    /// A draw for each batch with the profile's median and 99th percentile, where it has one.
    #[default]
    P99Matched,
}

impl From<BatchTimesFlag> for SimulatedTimes {
    fn from(times: BatchTimesFlag) -> Self {
        match times {
            BatchTimesFlag::Median => Self::Median,
            BatchTimesFlag::P99Matched => Self::P99Matched,
        }
    }
}

/// Seed of the default trace.
pub const SEED: u64 = DEFAULT_SEED;

/// The problem with the demands of a command line: `QPS` for the only pipeline, or `PIPELINE=QPS`.
///
/// # Errors
/// If an argument names no rate or no pipeline.
pub fn with_demands(problem: Problem, arguments: &[String]) -> Result<Problem, Failure> {
    let mut changed = problem;
    for text in arguments {
        let PipelineRate { pipeline, rate_qps } = read_rate(&changed, "--demand", text)?;
        let hardware = changed.hardware.clone();
        let pipeline_at_rate = changed.pipelines[pipeline].changed(&hardware, |p| p.demand_qps = rate_qps);
        let pipeline_at_rate = pipeline_at_rate.map_err(|e| BadInput::refused("--demand", e))?;
        changed = changed
            .changed(|draft| draft.pipelines[pipeline] = pipeline_at_rate)
            .map_err(|e| BadInput::refused("--demand", e))?;
    }
    Ok(changed)
}

/// The rate of one pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineRate {
    /// Its position in the problem.
    pub pipeline: usize,
    /// Queries per second.
    pub rate_qps: f64,
}

/// The rate in an argument of `option`: `QPS` for the only pipeline, or `PIPELINE=QPS`.
///
/// # Errors
/// If the argument names no rate or no pipeline.
pub fn read_rate(problem: &Problem, option: &str, text: &str) -> Result<PipelineRate, Failure> {
    let names: Vec<&str> = problem.pipelines.iter().map(|p| p.name.as_str()).collect();
    let wrong = |found: &str| {
        let expected = format!("a rate from 0 to 1e9, alone or as PIPELINE=QPS with one of {}", names.join(", "));
        Failure::from(BadInput::one(option, text, found.to_owned(), expected))
    };
    let (pipeline, rate) = match text.rsplit_once('=') {
        None if names.len() == 1 => (0, text),
        None => return Err(wrong("no pipeline, and there are several")),
        Some((name, rate)) => (names.iter().position(|n| *n == name).ok_or_else(|| wrong("an unknown pipeline"))?, rate),
    };
    let rate_qps = args::rate(rate).map_err(|_| wrong("no rate"))?;
    Ok(PipelineRate { pipeline, rate_qps })
}

/// A parsed `--trace` argument: `F` or `PIPELINE=F[:COLUMN]`.
#[derive(Debug, PartialEq, Eq)]
struct TraceArgument<'a> {
    pipeline: Option<usize>,
    file: &'a str,
    column: Option<&'a str>,
}

impl<'a> TraceArgument<'a> {
    /// Parses an argument. If the whole argument names a file, it is that file, so that names may hold `=` and `:`.
    fn parse(text: &'a str, names: &[&str], exists: impl Fn(&str) -> bool) -> Result<Self, BadInput> {
        if exists(text) {
            return Ok(Self { pipeline: None, file: text, column: None });
        }
        let named = text.split_once('=').map(|(name, rest)| (names.iter().position(|n| *n == name), name, rest));
        let (pipeline, rest) = match named {
            Some((Some(pipeline), _, rest)) => (Some(pipeline), rest),
            Some((None, name, _)) => {
                let known = names.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
                let found = format!("unknown pipeline {name:?}");
                return Err(BadInput::one("--trace", text, found, format!("a file, or a pipeline: {known}")));
            }
            None => (None, text),
        };
        let (file, column) = match rest.rsplit_once(':') {
            Some((file, column)) if !exists(rest) && exists(file) => (file, Some(column)),
            _ => (rest, None),
        };
        Ok(Self { pipeline, file, column })
    }
}

/// The traces of the pipelines by the `--trace` arguments.
///
/// # Errors
/// If an argument names no trace file or no pipeline.
pub fn read_traces(problem: &Problem, arguments: &[String]) -> Result<Vec<Option<ArrivalTrace>>, Failure> {
    let names: Vec<&str> = problem.pipelines.iter().map(|p| p.name.as_str()).collect();
    let mut traces: Vec<Option<ArrivalTrace>> = vec![None; names.len()];
    for text in arguments {
        let argument = TraceArgument::parse(text, &names, |f| Path::new(f).exists())?;
        let pipeline = match argument.pipeline {
            Some(pipeline) => pipeline,
            None if names.len() == 1 => 0,
            None => {
                let expected = format!("PIPELINE=FILE with one of the pipelines {}", names.join(", "));
                return Err(BadInput::one("--trace", text, "a trace for several pipelines", expected).into());
            }
        };
        if traces[pipeline].is_some() {
            let found = format!("a second trace for {:?}", names[pipeline]);
            return Err(BadInput::one("--trace", text, found, "one trace for each pipeline").into());
        }
        traces[pipeline] = Some(read_trace(argument.file, argument.column)?);
    }
    Ok(traces)
}

/// The load of each pipeline by the `--trace` arguments. A pipeline without one gets its demand for the length of the
/// longest trace. Without any trace, the load is Poisson at the demand for 60 s.
///
/// # Errors
/// As [`read_traces`].
pub fn read_workload(
    problem: &Problem,
    arguments: &[String],
    arrivals: ArrivalProcess,
    seed: u64,
) -> Result<Workload, Failure> {
    let traces = read_traces(problem, arguments)?;
    Ok(Workload { traces: with_demand(problem, traces), arrivals, seed })
}

/// Queries per second in the busiest minute of a trace, or in all of it if it is shorter.
pub fn busiest_minute_qps(trace: &ArrivalTrace) -> f64 {
    const NANOS: u64 = 1_000_000_000;
    const MINUTE: u64 = 60;
    let counts: Vec<(u64, f64)> = match trace {
        ArrivalTrace::Rates(rows) => rows.clone(),
        ArrivalTrace::Arrivals(moments) => {
            let second = |m: &Moment| m.as_nanos() / NANOS;
            moments.chunk_by(|a, b| second(a) == second(b)).map(|c| (second(&c[0]), c.len() as f64)).collect()
        }
    };
    let window = seconds_of(trace).min(MINUTE);
    let (mut busiest, mut sum, mut from) = (0.0_f64, 0.0, 0);
    for (second, count) in &counts {
        sum += count;
        while counts[from].0 + window <= *second {
            sum -= counts[from].1;
            from += 1;
        }
        busiest = busiest.max(sum / window as f64);
    }
    busiest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_minute_is_found_in_either_form() {
        let rates = |rows: &[(u64, f64)]| busiest_minute_qps(&ArrivalTrace::Rates(rows.to_vec()));
        assert_eq!(rates(&[(0, 5.0), (1, 7.0)]), 6.0, "a short trace is one window");
        let step: Vec<(u64, f64)> = (0..180).map(|s| (s, if (60..120).contains(&s) { 9.0 } else { 3.0 })).collect();
        assert_eq!(rates(&step), 9.0);
        assert_eq!(rates(&[(0, 60.0), (1_000_000_000, 120.0)]), 2.0, "seconds that are not listed have no queries");
        let arrivals = (0..240).map(|i| Moment::from_nanos(i * 500_000_000)).collect();
        assert_eq!(busiest_minute_qps(&ArrivalTrace::Arrivals(arrivals)), 2.0);
    }

    #[test]
    fn a_trace_argument_names_pipeline_and_column() {
        let exists = |f: &str| ["t.csv", "a=b.csv", "c:d.csv"].contains(&f);
        let parse = |text| TraceArgument::parse(text, &["p", "q"], exists);
        let of = |pipeline, file, column| Ok(TraceArgument { pipeline, file, column });
        assert_eq!(parse("t.csv"), of(None, "t.csv", None));
        assert_eq!(parse("q=t.csv"), of(Some(1), "t.csv", None));
        assert_eq!(parse("q=t.csv:yolo"), of(Some(1), "t.csv", Some("yolo")));
        assert_eq!(parse("t.csv:yolo"), of(None, "t.csv", Some("yolo")));
        assert_eq!(parse("a=b.csv"), of(None, "a=b.csv", None));
        assert_eq!(parse("p=c:d.csv"), of(Some(0), "c:d.csv", None));
        assert_eq!(parse("missing.csv"), of(None, "missing.csv", None));
        assert!(parse("r=t.csv").expect_err("no such pipeline").to_string().contains("unknown pipeline \"r\""));
    }
}
