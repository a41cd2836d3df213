//! What does InferLine claim of its tuner, and does it hold?

use super::tuner_runs::{LoadResult, TunerContender};
use crate::reproduce::lab::mean;
use crate::reproduce::report::{Claim, ClaimVerdict};
use apportion_support::output::percent;

/// A share of missed requests that is *few*: the objective's 1 %.
const FEW: f64 = 0.01;

/// The paper's most that coarse-grained tuning costs over the tuner.
const COARSE_FACTOR: f64 = 4.2;

/// The paper's least that a coarse-grained plan costs over the planner's.
const PLAN_FACTOR: f64 = 3.0;

/// The mean missed share over the loads on which a contender has a plan.
fn mean_missed(seen: &[&LoadResult], who: TunerContender) -> f64 {
    mean(&seen.iter().filter_map(|s| s.missed(who)).collect::<Vec<_>>())
}

/// A ratio of two contenders' costs.
struct CostRatio {
    /// The contender whose cost is divided.
    of: TunerContender,
    /// The contender by whose cost it is divided.
    to: TunerContender,
}

/// The ratios of two contenders' costs over the loads.
struct CostRatios {
    least: f64,
    mean: f64,
    most: f64,
}

impl CostRatio {
    /// The ratios over the loads on which both have a cost.
    fn over(&self, seen: &[&LoadResult], cost: impl Fn(&LoadResult, TunerContender) -> Option<f64>) -> CostRatios {
        let ratios: Vec<f64> = seen.iter().filter_map(|s| Some(cost(s, self.of)? / cost(s, self.to)?)).collect();
        CostRatios {
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            mean: mean(&ratios),
            most: ratios.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// The claims of sections 7.1 to 7.3.
pub fn claims(seen: &[LoadResult]) -> Vec<Claim> {
    let all: Vec<&LoadResult> = seen.iter().collect();
    let rising: Vec<&LoadResult> = seen.iter().filter(|s| s.rises).collect();
    vec![
        tuner_claim(&all),
        peak_claim(&all),
        coarse_claim(&all, &rising),
        oracle_claim(&rising),
        attribution_claim(&all, &rising),
    ]
}

fn tuner_claim(all: &[&LoadResult]) -> Claim {
    let (tuned, alone) = (mean_missed(all, TunerContender::Ours), mean_missed(all, TunerContender::Plan));
    Claim {
        claimed: "With the tuner few queries miss on ramps and bursts for which the plan alone fails (section 7.2)".into(),
        seen: format!("on the mean over the loads {} missed with the tuner, {} without", percent(tuned), percent(alone)),
        verdict: ClaimVerdict::of_parts(&[tuned <= FEW && tuned < alone, alone > FEW]),
        why: "What still misses is what arrives while replicas load.".into(),
    }
}

fn peak_claim(all: &[&LoadResult]) -> Claim {
    let ratio = CostRatio { of: TunerContender::Peak, to: TunerContender::Ours };
    let CostRatios { least, mean, most } = ratio.over(all, LoadResult::cost);
    Claim {
        claimed: "It costs less than coarse-grained plans provisioned for the peak (section 7.2)".into(),
        seen: format!(
            "cg-peak costs {mean:.2} times as much ({least:.2} to {most:.2}), with the load that it was planned for"
        ),
        verdict: ClaimVerdict::of_parts(&[mean > 1.0, least > 1.0]),
        why: "The tuner scales by its busiest short window, so that a rise costs more than the new rate needs.".into(),
    }
}

fn coarse_claim(all: &[&LoadResult], rising: &[&LoadResult]) -> Claim {
    let describe_contender = |who| {
        let ratio = CostRatio { of: who, to: TunerContender::Ours };
        let CostRatios { least, mean, most } = ratio.over(all, LoadResult::cost);
        format!("{} missed at {mean:.2} times the cost ({least:.2} to {most:.2})", percent(mean_missed(all, who)))
    };
    let (ours, mean_coarse) = (mean_missed(rising, TunerContender::Ours), mean_missed(rising, TunerContender::MeanCoarse));
    let ratio = CostRatio { of: TunerContender::PeakCoarse, to: TunerContender::Ours };
    let CostRatios { most, .. } = ratio.over(all, LoadResult::cost);
    Claim {
        claimed: "Coarse-grained pipelines with their own tuner react when they are overloaded. The tuner misses less, \
                  and costs up to 4.2 times less (section 7.1, Fig. 6 and 7)"
            .into(),
        seen: format!(
            "{} missed; from cg-mean {}, from cg-peak {}; on rising loads {} against {}",
            percent(mean_missed(all, TunerContender::Ours)),
            describe_contender(TunerContender::MeanCoarse),
            describe_contender(TunerContender::PeakCoarse),
            percent(ours),
            percent(mean_coarse)
        ),
        verdict: ClaimVerdict::of_parts(&[ours < mean_coarse, most >= COARSE_FACTOR]),
        why: String::new(),
    }
}

fn oracle_claim(rising: &[&LoadResult]) -> Claim {
    let ratio = CostRatio { of: TunerContender::Oracle, to: TunerContender::Ours };
    let CostRatios { least, mean, most } = ratio.over(rising, LoadResult::cost);
    let (ours, oracle) = (mean_missed(rising, TunerContender::Ours), mean_missed(rising, TunerContender::Oracle));
    Claim {
        claimed: "It matches or beats a planner that knows the whole load, which pays for the peak all the time (section \
                  7.2, Fig. 10)"
            .into(),
        seen: format!(
            "on rising loads the oracle costs {mean:.2} times as much ({least:.2} to {most:.2}); {} missed with the \
             tuner, {} by the oracle",
            percent(ours),
            percent(oracle)
        ),
        verdict: ClaimVerdict::of_parts(&[ours <= oracle, mean >= 1.0]),
        why: "The oracle chooses hardware and batches for the peak, and one faster device costs little more here. The \
              tuner adds replicas to its plan, by the rate of its busiest short window. It removes them long after that \
              window."
            .into(),
    }
}

fn attribution_claim(all: &[&LoadResult], rising: &[&LoadResult]) -> Claim {
    let ratio = CostRatio { of: TunerContender::Peak, to: TunerContender::Plan };
    let CostRatios { least, most, .. } = ratio.over(all, LoadResult::planned_cost);
    let by = [TunerContender::Plan, TunerContender::PlanCoarse, TunerContender::Ours].map(|who| mean_missed(rising, who));
    Claim {
        claimed: "The planner makes the first plan cheaper by more than three, the baseline's tuner on it adapts too \
                  late, and the tuner is in \
                  time (section 7.3, Fig. 12)"
            .into(),
        seen: format!(
            "cg-peak's plan costs {least:.1} to {most:.1} times the planner's. On rising loads {} missed by the plan, \
             {} with the baseline's tuner, {} with the tuner",
            percent(by[0]),
            percent(by[1]),
            percent(by[2])
        ),
        verdict: ClaimVerdict::of_parts(&[least > PLAN_FACTOR, by[2] < by[1], by[2] <= FEW]),
        why: String::new(),
    }
}
