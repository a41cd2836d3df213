//! How does `apportion trace` make and inspect traces, and bring them to a service?

use crate::args;
use crate::resources::ResourceCommand;
use crate::resources::kinds::TraceResource;
use crate::service::{ServerArgs, ServiceClient, converse};
use crate::workload;
use anyhow::Context;
use apportion_domain::ArrivalTrace;
use apportion_estimator::ArrivalProcess;
use apportion_estimator::draw;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, number, optional};
use apportion_wire::{BadInput, TraceSummary, summarise, write_trace};
use clap::{Args, Subcommand, ValueEnum};
use std::fmt::Write as _;
use std::path::Path;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Make a trace from a shape.
    Generate(GenerateArgs),
    /// Describe a trace.
    Inspect(InspectArgs),
    /// Upload a trace to a service, and print its identifier.
    Upload(UploadArgs),
    #[command(flatten)]
    Resource(ResourceCommand<TraceResource>),
}

/// How the rate moves over the length of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// One rate.
    Constant,
    /// A third at the rate, a third at the peak, a third at the rate.
    Step,
    /// From the rate to the peak in a straight line.
    Ramp,
    /// From the rate up to the peak and back, like a day.
    Diurnal,
    /// The rate, with a twentieth of the length in the middle at the peak.
    Spike,
}

/// How the trace is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `second,qps`.
    #[default]
    Rates,
    /// `arrival_ms`, drawn from the rates.
    Arrivals,
}

/// Arguments of `apportion trace generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// How the rate moves.
    #[arg(long, value_enum, default_value = "constant")]
    shape: Shape,
    /// The rate, in queries per second.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    qps: f64,
    /// The peak; twice the rate if not given.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    peak_qps: Option<f64>,
    /// Length in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: u64,
    /// The form of the output: rates, or arrivals drawn from them.
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    /// How arrivals are drawn: poisson, uniform or gamma:CV.
    #[arg(long, default_value = "poisson", value_parser = args::arrivals)]
    arrivals: ArrivalProcess,
    /// Root of the random stream.
    #[arg(long, default_value_t = workload::SEED)]
    seed: u64,
    /// Where to write; stdout if not given.
    #[arg(long)]
    out: Option<String>,
}

