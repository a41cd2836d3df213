//! `apportion reproduce`: the papers' comparisons, run again on this code.
//!
//! What belongs here: problems, loads and settings of the comparisons, their measures, the report. What never does: a policy
//! or a planner. The commonest addition is a comparison: a function that returns a [`report::Report`], and a row in [`ALL`].

mod closed_forms;
mod contest;
mod greedy_vs_milp;
mod headline;
mod headline_claims;
mod infaas;
mod inferline;
mod inferline_estimator;
mod inferline_tuner;
mod inferline_tuner_claims;
mod lab;
mod loki;
mod loki_dropping;
mod loki_phases;
mod loki_rerouting;
mod metrics;
mod module_times;
mod overload;
mod page;
mod pard;
mod pard_ablations;
mod pard_over_time;
mod pard_sweeps;
mod pard_where;
mod planned;
mod plot;
mod report;
mod system;

use crate::exit::{Exit, Failure, Outcome};
use crate::input;
use crate::output;
use anyhow::Context;
use apportion_wire::BadInput;
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use lab::Lab;
use report::Report;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Comparison = fn(&Lab) -> Result<Report, Failure>;

/// Every comparison by its name, in the order of the report.
const ALL: [(&str, Comparison); 20] = [
    ("headline", headline::report),
    ("estimator-closed-forms", closed_forms::report),
    ("inferline-cost", inferline::cost),
    ("inferline-estimator", inferline_estimator::report),
    ("inferline-tuner", inferline_tuner::tuner),
    ("greedy-vs-milp", greedy_vs_milp::report),
    ("loki-capacity", loki::capacity),
    ("loki-slo", loki::slo),
    ("loki-phases", loki_phases::phases),
    ("loki-dropping", loki_dropping::report),
    ("infaas-cost", infaas::cost),
    ("infaas-decisions", infaas::decisions),
    ("pard-goodput", pard::goodput),
    ("pard-ablations", pard_ablations::ablations),
    ("pard-where", pard_where::report),
    ("pard-over-time", pard_over_time::report),
    ("pard-lambda", pard_sweeps::lambda),
    ("pard-window", pard_sweeps::window),
    ("pard-slo", pard_sweeps::slo),
    ("pard-stress", pard_sweeps::stress),
];
/// The name that stands for every comparison.
const EVERY: &str = "all";

fn names() -> Vec<&'static str> {
    std::iter::once(EVERY).chain(ALL.map(|(name, _)| name)).collect()
}

/// Arguments of `apportion reproduce`.
#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// Which comparison, or all.
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: String,
    /// Folder of shared profiles, problems and traces; without it, what is built in.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder for the page and the plots; made if it is not there.
    #[arg(long, default_value = "reproduce")]
    out: PathBuf,
    /// Root of all random streams.
    #[arg(long, default_value_t = input::SEED)]
    seed: u64,
    /// Tiny settings that show that everything runs; their figures mean nothing.
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub fn run(args: &ReproduceArgs) -> Outcome {
    if let Some(data) = args.data.as_ref().filter(|d| !d.is_dir()) {
        let found = "not a folder that can be read";
        return Err(
            BadInput::one("--data", data.display().to_string(), found, "a folder with problems/ and traces/").into()
        );
    }
    let chosen: Vec<_> = ALL.into_iter().filter(|(name, _)| args.name == EVERY || args.name == *name).collect();
    let lab = Lab { data: args.data.clone(), quick: args.quick, seed: args.seed, bar: bar(chosen.len() as u64) };
    let start = Instant::now();
    let mut reports = Vec::with_capacity(chosen.len());
    for (name, comparison) in chosen {
        lab.now(name);
        let report = comparison(&lab)?;
        lab.bar.suspend(|| output::print(&(report.text() + "\n")))?;
        reports.push(report);
        lab.bar.inc(1);
    }
    lab.bar.finish_and_clear();
    let page = write(args, &reports, start.elapsed())?;
    output::print(&format!("page: {}\n", page.display()))?;
    Ok(Exit::Done)
}

/// Writes one SVG for each plot and the page; where the page is.
fn write(args: &ReproduceArgs, reports: &[Report], took: Duration) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("making the folder {}", args.out.display()))?;
    let file = |name: &str| args.out.join(name);
    for r in reports {
        for (i, plot) in r.plots.iter().enumerate() {
            let svg = plot.svg()?;
            save(&file(&format!("{}-{}.svg", r.name, i + 1)), &svg)?;
        }
    }
    let data = args
        .data
        .as_ref()
        .map_or("the problems and traces that are built in", |_| "shared data where a comparison has some");
    let quick = if args.quick { " Tiny settings: the figures mean nothing." } else { "" };
    let head = format!(
        "Made by apportion {} with seed {} on {data}, in {:.0} s.{quick} Plans are made on one load and judged on another (the next \
         seed). Every plan is replayed by the estimator with the serving policies that the agents run. Each comparison says what \
         the paper claims, as far as our copy states it, what was seen here, and the probable reason where they differ, which these runs do not test.",
        env!("CARGO_PKG_VERSION"),
        args.seed,
        took.as_secs_f64(),
    );
    let page = file("index.html");
    save(&page, &page::html(reports, &head)?)?;
    Ok(page)
}

fn save(file: &Path, text: &str) -> Result<(), Failure> {
    output::write_file(&file.display().to_string(), |out| out.write_all(text.as_bytes()))
}

fn bar(comparisons: u64) -> ProgressBar {
    const TICK: Duration = Duration::from_millis(100);
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(comparisons);
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} ({elapsed})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(TICK);
    bar
}

/// A share as people read it.
fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
