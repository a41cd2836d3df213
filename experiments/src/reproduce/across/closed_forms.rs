//! Does the estimator agree with queueing theory, for constant service times, Poisson arrivals, and one to four replicas?

use crate::reproduce::lab::{BuiltIn, Lab, constant};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use anyhow::anyhow;
use apportion_domain::{Assignment, GroupName, PipelinePlan, Plan, Queueing, Routing, ServingPolicy, Share};
use apportion_estimator::analytic::{md1_wait, mmc_wait};
use apportion_estimator::{ArrivalProcess, SimulateOptions, simulate};
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number};

const SERVICE_MS: f64 = 10.0;

const PROBLEM: &str = "
version: 1
objective: {mode: min_cost}
hardware: [{name: d}]
pipelines:
  - {name: p, demand_qps: 10, slo_ms: 100000, tasks: [{name: t, variants: [{name: v, accuracy: 1, profile: [{hardware: d, batch: 1, latency_ms: 10}]}]}]}
";

/// The largest relative error that agrees. Cosmetatos' approximation is good to about 2 %, and the noise of the runs is
/// about as large.
const ERROR_MAX: f64 = 0.05;

fn plan(replicas: u32) -> Plan {
    let group = GroupName { task: "t".into(), variant: "v".into(), hardware: "d".into(), share: Share::WHOLE };
    let assignment =
        Assignment { group, batch: 1, replicas, traffic_share: 1.0, latency_budget_ms: SERVICE_MS, utilisation: 0.0 };
    let part = PipelinePlan {
        name: "p".into(),
        demand_qps: 10.0,
        accuracy: 1.0,
        serving: ServingPolicy { queueing: Queueing::Central, ..ServingPolicy::default() },
        assignments: vec![assignment],
        flows: vec![],
        routing: Routing::default(),
        ladder: vec![],
    };
    Plan { pipelines: vec![part], cost_per_hour: f64::from(replicas) }
}

/// Mean wait of M/D/c in ms: Pollaczek and Khinchine for one server, else Cosmetatos' (1976) correction of half of M/M/c.
fn expected_ms(servers: u32, utilisation: f64) -> f64 {
    let c = f64::from(servers);
    let rate = c * utilisation / SERVICE_MS;
    if servers == 1 {
        return md1_wait(rate, SERVICE_MS);
    }
    let correction = (1.0 - utilisation) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * c * utilisation);
    0.5 * (1.0 + correction) * mmc_wait(servers, rate, SERVICE_MS)
}

/// Runs the comparison.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let problem = (BuiltIn { name: "closed forms", text: PROBLEM }).problem()?;
    let mut table = TextTable::new(&["queue", "utilisation", "formula ms", "M/M/c ms", "simulated ms", "error"]);
    let (mut theory, mut seen, mut worst) = (Vec::new(), Vec::new(), 0.0_f64);
    for servers in [1, 2, 4] {
        for utilisation in [0.5, 0.7, 0.8, 0.9] {
            let qps = 1e3 * f64::from(servers) * utilisation / SERVICE_MS;
            let seconds = (lab.full_or_quick(400_000.0, 40_000.0) / qps) as usize;
            let workload = constant(qps, seconds, ArrivalProcess::Poisson, lab.seed);
            let run =
                simulate(&problem, &plan(servers), &workload, &SimulateOptions::default()).map_err(|e| anyhow!("{e}"))?;
            let measured = run.total.waiting.first().map_or(0.0, |w| w.mean_ms);
            let expected = expected_ms(servers, utilisation);
            let error = (measured - expected) / expected;
            worst = worst.max(error.abs());
            theory.push((theory.len() as f64, expected));
            seen.push((seen.len() as f64, measured));
            table.row(vec![
                format!("M/D/{servers}"),
                number(utilisation),
                number(expected),
                number(mmc_wait(servers, f64::from(servers) * utilisation / SERVICE_MS, SERVICE_MS)),
                number(measured),
                format!("{:+.2} %", 100.0 * error),
            ]);
        }
    }
    let places = table.rows().iter().skip(1).map(|r| format!("{} {}", &r[0][4..], r[1].trim_end_matches('0'))).collect();
    Ok(Report {
        name: "estimator-closed-forms",
        title: "The estimator against queueing theory",
        source: "Pollaczek-Khinchine, Erlang C, Cosmetatos 1976",
        method: format!(
            "One task, batch 1, service always {SERVICE_MS} ms, a central queue, Poisson arrivals. Profiles give constant \
             times, so \
             M/D/1 is exact and M/D/c is Erlang's M/M/c with Cosmetatos' correction; M/M/c itself is shown beside it."
        ),
        claims: vec![Claim {
            claimed: format!("Mean waits within {:.0} % of the closed forms (aim)", 100.0 * ERROR_MAX),
            seen: format!("largest error {:.2} %", 100.0 * worst),
            verdict: ClaimVerdict::of(worst <= ERROR_MAX),
            why: "The error is sampling noise: at 0.9 the waits of neighbours are strongly correlated.".into(),
        }],
        tables: vec![TitledTable { title: "Mean wait".into(), table }],
        plots: vec![Plot {
            title: "Mean wait: formula and simulation (servers, utilisation)".into(),
            x: "servers and utilisation".into(),
            y: "mean wait (ms)".into(),
            series: vec![
                Series { name: "formula".into(), points: theory },
                Series { name: "simulated".into(), points: seen },
            ],
            places,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_waits_by_pollaczek_khinchine() {
        // rho s / (2 (1 - rho)) with rho 0.5 and s 10 ms
        assert!((expected_ms(1, 0.5) - 5.0).abs() < 1e-9);
        // more servers at the same utilisation wait less, but more than half of M/M/c
        let four = expected_ms(4, 0.8);
        assert!(four < expected_ms(1, 0.8) && four > 0.5 * mmc_wait(4, 0.32, 10.0));
    }
}
