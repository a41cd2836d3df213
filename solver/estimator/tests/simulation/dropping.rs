//! Early and proactive dropping, joins and partial answers, computed by hand.

use crate::common::{Built, Fan, Stage, arrivals, assignment, build, finishes, rate, run, stage};
use apportion_domain::Queueing::{Central, PerReplica};
use apportion_domain::{
    BackupEntry, Batching, Dropping, GroupName, Moment, Partial, PipelineDraft, Problem, Profile, RoutingEntry,
    RoutingTable, Share, TaskIndex, TaskKind, TimeSpan,
};
use apportion_estimator::{ArrivalProcess, DropReason, RequestOutcome, Simulation};

const MS: u64 = 1_000_000;

fn changed(problem: &Problem, change: impl FnOnce(&mut PipelineDraft)) -> Problem {
    let pipeline = problem.pipelines[0].changed(&problem.hardware, change).expect("a valid pipeline");
    problem.changed(|draft| draft.pipelines[0] = pipeline).expect("a valid problem")
}

fn with_policy(Built { problem, mut plan }: Built, dropping: Dropping) -> Built {
    plan.pipelines[0].serving.dropping = dropping;
    Built { problem, plan }
}

/// End in ms or, of a dropped request, task and reason.
fn ends(simulation: &Simulation) -> Vec<Result<u64, (usize, &'static str)>> {
    let of = |r: &apportion_estimator::RequestRecord| match r.outcome {
        RequestOutcome::Dropped => Err((r.drop_task.expect("a task").get(), r.reason.expect("a reason").name())),
        _ => Ok(r.finish.expect("answered").as_nanos() / MS),
    };
    simulation.requests.iter().map(of).collect()
}

/// t0 takes 10 ms, one at a time. t1 has a variant of 20 ms and a less accurate one, `w`, of 8 ms. The table knows only the
/// first.
fn two_ways() -> Built {
    let Built { problem, mut plan } =
        build(&[stage(0, 1, 1, 10.0, 0.0), stage(0, 2, 1, 20.0, 0.0)], PerReplica, 0.0, 100.0);
    let problem = changed(&problem, |draft| {
        draft.queue_factor = 1.0;
        let mut faster = draft.tasks[1].variants[0].clone();
        (faster.name, faster.accuracy) = ("w".into(), 0.45);
        let mut rows = faster.profile.rows().to_vec();
        rows.iter_mut().for_each(|r| r.latency_ms = 8.0);
        faster.profile = apportion_domain::Profile::new(rows);
        draft.tasks[1].variants.push(faster);
    });
    let group = |task: &str, variant: &str| GroupName {
        task: task.into(),
        variant: variant.into(),
        hardware: "h".into(),
        share: Share::WHOLE,
    };
    let part = &mut plan.pipelines[0];
    part.assignments.push(assignment(1, "w", 1, 1));
    let entries = vec![RoutingEntry { to: group("t1", "v"), fraction: 1.0 }];
    part.routing.tables = vec![RoutingTable { from: Some(group("t0", "v")), to_task: "t1".into(), entries }];
    part.routing.backup = vec![BackupEntry { group: group("t1", "w"), capacity_qps: 5.0 }];
    Built { problem, plan }
}

#[test]
fn late_queries_are_dropped_or_rerouted() {
    // t0 grants 10 ms. The first request takes 10, the second (from 5 to 20) 15, the third (from 7 to 30) 23.
    let at = arrivals(&[0, 5 * MS, 7 * MS]);
    let budget = "budget";
    let per_task = run(&with_policy(two_ways(), Dropping::PerTask), &at);
    assert_eq!(ends(&per_task), [Ok(30), Err((0, budget)), Err((0, budget))]);
    // 5 ms behind: 20 - 5 = 15 is enough for the 8 ms of `w`. 13 ms behind: 7 is not.
    let reroute = run(&with_policy(two_ways(), Dropping::Reroute), &at);
    assert_eq!(ends(&reroute), [Ok(30), Ok(28), Err((0, budget))]);
    let accuracy = reroute.requests.iter().map(|r| r.accuracy).collect::<Vec<_>>();
    assert!((accuracy[0] - 0.81).abs() < 1e-12 && (accuracy[1] - 0.405).abs() < 1e-12, "{accuracy:?}");
    // Without tables, the backup is what Algorithm 1 leaves over at the demand: here all of `w`.
    let Built { problem, mut plan } = with_policy(two_ways(), Dropping::Reroute);
    plan.pipelines[0].routing = apportion_domain::Routing::default();
    plan.pipelines[0].serving.routing = apportion_domain::RoutingPolicy::MostAccurateFirst;
    assert_eq!(ends(&run(&Built { problem, plan }, &at)), [Ok(30), Ok(28), Err((0, budget))]);
}

