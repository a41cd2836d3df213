//! How close is the tail latency of a plan on new loads to its planned tail latency (InferLine section 7.2, Fig. 8)?

use crate::reproduce::lab::{INFERLINE, Lab, Records, constant, in_parallel, quantile, replay, with_pipeline};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::{Dropping, Plan, Problem};
use apportion_estimator::ArrivalProcess;
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number};

/// The SLO: the middle of Fig. 5.
const SLO_MS: f64 = 300.0;

/// Two tails are close if they differ by no more than this part of the estimate.
const CLOSE: f64 = 0.1;

/// One experiment: a plan and its tails.
struct Experiment {
    name: String,
    estimated_ms: f64,
    /// On loads that the plan was not made on, ascending.
    measured_ms: Vec<f64>,
}

impl Experiment {
    fn median_ms(&self) -> f64 {
        quantile(&self.measured_ms, 0.5)
    }

    fn relative_error(&self) -> f64 {
        self.median_ms() / self.estimated_ms - 1.0
    }
}

fn experiment(lab: &Lab, problem: &Problem, cv: f64) -> Result<Option<Experiment>, Failure> {
    let seconds = lab.full_or_quick(60, 4);
    let load = |seed| constant(problem.pipelines[0].demand_qps, seconds, ArrivalProcess::Gamma(cv), seed);
    let Some(plan) = lab.plan(problem, Planner::Greedy, Some(load(lab.seed))) else { return Ok(None) };
    let p99_ms =
        |plan: &Plan, seed| replay(problem, plan, &load(seed), Dropping::Naive, Records::Skip).map(|run| run.total.p99_ms);
    let draws: Vec<u64> = (0..lab.full_or_quick(20, 2)).map(|i| lab.held_out_seed().wrapping_add(i)).collect();
    let mut measured_ms = in_parallel(&draws, |&seed| p99_ms(&plan, seed))?;
    measured_ms.sort_by(f64::total_cmp);
    let name = format!("{}, CV {cv}", problem.pipelines[0].name);
    Ok(Some(Experiment { name, estimated_ms: p99_ms(&plan, lab.seed)?, measured_ms }))
}

/// InferLine Fig. 8.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let all = INFERLINE.problem()?;
    let mut found = Vec::new();
    for pipeline in 0..lab.full_or_quick(2, 1) {
        let problem = with_pipeline(&all, pipeline, |d| d.slo_ms = SLO_MS)?;
        for cv in [1.0, 4.0] {
            lab.show_step(format!("inferline-estimator: {}, CV {cv}", problem.pipelines[0].name));
            found.extend(experiment(lab, &problem, cv)?);
        }
    }
    let dots = |name: &str, of: fn(&Experiment) -> f64| Series {
        name: name.into(),
        points: found.iter().enumerate().map(|(i, e)| (i as f64, of(e))).collect(),
    };
    Ok(Report {
        name: "inferline-estimator",
        title: "The tail that a plan was made with, and the tail that it has",
        source: "InferLine, Fig. 8",
        method: "Greedy plans of two pipelines for a minute of 150 queries/s at two burstinesses. The estimate is the \
                 99th percentile of latency on that minute. The other figure is that of minutes that the plan was not \
                 made on. The paper measures a running system, and this command starts none. So it compares how well \
                 one sample stands for the next, and not how well the estimator knows devices and networks. A trial in \
                 the repository and `apportion dev bench fidelity` compare agents that serve the same plans with the \
                 estimator: docs/benchmarks.md has the tails of both."
            .into(),
        claims: claims(&found),
        tables: vec![TitledTable { title: "99th percentile of latency".into(), table: tails_table(&found) }],
        plots: vec![Plot {
            title: "99th percentile of latency, estimated and since".into(),
            x: "experiment".into(),
            y: "p99 (ms)".into(),
            series: vec![
                dots("SLO", |_| SLO_MS),
                dots("estimated", |e| e.estimated_ms),
                dots("median of the draws since", Experiment::median_ms),
                dots("worst of them", |e| quantile(&e.measured_ms, 1.0)),
            ],
            places: found.iter().map(|e| e.name.clone()).collect(),
        }],
    })
}

/// One row for each experiment.
fn tails_table(found: &[Experiment]) -> TextTable {
    let mut table = TextTable::new(&[
        "experiment",
        "SLO ms",
        "estimated p99 ms",
        "p99 since: median ms",
        "least ms",
        "most ms",
        "off by",
        "draws above the SLO",
    ]);
    for e in found {
        table.row(vec![
            e.name.clone(),
            number(SLO_MS),
            number(e.estimated_ms),
            number(e.median_ms()),
            number(quantile(&e.measured_ms, 0.0)),
            number(quantile(&e.measured_ms, 1.0)),
            format!("{:+.1} %", 100.0 * e.relative_error()),
            format!("{} of {}", e.measured_ms.iter().filter(|p| **p > SLO_MS).count(), e.measured_ms.len()),
        ]);
    }
    table
}

fn claims(found: &[Experiment]) -> Vec<Claim> {
    let close = found.iter().filter(|e| e.relative_error().abs() <= CLOSE).count();
    let below = found.iter().filter(|e| e.median_ms() <= SLO_MS).count();
    let above: usize = found.iter().map(|e| e.measured_ms.iter().filter(|p| **p > SLO_MS).count()).sum();
    let draws: usize = found.iter().map(|e| e.measured_ms.len()).sum();
    let worst = found.iter().map(|e| e.relative_error().abs()).fold(0.0, f64::max);
    vec![
        Claim {
            claimed: "Estimated and measured P99 are close in all four experiments (section 7.2, Fig. 8)".into(),
            seen: format!(
                "within {:.0} % in {close} of {}, at worst {:.1} % off",
                100.0 * CLOSE,
                found.len(),
                100.0 * worst
            ),
            verdict: ClaimVerdict::of_cases(close, found.len()),
            why: "The few worst bursts of a minute make its 99th percentile, and they differ from one minute to the \
                  next. The planner removes every replica that its own minute does not need."
                .into(),
        },
        Claim {
            claimed: "The P99 of plans that the estimator calls feasible is below the objective (section 7.2, Fig. 8)"
                .into(),
            seen: format!("by the median in {below} of {}; above it in {above} of {draws} draws", found.len()),
            verdict: ClaimVerdict::of(above == 0),
            why: "A plan that just holds on one sample may as well not hold on the next. A tighter SLO for planning, or a \
                  longer sample, would cover it."
                .into(),
        },
    ]
}
