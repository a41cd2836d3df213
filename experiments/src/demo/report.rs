//! What does a demo print at its end?

use super::fit::{DeviceSlowness, FittedLoad};
use super::in_force::PlanInForce;
use super::meter::ProcessorUse;
use super::verdict::DemoVerdict;
use crate::live::figures::{ComparedFigure, Figures, RequestResult, SETTLE, longest_ms};
use crate::live::load::{ClientOutcome, SentRequest};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// The estimator's figures of the load that was played, beside the measured ones.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EstimatedFigures {
    /// Share of requests within the objective.
    pub attainment: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Each figure with the interval of the estimator's runs.
    pub compared: ComparedFigures,
}

/// The figures that are compared.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ComparedFigures {
    /// Share of requests within the objective.
    pub attainment: ComparedFigure,
    /// The same share without the time after each step of the load.
    pub attainment_steady: ComparedFigure,
    /// Median latency.
    pub p50_ms: ComparedFigure,
    /// 99th percentile.
    pub p99_ms: ComparedFigure,
}

impl EstimatedFigures {
    /// The figures of the estimator's runs.
    ///
    /// # Panics
    /// If there is no run.
    pub fn new(measured: &Figures, runs: &[Figures]) -> Self {
        let compare_figure =
            |figure: fn(&Figures) -> f64| ComparedFigure::new(figure(measured), runs.iter().map(figure).collect());
        let compared = ComparedFigures {
            attainment: compare_figure(|f| f.attainment),
            attainment_steady: compare_figure(|f| f.attainment_steady),
            p50_ms: compare_figure(|f| f.p50_ms),
            p99_ms: compare_figure(|f| f.p99_ms),
        };
        let ComparedFigures { attainment, p50_ms, p99_ms, .. } = compared;
        Self { attainment: attainment.estimated, p50_ms: p50_ms.estimated, p99_ms: p99_ms.estimated, compared }
    }
}

/// The settings that the run was fitted to, and the use of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct RunConditions {
    /// The load.
    pub load: FittedLoad,
    /// The slowness of the devices, and its reasons.
    pub devices: DeviceSlowness,
    /// Times of a hop in the rehearsal in ms, one for each second, ascending. Plans use the median, the estimate uses all.
    pub hops_ms: Vec<f64>,
    /// The use of the processors during the run; `None` where the system has no figures.
    pub machine: Option<ProcessorUse>,
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
    /// Refused with a reason, or given up because the answer would have been far too late.
    pub dropped: usize,
    /// Anything else.
    pub failed: usize,
    /// Share of labelled objects, over answered requests, that were found and read correctly.
    pub accuracy_measured: f64,
    /// Request-weighted accuracy of the plans in force.
    pub accuracy_planned: f64,
    /// `ok / requests`.
    pub attainment: f64,
    /// The same share without the time after each step of the load.
    pub attainment_steady: f64,
    /// Median latency of answered requests. A request that was given up counts with ten times the objective.
    pub p50_ms: f64,
    /// 99th percentile of these latencies.
    pub p99_ms: f64,
    /// The estimator's figures of the same arrivals under the same plans.
    pub estimate: EstimatedFigures,
    /// The settings that the run was fitted to.
    pub conditions: RunConditions,
    /// Whether the run kept the promises of a demo; set by the judge.
    pub verdict: DemoVerdict,
    /// Plans over time.
    pub plans: Vec<PlanInForce>,
}

/// Share of `total`, 1 of nothing.
fn share_of_total(part: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { part as f64 / total as f64 }
}

/// The figures of a run whose load changes at `steps`.
pub fn measured_figures(sent: &[SentRequest], steps: &[Duration], slo_ms: f64) -> Figures {
    let seen: Vec<RequestResult> = sent.iter().map(|s| RequestResult::of(s, longest_ms(slo_ms))).collect();
    Figures::of(&seen, steps)
}