/// Arguments of `apportion trace inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Trace file.
    trace: String,
    /// Column of rates.
    #[arg(long)]
    column: Option<String>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion trace upload`.
#[derive(Args, Debug)]
pub struct UploadArgs {
    /// Trace file.
    trace: String,
    /// Its name [default: the name of the file without its ending].
    #[arg(long)]
    name: Option<String>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs a subcommand.
pub fn run(command: &TraceCommand) -> CommandResult {
    match command {
        TraceCommand::Generate(args) => generate(args),
        TraceCommand::Inspect(args) => inspect(args),
        TraceCommand::Upload(args) => upload(args),
        TraceCommand::Resource(command) => command.run(),
    }
}

fn generate(args: &GenerateArgs) -> CommandResult {
    let peak = args.peak_qps.unwrap_or(2.0 * args.qps);
    let rate = |second| (second, rate_at(args.shape, args.qps, peak, second, args.seconds));
    let rates: Vec<(u64, f64)> = (0..args.seconds).map(rate).collect();
    let refused = |e: apportion_domain::Invalid| BadInput::one("trace generate", "", e.value, e.expected);
    let trace = match args.form {
        Form::Rates => ArrivalTrace::rates(rates).map_err(refused)?,
        Form::Arrivals => {
            let queries: f64 = rates.iter().map(|(_, qps)| qps).sum();
            if queries > ARRIVALS_MAX {
                let expected = format!("at most {ARRIVALS_MAX} arrivals");
                return Err(BadInput::one("trace generate", "--qps", format!("{queries} arrivals"), expected).into());
            }
            ArrivalTrace::arrivals(draw(&ArrivalTrace::Rates(rates), args.arrivals, args.seed, STREAM)).map_err(refused)?
        }
    };
    match &args.out {
        Some(file) => output::write_file(file, |out| write_trace(&trace, out))?,
        None => {
            let mut text = Vec::new();
            write_trace(&trace, &mut text).context("writing to memory")?;
            output::print(&String::from_utf8(text).context("the trace as text")?)?;
        }
    }
    Ok(Exit::Done)
}

/// Name of the random stream of generated arrivals.
const STREAM: &str = "trace generate";
/// Most arrivals that are generated.
const ARRIVALS_MAX: f64 = 1e8;

fn rate_at(shape: Shape, base: f64, peak: f64, second: u64, seconds: u64) -> f64 {
    /// The spike is one part in this many of the trace.
    const SPIKE_PART: u64 = 20;
    let middle = (second as f64 + 0.5) / seconds as f64;
    match shape {
        Shape::Constant => base,
        Shape::Step if (1.0 / 3.0..2.0 / 3.0).contains(&middle) => peak,
        Shape::Spike if 2 * second + 1 >= seconds && (second - seconds / 2) * SPIKE_PART < seconds => peak,
        Shape::Step | Shape::Spike => base,
        Shape::Ramp => base + (peak - base) * middle,
        Shape::Diurnal => base + (peak - base) * (0.5 - 0.5 * (std::f64::consts::TAU * middle).cos()),
    }
}

fn inspect(args: &InspectArgs) -> CommandResult {
    let summary = summarise(&input::read_trace(&args.trace, args.column.as_deref())?);
    args.format.print(&summary, || table(&summary))?;
    Ok(Exit::Done)
}

fn upload(args: &UploadArgs) -> CommandResult {
    let stem = || Path::new(&args.trace).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(stem).unwrap_or_default();
    let text = input::read_bytes(&args.trace)?;
    let client = ServiceClient::new(&args.server)?;
    let path = client.with_query("/v1/traces", &[("name", name.as_str())]);
    let made = converse(client.upload(&path, "text/csv", text))?;
    eprintln!("created: trace {name}, {} rows", made["rows"]);
    args.format.print(&made, || made["id"].as_str().unwrap_or_default().to_owned())?;
    Ok(Exit::Done)
}

fn table(s: &TraceSummary) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| writeln!(text, "{key:<12}{value}").expect("text does not fail");
    line("form", format!("{}, {} rows", s.form, s.rows));
    line("duration", format!("{} s", number(s.duration_s)));
    line("queries", number(s.queries));
    line("mean", format!("{} queries/s", number(s.mean_qps)));
    line("peak", format!("{} queries/s in one second", number(s.peak_qps)));
    line("burstiness", format!("{} (coefficient of variation of the gaps)", optional(s.gap_cv)));
    line("profile", sparkline(&s.profile));
    text
}

fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.iter().copied().fold(0.0, f64::max);
    let bar = |v: &f64| if largest > 0.0 { BARS[((v / largest * 7.0).round() as usize).min(7)] } else { BARS[0] };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_shapes_have_the_right_rates() {
        let rates = |shape| (0..9).map(|s| rate_at(shape, 10.0, 20.0, s, 9)).collect::<Vec<_>>();
        assert_eq!(rates(Shape::Constant), [10.0; 9]);
        assert_eq!(rates(Shape::Step), [10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 10.0, 10.0, 10.0]);
        let spikes = rates(Shape::Spike).iter().filter(|r| **r == 20.0).count();
        assert_eq!(spikes, 1);
        let ramp = rates(Shape::Ramp);
        assert!(ramp.windows(2).all(|w| w[0] < w[1]) && ramp[4] == 15.0);
        let day = rates(Shape::Diurnal);
        assert!((day[4] - 20.0).abs() < 1e-9 && day[0] < 11.0 && day[8] < 11.0);
    }

    #[test]
    fn a_sparkline_spans_its_range() {
        assert_eq!(sparkline(&[0.0, 7.0]), "▁█");
        assert_eq!(sparkline(&[0.0]), "▁");
    }
}
