//! How is a frontier shown? As a table, CSV, JSON or a plot.

use super::args::FrontierFormat;
use super::plot;
use super::result::Frontier;
use apportion_domain::{Binding, ObjectiveStep, Shortfall};
use apportion_planning::frontier::FrontierPoint;
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number, optional};
use serde_json::{Value, json};

/// The frontier in a format.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn text(frontier: &Frontier, format: FrontierFormat) -> Result<String, Failure> {
    Ok(match format {
        FrontierFormat::Table => table(frontier),
        FrontierFormat::Csv => csv(frontier),
        FrontierFormat::Json => output::json(&document(frontier))? + "\n",
        FrontierFormat::Svg => plot::svg(frontier)?,
    })
}

/// A number with all digits, so that output can be compared; empty without one.
fn exact(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

/// A binding limit, for example `capacity of gpu`.
fn binding(b: &Binding) -> String {
    format!("{} of {}", b.constraint, b.place)
}

/// A limit that cannot be met.
pub fn describe_shortfall(s: &Shortfall) -> String {
    let change = s.relax.as_ref().map_or_else(String::new, |r| format!(" (would do: {} {})", r.pointer, number(r.to)));
    format!("{} of {}{change}", s.constraint, s.place)
}

fn limits(point: &FrontierPoint) -> String {
    let binding: Vec<String> = point.binding.iter().map(binding).collect();
    let missing: Vec<String> = point.shortfalls.iter().map(describe_shortfall).collect();
    [binding, missing].concat().join("; ")
}

fn table(frontier: &Frontier) -> String {
    let mut table = TextTable::new(&[
        frontier.sweep.unit(),
        "status",
        "step",
        "cost/h",
        "accuracy",
        "replicas",
        "value",
        "bound",
        "without room",
    ]);
    for p in &frontier.points {
        let limits = limits(p);
        table.row(vec![
            number(p.value),
            p.status.to_string(),
            p.step().map_or("-", ObjectiveStep::name).to_owned(),
            optional(p.cost_per_hour()),
            optional(p.accuracy),
            p.replicas().map_or_else(|| "-".to_owned(), |n| n.to_string()),
            optional(p.objective.value),
            optional(p.objective.bound),
            if limits.is_empty() { "-".to_owned() } else { limits },
        ]);
    }
    table.text("")
}

fn csv(frontier: &Frontier) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |cells: [&str; 10]| writer.write_record(cells).expect("memory takes all rows of one length");
    let unit = frontier.sweep.unit();
    write([unit, "status", "step", "cost_per_hour", "accuracy", "replicas", "value", "bound", "gap", "limits"]);
    for p in &frontier.points {
        write([
            &exact(Some(p.value)),
            &p.status.to_string(),
            p.step().map_or("", ObjectiveStep::name),
            &exact(p.cost_per_hour()),
            &exact(p.accuracy),
            &p.replicas().map_or_else(String::new, |n| n.to_string()),
            &exact(p.objective.value),
            &exact(p.objective.bound),
            &exact(p.objective.gap()),
            &limits(p),
        ]);
    }
    String::from_utf8(writer.into_inner().expect("memory takes all")).expect("every cell is text")
}

fn document(frontier: &Frontier) -> Value {
    json!({
        "version": 1,
        "sweep": frontier.sweep.name(),
        "unit": frontier.sweep.unit(),
        "of": frontier.of,
        "present": frontier.present,
        "points": frontier.points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn point(p: &FrontierPoint) -> Value {
    let binding =
        |b: &Binding| json!({"constraint": b.constraint.name(), "where": b.place, "used": b.used, "limit": b.limit});
    let shortfall = |s: &Shortfall| {
        let relax = s.relax.as_ref().map(|r| json!({"pointer": r.pointer, "from": r.from, "to": r.to}));
        json!({"constraint": s.constraint.name(), "where": s.place, "asked": s.asked, "best": s.best, "relax": relax})
    };
    let groups = |plan: &apportion_domain::Plan| -> Vec<Value> {
        let assignment_json = |name: &str, a: &apportion_domain::Assignment| {
            json!({"pipeline": name, "task": a.group.task, "variant": a.group.variant, "hardware": a.group.hardware,
                   "share": a.group.share.value(), "batch": a.batch, "replicas": a.replicas})
        };
        plan.pipelines
            .iter()
            .flat_map(|part| part.assignments.iter().map(move |a| assignment_json(&part.name, a)))
            .collect()
    };
    json!({
        "value": p.value,
        "status": p.status.name(),
        "stopped": p.stopped.map(apportion_domain::StopReason::name),
        "origin": p.origin.name(),
        "objective": {"step": p.step().map(ObjectiveStep::name), "value": p.objective.value, "bound": p.objective.bound,
                      "gap": p.objective.gap()},
        "cost_per_hour": p.cost_per_hour(),
        "accuracy": p.accuracy,
        "replicas": p.replicas(),
        "devices": p.plan.as_ref().map(|plan| json!(plan.devices())),
        "assignments": p.plan.as_ref().map(groups),
        "binding": p.binding.iter().map(binding).collect::<Vec<_>>(),
        "shortfalls": p.shortfalls.iter().map(shortfall).collect::<Vec<_>>(),
    })
}