impl Summary {
    /// Counts the outcomes. The verdict is not set yet.
    pub fn new(
        sent: &[SentRequest],
        figures: &Figures,
        runs: &[Figures],
        plans: Vec<PlanInForce>,
        conditions: RunConditions,
    ) -> Self {
        let count = |outcome| sent.iter().filter(|s| s.outcome == outcome).count();
        let sum = |of: fn(&SentRequest) -> u32| sent.iter().map(|s| u64::from(of(s))).sum();
        Self {
            requests: sent.len(),
            ok: count(ClientOutcome::Ok),
            late: count(ClientOutcome::Late),
            dropped: count(ClientOutcome::Dropped) + count(ClientOutcome::GivenUp),
            failed: count(ClientOutcome::Failed),
            accuracy_measured: share_of_total(sum(|s| s.correct), sum(|s| s.labels)),
            accuracy_planned: planned_accuracy(sent, &plans),
            attainment: figures.attainment,
            attainment_steady: figures.attainment_steady,
            p50_ms: figures.p50_ms,
            p99_ms: figures.p99_ms,
            estimate: EstimatedFigures::new(figures, runs),
            conditions,
            verdict: DemoVerdict::Kept,
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
        let _ = writeln!(out, "\n  {:<28} {:>10} {:>10}   in 95 % of the estimator's runs", "", "measured", "estimated");
        let (accuracy, planned) = (self.accuracy_measured, self.accuracy_planned);
        let _ = writeln!(out, "  {:<28} {accuracy:>10.3} {planned:>10.3}   as planned", "end-to-end accuracy");
        let mut row = |name: &str, of: &ComparedFigure| {
            let ComparedFigure { measured, estimated, from, to, .. } = of;
            let mark = if of.is_inside { "" } else { ", measured outside" };
            let _ = writeln!(out, "  {name:<28} {measured:>10.3} {estimated:>10.3}   {from:.3} to {to:.3}{mark}");
        };
        let compared = &self.estimate.compared;
        row("attainment", &compared.attainment);
        row("attainment, steady load", &compared.attainment_steady);
        row("p50 (ms)", &compared.p50_ms);
        row("p99 (ms)", &compared.p99_ms);
        let _ = writeln!(out, "  steady load: without the {} s after each step of the load", SETTLE.as_secs());
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

fn planned_accuracy(sent: &[SentRequest], plans: &[PlanInForce]) -> f64 {
    let in_force = |s: &SentRequest| plans.iter().rev().find(|p| p.at_s <= s.at.as_secs_f64()).or(plans.first());
    let total: f64 = sent.iter().filter_map(in_force).map(|p| p.accuracy).sum();
    if sent.is_empty() { 0.0 } else { total / sent.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures::{plan, summary};

    #[test]
    fn every_request_has_one_outcome() {
        let summary = summary(vec![plan(-1.0, "hardware"), plan(25.0, "accuracy")]);
        assert_eq!((summary.ok, summary.late, summary.dropped, summary.failed, summary.requests), (2, 1, 2, 0, 5));
        assert_eq!((summary.attainment, summary.attainment_steady, summary.p99_ms), (0.4, 2.0 / 3.0, 4_000.0));
        assert_eq!(summary.accuracy_measured, 7.0 / 8.0);
        assert!((summary.accuracy_planned - (2.0 * 0.9 + 3.0 * 0.8) / 5.0).abs() < 1e-12);
        assert_eq!(summary.estimate.attainment, summary.attainment, "the one run of the estimator");
    }

    #[test]
    fn a_figure_outside_the_interval_is_marked() {
        let mut summary = summary(vec![plan(0.0, "hardware")]);
        assert!(!summary.table("digits").contains("outside"));
        summary.estimate.compared.p99_ms = ComparedFigure::new(500.0, vec![10.0, 20.0, 30.0]);
        let marked: Vec<String> =
            summary.table("digits").lines().filter(|l| l.contains("outside")).map(str::to_owned).collect();
        assert!(marked.len() == 1 && marked[0].contains("p99"), "{marked:?}");
    }
}
