//! Which claims does the headline make, and do they hold?

use super::cases::{CaseSet, Row, RowSummary};
use super::findings::Findings;
use crate::reproduce::report::{Claim, ClaimVerdict};
use apportion_support::output::percent;

/// The claim that what was set before holds on each set of traces.
fn set_before_claim(findings: &Findings) -> Claim {
    let ours = findings.ours();
    let mut seen = Vec::new();
    for set in findings.sets() {
        let cases = findings.cases_of(Some(set));
        let held = |contender: usize, row| cases.summary(contender, row).held.in_words();
        let others: Vec<String> = (0..findings.protocol.contenders.len())
            .filter(|&at| at != ours)
            .map(|at| {
                let row = if findings.protocol.contenders[at].is_tuned() { Row::Chosen } else { Row::Default };
                format!("{} {}", findings.name(at), held(at, row))
            })
            .collect();
        seen.push(format!("{set}: ours {}, {}", held(ours, Row::Chosen), others.join(", ")));
    }
    let all = findings.cases_of(None).summary(ours, Row::Chosen).held;
    Claim {
        claimed: format!("What was set on one stretch reaches {} on others (aim)", percent(findings.protocol.attainment)),
        seen: format!("runs that hold: {}", seen.join("; ")),
        verdict: ClaimVerdict::of_cases(all.held, all.of),
        why: "Replicas take time to load. Until then, a burst that starts within a second is lost as far as it exceeds \
              the present replicas. The height and the number of bursts decide, and these differ between stretches."
            .into(),
    }
}

/// The ratios of one row of a contender, in words, over each set.
fn ratios(findings: &Findings, contender: usize, row: Row) -> String {
    let of = |set: &&str| {
        let summary: RowSummary = findings.cases_of(Some(set)).summary(contender, row);
        format!("{set} {}", summary.to_ours.in_words())
    };
    findings.sets().iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Cases in which a rival costs at least twice as much as ours, or never reaches the attainment where ours does.
fn halved(findings: &Findings, cases: &CaseSet<'_>, rivals: &[usize]) -> usize {
    let attainment = findings.protocol.attainment;
    let is_halved = |case: &&&super::cases::Case| {
        let cost = |of: usize| case.contenders[of].cost(Row::Hindsight, attainment);
        let rival = rivals.iter().filter_map(|&of| cost(of)).min_by(f64::total_cmp);
        cost(findings.ours()).is_some_and(|ours| rival.is_none_or(|rival| rival >= 2.0 * ours))
    };
    cases.cases.iter().filter(is_halved).count()
}

/// The claim against rivals at their best in hindsight.
fn hindsight_claim(findings: &Findings, name: &str, rivals: &[usize], why: &str) -> Claim {
    let cases = findings.cases_of(None);
    let halved = halved(findings, &cases, rivals);
    let shown: Vec<String> =
        rivals.iter().map(|&at| format!("{}: {}", findings.name(at), ratios(findings, at, Row::Hindsight))).collect();
    Claim {
        claimed: format!("At most half the cost of {name} at equal attainment, both at their best in hindsight (aim)"),
        seen: format!(
            "so in {halved} of {} cases against the cheapest of them; cost over ours: {}",
            cases.cases.len(),
            shown.join("; ")
        ),
        verdict: ClaimVerdict::of_cases(halved, cases.cases.len()),
        why: why.into(),
    }
}

/// The claim on the distance to the bound.
fn bound_claim(findings: &Findings) -> Claim {
    let (ours, hpas) = (findings.ours(), findings.hpas());
    let of = |set: &&str| {
        let cases = findings.cases_of(Some(set));
        let summary = cases.summary(ours, Row::Chosen);
        let saved = cases.saved_share(ours, Row::Chosen, &hpas);
        let saved = saved.map_or_else(|| "-".into(), |share| format!("{:.0} %", 100.0 * share));
        format!("{set} {}, saved {saved}", summary.to_bound.in_words())
    };
    Claim {
        claimed: "Ours as set before costs little more than a policy that knows all arrivals (aim, without a number)"
            .into(),
        seen: format!(
            "cost over the bound, and what is saved of the cheapest HPA's cost in hindsight above it: {}",
            findings.sets().iter().map(of).collect::<Vec<_>>().join("; ")
        ),
        verdict: ClaimVerdict::Open,
        why: "The policy of the bound adds replicas before a burst, and gives up the requests that are dearest to serve."
            .into(),
    }
}

/// The claim on a load that steps up.
fn surprise_claim(findings: &Findings) -> Claim {
    let (ours, hpas) = (findings.ours(), findings.hpas());
    let attained = |outcomes: &[Option<super::contest::RunOutcome>], at: usize| outcomes[at].map(|o| o.attainment());
    // a case without a plan is lost: ours is not ahead there
    let (mut better, of) = (0, findings.cases.len());
    for surprise in &findings.surprised {
        let rival = hpas.iter().filter_map(|&at| attained(&surprise.outcomes, at)).max_by(f64::total_cmp);
        if let (Some(own), Some(rival)) = (attained(&surprise.outcomes, ours), rival) {
            better += usize::from(own > rival);
        }
    }
    Claim {
        claimed: "Where the load then doubles for good, ours loses less than any HPA, all as set before (aim)".into(),
        seen: format!("in {better} of {of}"),
        verdict: ClaimVerdict::of_cases(better, of),
        why: "A low target of utilisation is also room for a burst. Where HPA needed a low target, it has paid for the \
              step beforehand."
            .into(),
    }
}

/// All claims.
pub fn claims(findings: &Findings) -> Vec<Claim> {
    let hpas = findings.hpas();
    let is_other = |at: &usize| {
        let kind = findings.protocol.contenders[*at].scaler;
        use super::protocol::ScalerKind::{KpaConcurrency, KpaRate, Ray};
        [KpaConcurrency, KpaRate, Ray].contains(&kind)
    };
    let others: Vec<usize> = (0..findings.protocol.contenders.len()).filter(is_other).collect();
    vec![
        set_before_claim(findings),
        hindsight_claim(
            findings,
            "HPA",
            &hpas,
            "HPA measures every 15 s and then waits until replicas are loaded. Until then the present replicas must \
             serve the load, so its target must be low all the time. Where the load is steady, this costs nothing, and there \
             is almost nothing to save.",
        ),
        hindsight_claim(
            findings,
            "Knative's autoscaler and Ray Serve",
            &others,
            "Both decide on means over a window and know nothing of batches. Ray Serve pushes its means every 10 s.",
        ),
        bound_claim(findings),
        surprise_claim(findings),
    ]
}
