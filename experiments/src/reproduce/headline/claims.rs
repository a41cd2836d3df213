//! Which claims does the headline make, and do they hold?

use super::headline_trials::{ATTAINMENT, HPA, NAMES, OURS, RAY, StretchResult};
use crate::reproduce::lab::geometric_mean;
use crate::reproduce::report::{Claim, ClaimVerdict};
use apportion_support::output::{optional, percent};

/// The claim against one contender over all contests.
fn against_claim(all: &[StretchResult], contender: usize, why: &str) -> Claim {
    let ratios: Vec<f64> = all.iter().filter_map(|t| t.ratio(contender)).collect();
    let reached_by_ours_only = all.iter().filter(|t| t.cheapest(contender).is_none() && t.cheapest(OURS).is_some()).count();
    let halved = ratios.iter().filter(|r| **r >= 2.0).count() + reached_by_ours_only;
    let below = all.iter().filter_map(|t| t.ratio(contender).filter(|r| *r < 2.0).map(|r| format!("{} ({r:.2})", t.name)));
    let below: Vec<String> = below.collect();
    let unreached = all.iter().filter(|t| t.at_our_cost(contender).is_none_or(|a| a < ATTAINMENT)).count();
    Claim {
        claimed: format!("At most half the cost of {} at equal attainment (aim)", NAMES[contender]),
        seen: format!(
            "so in {halved} of {}; it costs {} times as much on the mean; at our cost it stays below {} in {unreached}{}",
            all.len(),
            optional(geometric_mean(&ratios)),
            percent(ATTAINMENT),
            if below.is_empty() { String::new() } else { format!("; less than twice: {}", below.join(", ")) }
        ),
        verdict: ClaimVerdict::of(halved == all.len()),
        why: why.into(),
    }
}

/// The claim on settings of an earlier stretch.
fn earlier_settings_claim(all: &[StretchResult]) -> Claim {
    let count_reached =
        |i: usize| all.iter().filter(|t| t.set_before[i].is_some_and(|b| b.point.attainment >= ATTAINMENT)).count();
    let cost = |t: &StretchResult, i: usize| t.set_before[i].map(|b| b.point.cost_per_hour);
    let ratios: Vec<f64> = all.iter().filter_map(|t| Some(cost(t, HPA)? / cost(t, OURS)?)).collect();
    Claim {
        claimed: "What was set on an earlier stretch holds on the one that is reported (aim)".into(),
        seen: format!(
            "{} reached by ours in {} of {}, by HPA in {}; HPA then costs {} times as much on the mean",
            percent(ATTAINMENT),
            count_reached(OURS),
            all.len(),
            count_reached(HPA),
            optional(geometric_mean(&ratios))
        ),
        verdict: ClaimVerdict::of(count_reached(OURS) == all.len()),
        why: "Replicas take time to load. Until then, a burst that starts within a second is lost as far as it exceeds \
              the present replicas. The height and the number of bursts decide, and these differ between stretches."
            .into(),
    }
}

/// The claim on our setting of the earlier stretch, against HPA at its best in hindsight.
fn fair_claim(all: &[StretchResult]) -> Claim {
    let ratios: Vec<f64> = all.iter().filter_map(|t| t.ratio_set_before(HPA)).collect();
    let halved = ratios.iter().filter(|r| **r >= 2.0).count();
    let shown: Vec<String> = all.iter().map(|t| format!("{} {}", t.name, optional(t.ratio_set_before(HPA)))).collect();
    Claim {
        claimed: "Set on the earlier stretch, ours costs at most half of HPA at its best in hindsight (aim)".into(),
        seen: format!(
            "in {halved} of {}; where ours holds, HPA costs {} times as much on the mean: {}",
            all.len(),
            optional(geometric_mean(&ratios)),
            shown.join("; ")
        ),
        verdict: ClaimVerdict::of(halved == all.len()),
        why: "The hindsight is HPA's alone. Where the load is steady, every contender ends with the best fixed number \
              of replicas. None can cost half of that."
            .into(),
    }
}

/// The claim on a load that steps up.
fn surprised_claim(all: &[StretchResult]) -> Claim {
    let attainment = |i: usize| all.iter().filter_map(move |t| t.surprised[i].map(|p| p.attainment));
    let mean = |i: usize| attainment(i).sum::<f64>() / attainment(i).count().max(1) as f64;
    let pairs = all.iter().filter_map(|t| Some((t.surprised[OURS]?.attainment, t.surprised[HPA]?.attainment)));
    let better = pairs.clone().filter(|(ours, hpa)| ours > hpa).count();
    Claim {
        claimed: "Where the load then doubles for good, ours loses less than HPA as it was set for the load before (aim)"
            .into(),
        seen: format!(
            "in {better} of {}; {} answered in time by ours on the mean, {} by HPA, {} by Ray Serve",
            pairs.clone().count(),
            percent(mean(OURS)),
            percent(mean(HPA)),
            percent(mean(RAY))
        ),
        verdict: ClaimVerdict::of(better > 0 && better == pairs.clone().count()),
        why: "A low target of utilisation is also room for a burst. Where HPA needed a low target, it has paid for the \
              step beforehand."
            .into(),
    }
}

/// All claims.
pub fn claims(all: &[StretchResult]) -> Vec<Claim> {
    vec![
        against_claim(
            all,
            HPA,
            "HPA measures every 15 s and then waits until replicas are loaded. Until then the present replicas must \
             serve the load, so its target must be low all the time. It keeps added replicas for five minutes. It sees \
             how busy replicas are, and not how much more they can serve with fuller batches. Where the load is steady, \
             none of this costs anything, and there is almost nothing to save.",
        ),
        against_claim(
            all,
            RAY,
            "Ray Serve decides on means of half a minute, half a minute late, and keeps what it added for ten minutes.",
        ),
        earlier_settings_claim(all),
        fair_claim(all),
        surprised_claim(all),
    ]
}