#[test]
fn ahead_policies_drop_queries_that_would_overrun() {
    // Of the SLO of 100 ms t0 has 46.7 (10 beside 11.4, the mean of 20 and 8 by capacity), though 10 ms is where a query is
    // behind. The fourth runs from 30 to 40, 37 ms. The fifth would run from 40 to 50, 47 ms, so it is dropped before. The
    // sixth (from 30 on) ends at 50 instead of 60.
    let at = arrivals(&[0, MS, 2 * MS, 3 * MS, 3 * MS, 30 * MS]);
    let late = || Err((0, "budget"));
    let per_task = run(&with_policy(two_ways(), Dropping::PerTaskAhead), &at);
    assert_eq!(ends(&per_task), [Ok(30), late(), late(), late(), late(), late()]);
    assert_eq!(per_task.total.waiting[0].queries, 5, "the fifth takes no time");
    // The sixth is 10 ms behind: the 8 ms of `w` make up for it. Where nobody looks ahead it is 20 ms behind.
    let reroute = run(&with_policy(two_ways(), Dropping::RerouteAhead), &at);
    assert_eq!(ends(&reroute), [Ok(30), Ok(28), late(), late(), late(), Ok(58)]);
    let back = run(&with_policy(two_ways(), Dropping::Reroute), &at);
    assert_eq!(ends(&back), [Ok(30), Ok(28), late(), late(), late(), late()]);
    assert_eq!(back.total.waiting[0].queries, 6);
}

#[test]
fn a_dropped_query_cancels_its_siblings() {
    // Three queries at t1, 10 ms each, one at a time, from 1 ms on; the SLO leaves time for two of them.
    let three = Stage { fanout: Fan::Mean(3.0), ..stage(0, 1, 1, 10.0, 0.0) };
    let one = stage(0, 1, 1, 40.0, 0.0);
    let built = || build(&[stage(0, 1, 1, 1.0, 0.0), three.clone(), one.clone()], PerReplica, 0.0, 25.0);
    // At 1: t1 starts one; t2 has one that would end at 41 and is dropped as it would start, after t1's replica has
    // started.
    let dropped = run(&with_policy(built(), Dropping::LastTask), &arrivals(&[0]));
    assert_eq!(ends(&dropped), [Err((2, "deadline"))]);
    let queries = |s: &Simulation| s.total.waiting.iter().map(|w| w.queries).collect::<Vec<_>>();
    assert_eq!(queries(&dropped), [1, 1, 0], "the two that waited at t1 were cancelled");
    let Built { problem, plan } = with_policy(built(), Dropping::LastTask);
    let problem = changed(&problem, |d| d.partial = Partial::Allow);
    let allowed = run(&Built { problem, plan }, &arrivals(&[0]));
    assert_eq!(ends(&allowed), [Ok(21)], "two of the three are answered");
    assert_eq!(queries(&allowed), [1, 2, 0]);
    assert_eq!((allowed.total.ok, allowed.total.dropped), (1, 0));
    assert_eq!(allowed.requests[0].reason, Some(DropReason::Deadline));
}

#[test]
fn a_dropped_query_frees_the_slot_of_its_sibling() {
    // t1 has one slot, in which a query stays for 60 ms. That of t2 would end after 200 and is dropped as it would start,
    // when its sibling has the slot. The second request finds the slot free at 20: at 70 it would be dropped at t1.
    let stages = [stage(0, 1, 1, 10.0, 0.0), stage(0, 1, 1, 60.0, 0.0), stage(0, 1, 1, 200.0, 0.0)];
    let Built { problem, plan } = with_policy(build(&stages, PerReplica, 0.0, 100.0), Dropping::LastTask);
    let in_slots = |problem: &Problem| {
        changed(problem, |d| {
            d.tasks[1].kind = TaskKind::Continuous;
            let variant = &mut d.tasks[1].variants[0];
            let mut rows = variant.profile.rows().to_vec();
            // As good as no spread: without any, times would be exponential.
            rows.iter_mut().for_each(|r| r.p99_ms = Some((1.0 + 1e-6) * r.latency_ms));
            variant.profile = Profile::new(rows);
        })
    };
    let seen = |problem: Problem| {
        let simulation = run(&Built { problem, plan: plan.clone() }, &arrivals(&[0, 0]));
        let of_task = &simulation.total.waiting[1];
        (ends(&simulation), of_task.queries, of_task.mean_ms)
    };
    let dropped = Err((2, "deadline"));
    assert_eq!(seen(in_slots(&problem)), (vec![dropped, dropped], 2, 0.0));
    // A batch goes on to its end: the second request's query waits at t1 when it is cancelled.
    assert_eq!(seen(problem.clone()).1, 1);
}

