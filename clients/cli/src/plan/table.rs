//! How do profile files and a few numbers become a problem, so that nobody has to write a problem file?

use crate::args;
use crate::workload;
use apportion_domain::{Mode, Problem};
use apportion_estimator::ArrivalProcess;
use apportion_import::{
    GatheredProfile, GivenNames, ProblemRequest, ProfileFormat, SLO_FACTOR, add_profile, default_slo_ms, hardware_offers,
    problem_of,
};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{BadInput, HardwareSpec, ProblemSpec, parse_tree, profile_set_from_tree};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::io::Write as _;
use std::path::Path;

/// The files that can be planned.
const PLANNED: &str = "a problem file, a profile, or a table of latencies";
/// Name of the pipeline that profiles make.
const PIPELINE: &str = "main";
/// Demand of a problem whose demand comes from a trace, until the trace is read.
const UNKNOWN_QPS: f64 = 1.0;

/// The arguments that make a problem of profiles.
#[derive(Args, Debug)]
pub struct TableArgs {
    /// Profiles: queries per second. Without it, the busiest minute of --trace.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    qps: Option<f64>,
    /// Profiles: end-to-end latency objective in milliseconds. Default: five times the time of a query alone.
    #[arg(long, value_name = "MS", value_parser = args::rate, allow_negative_numbers = true)]
    slo_ms: Option<f64>,
    /// Profiles: hardware types with the price of a device per hour and, after an x, the number of devices, for example
    /// cpu=0.05x20,t4=0.53. Without a number there are as many as the plan needs.
    #[arg(long, value_name = "NAME=PRICE[xCOUNT],..")]
    hardware: Option<String>,
    /// Profiles: the goal. Default: min_cost if a variant has no accuracy, else hardware_then_accuracy.
    #[arg(long, value_parser = PossibleValuesParser::new(Mode::NAMES))]
    goal: Option<String>,
    /// Profiles: floor on the accuracy.
    #[arg(long, value_name = "ACCURACY", value_parser = args::share)]
    min_accuracy: Option<f64>,
    /// Profiles: also write the problem here, for `check`, `simulate`, `compare` and `frontier`.
    #[arg(long, value_name = "FILE")]
    problem_out: Option<String>,
}

impl TableArgs {
    /// Refuses these arguments beside a problem file, which states the same.
    ///
    /// # Errors
    /// If one of them is given.
    pub fn refuse_for_problem(&self, file: &str) -> Result<(), Failure> {
        let given = [
            ("--qps", self.qps.is_some(), "--demand"),
            ("--slo-ms", self.slo_ms.is_some(), "the key slo_ms of the file"),
            ("--hardware", self.hardware.is_some(), "the key hardware of the file"),
            ("--goal", self.goal.is_some(), "the key objective of the file"),
            ("--min-accuracy", self.min_accuracy.is_some(), "the key min_accuracy of the file"),
            ("--problem-out", self.problem_out.is_some(), "a profile: this file is a problem already"),
        ];
        match given.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((flag, _, instead)) => {
                Err(BadInput::one(file, "", format!("a problem file, with {flag}"), instead).into())
            }
            None => Ok(()),
        }
    }
}

/// The profiles of a command line.
pub struct ProfileFiles {
    /// Their names in errors.
    name: String,
    /// Tables and profiles in JSON, with their content.
    parts: Vec<(String, ProfilePart)>,
}

enum ProfilePart {
    Table(String),
    Set(Box<apportion_wire::ProfileSet>),
}

/// The profiles, or `None` if the only file is no profile.
///
/// # Errors
/// If a file cannot be read, or several files are not all profiles.
pub fn profiles(files: &[String]) -> Result<Option<ProfileFiles>, Failure> {
    let mut parts = Vec::new();
    for file in files {
        input::refuse_model_file(file, PLANNED)?;
        if file.to_ascii_lowercase().ends_with(".csv") {
            parts.push((file.clone(), ProfilePart::Table(input::read_text(file)?)));
            continue;
        }
        // A problem that cannot be parsed is refused by its own reader.
        let tree = parse_tree(file, &input::read_text(file)?);
        match tree {
            Ok(tree) if tree.get("rows").is_some() => {
                parts.push((file.clone(), ProfilePart::Set(Box::new(profile_set_from_tree(file, tree)?))));
            }
            Ok(tree) if tree.get("tasks").is_some() && tree.get("pipelines").is_none() => {
                let expected = format!("{PLANNED}; `apportion profile {file} --out problem.json` measures the pipeline");
                return Err(BadInput::one(file, "", "a pipeline file", expected).into());
            }
            _ if files.len() == 1 => return Ok(None),
            Err(e) => return Err(e.into()),
            Ok(_) => {
                let expected = "profiles only, each in CSV or JSON, or one problem file alone";
                return Err(
                    BadInput::one(file, "", format!("no profile, and one of {} files", files.len()), expected).into()
                );
            }
        }
    }
    Ok(Some(ProfileFiles { name: files.join(" "), parts }))
}

