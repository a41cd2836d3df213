//! How do PARD's results change with its settings, the SLO and the load (section 5.4)?

use super::case::{BurstyTrace, OverloadCase, POLICIES, PolicyResult, make_case, run_policies, run_with_foresight, traces};
use crate::reproduce::lab::{Lab, drop_rate, in_parallel, invalid_rate};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_estimator::StatePlannerSettings;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, optional, percent};

/// One value of a sweep, and the results of the policies.
struct Swept {
    value: f64,
    rows: Vec<PolicyResult>,
}

fn swept_report(rows: &[Swept], unit: &str) -> (TextTable, Vec<Series>) {
    let mut table = TextTable::new(&[unit, "policy", "drop rate", "invalid rate", "goodput qps"]);
    let mut series: Vec<Series> = Vec::new();
    for swept in rows {
        for (i, row) in swept.rows.iter().enumerate() {
            if series.len() <= i {
                series.push(Series { name: row.policy.name().into(), points: vec![] });
            }
            series[i].points.push((swept.value, 100.0 * drop_rate(&row.estimate)));
            table.row(vec![
                number(swept.value),
                row.policy.name().into(),
                percent(drop_rate(&row.estimate)),
                percent(invalid_rate(&row.estimate)),
                optional(row.goodput),
            ]);
        }
    }
    (table, series)
}

/// A setting of PARD's estimate.
#[derive(Clone, Copy)]
struct ForesightSetting {
    /// The value of the swept setting.
    value: f64,
    foresight: StatePlannerSettings,
}

/// The results of a sweep on one trace.
struct Sweep {
    /// The name of the trace.
    trace: String,
    rows: Vec<Swept>,
}

/// Runs settings of PARD's estimate on pipeline lv and one bursty trace.
fn sweep_foresight(lab: &Lab, name: &str, settings: &[ForesightSetting]) -> Result<Sweep, Failure> {
    let trace = traces(lab)?.remove(lab.full_or_quick(1, 0));
    let Some(made) = make_case(lab, 1, None, &trace)? else {
        return Ok(Sweep { trace: trace.name, rows: Vec::new() });
    };
    let run_setting = |&ForesightSetting { value, foresight }: &ForesightSetting| {
        lab.show_step(format!("{name}: {value}"));
        Ok(Swept { value, rows: vec![run_with_foresight(&made, foresight, lab.held_out_seed())?] })
    };
    let rows = in_parallel(settings, run_setting)?;
    Ok(Sweep { trace: trace.name, rows })
}

fn drop_rates(rows: &[Swept]) -> Vec<f64> {
    rows.iter().map(|r| drop_rate(&r.rows[0].estimate)).collect()
}

/// PARD Fig. 14(c): the quantile of the later batch waits.
pub fn lambda(lab: &Lab) -> Result<Report, Failure> {
    let values = lab.full_or_quick(vec![0.0, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0], vec![0.0, 0.1, 1.0]);
    let setting = |&lambda: &f64| ForesightSetting {
        value: lambda,
        foresight: StatePlannerSettings { lambda, ..StatePlannerSettings::default() },
    };
    let settings: Vec<_> = values.iter().map(setting).collect();
    let Sweep { trace, rows } = sweep_foresight(lab, "pard-lambda", &settings)?;
    let (table, mut series) = swept_report(&rows, "lambda");
    series.iter_mut().for_each(|s| s.name = "drop rate".into());
    let rates = drop_rates(&rows);
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let best: Vec<f64> = values.iter().zip(&rates).filter(|(_, rate)| **rate <= least).map(|(value, _)| *value).collect();
    let shown = values.iter().zip(&rates).map(|(v, r)| format!("{} at {v}", percent(*r))).collect::<Vec<_>>().join(", ");
    Ok(Report {
        name: "pard-lambda",
        title: "The quantile of later batch waits that PARD reckons with",
        source: "PARD, Fig. 14(c)",
        method: format!("Pipeline lv on {trace:?}, as in pard-goodput; one draw."),
        claims: vec![Claim {
            claimed: "The best quantile lies between 0.075 and 0.15 (section 5.4)".into(),
            seen: shown,
            verdict: match rates.iter().any(|r| *r > 0.0) {
                true => ClaimVerdict::of(best.iter().any(|value| (0.075..=0.15).contains(value))),
                false => ClaimVerdict::Open,
            },
            why: "The useful share of the later batch wait depends on how full batches are: nearly full ones leave \
                  little to wait for."
                .into(),
        }],
        tables: vec![TitledTable { title: "Quantiles".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by quantile".into(),
            x: "lambda".into(),
            y: "drop rate (%)".into(),
            series,
            places: vec![],
        }],
    })
}

