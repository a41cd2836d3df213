//! What a demo run shows at its end.

use super::load::{Outcome, Sent};
use apportion_domain::{Estimate, nearest_rank};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// How long after a step of the load the steady part begins again.
pub const SETTLE: Duration = Duration::from_secs(10);

/// One plan that was in force.
#[derive(Clone, Debug, Serialize)]
pub struct PlanInForce {
    /// From when on, in seconds from the start of the load; before it for the first.
    pub at_s: f64,
    /// Generation of the fleet's target.
    pub generation: u64,
    /// `optimal` or `feasible`.
    pub status: String,
    /// Step of `hardware_then_accuracy`.
    pub step: Option<String>,
    /// Replicas.
    pub replicas: u64,
    /// Accuracy that it promises.
    pub accuracy: f64,
    /// Its groups, for the table.
    #[serde(skip)]
    pub groups: String,
    /// The plan's identifier, for the estimate.
    #[serde(skip)]
    pub id: String,
}

/// The estimator's prediction for the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Predicted {
    /// Share of requests within the objective.
    pub attainment: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// The summary: exactly the keys of the public format.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Sent.
    pub requests: usize,
    /// Answered within the objective.
    pub ok: usize,
    /// Answered after it.
    pub late: usize,
    /// Refused with a reason.
    pub dropped: usize,
    /// Anything else.
    pub failed: usize,
    /// Share of labelled objects, over answered requests, that were found and read correctly.
    pub accuracy_measured: f64,
    /// Request-weighted accuracy of the plans in force.
    pub accuracy_planned: f64,
    /// `ok / requests`.
    pub attainment: f64,
    /// The same without the time after each step of the load.
    pub attainment_steady: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// What the estimator says of the same arrivals under the same plans.
    pub estimate: Predicted,
    /// Plans over time.
    pub plans: Vec<PlanInForce>,
}

/// Share of `total`, 1 of nothing.
fn share(part: usize, total: usize) -> f64 {
    if total == 0 { 1.0 } else { part as f64 / total as f64 }
}

impl Summary {
    /// Counts; `steps` are the moments at which the load changes.
    pub fn new(sent: &[Sent], steps: &[Duration], plans: Vec<PlanInForce>, estimate: Predicted) -> Self {
        let count = |outcome| sent.iter().filter(|s| s.outcome == outcome).count();
        let steady = |s: &&Sent| !steps.iter().any(|&step| s.at >= step && s.at < step + SETTLE);
        let (steady_all, steady_ok) =
            sent.iter().filter(steady).fold((0, 0), |(all, ok), s| (all + 1, ok + usize::from(s.outcome == Outcome::Ok)));
        let answered = |s: &&Sent| matches!(s.outcome, Outcome::Ok | Outcome::Late);
        let mut latencies: Vec<f64> = sent.iter().filter(answered).map(|s| s.latency.as_secs_f64() * 1e3).collect();
        latencies.sort_by(f64::total_cmp);
        let labels: u64 = sent.iter().map(|s| u64::from(s.labels)).sum();
        let correct: u64 = sent.iter().map(|s| u64::from(s.correct)).sum();
        Self {
            requests: sent.len(),
            ok: count(Outcome::Ok),
            late: count(Outcome::Late),
            dropped: count(Outcome::Dropped),
            failed: count(Outcome::GivenUp) + count(Outcome::Failed),
            accuracy_measured: share(correct as usize, labels as usize),
            accuracy_planned: planned_accuracy(sent, &plans),
            attainment: share(count(Outcome::Ok), sent.len()),
            attainment_steady: share(steady_ok, steady_all),
            p50_ms: nearest_rank(&latencies, 0.50).unwrap_or(0.0),
            p99_ms: nearest_rank(&latencies, 0.99).unwrap_or(0.0),
            estimate,
            plans,
        }
    }