/// The problem of profiles. Remarks about its assumptions go to stderr.
///
/// # Errors
/// If a number is missing, or a profile is refused.
pub fn problem(files: &ProfileFiles, args: &TableArgs, traces: &[String]) -> Result<Problem, Failure> {
    let refused = |found: &str, expected: &str| Failure::from(BadInput::one(&files.name, "", found, expected));
    let (profile, notes) = gather(files, args)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    let mut types: Vec<&str> = profile.rows.iter().map(|row| row.hardware.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    let Some(hardware) = offers(args)? else {
        let example = types.iter().map(|name| format!("{name}=PRICE")).collect::<Vec<_>>().join(",");
        return Err(refused("a profile, without prices", &format!("--hardware {example}, per device and hour")));
    };
    if args.qps.is_none() && traces.is_empty() {
        return Err(refused("a profile, without a demand", "--qps QPS, or --trace FILE"));
    }
    let slo_ms = args.slo_ms.unwrap_or_else(|| {
        let (name, slo_ms) = (&files.name, default_slo_ms(&profile, &hardware));
        eprintln!(
            "{name}: no --slo-ms: the objective is {slo_ms} ms, {SLO_FACTOR} times a query alone in the slowest variants"
        );
        slo_ms
    });
    let request = ProblemRequest {
        pipeline: PIPELINE.to_owned(),
        qps: args.qps.unwrap_or(UNKNOWN_QPS),
        slo_ms,
        hardware,
        mode: args.goal.as_deref().and_then(Mode::from_name),
        min_accuracy: args.min_accuracy,
    };
    let (mut spec, notes) = problem_of(&files.name, &profile, &request)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    let mut problem = checked(&files.name, &spec)?;
    if args.qps.is_none() {
        let load = workload::read_workload(&problem, traces, ArrivalProcess::Poisson, workload::SEED)?;
        spec.pipelines[0].demand_qps = workload::busiest_minute_qps(&load.traces[0]);
        problem = checked(&files.name, &spec)?;
    }
    if let Some(out) = &args.problem_out {
        let text = output::json(&spec)?;
        output::write_file(out, |f| writeln!(f, "{text}"))?;
    }
    Ok(problem)
}

fn checked(name: &str, spec: &ProblemSpec) -> Result<Problem, Failure> {
    Ok(spec.to_domain().map_err(|e| BadInput::refused(&format!("the problem of {name}"), e))?)
}

fn offers(args: &TableArgs) -> Result<Option<Vec<HardwareSpec>>, Failure> {
    Ok(args.hardware.as_deref().map(hardware_offers).transpose()?)
}

/// All profiles as one. A table without a column of tasks is one task with the name of its file.
fn gather(files: &ProfileFiles, args: &TableArgs) -> Result<(apportion_wire::ProfileSet, Vec<String>), Failure> {
    let only = offers(args)?.filter(|offers| offers.len() == 1).map(|mut offers| offers.remove(0).name);
    let mut gathered = GatheredProfile::default();
    for (file, part) in &files.parts {
        match part {
            ProfilePart::Set(set) => gathered.add_set(file, (**set).clone())?,
            ProfilePart::Table(text) => {
                let stem = Path::new(file).file_stem().map_or(file.as_str().into(), |stem| stem.to_string_lossy());
                let task = stem.into_owned();
                let names =
                    GivenNames { variant: Some(task.clone()), hardware: only.clone(), task, ..GivenNames::default() };
                add_profile(&mut gathered, ProfileFormat::Csv, file, text, &names)?;
            }
        }
    }
    Ok(gathered.finish())
}
