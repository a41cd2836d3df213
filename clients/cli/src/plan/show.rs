//! How is a plan shown to people?

use super::explanation;
use crate::judged::fresh_samples;
use apportion_support::output::{TextTable, number, optional};
use apportion_wire::plan::LadderStepFile;
use apportion_wire::{JudgedOnFile, PlanFile};
use std::fmt::Write as _;

/// A plan for people.
pub fn plan_table(file: &PlanFile) -> String {
    let mut text = String::new();
    let o = &file.objective;
    let step = o.step.as_ref().map_or_else(String::new, |s| format!(", step {s}"));
    let mut line = |key: &str, value: String| writeln!(text, "{key:<12}{value}").expect("text does not fail");
    line("status", file.status.clone());
    line("objective", format!("{}{step}: {}", o.mode, optional(o.value)));
    line("bound", format!("{} (gap {})", optional(o.bound), optional(o.gap)));
    if let (Some(cost), Some(replicas)) = (file.cost_per_hour, file.replicas) {
        line("cost", format!("{} per hour, {replicas} replicas", number(cost)));
    }
    let stopped = file.planner.stopped.as_ref().map_or_else(String::new, |s| format!(", stopped: {s}"));
    line("planner", format!("{}, {} s{stopped}", file.planner.name, number(file.planner.seconds)));
    if let Some(e) = &file.estimate {
        let served =
            format!("{} ok, {} late, {} dropped, {} failed of {} requests", e.ok, e.late, e.dropped, e.failed, e.requests);
        line("estimate", format!("attainment {} ({served})", number(e.attainment)));
        let accuracy = optional(e.accuracy);
        line("", format!("p50 {} ms, p99 {} ms, accuracy {accuracy}", optional(e.p50_ms), optional(e.p99_ms)));
        e.judged_on.iter().for_each(|judged| line("judged", judgement(judged)));
    }
    file.planner.warnings.iter().for_each(|warning| line("warning", warning.clone()));
    for p in &file.pipelines {
        let s = &p.serving;
        let serving = [&s.queueing, &s.batching, &s.routing, &s.dropping].map(String::as_str).join(", ");
        let demand = number(p.demand_qps);
        writeln!(text, "\n{}: {demand} queries/s, accuracy {}, {serving}", p.name, number(p.accuracy))
            .expect("text does not fail");
        text.push_str(&assignments(p).text("  "));
        if let (Some(first), Some(last)) = (p.ladder.first(), p.ladder.last()) {
            let replicas = |step: &LadderStepFile| step.replicas.iter().map(|n| u64::from(*n)).sum::<u64>();
            let (from, to) = (number(first.rate_qps), number(last.rate_qps));
            let (few, many) = (replicas(first), replicas(last));
            let steps = p.ladder.len();
            writeln!(text, "  ladder: {steps} steps from {from} queries/s ({few} replicas) to {to} ({many})")
                .expect("text does not fail");
        }
    }
    add_reasons(file, &mut text);
    text
}

/// On which samples a plan was judged, and what they say about each pipeline.
fn judgement(judged: &JudgedOnFile) -> String {
    let mut text = format!("on {}", fresh_samples(judged));
    for p in &judged.pipelines {
        let (low, high) = (number(p.attainment_low), number(p.attainment_high));
        write!(text, "\n{:<12}{} {} %: {} between {low} and {high}", "", p.pipeline, number(p.percentile), p.verdict)
            .expect("text does not fail");
    }
    text
}

fn assignments(p: &apportion_wire::plan::PipelinePlanFile) -> TextTable {
    let mut table =
        TextTable::new(&["task", "variant", "hardware", "share", "batch", "replicas", "traffic", "budget ms", "busy"]);
    for a in &p.assignments {
        table.row(vec![
            a.task.clone(),
            a.variant.clone(),
            a.hardware.clone(),
            number(a.share),
            a.batch.to_string(),
            a.replicas.to_string(),
            number(a.traffic_share),
            number(a.latency_budget_ms),
            number(a.utilisation),
        ]);
    }
    table
}

fn add_reasons(file: &PlanFile, text: &mut String) {
    if !file.planner.rounds.is_empty() {
        let mut rounds = TextTable::new(&["round", "objective", "replicas", "attainment", "p99 ms"]);
        for r in &file.planner.rounds {
            rounds.row(vec![
                r.round.to_string(),
                optional(r.objective.value),
                r.replicas.to_string(),
                number(r.attainment),
                optional(r.p99_ms),
            ]);
        }
        text.push('\n');
        text.push_str(&rounds.text(""));
    }
    text.push_str(&explanation::text(&file.explanation));
}
