//! Where along the pipeline are requests dropped (PARD sections 3.2 and 5.3, Fig. 2(c) and 11(b))?

use super::case::{OverloadCase, make_case, traces};
use crate::reproduce::lab::{Lab, Records, in_parallel, invalid_rate, mean, replay};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::Dropping;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, percent};

const POLICIES: [Dropping; 8] = [
    Dropping::Pard,
    Dropping::Nexus,
    Dropping::ClipperPlusPlus,
    Dropping::PardBack,
    Dropping::PardSf,
    Dropping::PardOc,
    Dropping::PardSplit,
    Dropping::PardWcl,
];

/// Pipeline lv, as in the paper's Fig. 11.
const PIPELINE: usize = 1;

/// The share of the losses that must lie at a place for the paper to call them concentrated there.
const MOST: f64 = 0.5;

/// The losses of one policy over all loads.
#[derive(Clone, Default)]
struct LossPlaces {
    /// Shares by module; the last entry is late requests.
    shares: Vec<Vec<f64>>,
    invalid: Vec<f64>,
}

impl LossPlaces {
    /// Mean share of the losses at this place.
    fn at(&self, place: usize) -> f64 {
        mean(&self.shares.iter().map(|s| s[place]).collect::<Vec<_>>())
    }

    fn share_between(&self, places: std::ops::Range<usize>) -> f64 {
        places.map(|p| self.at(p)).sum()
    }
}

/// The losses of one policy on one load.
struct Losses {
    /// Shares by module; the last entry is late requests.
    shares: Vec<f64>,
    /// The invalid rate.
    invalid: f64,
}

/// Runs one policy on one load. `None` without losses.
fn losses_by_module(lab: &Lab, made: &OverloadCase, policy: Dropping) -> Result<Option<Losses>, Failure> {
    let run = replay(&made.problem, &made.plan, &made.workload(lab.held_out_seed()), policy, Records::Keep)?;
    let modules = made.problem.pipelines[0].tasks.len();
    let mut counts = vec![0_u64; modules + 1];
    for record in run.requests.iter().filter(|r| r.outcome != apportion_estimator::RequestOutcome::Ok) {
        counts[record.drop_task.map_or(modules, |t| t.get())] += 1;
    }
    let all: u64 = counts.iter().sum();
    let shares = || counts.iter().map(|n| *n as f64 / all as f64).collect();
    Ok((all > 0).then(|| Losses { shares: shares(), invalid: invalid_rate(&run.total) }))
}

/// PARD Fig. 2(c) and 11(b).
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let mut all = vec![LossPlaces::default(); POLICIES.len()];
    let mut names = Vec::new();
    for trace in traces(lab)? {
        let Some(made) = make_case(lab, PIPELINE, None, &trace)? else { continue };
        lab.show_step(format!("pard-where: {}", trace.name));
        names = made.problem.pipelines[0].tasks.iter().map(|t| t.name.clone()).collect();
        for (sum, one) in all.iter_mut().zip(in_parallel(&POLICIES, |&policy| losses_by_module(lab, &made, policy))?) {
            let Some(Losses { shares, invalid }) = one else { continue };
            sum.shares.push(shares);
            sum.invalid.push(invalid);
        }
    }
    names.push("late".into());
    let header: Vec<&str> =
        std::iter::once("policy").chain(names.iter().map(String::as_str)).chain(["invalid rate"]).collect();
    let mut table = TextTable::new(&header);
    for (policy, lost) in POLICIES.iter().zip(&all) {
        let shares = (0..names.len()).map(|place| percent(lost.at(place)));
        table.row(std::iter::once(policy.name().to_owned()).chain(shares).chain([percent(mean(&lost.invalid))]).collect());
    }
    let line = |(policy, lost): (&Dropping, &LossPlaces)| Series {
        name: policy.name().into(),
        points: (0..names.len()).map(|place| (place as f64, 100.0 * lost.at(place))).collect(),
    };
    Ok(Report {
        name: "pard-where",
        title: "Where requests are dropped",
        source: "PARD, Fig. 2(c) and 11(b)",
        method: "Pipeline lv with the plan and the traces of pard-goodput, one draw. Shares of the requests that were \
                 not answered in time, by the module that dropped them. Late requests came through all modules too \
                 late. Means over the traces."
            .into(),
        claims: claims(&all, names.len() - 1),
        tables: vec![TitledTable { title: "Shares of what is lost".into(), table }],
        plots: vec![Plot {
            title: "Shares of what is lost, by module".into(),
            x: "module".into(),
            y: "share of what is lost (%)".into(),
            series: POLICIES.iter().zip(&all).map(line).collect(),
            places: names,
        }],
    })
}

