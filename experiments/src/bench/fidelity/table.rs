//! Which figures of a load are inside the estimate, and how are they shown?

use super::clients::RequestFailures;
use super::parts::{LatencyParts, MeasuredBefore};
use crate::live::figures::{ComparedFigure, Figures};
use apportion_support::output::{TextTable, number};
use serde::Serialize;

/// One figure of all runs of a load.
#[derive(Clone, Debug, Serialize)]
pub struct FigureOfRuns {
    /// One for each run.
    runs: Vec<ComparedFigure>,
    /// Runs whose figure is in the estimator's interval.
    inside: usize,
    /// Whether these are more than half of the runs.
    is_inside: bool,
}

impl FigureOfRuns {
    /// Compares a figure of each run with those of the estimator's runs.
    fn new(measured: &[Figures], estimated: &[Figures], figure: fn(&Figures) -> f64) -> Self {
        let compare = |of: &Figures| ComparedFigure::new(figure(of), estimated.iter().map(figure).collect());
        let runs: Vec<ComparedFigure> = measured.iter().map(compare).collect();
        let inside = runs.iter().filter(|run| run.is_inside).count();
        Self { is_inside: 2 * inside > runs.len(), inside, runs }
    }

    /// The runs that are inside.
    fn count(&self) -> String {
        format!("{} of {}{}", self.inside, self.runs.len(), if self.is_inside { "" } else { " OUTSIDE" })
    }

    /// The median over the runs, the estimator's interval, and the runs that are inside.
    fn cells(&self, scale: f64) -> [String; 3] {
        let mut measured: Vec<f64> = self.runs.iter().map(|run| run.measured).collect();
        measured.sort_by(f64::total_cmp);
        let median = measured.get(measured.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        let interval = self
            .runs
            .first()
            .map_or_else(String::new, |run| format!("{} to {}", number(scale * run.from), number(scale * run.to)));
        [number(scale * median), interval, self.count()]
    }
}

/// The figures of a load beside those of the estimator's runs.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedFigures {
    attainment: FigureOfRuns,
    p50_ms: FigureOfRuns,
    p95_ms: FigureOfRuns,
    p99_ms: FigureOfRuns,
    /// Whether all of them are inside.
    is_inside: bool,
}

impl JudgedFigures {
    /// Compares the runs of a load with those of the estimator.
    pub fn new(measured: &[Figures], estimated: &[Figures]) -> Self {
        let of = |figure: fn(&Figures) -> f64| FigureOfRuns::new(measured, estimated, figure);
        let (attainment, p50_ms) = (of(|f| f.attainment), of(|f| f.p50_ms));
        let (p95_ms, p99_ms) = (of(|f| f.p95_ms), of(|f| f.p99_ms));
        let is_inside = [&attainment, &p50_ms, &p95_ms, &p99_ms].iter().all(|figure| figure.is_inside);
        Self { attainment, p50_ms, p95_ms, p99_ms, is_inside }
    }
}

/// One load.
#[derive(Clone, Debug, Serialize)]
pub struct FidelityRow {
    /// Part of the plan's demand.
    pub load: f64,
    /// Requests per second.
    pub qps: f64,
    /// Requests of all runs.
    pub requests: usize,
    /// Those of them that failed. They count as not in time.
    pub failures: RequestFailures,
    /// The result: the estimator has the profile, and the times from before the loads.
    #[serde(flatten)]
    pub judged: JudgedFigures,
    /// The same without the times that single requests measured.
    pub without_single_requests: JudgedFigures,
    /// An explanation and no result: the estimator is told the load's own batch times, and its time outside of gateways.
    pub told: JudgedFigures,
    /// Of what the difference of the mean latencies is made.
    pub parts: LatencyParts,
}

/// The result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct FidelityReport {
    /// How the agents ran batches.
    pub backend: &'static str,
    /// The time of a hop that the estimator used, as the agents measured it; null for a single agent.
    pub hop_ms: Option<f64>,
    /// The time of a request outside of its gateway that the estimator used, as single requests measured it.
    pub ingress_ms: f64,
    /// The time of a request in its agents outside of queues, batches and hops. The estimator used it; single requests
    /// measured it.
    pub agent_ms: f64,
    /// The loads.
    pub loads: Vec<FidelityRow>,
    /// Loads that are inside in all figures.
    pub inside: usize,
}