    /// For people.
    pub fn table(&self, pipeline: &str) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "\n{pipeline}: {} requests", self.requests);
        let _ = writeln!(out, "  {:<10} {:>8} {:>8} {:>8} {:>8}", "", "ok", "late", "dropped", "failed");
        let _ =
            writeln!(out, "  {:<10} {:>8} {:>8} {:>8} {:>8}", "requests", self.ok, self.late, self.dropped, self.failed);
        let _ = writeln!(out, "\n  {:<28} {:>10} {:>10}", "", "measured", "predicted");
        let mut row = |name: &str, measured: f64, predicted: f64| {
            let _ = writeln!(out, "  {name:<28} {measured:>10.3} {predicted:>10.3}");
        };
        row("end-to-end accuracy", self.accuracy_measured, self.accuracy_planned);
        row("attainment", self.attainment, self.estimate.attainment);
        row("p50 (ms)", self.p50_ms, self.estimate.p50_ms);
        row("p99 (ms)", self.p99_ms, self.estimate.p99_ms);
        let _ = writeln!(
            out,
            "  {:<28} {:>10.3}   (without {} s after each step)",
            "attainment, steady",
            self.attainment_steady,
            SETTLE.as_secs()
        );
        let _ = writeln!(
            out,
            "\n  {:>7} {:>10} {:<9} {:<9} {:>8} {:>8}  groups",
            "at (s)", "generation", "status", "step", "replicas", "accuracy"
        );
        for p in &self.plans {
            let step = p.step.as_deref().unwrap_or("-");
            let _ = writeln!(
                out,
                "  {:>7.1} {:>10} {:<9} {:<9} {:>8} {:>8.4}  {}",
                p.at_s, p.generation, p.status, step, p.replicas, p.accuracy, p.groups
            );
        }
        out
    }
}

fn planned_accuracy(sent: &[Sent], plans: &[PlanInForce]) -> f64 {
    let in_force = |s: &Sent| plans.iter().rev().find(|p| p.at_s <= s.at.as_secs_f64()).or(plans.first());
    let total: f64 = sent.iter().filter_map(in_force).map(|p| p.accuracy).sum();
    if sent.is_empty() { 0.0 } else { total / sent.len() as f64 }
}

/// Joins the estimates of consecutive stretches, weighted by their requests; `latencies_ms` are those of all of them.
pub fn joined(stretches: &[Estimate], mut latencies_ms: Vec<f64>) -> Predicted {
    latencies_ms.sort_by(f64::total_cmp);
    let (ok, all) = stretches.iter().fold((0, 0), |(ok, all), e| (ok + e.ok, all + e.requests));
    Predicted {
        attainment: share(ok as usize, all as usize),
        p50_ms: nearest_rank(&latencies_ms, 0.50).unwrap_or(0.0),
        p99_ms: nearest_rank(&latencies_ms, 0.99).unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at_s: f64, outcome: Outcome, labels: u32, correct: u32) -> Sent {
        let at = Duration::from_secs_f64(at_s);
        Sent { at, latency: Duration::from_millis(100), outcome, labels, correct, error: None }
    }

    fn plan(at_s: f64, accuracy: f64) -> PlanInForce {
        let (status, step) = ("optimal".to_owned(), None);
        PlanInForce { at_s, generation: 1, status, step, replicas: 1, accuracy, groups: String::new(), id: String::new() }
    }

    #[test]
    fn the_time_after_a_step_does_not_count_as_steady_and_every_request_is_accounted_for() {
        let sent = [
            sent(0.0, Outcome::Ok, 2, 2),
            sent(21.0, Outcome::Late, 2, 1),
            sent(29.9, Outcome::Dropped, 0, 0),
            sent(30.0, Outcome::GivenUp, 0, 0),
            sent(31.0, Outcome::Ok, 4, 3),
        ];
        let predicted = Predicted { attainment: 1.0, p50_ms: 1.0, p99_ms: 1.0 };
        let summary = Summary::new(&sent, &[Duration::from_secs(20)], vec![plan(-1.0, 0.9), plan(25.0, 0.8)], predicted);
        assert_eq!(summary.ok + summary.late + summary.dropped + summary.failed, summary.requests);
        assert_eq!(summary.attainment_steady, 2.0 / 3.0);
        assert_eq!(summary.accuracy_measured, 6.0 / 8.0);
        assert!((summary.accuracy_planned - (2.0 * 0.9 + 3.0 * 0.8) / 5.0).abs() < 1e-12);
    }
}
