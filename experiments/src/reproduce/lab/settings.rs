//! Which settings does a run have, and how does it get its problems, traces and plans?

use super::loads::{rates_by_second, seconds_of};
use super::problems::BuiltIn;
use crate::reproduce::report::Report;
use anyhow::Context;
use apportion_domain::{ArrivalTrace, Plan, Problem};
use apportion_estimator::Workload;
use apportion_planning::{Planner, PlanningOptions, plan};
use apportion_support::exit::Failure;
use apportion_support::{input, output};
use apportion_wire::BadInput;
use indicatif::ProgressBar;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest search of one planner for one plan.
const PLAN_TIME_MAX: Duration = Duration::from_secs(5);

/// Most seconds of a trace of rates that are read: 100 days.
pub const RATE_SECONDS_MAX: usize = 8_640_000;

/// The settings of a run.
#[derive(Clone)]
pub struct Lab {
    /// The folder of shared data, if there is one.
    pub data: Option<PathBuf>,
    /// Folders of rate files for the headline, or names of its sets.
    pub traces: Vec<PathBuf>,
    /// Problem files of the user's, in the place of the headline's pipelines; may be empty.
    pub problems: Vec<PathBuf>,
    /// The only contenders that the headline plays, by name; all if this is empty.
    pub contenders: Vec<String>,
    /// Folder for reports of comparisons that still run; `None` keeps none.
    pub unfinished: Option<PathBuf>,
    /// Whether settings are tiny: all code runs, and the figures mean nothing.
    pub quick: bool,
    /// Seed of the load that plans are made on. Plans are judged on the load of the next seed.
    pub seed: u64,
    /// Shows the present step.
    pub bar: ProgressBar,
}

impl Lab {
    /// Tiny settings on what is built in, for tests.
    #[cfg(test)]
    pub fn quick() -> Self {
        let bar = ProgressBar::hidden();
        let (traces, problems, contenders) = (Vec::new(), Vec::new(), Vec::new());
        Self { data: None, traces, problems, contenders, unfinished: None, quick: true, seed: 1, bar }
    }

    /// Seed of the load on which plans are judged.
    pub fn held_out_seed(&self) -> u64 {
        self.seed.wrapping_add(1)
    }

    /// `full`, or `quick` if settings are tiny.
    pub fn full_or_quick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Shows the present step. Where stderr is no terminal, each step is a line
    /// there, with the seconds since the start: a long run leaves a log.
    pub fn show_step(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        let what = what.into();
        if self.bar.is_hidden() && !self.quick {
            eprintln!("reproduce: {:5.0} s: {what}", self.bar.elapsed().as_secs_f64());
        }
        self.bar.set_message(what);
    }

    /// Saves what a comparison has found so far, so that a run that is stopped leaves its figures.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save_unfinished(&self, report: &Report) -> Result<(), Failure> {
        let Some(file) = self.unfinished_file(report.name) else { return Ok(()) };
        output::write_file(&file.display().to_string(), |out| out.write_all(report.text().as_bytes()))
    }

    /// Removes what [`Lab::save_unfinished`] saved of a comparison that is done.
    ///
    /// # Errors
    /// If the file is there and cannot be removed.
    pub fn remove_unfinished(&self, comparison: &str) -> Result<(), Failure> {
        match self.unfinished_file(comparison) {
            Some(file) if file.exists() => {
                std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display())).map_err(Failure::from)
            }
            _ => Ok(()),
        }
    }

    fn unfinished_file(&self, comparison: &str) -> Option<PathBuf> {
        self.unfinished.as_ref().map(|folder| folder.join(format!("{comparison}-unfinished.txt")))
    }

    /// A file of the data folder, if there is such a folder.
    pub fn data_file(&self, name: &str) -> Option<PathBuf> {
        self.data.as_ref().map(|folder| folder.join(name))
    }

    /// A problem of the data folder, or else the built-in one.
    ///
    /// # Errors
    /// If the file holds no allocation problem.
    pub fn problem(&self, data: &str, built_in: &BuiltIn) -> Result<Problem, Failure> {
        match self.data_file(data) {
            Some(file) => input::read_allocation_problem(&file.display().to_string()),
            None => built_in.problem(),
        }
    }

    /// The first seconds of a trace of rates, moved to second 0: one rate for each second ([`rates_by_second`]).
    ///
    /// # Errors
    /// If the file holds no trace of rates, or a trace of more than [`RATE_SECONDS_MAX`].
    pub fn rates(&self, file: &Path, column: Option<&str>, seconds: usize) -> Result<Vec<f64>, Failure> {
        let name = file.display().to_string();
        match input::read_trace(&name, column)? {
            ArrivalTrace::Rates(rows) if seconds.min(seconds_of(&rows)) > RATE_SECONDS_MAX => {
                let found = format!("{} seconds from the first row to the last", seconds_of(&rows));
                Err(BadInput::one(&name, "", found, format!("at most {RATE_SECONDS_MAX}")).into())
            }
            ArrivalTrace::Rates(rows) => Ok(rates_by_second(&rows, seconds)),
            ArrivalTrace::Arrivals(_) => {
                Err(BadInput::one(&name, "", "a list of arrivals", "rates: the columns second and qps").into())
            }
        }
    }

    /// A plan, without explanation; `None` if the planner finds none.
    pub fn plan(&self, problem: &Problem, planner: Planner, trace: Option<Workload>) -> Option<Plan> {
        self.plan_within(PLAN_TIME_MAX, problem, planner, trace)
    }

    /// The same plan with a ladder up to `ladder` times the demand, if asked for.
    pub fn plan_with_ladder(
        &self,
        problem: &Problem,
        planner: Planner,
        trace: Option<Workload>,
        ladder: Option<f64>,
    ) -> Option<Plan> {
        plan(problem, &PlanningOptions { ladder, ..options(PLAN_TIME_MAX, planner, trace) }).0.plan().cloned()
    }

    /// The same plan with another limit on the planning time.
    pub fn plan_within(
        &self,
        time_max: Duration,
        problem: &Problem,
        planner: Planner,
        trace: Option<Workload>,
    ) -> Option<Plan> {
        plan(problem, &options(time_max, planner, trace)).0.plan().cloned()
    }
}

/// Options of a search that ends `time_max` from now.
fn options(time_max: Duration, planner: Planner, trace: Option<Workload>) -> PlanningOptions {
    let start = Instant::now();
    let elapsed = Arc::new(move || start.elapsed());
    PlanningOptions { planner, time_limit: Some(time_max), trace, ..PlanningOptions::new(elapsed) }
}
