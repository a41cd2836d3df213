//! How much does each part of PARD help, in pairs of runs on the same arrivals (section 5.3)?

use super::case::{first_names, make_case, ratio, run_policies, seeds, traces};
use crate::reproduce::lab::{
    Interval, Lab, drop_rate, geometric_mean, in_parallel, interval, invalid_rate, mean, with_interval,
};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::Dropping;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, optional, percent};

const ABLATIONS: [Dropping; 11] = [
    Dropping::PardBack,
    Dropping::PardSf,
    Dropping::PardOc,
    Dropping::PardSplit,
    Dropping::PardWcl,
    Dropping::PardLower,
    Dropping::PardUpper,
    Dropping::PardFcfs,
    Dropping::PardHbf,
    Dropping::PardLbf,
    Dropping::PardInstant,
];

/// Draws of each load: with 24 loads few are enough.
const DRAWS: usize = 3;

/// The results of one policy, by run.
#[derive(Clone, Default)]
struct AblationRuns {
    dropped: Vec<f64>,
    invalid: Vec<f64>,
    /// Drop rate minus that of the full policy on the same arrivals.
    worse: Vec<f64>,
    /// Goodput over that of the full policy.
    goodput: Vec<f64>,
}

/// All runs of all policies, the full one first.
fn run_ablations(lab: &Lab, policies: &[Dropping]) -> Result<Vec<AblationRuns>, Failure> {
    let mut all = vec![AblationRuns::default(); policies.len()];
    for pipeline in lab.full_or_quick(vec![0, 1, 2, 3], vec![0]) {
        for trace in traces(lab)? {
            let Some(made) = make_case(lab, pipeline, None, &trace)? else { continue };
            lab.show_step(format!("pard-ablations: {} on {}", made.problem.pipelines[0].name, trace.name));
            for rows in
                in_parallel(&seeds(lab)[..lab.full_or_quick(DRAWS, 1)], |&seed| run_policies(&made, policies, seed))?
            {
                let full = drop_rate(&rows[0].estimate);
                for (sum, row) in all.iter_mut().zip(&rows) {
                    sum.dropped.push(drop_rate(&row.estimate));
                    sum.invalid.push(invalid_rate(&row.estimate));
                    sum.worse.push(drop_rate(&row.estimate) - full);
                    sum.goodput.extend(ratio(row, &rows[0]));
                }
            }
        }
    }
    Ok(all)
}

/// PARD Fig. 11: each part of the policy taken away.
pub fn ablations(lab: &Lab) -> Result<Report, Failure> {
    let policies: Vec<Dropping> = std::iter::once(Dropping::Pard).chain(ABLATIONS).collect();
    let all = run_ablations(lab, &policies)?;
    let mut table = TextTable::new(&[
        "policy",
        "drop rate",
        "more than pard (95 %)",
        "invalid rate",
        "goodput of pard's",
        "worse on",
        "runs",
    ]);
    let (mut better, mut open) = (Vec::new(), Vec::new());
    for (policy, runs) in policies.iter().zip(&all) {
        let Interval { mean: difference, half } = interval(&runs.worse);
        if difference < 0.0 {
            better.push(format!("{} ({})", policy.name(), with_interval(&runs.worse)));
        } else if difference < half {
            open.push(policy.name().to_owned());
        }
        table.row(vec![
            policy.name().into(),
            percent(mean(&runs.dropped)),
            with_interval(&runs.worse),
            percent(mean(&runs.invalid)),
            optional(geometric_mean(&runs.goodput)),
            runs.worse.iter().filter(|w| **w > 0.0).count().to_string(),
            runs.worse.len().to_string(),
        ]);
    }
    let dots = |name: &str, of: fn(&AblationRuns) -> f64| Series {
        name: name.into(),
        points: all.iter().enumerate().map(|(i, s)| (i as f64, 100.0 * of(s))).collect(),
    };
    let places = policies.iter().map(|p| p.name().trim_start_matches("pard-").to_owned()).collect();
    Ok(Report {
        name: "pard-ablations",
        title: "What each part of PARD is worth",
        source: "PARD, Fig. 11 and Table 1",
        method: "Pipelines, plans, traces and draws as in pard-goodput. Each ablation meets the same arrivals as the \
                 full policy. The difference of the drop rates is taken run by run, with the 95 % interval of its mean \
                 over all runs."
            .into(),
        claims: vec![claim(&better, &open)],
        tables: vec![TitledTable { title: "Means over the runs".into(), table }],
        plots: vec![Plot {
            title: "Ablations: drop rate and invalid rate".into(),
            x: "policy".into(),
            y: "share (%)".into(),
            series: vec![dots("drop rate", |s| mean(&s.dropped)), dots("invalid rate", |s| mean(&s.invalid))],
            places,
        }],
    })
}

/// The claim of section 5.3. `better` policies drop less than the full one. `open` differences may be chance.
fn claim(better: &[String], open: &[String]) -> Claim {
    Claim {
        claimed: "Each ablation drops more than the full policy (section 5.3)".into(),
        seen: match better.is_empty() {
            true => format!(
                "so for all eleven, on the mean; not told from chance: {}",
                if open.is_empty() { "none".into() } else { first_names(open) }
            ),
            false => format!("these drop less on the mean: {}", first_names(better)),
        },
        verdict: ClaimVerdict::of(better.is_empty()),
        why: match better.is_empty() {
            true => String::new(),
            false => "The parts that decide the order of the queue are worth the least here. A delayed change of order \
                      guards against loads that swing around the capacity. With a static plan and exact profiles, an \
                      early change costs little."
                .into(),
        },
    }
}
