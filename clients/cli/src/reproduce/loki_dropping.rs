//! Loki's early dropping and rerouting (section 6.3) while plans change.

use super::lab::{Lab, in_parallel};
use super::loki::{self, CONTENDERS};
use super::loki_phases::{TWO_STEP, shapes, traffic};
use super::metrics::drop_rate;
use super::percent;
use super::planned::Planned;
use super::plot::{Plot, Series};
use super::report::{Claim, Report, Titled, Verdict};
use crate::exit::Failure;
use crate::output::{Table, number};
use anyhow::anyhow;
use apportion_domain::Dropping;

/// Loki Fig. 7: what early dropping and rerouting are worth while plans change.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    const POLICIES: [Dropping; 4] = [Dropping::Naive, Dropping::LastTask, Dropping::PerTask, Dropping::Reroute];
    let problem = traffic(lab)?;
    let planned = Planned::new(lab, &problem, CONTENDERS[TWO_STEP]);
    let mut table = Table::new(&["load", "headroom", "policy", "missed", "late", "dropped", "accuracy"]);
    let mut sums: Vec<Vec<f64>> = vec![Vec::new(); POLICIES.len()];
    let mut series: Vec<Series> = POLICIES.iter().map(|p| Series { name: p.name().into(), points: vec![] }).collect();
    let (mut places, mut ordered, mut best) = (Vec::new(), 0, 0);
    for shape in shapes(lab)? {
        for headroom in lab.pick(vec![1.0, 1.3, 1.7, 2.2], vec![1.3]) {
            lab.now(format!("loki-dropping: {}, headroom {headroom}", shape.name));
            let runs = in_parallel(&POLICIES, |&p| planned.run(&shape.rates, lab.held_out(), headroom, p))?;
            let mut missed = Vec::new();
            for (i, run) in runs.into_iter().enumerate() {
                let e = run.ok_or_else(|| anyhow!("no plan to start with on {}", shape.name))?.simulation.total;
                let n = e.requests.max(1) as f64;
                missed.push(drop_rate(&e));
                sums[i].push(drop_rate(&e));
                series[i].points.push((places.len() as f64, 100.0 * drop_rate(&e)));
                table.row(vec![
                    shape.name.into(),
                    number(headroom),
                    POLICIES[i].name().into(),
                    percent(drop_rate(&e)),
                    percent(e.late as f64 / n),
                    percent(e.dropped as f64 / n),
                    number(e.accuracy),
                ]);
            }
            places.push(format!("{headroom}"));
            ordered += usize::from(missed[0] >= missed[1] && missed[1] >= missed[2] && missed[2] >= missed[3]);
            best += usize::from(missed[..3].iter().all(|m| missed[3] <= *m));
        }
    }
    let means: Vec<f64> = sums.iter().map(|s| loki::mean(s)).collect();
    let shown: Vec<String> = POLICIES.iter().zip(&means).map(|(p, m)| format!("{} {}", p.name(), percent(*m))).collect();
    Ok(Report {
        name: "loki-dropping",
        title: "Early dropping and opportunistic rerouting while plans change",
        source: "Loki, Fig. 7",
        method: "The runs of loki-phases with two-step planning, at several headrooms; only the dropping policy differs.".into(),
        claims: vec![Claim {
            claimed: "No dropping misses most, then last-task, then per-task; rerouting misses least (section 6.3)".into(),
            seen: format!(
                "on the mean {}; rerouting misses least in {best} of {} runs, the paper's whole order in {ordered}",
                shown.join(", "),
                places.len()
            ),
            verdict: Verdict::of(means.windows(2).all(|m| m[0] >= m[1])),
            why: "A query that is late at one task may catch up at the next, and per-task dropping drops it all the same, or keeps one that is \
                  within its budgets and surely late: last-task dropping loses only what is late. Rerouting and per-task dropping differ in \
                  hardly a request: plans leave next to nothing in the backup tables that is faster by what a query is behind."
                .into(),
        }],
        tables: vec![Titled { title: "Four policies, same planner".into(), table }],
        plots: vec![Plot {
            title: "Missed root requests by headroom (loads of the table, in order)".into(),
            x: "headroom".into(),
            y: "missed (%)".into(),
            series,
            places,
        }],
    })
}