/// The largest gap between the drop rates of the default window and the best one. Our copy of the paper lacks its own gap.
const WINDOW_GAP: f64 = 0.01;

/// PARD Fig. 14(d): the window of queueing delays.
pub fn window(lab: &Lab) -> Result<Report, Failure> {
    let values = lab.full_or_quick(vec![1, 2, 3, 5, 7, 10, 20], vec![1, 5]);
    let setting = |&seconds: &usize| ForesightSetting {
        value: seconds as f64,
        foresight: StatePlannerSettings { window_periods: seconds, ..StatePlannerSettings::default() },
    };
    let settings: Vec<_> = values.iter().map(setting).collect();
    let Sweep { trace, rows } = sweep_foresight(lab, "pard-window", &settings)?;
    let (table, mut series) = swept_report(&rows, "window s");
    series.iter_mut().for_each(|s| s.name = "drop rate".into());
    let rates = drop_rates(&rows);
    let best = (0..rates.len()).min_by(|&a, &b| rates[a].total_cmp(&rates[b]));
    let usual = values.iter().position(|seconds| *seconds == StatePlannerSettings::default().window_periods);
    let seen = best.zip(usual).filter(|_| !rates.is_empty());
    let gap = seen.map(|(best, usual)| rates[usual] - rates[best]);
    let shown = seen.map(|(best, usual)| {
        format!(
            "{} at {} s, the best, and {} at {} s",
            percent(rates[best]),
            values[best],
            percent(rates[usual]),
            values[usual]
        )
    });
    Ok(Report {
        name: "pard-window",
        title: "The window of queueing delays that PARD looks back on",
        source: "PARD, Fig. 14(d)",
        method: format!(
            "Pipeline lv on {trace:?}, as in pard-goodput; one draw. The window also smooths the load of the priority."
        ),
        claims: vec![Claim {
            claimed: "The best window depends on the trace, and the default is close to it (section 5.4)".into(),
            seen: shown.unwrap_or_else(|| "no run".into()),
            verdict: gap.map_or(ClaimVerdict::Open, |gap| ClaimVerdict::of(gap <= WINDOW_GAP)),
            why: "A short window follows bursts and their noise, a long one averages over them.".into(),
        }],
        tables: vec![TitledTable { title: "Windows".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by window".into(),
            x: "window (s)".into(),
            y: "drop rate (%)".into(),
            series,
            places: vec![],
        }],
    })
}

