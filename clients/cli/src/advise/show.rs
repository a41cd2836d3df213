//! How is advice shown, to people and to programs?

use super::demand::SeenDemand;
use super::figures::GroupRow;
use apportion_api::jobs::PlanFigures;
use apportion_domain::Problem;
use apportion_support::output::{TextTable, number, optional};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Most findings that are printed for people.
const FINDINGS_PRINTED_MAX: usize = 5;

/// What one round advises.
pub struct Advice<'a> {
    /// The problem, with the planned demands.
    pub problem: &'a Problem,
    /// The demand of each pipeline as it was seen.
    pub seen: &'a [SeenDemand],
    /// The demand of the only pipeline that was asked for, if the devices cannot serve it.
    pub asked_qps: Option<f64>,
    /// The replicas of each group.
    pub groups: Vec<GroupRow>,
    /// The figures of the advice.
    pub advised: PlanFigures,
    /// The figures of the deployment, if it is known.
    pub deployed: Option<PlanFigures>,
}

/// The advice for programs.
pub fn document(advice: &Advice<'_>) -> Value {
    let demand = advice.problem.pipelines.iter().zip(advice.seen).map(|(p, seen)| {
        json!({"pipeline": p.name, "source": seen.source, "seen_qps": seen.qps, "planned_qps": p.demand_qps,
               "asked_qps": advice.asked_qps.unwrap_or(p.demand_qps), "age_s": seen.age_s})
    });
    let group = |row: &GroupRow| {
        let k = &row.key;
        json!({"pipeline": k.pipeline, "task": k.task, "variant": k.variant, "hardware": k.hardware,
               "share": f64::from(k.share_eighths) / 8.0, "batch": k.batch, "desired": row.desired,
               "deployed": row.deployed, "difference": difference(row)})
    };
    let figures = |f: &PlanFigures| {
        json!({"cost_per_hour": f.cost_per_hour, "replicas": f.replicas, "accuracy": f.accuracy,
               "attainment": f.attainment, "p99_ms": f.p99_ms, "requests": f.requests, "findings": f.findings})
    };
    json!({
        "version": 1,
        "demand": demand.collect::<Vec<_>>(),
        "groups": advice.groups.iter().map(group).collect::<Vec<_>>(),
        "advised": figures(&advice.advised),
        "deployed": advice.deployed.as_ref().map(figures),
        "saving_per_hour": advice.deployed.as_ref().map(|d| d.cost_per_hour - advice.advised.cost_per_hour),
    })
}

/// The advice for people.
pub fn table(advice: &Advice<'_>) -> String {
    let mut demand = TextTable::new(&["pipeline", "seen/s", "planned/s", "from", "age s"]);
    for (p, seen) in advice.problem.pipelines.iter().zip(advice.seen) {
        let cells = [p.name.clone(), number(seen.qps), number(p.demand_qps), seen.source.to_owned(), optional(seen.age_s)];
        demand.row(cells.to_vec());
    }
    let header = ["pipeline", "task", "variant", "hardware", "share", "batch", "desired", "deployed", "difference"];
    let mut groups = TextTable::new(&header);
    for row in &advice.groups {
        let k = &row.key;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        groups.row(vec![
            k.pipeline.clone(),
            k.task.clone(),
            k.variant.clone(),
            k.hardware.clone(),
            number(f64::from(k.share_eighths) / 8.0),
            k.batch.to_string(),
            row.desired.to_string(),
            or_none(row.deployed.map(|n| n.to_string())),
            or_none(difference(row).map(|n| format!("{n:+}"))),
        ]);
    }
    let mut text = format!("{}\n{}\n{}", demand.text(""), groups.text(""), figures(advice).text(""));
    if let Some(asked_qps) = advice.asked_qps {
        let (asked, planned) = (number(asked_qps), number(advice.problem.pipelines[0].demand_qps));
        line(&mut text, &format!("\nthe devices cannot serve {asked}/s: the advice is for {planned}/s, the most they can"));
    }
    let Some(deployed) = &advice.deployed else {
        line(&mut text, "\nnothing is known of the deployment: --deployed or --deployed-query names it");
        return text;
    };
    if !deployed.findings.is_empty() {
        line(&mut text, "\nthe deployment at the load that was seen:");
    }
    deployed.findings.iter().take(FINDINGS_PRINTED_MAX).for_each(|f| line(&mut text, &format!("  {f}")));
    match deployed.findings.len().saturating_sub(FINDINGS_PRINTED_MAX) {
        0 => {}
        more => line(&mut text, &format!("  and {more} more")),
    }
    text
}

fn line(text: &mut String, what: &str) {
    writeln!(text, "{what}").expect("text does not fail");
}

fn difference(row: &GroupRow) -> Option<i64> {
    row.deployed.map(|now| i64::from(row.desired) - i64::from(now))
}

/// Both plans, and the effect of following the advice.
fn figures(advice: &Advice<'_>) -> TextTable {
    let mut table = TextTable::new(&["plan", "per hour", "replicas", "accuracy", "attainment", "p99 ms"]);
    let mut row = |name: &str, f: &PlanFigures| {
        let (cost, replicas) = (number(f.cost_per_hour), f.replicas.to_string());
        let (accuracy, attainment, p99_ms) = (optional(f.accuracy), number(f.attainment), optional(f.p99_ms));
        table.row(vec![name.to_owned(), cost, replicas, accuracy, attainment, p99_ms]);
    };
    let advised = &advice.advised;
    row("advised", advised);
    let Some(deployed) = &advice.deployed else { return table };
    row("deployed", deployed);
    let signed = |value: f64| format!("{}{}", if value > 0.0 { "+" } else { "" }, number(value));
    let both =
        |to: Option<f64>, from: Option<f64>| to.zip(from).map_or_else(|| "-".to_owned(), |(to, from)| signed(to - from));
    table.row(vec![
        "effect".to_owned(),
        signed(advised.cost_per_hour - deployed.cost_per_hour),
        signed(advised.replicas as f64 - deployed.replicas as f64),
        both(advised.accuracy, deployed.accuracy),
        signed(advised.attainment - deployed.attainment),
        both(advised.p99_ms, deployed.p99_ms),
    ]);
    table
}
