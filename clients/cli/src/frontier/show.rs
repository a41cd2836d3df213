//! How is a frontier shown? As a table, CSV, JSON, YAML or a plot.

use super::args::FrontierFormat;
use super::plot;
use super::result::{Frontier, step};
use anyhow::Context;
use apportion_domain::ObjectiveStep;
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number, optional};
use apportion_wire::FrontierPointFile;
use apportion_wire::explanation::{BindingFile, ShortfallFile};
use serde_json::Value;

/// The frontier in a format.
///
/// # Errors
/// If the plot cannot be drawn.
pub fn text(frontier: &Frontier, format: FrontierFormat) -> Result<String, Failure> {
    Ok(match format {
        FrontierFormat::Table => table(frontier),
        FrontierFormat::Csv => csv(frontier),
        FrontierFormat::Json => output::json(&tree(frontier)?)? + "\n",
        FrontierFormat::Yaml => output::yaml(&tree(frontier)?)?,
        FrontierFormat::Svg => plot::svg(frontier)?,
    })
}

/// The keys have the order of the alphabet, as in the service's answers.
fn tree(frontier: &Frontier) -> Result<Value, Failure> {
    Ok(serde_json::to_value(&frontier.result).context("writing JSON")?)
}

/// A number with all digits, so that output can be compared; empty without one.
fn exact(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

/// A binding limit, for example `capacity of gpu`.
fn binding(b: &BindingFile) -> String {
    format!("{} of {}", b.constraint, b.place)
}

/// A limit that cannot be met.
pub fn describe_shortfall(s: &ShortfallFile) -> String {
    let change = s.relax.as_ref().map_or_else(String::new, |r| format!(" (would do: {} {})", r.pointer, optional(r.to)));
    format!("{} of {}{change}", s.constraint, s.place)
}

fn limits(point: &FrontierPointFile) -> String {
    let binding: Vec<String> = point.binding.iter().map(binding).collect();
    let missing: Vec<String> = point.shortfalls.iter().map(describe_shortfall).collect();
    [binding, missing].concat().join("; ")
}

fn table(frontier: &Frontier) -> String {
    let mut table = TextTable::new(&[
        frontier.result.unit.as_str(),
        "status",
        "step",
        "cost/h",
        "accuracy",
        "replicas",
        "value",
        "bound",
        "without room",
    ]);
    for p in &frontier.result.points {
        let limits = limits(p);
        table.row(vec![
            number(p.value),
            p.status.clone(),
            step(p).map_or("-", ObjectiveStep::name).to_owned(),
            optional(p.cost_per_hour),
            optional(p.accuracy),
            p.replicas.map_or_else(|| "-".to_owned(), |n| n.to_string()),
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
    let unit = frontier.result.unit.as_str();
    write([unit, "status", "step", "cost_per_hour", "accuracy", "replicas", "value", "bound", "gap", "limits"]);
    for p in &frontier.result.points {
        write([
            &exact(Some(p.value)),
            &p.status,
            step(p).map_or("", ObjectiveStep::name),
            &exact(p.cost_per_hour),
            &exact(p.accuracy),
            &p.replicas.map_or_else(String::new, |n| n.to_string()),
            &exact(p.objective.value),
            &exact(p.objective.bound),
            &exact(p.objective.gap),
            &limits(p),
        ]);
    }
    String::from_utf8(writer.into_inner().expect("memory takes all")).expect("every cell is text")
}