impl FidelityReport {
    /// Of these loads.
    pub fn new(backend: &'static str, before: MeasuredBefore, loads: Vec<FidelityRow>) -> Self {
        let MeasuredBefore { hop_ms, ingress_ms, agent_ms } = before;
        let inside = loads.iter().filter(|row| row.judged.is_inside).count();
        Self { backend, hop_ms, ingress_ms, agent_ms, loads, inside }
    }
}

/// The report for people.
pub fn text(report: &FidelityReport) -> String {
    let hop = report.hop_ms.map_or_else(|| "no hop: one agent".to_owned(), |ms| format!("measured hop: {} ms", number(ms)));
    let loads = report.loads.len();
    let [ingress, agent] = [report.ingress_ms, report.agent_ms].map(number);
    let without = report.loads.iter().filter(|row| row.without_single_requests.is_inside).count();
    format!(
        "{hop}\nmeasured ingress: {ingress} ms\nmeasured rest of agents: {agent} ms\n\n{}\n\
         why: parts of the difference between measured and estimated mean, in ms\n{}\n\
         why: inside, if the estimator is told the load's own batch times and its time outside of gateways\n{}\n\
         {}\
         {without} of {loads} loads inside in all figures without the times of single requests\n\
         {} of {loads} loads inside in all figures\n",
        figures_table(&report.loads).text(""),
        parts_table(&report.loads).text(""),
        told_table(&report.loads).text(""),
        failures_text(&report.loads),
        report.inside
    )
}

/// A line for each load with requests that failed.
fn failures_text(loads: &[FidelityRow]) -> String {
    let failed = loads.iter().filter(|row| row.failures.count > 0);
    let line = |FidelityRow { load, requests, failures: RequestFailures { count, first }, .. }: &FidelityRow| {
        let first = first.as_deref().unwrap_or("no reason");
        format!("load {load}: {count} of {requests} requests failed, and count as not in time; the first: {first}\n")
    };
    failed.map(line).collect()
}

fn figures_table(loads: &[FidelityRow]) -> TextTable {
    let interval = "95 % of 40 runs";
    let mut header = vec!["load", "queries/s", "requests"];
    for figure in ["in time %", "p50 ms", "p95 ms", "p99 ms"] {
        header.extend([figure, interval, "inside"]);
    }
    let mut table = TextTable::new(&header);
    for row in loads {
        let JudgedFigures { attainment, p50_ms, p95_ms, p99_ms, .. } = &row.judged;
        let mut cells = vec![row.load.to_string(), number(row.qps), row.requests.to_string()];
        cells.extend(attainment.cells(100.0));
        [p50_ms, p95_ms, p99_ms].iter().for_each(|figure| cells.extend(figure.cells(1.0)));
        table.row(cells);
    }
    table
}

fn parts_table(loads: &[FidelityRow]) -> TextTable {
    let mut table = TextTable::new(&[
        "load",
        "measured",
        "estimated",
        "difference",
        "outside",
        "queues",
        "batches",
        "hops",
        "rest",
        "devices wait",
        "agents wait",
        "clients wait",
        "service waits",
    ]);
    for FidelityRow { load, parts, .. } in loads {
        let waits = &parts.waits;
        let of = [
            parts.measured_ms,
            parts.estimated_ms,
            parts.difference_ms,
            parts.outside_ms,
            parts.queues_ms,
            parts.batches_ms,
            parts.hops_ms,
            parts.rest_ms,
            waits.devices_ms,
            waits.agents_ms,
            waits.clients_ms,
            waits.service_ms,
        ];
        table.row(std::iter::once(load.to_string()).chain(of.map(number)).collect());
    }
    table
}