/// PARD Fig. 14(b): the SLO, with a plan of its own at each value.
pub fn slo(lab: &Lab) -> Result<Report, Failure> {
    let values: Vec<f64> = lab.full_or_quick(vec![200.0, 300.0, 400.0, 500.0, 600.0], vec![400.0]);
    let trace = traces(lab)?.remove(lab.full_or_quick(1, 0));
    let mut rows = Vec::new();
    for value in values {
        lab.show_step(format!("pard-slo: {value} ms"));
        if let Some(made) = make_case(lab, 1, Some(value), &trace)? {
            rows.push(Swept { value, rows: run_policies(&made, &POLICIES, lab.held_out_seed())? });
        }
    }
    let (table, series) = swept_report(&rows, "SLO ms");
    let pard_drops_least =
        |r: &&Swept| r.rows[1..].iter().all(|o| drop_rate(&r.rows[0].estimate) <= drop_rate(&o.estimate));
    let wins = rows.iter().filter(pard_drops_least).count();
    Ok(Report {
        name: "pard-slo",
        title: "Dropping policies under tight and loose SLOs",
        source: "PARD, Fig. 14(b)",
        method: format!("Pipeline lv on {:?}; each SLO has its own plan and batch sizes, as in the paper.", trace.name),
        claims: vec![Claim {
            claimed: "The lowest drop rate at every SLO from 200 to 600 ms (section 5.4)".into(),
            seen: format!("lowest at {wins} of {} SLOs", rows.len()),
            verdict: ClaimVerdict::of_cases(wins, rows.len()),
            why: "clipper++ depends on how its fixed parts of the SLO match the batch times of the plan. Where they \
                  match, it drops at the first tasks only, as early as PARD does."
                .into(),
        }],
        tables: vec![TitledTable { title: "By SLO".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by SLO".into(),
            x: "SLO (ms)".into(),
            y: "drop rate (%)".into(),
            series,
            places: vec![],
        }],
    })
}

/// PARD Fig. 14(a): the same plan under more and more load.
pub fn stress(lab: &Lab) -> Result<Report, Failure> {
    let values: Vec<f64> = lab.full_or_quick(vec![0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0], vec![1.5]);
    let seconds = lab.full_or_quick(60, 4);
    let flat = BurstyTrace { name: "steady".into(), rates: vec![1.0; seconds] };
    let mut rows = Vec::new();
    if let Some(made) = make_case(lab, 1, None, &flat)? {
        let capacity = made.capacity_qps;
        let loads: Vec<OverloadCase> =
            values.iter().map(|v| OverloadCase { rates: vec![v * capacity; seconds], ..made.clone() }).collect();
        let fared = in_parallel(&loads, |made| run_policies(made, &POLICIES, lab.held_out_seed()))?;
        rows.extend(values.iter().zip(fared).map(|(&value, rows)| Swept { value, rows }));
    }
    let goodput = |row: &PolicyResult| row.estimate.ok as f64 / seconds as f64;
    let mut table = TextTable::new(&["load over capacity", "policy", "goodput qps", "drop rate", "invalid rate"]);
    let mut series: Vec<Series> = POLICIES.iter().map(|p| Series { name: p.name().into(), points: vec![] }).collect();
    for swept in &rows {
        for (row, line) in swept.rows.iter().zip(&mut series) {
            line.points.push((swept.value, goodput(row)));
            let (dropped, invalid) = (percent(drop_rate(&row.estimate)), percent(invalid_rate(&row.estimate)));
            table.row(vec![number(swept.value), row.policy.name().into(), number(goodput(row)), dropped, invalid]);
        }
    }
    let above: Vec<&Swept> = rows.iter().filter(|r| r.value > 1.0).collect();
    let pard_serves_most = |r: &&&Swept| r.rows[1..].iter().all(|o| goodput(&r.rows[0]) >= goodput(o));
    let wins = above.iter().filter(pard_serves_most).count();
    Ok(Report {
        name: "pard-stress",
        title: "Dropping policies under steady overload",
        source: "PARD, Fig. 14(a)",
        method: format!(
            "Pipeline lv, one plan, {seconds} s of Poisson arrivals at a multiple of what it serves with full \
                         batches."
        ),
        claims: vec![Claim {
            claimed: "Under heavy load the highest goodput, which stays where it is as the load grows (section 5.4)".into(),
            seen: format!("highest at {wins} of {} loads above the capacity", above.len()),
            verdict: ClaimVerdict::of_cases(wins, above.len()),
            why: "Under a steady overload every module is in the same state all the time. An even split of the SLO \
                  (clipper++) can fit that state by chance."
                .into(),
        }],
        tables: vec![TitledTable { title: "By load".into(), table }],
        plots: vec![Plot {
            title: "Goodput by load".into(),
            x: "load over what the plan serves".into(),
            y: "goodput (queries/s)".into(),
            series,
            places: vec![],
        }],
    })
}
