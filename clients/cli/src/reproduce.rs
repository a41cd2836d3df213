//! Which settings does `apportion dev reproduce` take?

use crate::workload;
use apportion_experiments::reproduce::{self, ReproduceSettings};
use apportion_support::exit::CommandResult;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

/// Arguments of `apportion dev reproduce`.
#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// Which comparison, or all.
    #[arg(value_parser = PossibleValuesParser::new(reproduce::names()))]
    name: String,
    /// Folder of shared profiles, problems and traces; without it, the built-in ones.
    #[arg(long)]
    data: Option<PathBuf>,
    /// For the headline: a folder of rate files that it judges as well, or the name of a set of its protocol; may be given
    /// several times.
    #[arg(long)]
    traces: Vec<PathBuf>,
    /// For the headline and the robustness: a problem file. Its pipelines, at their demands, are played in the place of the
    /// protocol's; may be given several times.
    #[arg(long = "problem", value_name = "FILE")]
    problems: Vec<PathBuf>,
    /// For the headline: a contender of its protocol; may be given several times. Only these are played, and no bound is
    /// sought. Costs are then over those of the first with a plan of its own.
    #[arg(long = "contender", value_name = "NAME")]
    contenders: Vec<String>,
    /// Folder for the page and the plots; made if it is not there.
    #[arg(long, default_value = "reproduce")]
    out: PathBuf,
    /// Root of all random streams.
    #[arg(long, default_value_t = workload::SEED)]
    seed: u64,
    /// Tiny settings: everything runs, and the figures mean nothing.
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub fn run(args: ReproduceArgs) -> CommandResult {
    let ReproduceArgs { name, data, traces, problems, contenders, out, seed, quick } = args;
    reproduce::run(&ReproduceSettings { name, data, traces, problems, contenders, out, seed, quick })
}