fn told_table(loads: &[FidelityRow]) -> TextTable {
    let mut table = TextTable::new(&["load", "in time", "p50", "p95", "p99"]);
    for FidelityRow { load, told, .. } in loads {
        let figures = [&told.attainment, &told.p50_ms, &told.p95_ms, &told.p99_ms];
        table.row(std::iter::once(load.to_string()).chain(figures.map(FigureOfRuns::count)).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50_ms: f64) -> Figures {
        Figures { attainment: 1.0, attainment_steady: 1.0, p50_ms, p95_ms: 2.0 * p50_ms, p99_ms: 3.0 * p50_ms }
    }

    /// A load whose runs have these medians. The estimator's runs have medians from 10 to 14 ms.
    fn judged(medians_ms: &[f64]) -> JudgedFigures {
        let runs: Vec<_> = medians_ms.iter().map(|ms| figures(*ms)).collect();
        let estimated: Vec<_> = (0..=40).map(|run| figures(10.0 + f64::from(run) / 10.0)).collect();
        JudgedFigures::new(&runs, &estimated)
    }

    fn row(median_ms: f64) -> FidelityRow {
        let parts = LatencyParts { measured_ms: 12.25, rest_ms: 0.75, ..LatencyParts::default() };
        let (judged_at, without, told) = (judged(&[median_ms]), judged(&[90.0]), judged(&[12.0]));
        let failures = RequestFailures::default();
        FidelityRow {
            load: 0.5,
            qps: 20.0,
            requests: 10,
            failures,
            judged: judged_at,
            without_single_requests: without,
            told,
            parts,
        }
    }

    #[test]
    fn a_figure_is_inside_if_most_runs_are() {
        let most = judged(&[11.0, 12.0, 13.0, 90.0, 90.0]);
        assert_eq!((most.p50_ms.inside, most.p50_ms.is_inside, most.is_inside), (3, true, true));
        let few = judged(&[11.0, 12.0, 90.0, 90.0, 90.0]);
        assert_eq!((few.p50_ms.inside, few.p50_ms.is_inside, few.is_inside), (2, false, false));
        let half = judged(&[11.0, 90.0]);
        assert!(!half.p95_ms.is_inside, "half is not most");
    }

    #[test]
    fn the_last_line_counts_the_loads_that_are_inside() {
        let before = MeasuredBefore { hop_ms: Some(0.25), ingress_ms: 1.5, agent_ms: 0.75 };
        let report = FidelityReport::new("onnx", before, vec![row(11.0), row(90.0), row(12.0)]);
        let text = text(&report);
        assert_eq!(text.lines().last(), Some("2 of 3 loads inside in all figures"));
        assert!(text.contains("\n0 of 3 loads inside in all figures without the times of single requests\n"), "{text}");
        assert!(
            text.starts_with("measured hop: 0.2500 ms\nmeasured ingress: 1.500 ms\nmeasured rest of agents: 0.7500 ms\n"),
            "{text}"
        );
        assert!(text.contains("1 of 1") && text.contains("0 of 1 OUTSIDE"), "{text}");
        let single = FidelityReport { hop_ms: None, ..report };
        assert!(super::text(&single).starts_with("no hop: one agent\n"));
    }

    #[test]
    fn loads_with_failed_requests_are_named() {
        assert_eq!(failures_text(&[row(11.0)]), "");
        let failures = RequestFailures { count: 2, first: Some("500: broken".to_owned()) };
        let said = failures_text(&[row(11.0), FidelityRow { failures, ..row(11.0) }]);
        assert_eq!(said, "load 0.5: 2 of 10 requests failed, and count as not in time; the first: 500: broken\n");
    }

    #[test]
    fn explanations_have_a_row_for_each_load() {
        let loads = [row(11.0), row(90.0)];
        let [parts, told] = [parts_table(&loads), told_table(&loads)].map(|table| table.rows().to_vec());
        assert_eq!((parts.len(), told.len()), (3, 3), "a header and two rows");
        let cells = [number(12.25), number(0.75)];
        assert!(cells.iter().all(|cell| parts[2].contains(cell)), "{parts:?}");
        assert_eq!(told[1], ["0.5", "1 of 1", "1 of 1", "1 of 1", "1 of 1"]);
    }
}
