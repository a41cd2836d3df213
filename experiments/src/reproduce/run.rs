//! How are comparisons run and their results written?

use super::across::{closed_forms, greedy_vs_milp};
use super::headline;
use super::lab::Lab;
use super::report::{Report, html};
use super::{infaas, inferline, loki, pard, robustness};
use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output;
use apportion_support::progress::ticking_bar;
use apportion_wire::BadInput;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Comparison = fn(&Lab) -> Result<Report, Failure>;

/// Every comparison by its name, in the order of the report.
const ALL: [(&str, Comparison); 21] = [
    ("headline", headline::report),
    ("robustness", robustness::report),
    ("estimator-closed-forms", closed_forms::report),
    ("inferline-cost", inferline::cost::cost),
    ("inferline-estimator", inferline::estimator::report),
    ("inferline-tuner", inferline::tuner::tuner),
    ("greedy-vs-milp", greedy_vs_milp::report),
    ("loki-capacity", loki::capacity::capacity),
    ("loki-slo", loki::slo::slo),
    ("loki-phases", loki::phases::phases),
    ("loki-dropping", loki::dropping::report),
    ("infaas-cost", infaas::cost::cost),
    ("infaas-decisions", infaas::decisions::decisions),
    ("pard-goodput", pard::goodput::goodput),
    ("pard-ablations", pard::ablations::ablations),
    ("pard-where", pard::places::report),
    ("pard-over-time", pard::over_time::report),
    ("pard-lambda", pard::sweeps::lambda),
    ("pard-window", pard::sweeps::window),
    ("pard-slo", pard::sweeps::slo),
    ("pard-stress", pard::sweeps::stress),
];

/// The name that stands for every comparison.
const EVERY: &str = "all";

/// The names that a run may be asked for: `all`, and each comparison.
pub fn names() -> Vec<&'static str> {
    std::iter::once(EVERY).chain(ALL.map(|(name, _)| name)).collect()
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct ReproduceSettings {
    /// Which comparison, or `all`.
    pub name: String,
    /// Folder of shared profiles, problems and traces; `None` for the built-in ones.
    pub data: Option<PathBuf>,
    /// Folders of rate files that the headline plays too, or names of sets of its protocol.
    pub traces: Vec<PathBuf>,
    /// Problem files that the headline and the robustness take in the place of the protocol's pipelines.
    pub problems: Vec<PathBuf>,
    /// The only contenders that the headline plays; all of its protocol if this is empty.
    pub contenders: Vec<String>,
    /// Folder for the page and the plots; made if it is not there.
    pub out: PathBuf,
    /// Root of all random streams.
    pub seed: u64,
    /// Whether settings are tiny: everything runs, and the figures mean nothing.
    pub quick: bool,
}

/// Runs the comparisons, prints their reports, and writes the page.
///
/// # Errors
/// If a folder or file cannot be used, or a comparison fails.
pub fn run(settings: &ReproduceSettings) -> CommandResult {
    if let Some(data) = settings.data.as_ref().filter(|d| !d.is_dir()) {
        let found = "not a folder that can be read";
        return Err(
            BadInput::one("--data", data.display().to_string(), found, "a folder with problems/ and traces/").into()
        );
    }
    let chosen: Vec<_> = ALL.into_iter().filter(|(name, _)| settings.name == EVERY || settings.name == *name).collect();
    make_folder(&settings.out)?;
    let lab = Lab {
        unfinished: Some(settings.out.clone()),
        data: settings.data.clone(),
        traces: settings.traces.clone(),
        problems: settings.problems.clone(),
        contenders: settings.contenders.clone(),
        quick: settings.quick,
        seed: settings.seed,
        bar: ticking_bar(chosen.len() as u64, "{bar:20} {pos}/{len} {msg} ({elapsed})"),
    };
    let start = Instant::now();
    let mut reports = Vec::with_capacity(chosen.len());
    for (name, comparison) in chosen {
        lab.show_step(name);
        let report = comparison(&lab)?;
        lab.bar.suspend(|| output::print(&(report.text() + "\n")))?;
        lab.remove_unfinished(name)?;
        reports.push(report);
        lab.bar.inc(1);
    }
    lab.bar.finish_and_clear();
    let page = write(settings, &reports, start.elapsed())?;
    output::print(&format!("page: {}\n", page.display()))?;
    Ok(Exit::Done)
}

/// Writes one SVG for each plot, and the page. Returns the path of the page.
fn write(settings: &ReproduceSettings, reports: &[Report], took: Duration) -> Result<PathBuf, Failure> {
    let file = |name: &str| settings.out.join(name);
    for r in reports {
        for (i, plot) in r.plots.iter().enumerate() {
            let svg = plot.svg()?;
            save(&file(&format!("{}-{}.svg", r.name, i + 1)), &svg)?;
        }
    }
    let data = settings
        .data
        .as_ref()
        .map_or("the problems and traces that are built in", |_| "shared data where a comparison has some");
    let quick = if settings.quick { " Tiny settings: the figures mean nothing." } else { "" };
    let head = format!(
        "Made by apportion {} with seed {} on {data}, in {:.0} s.{quick} Plans are made on one load and judged on \
         another (the next seed). The estimator replays every plan with the serving policies that the agents run. Each \
         comparison states the paper's claim, as far as our copy has it, and the result here. Where they differ, it \
         adds the probable reason, which these runs do not test.",
        env!("CARGO_PKG_VERSION"),
        settings.seed,
        took.as_secs_f64(),
    );
    let page = file("index.html");
    save(&page, &html(reports, &head)?)?;
    Ok(page)
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    Ok(())
}

fn save(file: &Path, text: &str) -> Result<(), Failure> {
    output::write_file(&file.display().to_string(), |out| out.write_all(text.as_bytes()))
}
