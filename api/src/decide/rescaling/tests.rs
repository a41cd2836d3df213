//! Scaling actions in words, and which of them are carried out.

use super::*;
use crate::decide::budget::MissedRequests;
use crate::documents;
use apportion_domain::{Routing, ServingPolicy, Share};
use serde_json::json;

/// One task: `good` serves 50 queries per second of a `t4` and 20 of a `cpu`, `fast` serves 200 of a `t4`.
fn problem(demand_qps: f64) -> Problem {
    let row = |hardware: &str, latency_ms: f64| json!({"hardware": hardware, "batch": 1, "latency_ms": latency_ms});
    documents::problem(&json!({
        "version": 1,
        "objective": {"mode": "min_cost"},
        "hardware": [
            {"name": "t4", "price_per_hour": 2.0, "count": 8},
            {"name": "cpu", "price_per_hour": 0.5, "count": 8}],
        "pipelines": [{"name": "p", "demand_qps": demand_qps, "slo_ms": 200.0, "tasks": [{"name": "t", "variants": [
            {"name": "good", "accuracy": 0.9, "load_ms": 10_000.0, "profile": [row("t4", 20.0), row("cpu", 50.0)]},
            {"name": "fast", "accuracy": 0.8, "load_ms": 10_000.0, "profile": [row("t4", 5.0)]}]}]}]
    }))
    .expect("a problem")
}

/// A plan for 60 queries per second with these groups: variant, hardware, replicas.
fn part(groups: &[(&str, &str, u32)]) -> PipelinePlan {
    let assignment = |&(variant, hardware, replicas): &(&str, &str, u32)| Assignment {
        group: GroupName { task: "t".into(), variant: variant.into(), hardware: hardware.into(), share: Share::WHOLE },
        batch: 1,
        replicas,
        traffic_share: 1.0,
        latency_budget_ms: 0.0,
        utilisation: 1.0 / f64::from(replicas),
    };
    PipelinePlan {
        name: "p".into(),
        demand_qps: 60.0,
        accuracy: 0.9,
        serving: ServingPolicy::default(),
        assignments: groups.iter().map(assignment).collect(),
        flows: Vec::new(),
        routing: Routing::default(),
        ladder: Vec::new(),
    }
}

#[test]
fn steps_have_the_names_of_the_paper() {
    let problem = problem(60.0);
    for (current, new, expected) in [
        (&[("good", "t4", 2)][..], &[("good", "t4", 3)][..], &["replicate t/good/t4 from 2 to 3"][..]),
        (&[("good", "t4", 2)], &[("good", "t4", 1)], &["remove t/good/t4 from 2 to 1"]),
        // at one price the throughput decides
        (&[("good", "t4", 2)], &[("fast", "t4", 1)], &["upgrade t/fast/t4 from 0 to 1", "unload t/good/t4 from 2 to 0"]),
        (&[("fast", "t4", 1)], &[("fast", "t4", 1), ("good", "t4", 1)], &["downgrade t/good/t4 from 0 to 1"]),
        // otherwise the price of the hardware
        (&[("good", "cpu", 2)], &[("good", "cpu", 2), ("good", "t4", 1)], &["upgrade t/good/t4 from 0 to 1"]),
        (
            &[("good", "t4", 1)],
            &[("good", "cpu", 2)],
            &["downgrade t/good/cpu from 0 to 2", "unload t/good/t4 from 1 to 0"],
        ),
        (&[], &[("good", "cpu", 2)], &["load t/good/cpu from 0 to 2"]),
        (&[("good", "t4", 1)], &[("good", "t4", 1)], &[]),
    ] {
        let steps = scaling_steps(&problem, &part(current), &part(new));
        let said: Vec<String> = steps.iter().map(ToString::to_string).collect();
        assert_eq!(said, expected, "{current:?} to {new:?}");
    }
}

/// The decision about these groups, with these attainments of both plans.
fn chosen(groups: [&[(&str, &str, u32)]; 2], attained: [f64; 2], wish: &ReplanInput, lambda: f64) -> ReplacementDecision {
    let judged = JudgedSides { findings: Vec::new(), in_force: attained[0], new: attained[1], samples: 4 };
    let (current, new) = (part(groups[0]), part(groups[1]));
    let settings = ScalingReplanSpec { lambda, ..ScalingReplanSpec::default() };
    choose_scaling(wish, &problem(60.0), ScalingSides { current: &current, new: &new, judged: &judged }, &settings)
}

