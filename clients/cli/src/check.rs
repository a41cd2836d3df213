//! How does `apportion check` report the faults of a plan?

use apportion_domain::LatencyRule;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::OutputFormat;
use apportion_wire::{ProblemFile, read_scaling_plan_for};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

/// Arguments of `apportion check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Problem file, JSON or YAML.
    problem: String,
    /// Plan file, JSON or YAML.
    plan: String,
    /// Which queries must meet the SLO, instead of the file's rule.
    #[arg(long, value_parser = PossibleValuesParser::new(LatencyRule::NAMES))]
    latency_rule: Option<String>,
    /// How the findings are printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &CheckArgs) -> CommandResult {
    let findings = match input::read_problem(&args.problem)? {
        ProblemFile::Allocation(mut problem) => {
            if let Some(rule) = args.latency_rule.as_deref().and_then(LatencyRule::from_name) {
                let changed = problem.changed(|d| d.objective.latency_rule = rule);
                problem = changed.expect("the rule alone makes no problem invalid");
            }
            let plan = input::read_plan_for(&problem, &args.plan)?;
            apportion_checker::check(&problem, &plan)
        }
        ProblemFile::Scaling(problem) => {
            let plan = read_scaling_plan_for(&problem, &args.plan, &input::read_text(&args.plan)?)?;
            apportion_checker::check_scaling(&problem, &plan)
        }
    };
    let list: Vec<_> = findings.iter().map(|f| json!({"rule": f.rule, "place": f.place, "evidence": f.evidence})).collect();
    args.format.print(&json!({ "findings": list }), || {
        findings.iter().map(|f| format!("{}: {}: {}\n", f.rule, f.place, f.evidence)).collect()
    })?;
    if findings.is_empty() {
        eprintln!("{}: no findings", args.plan);
        return Ok::<_, Failure>(Exit::Done);
    }
    Ok(Exit::Findings)
}
