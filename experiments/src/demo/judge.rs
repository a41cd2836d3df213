//! Did a run keep the promises of a demo? Pure functions.

use super::fit::DeviceSlowness;
use super::meter::ProcessorUse;
use super::report::Summary;
use super::verdict::DemoVerdict;
use std::time::Duration;

/// The share of requests in steady load that must be answered in time. Plans promise 99 %. The difference covers bursts of
/// other work that are too short to notice.
const STEADY_MIN: f64 = 0.95;

/// The largest difference between the measured accuracy and that of the plans.
const ACCURACY_GAP_MAX: f64 = 0.05;

/// Other work that takes more of the machine than this part disturbs a run.
const OTHERS_MAX: f64 = 0.15;

/// The shortest part of the load in which the service has time to measure a step and to plan for it.
const PART_MIN: Duration = Duration::from_secs(18);

/// The promises of a demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// The moments when the load doubles and when it falls back.
    pub steps: [Duration; 2],
    /// Whether the doubled load needs cheaper variants.
    pub needs_cheaper: bool,
    /// Whether an agent is killed. The rest of the devices may be too few then, so the demo promises no speed.
    pub kills: bool,
}

/// Judges a run, with respect to the other work on the machine.
pub fn judge(summary: &Summary, promise: &Promise, slowness: &DeviceSlowness, seen: Option<&ProcessorUse>) -> DemoVerdict {
    let missed = broken_promises(summary, promise);
    let is_disturbed = !slowness.fits || seen.is_some_and(is_disturbed);
    match missed.is_empty() {
        true => DemoVerdict::Kept,
        false if summary.failed > 0 => DemoVerdict::Broken(missed),
        false if is_disturbed => DemoVerdict::Disturbed(missed),
        false => DemoVerdict::Missed(missed),
    }
}

/// Whether other work took so much of the machine that a run shows nothing. The comparison uses the printed hundredths.
fn is_disturbed(seen: &ProcessorUse) -> bool {
    let hundredths = |processors: f64| (100.0 * processors).round() as i64;
    hundredths(seen.others) > hundredths(OTHERS_MAX * seen.processors)
}

fn broken_promises(summary: &Summary, promise: &Promise) -> Vec<String> {
    let mut missed = Vec::new();
    if summary.failed > 0 {
        missed.push(format!("{} of {} requests failed", summary.failed, summary.requests));
    }
    let (measured, planned) = (summary.accuracy_measured, summary.accuracy_planned);
    if (measured - planned).abs() > ACCURACY_GAP_MAX {
        missed.push(format!("the accuracy is {measured:.3}, the plans promise {planned:.3}"));
    }
    if promise.kills {
        return missed;
    }
    if summary.attainment_steady < STEADY_MIN {
        let attained = summary.attainment_steady;
        missed
            .push(format!("{attained:.3} of the requests in steady load were in time, the demo promises {STEADY_MIN:.2}"));
    }
    let [up, down] = promise.steps;
    if promise.needs_cheaper && down - up >= PART_MIN {
        let in_force = |at: Duration| summary.plans.iter().rev().find(|plan| plan.at_s < at.as_secs_f64());
        let is_of = |at: Duration, step: &str| in_force(at).is_some_and(|plan| plan.step.as_deref() == Some(step));
        if !is_of(down, "accuracy") {
            missed.push("no plan with cheaper variants came while the load was doubled".into());
        }
        if !is_of(Duration::MAX, "hardware") {
            missed.push("the most accurate variants did not come back when the load had fallen".into());
        }
    }
    missed
}

