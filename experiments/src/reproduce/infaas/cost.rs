//! Is a variant that is chosen by the load cheaper than any fixed one (INFaaS sections 6.1 and 6.2)?

use crate::reproduce::contenders::PaperContender;
use crate::reproduce::lab::{INFERLINE, Lab, drop_rate, with_pipeline};
use crate::reproduce::replanning::{PlansByDemand, run_with_least_headroom};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::{Dropping, Problem, Profile};
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, optional, percent};

/// The classifier. It has variants of the same accuracy for a CPU and two GPUs, which INFaaS calls variants of one
/// architecture.
const TASK: &str = "classify";

const SLO_MS: f64 = 800.0;

/// Time in which a replica loads.
const LOAD_MS: f64 = 3000.0;

/// A variant serves a load if no more than this share misses.
const MISSES_MAX: f64 = 0.01;

const CHOOSER: PaperContender =
    PaperContender { name: "chosen", planner: Planner::Milp, floor: None, dropping: &[Dropping::PerTask] };

/// One application: a single task, on some of the hardware or on all.
fn application(hardware: Option<usize>) -> Result<Problem, Failure> {
    let all = INFERLINE.problem()?;
    with_pipeline(&all, 0, |d| {
        d.tasks.retain(|t| t.name == TASK);
        d.edges.clear();
        d.slo_ms = SLO_MS;
        d.serving.queueing = None;
        for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
            variant.load_ms = LOAD_MS;
            if let Some(only) = hardware {
                variant.profile =
                    Profile::new(variant.profile.rows().iter().filter(|r| r.hardware.get() == only).cloned().collect());
            }
        }
    })
}

/// A load with a name.
struct NamedLoad {
    name: &'static str,
    /// Rates by second.
    rates: Vec<f64>,
}

fn loads(lab: &Lab) -> Vec<NamedLoad> {
    let seconds = lab.full_or_quick(300, 12);
    let wave = |s: usize| 155.0 - 145.0 * (s as f64 / 100.0 * std::f64::consts::TAU).cos();
    let mut loads = vec![
        NamedLoad { name: "low: 4 queries/s", rates: vec![4.0; seconds] },
        NamedLoad { name: "medium: 60 queries/s", rates: vec![60.0; seconds] },
        NamedLoad { name: "high: 600 queries/s", rates: vec![600.0; seconds] },
        NamedLoad { name: "between 10 and 300 queries/s", rates: (0..seconds).map(wave).collect() },
    ];
    if lab.quick {
        // One that stays and one that changes.
        loads.drain(1..3);
    }
    loads
}

/// INFaaS Fig. 5 and 6 in kind: cost and misses by load.
pub fn cost(lab: &Lab) -> Result<Report, Failure> {
    let whole = application(None)?;
    let hardware = whole.hardware.len();
    let mut table = TextTable::new(&["load", "variant", "cost/h", "missed", "headroom", "utilisation"]);
    let names: Vec<String> =
        whole.hardware.iter().map(|h| format!("fixed: {}", h.name)).chain(["chosen by load".into()]).collect();
    let mut series: Vec<Series> = names.iter().map(|n| Series { name: n.clone(), points: vec![] }).collect();
    let (mut places, mut factors, mut best) = (Vec::new(), Vec::new(), 0);
    for NamedLoad { name: load, rates } in loads(lab) {
        let mut costs: Vec<Option<f64>> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            lab.show_step(format!("infaas-cost: {name}, {load}"));
            let problem = application((i < hardware).then_some(i))?;
            let found =
                run_with_least_headroom(&PlansByDemand::new(lab, &problem, CHOOSER).with_check_loop(), &rates, MISSES_MAX)?;
            let held = found.as_ref().filter(|f| drop_rate(&f.run.simulation.total) <= MISSES_MAX);
            costs.push(held.map(|f| f.run.cost_per_hour));
            if let Some(found) = &found {
                series[i].points.extend(held.map(|f| (places.len() as f64, f.run.cost_per_hour)));
                table.row(vec![
                    load.into(),
                    name.clone(),
                    number(found.run.cost_per_hour),
                    percent(drop_rate(&found.run.simulation.total)),
                    number(found.setting.headroom),
                    percent(found.run.utilisation),
                ]);
            }
        }
        let own = costs.pop().flatten();
        let fixed = || costs.iter().flatten().copied();
        let cheapest = fixed().fold(f64::INFINITY, f64::min);
        best += usize::from(own.is_some_and(|own| own <= cheapest));
        factors.extend(own.map(|own| fixed().fold(0.0, f64::max) / own));
        places.push(load.split(':').next().unwrap_or(load).to_owned());
    }
    let n = places.len();
    Ok(Report {
        name: "infaas-cost",
        title: "Choosing the variant by the load against fixed variants",
        source: "INFaaS, sections 6.1 and 6.2",
        method: format!(
            "One application with variants for a CPU and two GPUs of invented profiles, SLO {SLO_MS:.0} ms, replicas \
             that load in {LOAD_MS:.0} ms. Every contender plans again each 10 s for least cost, by plans that hold on \
             a sample of their demand. It uses the least headroom that keeps misses at {} on one seed; figures are of \
             the next. A fixed variant may only change its replicas and batch.",
            percent(MISSES_MAX)
        ),
        claims: vec![claim(best, n, &factors)],
        tables: vec![TitledTable { title: "Cost and misses".into(), table }],
        plots: vec![Plot {
            title: "Cost where at most 1 % misses".into(),
            x: "load".into(),
            y: "cost per hour".into(),
            series,
            places,
        }],
    })
}

/// The paper's claim. `best` of `n` loads were served at no more than the cheapest fixed variant's cost; `factors` are the
/// dearest fixed variant's costs over ours.
fn claim(best: usize, n: usize, factors: &[f64]) -> Claim {
    Claim {
        claimed: "Choosing by load costs no more than the best fixed variant at any load, and much less than the others \
                  (section 6.2)"
            .into(),
        seen: format!(
            "at no more than the cheapest fixed variant in {best} of {n} loads; the dearest fixed variant costs {} \
             times as much at most",
            optional(factors.iter().copied().reduce(f64::max))
        ),
        verdict: ClaimVerdict::of_cases(best, n),
        why: "The cheapest plan for the present load is not the cheapest over a load that changes. Whole GPUs have room \
              to spare that several CPUs do not have, and each new choice loads replicas again."
            .into(),
    }
}