#[test]
fn a_sibling_on_its_way_is_cancelled_where_it_arrives() {
    // Hops of 1 ms. The children of t0 (1 ms) reach t1 (2 ms) and t2 (20 ms) at 3; at t2 it would be late. t1's query runs,
    // and makes no child at t3, though it would have.
    let stages = [stage(0, 1, 1, 1.0, 0.0), stage(0, 1, 1, 2.0, 0.0), stage(0, 1, 1, 20.0, 0.0), stage(1, 1, 1, 1.0, 0.0)];
    let built = with_policy(build(&stages, PerReplica, 1.0, 15.0), Dropping::LastTask);
    let simulation = run(&built, &arrivals(&[0]));
    assert_eq!(ends(&simulation), [Err((2, "deadline"))]);
    assert_eq!(simulation.total.waiting.iter().map(|w| w.queries).collect::<Vec<_>>(), [1, 1, 0, 0]);
}

/// t0 makes one query at t1 and `fanout` at t2; t3 is made by t1 and waits for t2. Two replicas of each, one query at a
/// time.
fn join(fanout: f64, latencies_ms: [f64; 4], network_ms: f64) -> Built {
    let of = |t: usize, parent: usize| stage(parent, 2, 1, latencies_ms[t], 0.0);
    let second = Stage { fanout: Fan::Mean(fanout), ..of(2, 0) };
    let Built { problem, plan } = build(&[of(0, 0), of(1, 0), second, of(3, 1)], Central, network_ms, 100.0);
    let problem = changed(&problem, |d| {
        let mut delays = d.edges[0].clone();
        (delays.from, delays.to, delays.primary) = (TaskIndex(2), TaskIndex(3), false);
        d.edges.push(delays);
    });
    Built { problem, plan }
}

#[test]
fn a_join_waits_for_the_last_sibling() {
    // t0 until 1, t1 until 3; t2's three queries on two replicas until 11, 11 and 21; t3 from there for 5 ms.
    assert_eq!(finishes(&run(&join(3.0, [1.0, 2.0, 10.0, 5.0], 0.0), &arrivals(&[0]))), [26 * MS]);
    // Where t1 ends last, nothing waits; where t2 makes none, neither.
    assert_eq!(finishes(&run(&join(1.0, [1.0, 20.0, 10.0, 5.0], 0.0), &arrivals(&[0]))), [26 * MS]);
    assert_eq!(finishes(&run(&join(0.0, [1.0, 2.0, 10.0, 5.0], 0.0), &arrivals(&[0]))), [8 * MS]);
    // A hop before each: t0 1 to 2, t1 3 to 5, t2 3 to 13, then a hop, t3 14 to 19.
    assert_eq!(finishes(&run(&join(1.0, [1.0, 2.0, 10.0, 5.0], 1.0), &arrivals(&[0]))), [19 * MS]);
    // The second request waits for its own queries, not for those of the first: t2 has both from 1 and 2 on, to 11 and 12.
    assert_eq!(
        finishes(&run(&join(1.0, [1.0, 2.0, 10.0, 5.0], 0.0), &arrivals(&[0, MS / 2]))),
        [16 * MS, 16 * MS + MS / 2]
    );
}

#[test]
fn a_join_handles_dropped_siblings() {
    // t2 takes 200 ms and is a leaf: its query is dropped as it would start.
    let built = || with_policy(join(1.0, [1.0, 2.0, 200.0, 5.0], 0.0), Dropping::LastTask);
    assert_eq!(ends(&run(&built(), &arrivals(&[0]))), [Err((2, "deadline"))]);
    let Built { problem, plan } = built();
    let problem = changed(&problem, |d| d.partial = Partial::Allow);
    assert_eq!(ends(&run(&Built { problem, plan }, &arrivals(&[0]))), [Ok(8)]);
}

#[test]
fn a_held_query_is_cancelled_with_its_request() {
    // t2's two replicas run 10 ms. The third query at t2 would start at 11 and end at 21, late. So the request is dropped
    // while t3's query is held, and no query of it remains.
    let Built { problem, plan } = with_policy(join(3.0, [1.0, 2.0, 10.0, 5.0], 0.0), Dropping::LastTask);
    let problem = changed(&problem, |d| d.slo_ms = 20.0);
    let simulation = run(&Built { problem, plan }, &arrivals(&[0, 50 * MS]));
    assert_eq!(ends(&simulation), [Err((2, "deadline")), Err((2, "deadline"))]);
    assert_eq!(simulation.total.waiting.iter().map(|w| w.queries).collect::<Vec<_>>(), [2, 2, 4, 0]);
}