/// A claim that most losses lie at a place. `share` of them did.
fn concentration_claim(claimed: &str, share: f64) -> Claim {
    Claim {
        claimed: claimed.into(),
        seen: format!("{} of them", percent(share)),
        verdict: ClaimVerdict::of(share >= MOST),
        why: String::new(),
    }
}

fn claims(all: &[LossPlaces], modules: usize) -> Vec<Claim> {
    let losses_of = |policy: Dropping| &all[POLICIES.iter().position(|p| *p == policy).expect("it was run")];
    let early = |policy| losses_of(policy).share_between(0..2);
    let later = |policy| losses_of(policy).share_between(modules / 2..modules + 1);
    let last = |policy| losses_of(policy).share_between(modules - 1..modules + 1);
    let invalid = |policy| mean(&losses_of(policy).invalid);
    vec![
        concentration_claim("PARD's drops are concentrated in the first two modules (section 5.3)", early(Dropping::Pard)),
        concentration_claim("pard-split's drops are concentrated there too (section 5.3)", early(Dropping::PardSplit)),
        Claim {
            claimed: "Most of what nexus drops is dropped in the latter half (sections 3.2 and 5.2)".into(),
            seen: format!("{} from the middle module on, late ones included", percent(later(Dropping::Nexus))),
            verdict: ClaimVerdict::of(later(Dropping::Nexus) >= MOST),
            why: String::new(),
        },
        Claim {
            claimed: "So is much of what clipper++ drops, though it drops earlier than nexus (section 5.2)".into(),
            seen: format!(
                "{}; {} in the first two modules",
                percent(later(Dropping::ClipperPlusPlus)),
                percent(early(Dropping::ClipperPlusPlus))
            ),
            verdict: ClaimVerdict::of_parts(&[
                later(Dropping::ClipperPlusPlus) >= MOST / 2.0,
                early(Dropping::ClipperPlusPlus) > early(Dropping::Nexus),
            ]),
            why: "The second module is fast, so it has a small part of the SLO. The queries of one batch of the first \
                  module arrive there at once. They wait for each other and overrun that part. The remaining queries \
                  have time enough for the other modules."
                .into(),
        },
        Claim {
            claimed: "pard-back drops most in the last module and wastes more than any other ablation of the estimate; \
                      pard-sf drops there too; \
                      pard-oc hardly (section 5.3)"
                .into(),
            seen: format!(
                "in the last module or late: pard-back {}, pard-sf {}, pard-oc {}; invalid rates {}, {}, {}",
                percent(last(Dropping::PardBack)),
                percent(last(Dropping::PardSf)),
                percent(last(Dropping::PardOc)),
                percent(invalid(Dropping::PardBack)),
                percent(invalid(Dropping::PardSf)),
                percent(invalid(Dropping::PardOc))
            ),
            verdict: ClaimVerdict::of_parts(&[
                last(Dropping::PardBack) >= last(Dropping::PardSf),
                last(Dropping::PardSf) > last(Dropping::PardOc),
                invalid(Dropping::PardBack) >= invalid(Dropping::PardSf).max(invalid(Dropping::PardOc)),
            ]),
            why: "The first module receives more than it serves, and the later ones can serve its output. So queues \
                  grow there, and every policy judges there first. In the paper replicas are added while they serve, \
                  and cold starts move the place where queues grow."
                .into(),
        },
    ]
}
