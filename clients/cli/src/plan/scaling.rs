//! How do `plan` and `diff` treat scaling problems (INFaaS section 4.2.1)?

use apportion_domain::{PlanningReport, ScalingChange, ScalingOutcome, ScalingPlan, ScalingProblem};
use apportion_planning::Planner;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{self, OutputFormat, TextTable, number, optional};
use apportion_wire::PlanFile;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

/// Planners that know scaling problems.
pub const PLANNERS: [&str; 2] = [Planner::Milp.name(), Planner::Greedy.name()];

/// The format and the file of a result.
pub struct Print<'a> {
    /// How it is printed.
    pub format: OutputFormat,
    /// Also write the plan file here.
    pub out: Option<&'a str>,
}

/// Writes and prints what a planner answered.
pub fn finish(
    problem: &ScalingProblem,
    outcome: &ScalingOutcome,
    report: &PlanningReport,
    print: &Print<'_>,
) -> CommandResult {
    let file = PlanFile::from_scaling(problem, outcome, report);
    if let Some(out) = print.out {
        output::write_file(out, |f| writeln!(f, "{}", file.to_json()))?;
    }
    print.format.print_text(&file.to_json(), || table(&file))?;
    Ok(match outcome {
        ScalingOutcome::Optimal(_) | ScalingOutcome::Feasible { .. } => Exit::Done,
        ScalingOutcome::Infeasible { .. } => Exit::Infeasible,
        ScalingOutcome::Unknown { .. } => Exit::NoAnswer,
    })
}

/// The table of a plan. Variants that neither run nor change are left out; JSON lists them all.
fn table(file: &PlanFile) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| writeln!(text, "{key:<12}{value}").expect("text does not fail");
    line("status", file.status.clone());
    line("objective", format!("scaling: {} per second", optional(file.objective.value)));
    line("bound", format!("{} (gap {})", optional(file.objective.bound), optional(file.objective.gap)));
    if let (Some(cost), Some(replicas)) = (file.cost_per_hour, file.replicas) {
        line("cost", format!("{} per hour, {replicas} replicas", number(cost)));
    }
    let stopped = file.planner.stopped.as_ref().map_or_else(String::new, |s| format!(", stopped: {s}"));
    line("planner", format!("{}, {} s{stopped}", file.planner.name, number(file.planner.seconds)));
    for d in file.explanation.decisions.iter().filter(|d| d.what == apportion_planning::scaling::GREEDY) {
        line(&d.what, d.why.clone());
    }
    for b in &file.explanation.binding {
        line("binding", format!("{} of {}: {} of {}", b.constraint, b.place, optional(b.used), optional(b.limit)));
    }
    let entries = file.scaling.iter().flatten().filter(|e| e.running > 0 || e.delta != 0);
    let mut actions = TextTable::new(&["application", "variant", "running", "change"]);
    for e in entries {
        let change = if e.delta == 0 { "-".to_owned() } else { format!("{:+}", e.delta) };
        actions.row(vec![e.application.clone(), e.variant.clone(), e.running.to_string(), change]);
    }
    if file.objective.value.is_some() {
        text.push('\n');
        text.push_str(&actions.text("  "));
    }
    for s in &file.explanation.shortfalls {
        let wanted_and_best = format!("asked {}, best {}", optional(s.asked), optional(s.best));
        write!(text, "\nshortfall: {} of {}: {wanted_and_best}", s.constraint, s.place).expect("text does not fail");
        if let Some(r) = &s.relax {
            write!(text, "; feasible with {} changed from {} to {}", r.pointer, optional(r.from), optional(r.to))
                .expect("text does not fail");
        }
    }
    if !file.explanation.shortfalls.is_empty() {
        text.push('\n');
    }
    text
}

/// Prints the changes between two plans.
pub fn diff(from: &ScalingPlan, to: &ScalingPlan, format: OutputFormat) -> CommandResult {
    let changes = from.diff(to);
    if format == OutputFormat::Table && changes.is_empty() {
        eprintln!("no changes");
        return Ok(Exit::Done);
    }
    let list: Vec<Value> = changes.iter().map(change_json).collect();
    format.print(&json!({ "changes": list }), || changes_table(&changes))?;
    Ok(Exit::Done)
}

fn change_json(c: &ScalingChange) -> Value {
    let running_json = |running: Option<u32>| running.map(|running| json!({ "running": running }));
    json!({"application": c.application, "variant": c.variant, "from": running_json(c.from), "to": running_json(c.to)})
}

fn changes_table(changes: &[ScalingChange]) -> String {
    let running_text = |running: Option<u32>| running.map_or_else(|| "-".to_owned(), |running| running.to_string());
    let mut table = TextTable::new(&["application", "variant", "before", "after"]);
    for c in changes {
        table.row(vec![c.application.clone(), c.variant.clone(), running_text(c.from), running_text(c.to)]);
    }
    table.text("")
}