/// Describes the use of the processors during a run.
pub fn describe_use(seen: &ProcessorUse, slowness: &DeviceSlowness) -> String {
    let ProcessorUse { processors, own, waiting, others, .. } = seen;
    let fair = if is_disturbed(seen) { "more" } else { "no more" };
    format!(
        "of {processors:.0} processors the demo used {own:.2} ({:.2} were set aside for it). Other work used \
         {others:.2}, {fair} than the {:.2} that leave a run undisturbed. {waiting:.2} threads of the demo waited for a \
         processor on average",
        slowness.allowed,
        OTHERS_MAX * processors,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures::{plan, summary};
    use apportion_support::exit::Exit;

    const STEPS: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(40)];

    fn promise() -> Promise {
        Promise { steps: STEPS, needs_cheaper: true, kills: false }
    }

    fn fits(fits: bool) -> DeviceSlowness {
        DeviceSlowness { multiple: 10.0, needed: 0.9, allowed: 1.2, fits }
    }

    fn others(others: f64) -> ProcessorUse {
        ProcessorUse { seconds: 60.0, processors: 2.0, own: 0.9, waiting: 0.1, others }
    }

    /// A run that keeps everything.
    fn good() -> Summary {
        let plans = vec![plan(0.0, "hardware"), plan(22.5, "accuracy"), plan(43.0, "hardware")];
        Summary { attainment_steady: 0.99, ..summary(plans) }
    }

    #[test]
    fn a_run_is_judged_by_the_free_processors() {
        let late = || Summary { attainment_steady: 0.43, ..good() };
        let failed = || Summary { failed: 1, ..good() };
        let inexact = || Summary { accuracy_measured: good().accuracy_planned - 0.06, ..good() };
        let table = [
            (good(), fits(true), Some(others(0.1)), Some(Exit::Done)),
            (good(), fits(false), Some(others(1.5)), Some(Exit::Done)),
            (late(), fits(true), Some(others(0.1)), Some(Exit::Findings)),
            (late(), fits(true), None, Some(Exit::Findings)),
            (late(), fits(true), Some(others(0.31)), Some(Exit::NoAnswer)),
            (late(), fits(false), Some(others(0.1)), Some(Exit::NoAnswer)),
            (inexact(), fits(true), Some(others(0.1)), Some(Exit::Findings)),
            (failed(), fits(true), Some(others(0.1)), None),
            (failed(), fits(false), Some(others(1.5)), None),
        ];
        for (at, (summary, slowness, seen, exit)) in table.into_iter().enumerate() {
            let verdict = judge(&summary, &promise(), &slowness, seen.as_ref());
            assert_eq!(verdict.exit(), exit, "row {at}: {verdict:?}");
            assert_eq!(verdict.broken_promises().is_empty(), exit == Some(Exit::Done), "row {at}: {verdict:?}");
        }
    }

    #[test]
    fn both_steps_must_be_seen_in_their_time() {
        let runs = [
            (vec![plan(0.0, "hardware")], 1),
            (vec![plan(0.0, "hardware"), plan(23.0, "accuracy")], 1),
            (vec![plan(0.0, "hardware"), plan(41.0, "accuracy"), plan(50.0, "hardware")], 1),
            (vec![plan(0.0, "hardware"), plan(23.0, "accuracy"), plan(35.0, "hardware")], 1),
            (vec![plan(0.0, "hardware"), plan(23.0, "accuracy"), plan(43.0, "hardware")], 0),
            (vec![], 2),
        ];
        for (plans, count) in runs {
            let run = Summary { plans: plans.clone(), ..good() };
            let count_broken = |promise: &Promise| judge(&run, promise, &fits(true), None).broken_promises().len();
            assert_eq!(count_broken(&promise()), count, "{plans:?}");
            let short = Promise { steps: [Duration::from_secs(12), Duration::from_secs(24)], ..promise() };
            assert_eq!(count_broken(&short), 0, "too short for that: {plans:?}");
            assert_eq!(count_broken(&Promise { needs_cheaper: false, ..promise() }), 0);
            assert_eq!(count_broken(&Promise { kills: true, ..promise() }), 0);
        }
    }

    #[test]
    fn the_description_agrees_with_the_verdict() {
        let table = [
            (0.1, "0.10, no more than the 0.30"),
            (0.3049, "0.30, no more than the 0.30"),
            (0.3051, "0.31, more than the 0.30"),
            (0.5, "0.50, more than the 0.30"),
        ];
        for (other, fair) in table {
            let text = describe_use(&others(other), &fits(true));
            assert!(text.contains(fair), "{text}");
            let late = Summary { attainment_steady: 0.43, ..good() };
            let is_disturbed = judge(&late, &promise(), &fits(true), Some(&others(other))).exit() == Some(Exit::NoAnswer);
            assert_eq!(is_disturbed, !fair.contains("no more"), "{text}");
        }
    }
}
