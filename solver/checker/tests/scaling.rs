//! One scaling plan that the checker accepts, and for every rule a change of it that it must reject.

use apportion_checker::{check_scaling, rules};
use apportion_domain::{Application, ScalingAction, ScalingPlan, ScalingProblem, ScalingVariant};

fn variant(name: &str, saturation_qps: f64, latency_ms: f64, cost_per_s: f64, running: u32) -> ScalingVariant {
    let resources = [("cpu".to_owned(), 2.0)].into();
    ScalingVariant { name: name.into(), saturation_qps, latency_ms, load_s: 3.0, cost_per_s, resources, running }
}

fn problem() -> ScalingProblem {
    let application =
        |name: &str, variants| Application { name: name.into(), load_qps: 95.0, slack_qps: 5.0, slo_ms: 50.0, variants };
    let applications = vec![
        application("a", vec![variant("fast", 50.0, 50.0, 1.0, 1), variant("slow", 20.0, 80.0, 0.5, 1)]),
        application("b", vec![variant("fast", 100.0, 10.0, 2.0, 2)]),
    ];
    ScalingProblem { lambda: 0.1, resources: [("cpu".to_owned(), 6.0)].into(), applications }
}

fn action(application: &str, variant: &str, running: u32, delta: i64) -> ScalingAction {
    ScalingAction { application: application.into(), variant: variant.into(), running, delta }
}

/// Loads one fast replica of `a`, unloads its slow one and one of `b`: 1.3 - 0.5 - 2.
fn plan() -> ScalingPlan {
    let actions = vec![action("a", "fast", 2, 1), action("a", "slow", 0, -1), action("b", "fast", 1, -1)];
    ScalingPlan { actions, value: -1.2 }
}

fn found(problem: &ScalingProblem, change: impl FnOnce(&mut ScalingPlan)) -> Vec<&'static str> {
    let mut plan = plan();
    change(&mut plan);
    check_scaling(problem, &plan).into_iter().map(|f| f.rule).collect()
}

#[test]
fn a_valid_plan_has_no_findings() {
    assert_eq!(check_scaling(&problem(), &plan()), []);
}

#[test]
fn every_rule_rejects_what_breaks_it() {
    let p = problem();
    assert_eq!(found(&p, |s| s.actions[2].application = "c".into()), [rules::UNKNOWN_APPLICATION, rules::MISSING_ACTION]);
    assert_eq!(found(&p, |s| s.actions[1].variant = "x".into()), [rules::UNKNOWN_VARIANT, rules::MISSING_ACTION]);
    assert_eq!(found(&p, |s| s.actions.push(s.actions[0].clone())), [rules::DUPLICATE_ACTION]);
    assert_eq!(found(&p, |s| drop(s.actions.pop())), [rules::MISSING_ACTION]);
    assert_eq!(found(&p, |s| s.actions[0].delta = 2), [rules::DELTA]);
    assert_eq!(found(&p, |s| s.value = -1.3), [rules::CLAIMED_VALUE]);
    let slow = |s: &mut ScalingPlan| (s.actions[1], s.value) = (action("a", "slow", 2, 1), -0.05);
    assert_eq!(found(&ScalingProblem { resources: [("cpu".to_owned(), 99.0)].into(), ..problem() }, slow), [rules::GROWTH]);
    let short = |s: &mut ScalingPlan| (s.actions[0], s.value) = (action("a", "fast", 1, 0), -2.5);
    assert_eq!(found(&p, short), [rules::LOAD]);
    let many = |s: &mut ScalingPlan| (s.actions[2], s.value) = (action("b", "fast", 2, 0), 0.8);
    assert_eq!(found(&p, many), [rules::RESOURCE]);
}

#[test]
fn what_is_too_slow_may_stay() {
    let roomy = ScalingProblem { resources: [("cpu".to_owned(), 8.0)].into(), ..problem() };
    let stays = |s: &mut ScalingPlan| (s.actions[1], s.value) = (action("a", "slow", 1, 0), -0.7);
    assert_eq!(found(&roomy, stays), [""; 0]);
}
