//! What do the tests of a demo share? Runs, plans and problems.

use super::fit::{DeviceSlowness, FittedLoad};
use super::in_force::PlanInForce;
use super::rehearse::plan_demand;
use super::report::{RunConditions, Summary, measured_figures};
use crate::live::fleet::HARDWARE;
use crate::live::load::{ClientOutcome, SentRequest};
use apportion_domain::{Plan, Problem};
use apportion_wire::{ProblemFile, problem_from_tree};
use serde_json::{Value, json};
use std::time::Duration;

fn sent(at_s: f64, outcome: ClientOutcome, labels: u32, correct: u32) -> SentRequest {
    let at = Duration::from_secs_f64(at_s);
    SentRequest { at, latency: Duration::from_millis(100), outcome, labels, correct, error: None }
}

/// A plan of this step that came into force at this second.
pub fn plan(at_s: f64, step: &str) -> PlanInForce {
    let (status, step, accuracy) =
        ("optimal".to_owned(), Some(step.to_owned()), if step == "hardware" { 0.9 } else { 0.8 });
    PlanInForce { at_s, generation: 1, status, step, replicas: 1, accuracy, groups: String::new(), id: String::new() }
}

fn conditions() -> RunConditions {
    let load = FittedLoad { base_qps: 1.0, accurate_qps: 2.0, needs_cheaper: true };
    let devices = DeviceSlowness { multiple: 10.0, needed: 0.9, allowed: 1.2, fits: true };
    RunConditions { load, devices, hops_ms: vec![1.0], machine: None }
}

/// A run of a few requests under these plans.
pub fn summary(plans: Vec<PlanInForce>) -> Summary {
    let sent = [
        sent(0.0, ClientOutcome::Ok, 2, 2),
        sent(21.0, ClientOutcome::Late, 2, 1),
        sent(29.9, ClientOutcome::Dropped, 0, 0),
        sent(30.0, ClientOutcome::GivenUp, 0, 0),
        sent(31.0, ClientOutcome::Ok, 4, 4),
    ];
    let figures = measured_figures(&sent, &[Duration::from_secs(20)], 400.0);
    Summary::new(&sent, &figures, &[figures], plans, conditions())
}

/// Devices of [`digits`].
pub const DEVICES: u32 = 6;

/// The digits on six devices. The arguments are the times of one query of each variant in ms: `find` from the most
/// accurate to the cheapest, then `read`. Batches save nothing, as measured.
pub fn digits(find_ms: [f64; 3], read_ms: [f64; 3]) -> Problem {
    let variant = |name: &str, accuracy: f64, ms: f64, fanout: f64| {
        let row = |batch: u32| json!({"hardware": HARDWARE, "batch": batch, "latency_ms": ms * f64::from(batch)});
        let rows: Vec<Value> = [1, 2, 4, 8].map(row).to_vec();
        json!({"name": name, "accuracy": accuracy, "fanout": fanout, "profile": rows})
    };
    let task = |name: &str, accuracies: [f64; 3], ms: [f64; 3], fanout: f64| {
        let of = |at: usize| variant(&format!("{name}-{at}"), accuracies[at], ms[at], fanout);
        json!({"name": name, "variants": [of(0), of(1), of(2)]})
    };
    let document = json!({
        "version": 1,
        "objective": {"mode": "hardware_then_accuracy"},
        "hardware": [{"name": HARDWARE, "price_per_hour": 1.0, "count": DEVICES}],
        "pipelines": [{
            "name": "digits", "demand_qps": 1.0, "slo_ms": 400.0,
            "tasks": [task("find", [0.98, 0.95, 0.84], find_ms, 3.0), task("read", [0.95, 0.93, 0.8], read_ms, 1.0)],
            "edges": [{"from": "find", "to": "read"}],
        }],
    });
    match problem_from_tree("problem", document).expect("a valid problem") {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("it is no scaling problem"),
    }
}

/// Machines and example pipelines: the usual one; fast ones, whose six devices can be filled; slow ones; with the work
/// elsewhere.
pub fn machines() -> [Problem; 5] {
    [
        digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]),
        digits([5.0, 1.6, 0.5], [0.333, 0.05, 0.01]),
        digits([3.0, 1.0, 0.3], [1.0, 0.2, 0.05]),
        digits([75.0, 25.0, 8.0], [9.0, 1.0, 0.3]),
        digits([10.0, 6.0, 3.0], [12.0, 6.0, 2.0]),
    ]
}

/// The plan for a demand.
pub fn plan_for(problem: &Problem, demand_qps: f64) -> Plan {
    let (outcome, _) = plan_demand(problem, demand_qps).expect("a demand in range");
    outcome.plan().expect("a plan").clone()
}
