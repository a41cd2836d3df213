//! Which settings does `apportion demo` take?

use anyhow::ensure;
use apportion_experiments::demo::{self, DemoSettings};
use apportion_experiments::live::fleet::FleetSettings;
use apportion_support::exit::CommandResult;
use apportion_support::output::OutputFormat;
use clap::Args;
use std::path::PathBuf;

/// Slowest devices that can be asked for.
const MULTIPLE_MAX: f64 = 1e4;

/// The processes to start, and the pipeline that they serve.
#[derive(Args, Debug)]
pub struct FleetArgs {
    /// Agents to start.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    agents: u32,
    /// Devices of each agent.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    devices: u32,
    /// A device holds its slot until this multiple of the measured time, so that devices are the bottleneck and not cores.
    /// Without it: 10, or the multiple that the free processors and the objective need.
    #[arg(long)]
    multiple: Option<f64>,
    /// The pipeline to deploy; it must name a validation set with the rule `value`.
    #[arg(long)]
    pipeline: Option<PathBuf>,
    /// Where the service and the agents keep their files and logs; a temporary folder by default.
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

impl FleetArgs {
    /// The settings of a fleet.
    ///
    /// # Errors
    /// If the multiple is out of range.
    pub fn settings(self) -> anyhow::Result<FleetSettings> {
        let Self { agents, devices, multiple, pipeline, data_dir } = self;
        let asked = multiple.unwrap_or(1.0);
        ensure!((1.0..=MULTIPLE_MAX).contains(&asked), "--multiple {asked}: expected 1 to {MULTIPLE_MAX}");
        Ok(FleetSettings { agents, devices, multiple, pipeline, data_dir })
    }
}

/// Arguments of `apportion demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// `table` for people, `json` for programs.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Keep everything up after the summary and print one JSON line with the addresses.
    #[arg(long)]
    hold: bool,
    /// Length of the load in seconds: a third at the base rate, a third at twice that, a third at the base rate.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill the last agent this many seconds into the load (clients use the other agents' ingresses).
    #[arg(long)]
    kill_at: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// If the arguments do not fit each other, or the demo cannot run to its end.
pub fn run(args: DemoArgs) -> CommandResult {
    let DemoArgs { format, hold, seconds, fleet, seed, kill_at } = args;
    let fleet = fleet.settings()?;
    if kill_at.is_some() && fleet.agents < 2 {
        return Err(anyhow::anyhow!("--kill-at needs at least two agents").into());
    }
    demo::run(&DemoSettings { format, hold, seconds, fleet, seed, kill_at })
}