fn wish(may_improve: bool) -> ReplanInput {
    let spec = apportion_wire::PipelineSpec { name: "p".into(), ..Default::default() };
    ReplanInput { may_improve, ..ReplanInput::for_seen_demand(spec, 50.0) }
}

#[test]
fn more_replicas_come_at_once_and_fewer_come_late() {
    let (two, three, one) = (&[("good", "t4", 2)][..], &[("good", "t4", 3)][..], &[("good", "t4", 1)][..]);
    let cpu = &[("good", "cpu", 3)][..];
    for (groups, attained, may_improve, lambda, keep, why) in [
        // the plan in force misses: its age does not count
        ([two, three], [0.9, 1.0], false, 0.1, false, "attains 0.9000 and the new one 1.0000"),
        ([two, three], [0.9, 0.9], true, 0.1, true, "none does better"),
        ([two, three], [1.0, 1.0], true, 0.1, true, "not needed yet"),
        ([two, two], [1.0, 1.0], true, 0.1, true, "no action costs less"),
        ([two, one], [1.0, 1.0], false, 0.1, true, "too young"),
        ([two, one], [1.0, 0.5], true, 0.1, true, "attains 0.5000"),
        ([two, one], [1.0, 1.0], true, 0.1, false, "save 2.0000 per hour, and their loads count 0.0000"),
        // 4 - 1.5 saved against lambda times 10 s times 1.5
        ([two, cpu], [1.0, 1.0], true, 0.1, false, "save 2.5000 per hour, and their loads count 1.5000"),
        ([two, cpu], [1.0, 1.0], true, 0.2, true, "save 2.5000 per hour, and their loads count 3.0000"),
    ] {
        let choice = chosen(groups, attained, &wish(may_improve), lambda);
        assert_eq!(choice.keep, keep, "{choice:?}");
        assert!(choice.why.contains(why), "{choice:?}");
    }
}

#[test]
fn devices_without_a_price_are_given_back_too() {
    let free = problem(60.0).changed(|draft| draft.hardware.iter_mut().for_each(|h| h.price_per_hour = 0.0));
    let free = free.expect("a problem without prices");
    let judged = JudgedSides { findings: Vec::new(), in_force: 1.0, new: 1.0, samples: 4 };
    let (two, one) = (part(&[("good", "t4", 2)]), part(&[("good", "t4", 1)]));
    let choose = |current: &PipelinePlan, new: &PipelinePlan| {
        let sides = ScalingSides { current, new, judged: &judged };
        choose_scaling(&wish(true), &free, sides, &ScalingReplanSpec::default())
    };
    let (fewer, more) = (choose(&two, &one), choose(&one, &two));
    assert!(!fewer.keep && fewer.why.contains("the load needs less"), "{fewer:?}");
    assert!(more.keep && more.why.contains("not needed yet"), "{more:?}");
}

#[test]
fn missed_requests_bring_actions_that_serve_more() {
    let (two, three) = (&[("good", "t4", 2)][..], &[("good", "t4", 3)][..]);
    let missed = Some(MissedRequests { missed: 40, ended: 100, permitted: 1.0 });
    for (new, may_improve, keep) in [(three, true, false), (three, false, true), (two, true, true)] {
        let wish = ReplanInput { missed, ..wish(may_improve) };
        let choice = chosen([two, new], [1.0, 1.0], &wish, 0.1);
        assert_eq!(choice.keep, keep, "{choice:?}");
        assert!(choice.why.starts_with("40 of 100 requests"), "{choice:?}");
    }
}

#[test]
fn groups_that_the_problem_lacks_are_not_scaled_from() {
    let current = part(&[("good", "t4", 2), ("gone", "t4", 1), ("good", "h100", 1)]);
    let deployed = deployed_groups(&problem(60.0), &current);
    let said: Vec<_> = deployed.iter().map(|d| (d.variant.as_str(), d.hardware.as_str(), d.replicas)).collect();
    assert_eq!(said, [("good", "t4", 2)]);
}