#[test]
fn pard_drops_late_queries_at_the_first_task() {
    // 10 ms at t0 and 20 at t1, an SLO of 45. At t0 the third query would end at 30, with 20 ms to go: late at 50, dropped
    // there at 20. Dropping by what t0 alone needs, it is found out at t1.
    let built = || build(&[stage(0, 1, 1, 10.0, 0.0), stage(0, 2, 1, 20.0, 0.0)], PerReplica, 0.0, 45.0);
    let at = arrivals(&[0, 0, 0]);
    let seen = |dropping| ends(&run(&with_policy(built(), dropping), &at));
    assert_eq!(seen(Dropping::Pard), [Ok(30), Ok(40), Err((0, "predicted"))]);
    assert_eq!(seen(Dropping::PardBack), [Ok(30), Ok(40), Err((1, "predicted"))]);
    assert_eq!(seen(Dropping::Nexus), [Ok(30), Ok(40), Err((1, "deadline"))]);
    // A third of the SLO is t0's: 15 ms. The second query starts after 10 and ends after 20; the third starts after 20.
    assert_eq!(seen(Dropping::ClipperPlusPlus), [Ok(30), Ok(40), Err((0, "budget"))]);
    assert_eq!(seen(Dropping::PardSplit), [Ok(30), Err((0, "budget")), Err((0, "budget"))]);
    assert_eq!(seen(Dropping::NexusSplit), [Ok(30), Err((0, "budget")), Err((0, "budget"))]);
    assert_eq!(seen(Dropping::Naive), [Ok(30), Ok(40), Ok(50)]);
}

#[test]
fn every_dropping_policy_accounts_for_every_request_and_repeats() {
    let stages = [stage(0, 2, 4, 4.0, 2.0), stage(0, 3, 4, 5.0, 3.0), stage(1, 2, 4, 3.0, 2.0)];
    for name in Dropping::NAMES {
        let dropping = Dropping::from_name(name).expect("a name");
        for batching in [Batching::AtStart, Batching::Forming, Batching::WaitUntil] {
            let Built { problem, mut plan } = with_policy(build(&stages, PerReplica, 0.5, 60.0), dropping);
            plan.pipelines[0].serving.batching = batching;
            let workload = rate(700.0, 8, ArrivalProcess::Gamma(2.0), 3);
            let built = Built { problem, plan };
            let (first, second) = (run(&built, &workload), run(&built, &workload));
            assert_eq!(first.requests, second.requests, "{name}");
            let e = &first.total;
            assert_eq!(e.ok + e.late + e.dropped, e.requests, "{name} {batching}");
            assert_eq!(dropping == Dropping::Naive, e.dropped == 0, "{name} {batching}: {} dropped", e.dropped);
        }
    }
}

#[test]
fn looking_ahead_answers_more_than_looking_back_in_an_overload() {
    // PARD sections 5.2 and 5.3: a chain of five under a bursty overload; what is late counts as dropped. Against
    // `clipper++`, `pard-hbf` and `pard-instant` it is even here, where one task is the bottleneck all the time: no claim
    // is made.
    let stages: Vec<Stage> = (0..5).map(|t: usize| stage(t.saturating_sub(1), 4, 8, 8.0, 4.0)).collect();
    let ok = |dropping| {
        let Built { problem, mut plan } = with_policy(build(&stages, PerReplica, 0.0, 400.0), dropping);
        plan.pipelines[0].serving.batching = Batching::Forming;
        run(&Built { problem, plan }, &rate(900.0, 60, ArrivalProcess::Gamma(3.0), 1)).total.ok as f64
    };
    let pard = ok(Dropping::Pard);
    for name in ["naive", "nexus"] {
        let other = ok(Dropping::from_name(name).expect("a name"));
        assert!(pard > 1.16 * other, "{name}: {other}, pard: {pard}");
    }
    for name in ["back", "sf", "oc", "split", "wcl", "upper", "fcfs", "lbf"] {
        let other = ok(Dropping::from_name(&format!("pard-{name}")).expect("a name"));
        assert!(pard > other, "{name}: {other}, pard: {pard}");
    }
}

#[test]
fn views_reach_stations_after_a_hop() {
    // Two requests, a day apart: the run has a day's periods to skip.
    let built =
        with_policy(build(&[stage(0, 1, 1, 10.0, 0.0), stage(0, 1, 1, 10.0, 0.0)], PerReplica, 1.0, 60.0), Dropping::Pard);
    let far = Moment::ZERO + TimeSpan::from_nanos(10_000_000 * 1_000 * MS);
    assert_eq!(finishes(&run(&built, &arrivals(&[0, far.as_nanos()]))), [22 * MS, far.as_nanos() + 22 * MS]);
}
