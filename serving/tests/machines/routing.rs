//! Routers keep their proportions; Loki's Algorithm 1 on cases computed by hand, and its properties on random ones.

use apportion_domain::{
    AccuracyModel, Assignment, Edge, GroupName, Hardware, HardwareIndex, Partial, Pipeline, PipelineDraft, Profile,
    ProfileRow, Route, Routing, ServingWishes, Share, Task, TaskIndex, TaskKind, TimeSpan, Variant,
};
use apportion_serving::router::{GroupUse, Serving, Within};
use apportion_serving::{LateQueries, RouteChoice, Router, Stride, group_capacity_qps, most_accurate_first};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn stride_keeps_to_its_shares_and_spreads_them() {
    let mut stride = Stride::new([(0.5, 7), (0.25, 8), (0.25, 9)]).expect("weights");
    let picks: Vec<_> = (0..8).map(|_| stride.pick()).collect();
    assert_eq!(picks, [7, 8, 9, 7, 7, 8, 9, 7]);
    assert!(Stride::new([(0.0, 1), (f64::NAN, 2)]).is_none());
}

proptest! {
    /// After any number of picks, no target is a whole pick short of its share for each rival it has.
    #[test]
    fn stride_is_never_far_from_its_shares(weights in prop::collection::vec(0.0_f64..10.0, 1..8), picks in 1_usize..500) {
        let total: f64 = weights.iter().sum();
        prop_assume!(total > 0.0);
        let mut stride = Stride::new(weights.iter().zip(0..).map(|(&w, t)| (w, t))).expect("a weight above 0");
        let mut counts = vec![0_u32; weights.len()];
        (0..picks).for_each(|_| counts[stride.pick() as usize] += 1);
        for (weight, count) in weights.iter().zip(counts) {
            let share = weight / total * picks as f64;
            prop_assert!((f64::from(count) - share).abs() <= weights.len() as f64, "{count} picks, share {share}");
        }
    }
}

#[test]
fn replicas_take_turns_from_the_senders_phase() {
    let pick = |phase| {
        let mut router = Router::new(Within::Turns, &[(1.0, &[4, 5, 6])], phase).expect("replicas");
        (0..4).map(|_| router.pick().target).collect::<Vec<_>>()
    };
    assert_eq!(pick(0), [4, 5, 6, 4]);
    assert_eq!(pick(2), [6, 4, 5, 6]);
    assert!(Router::new(Within::Turns, &[(1.0, &[]), (0.0, &[1])], 0).is_none());
}

/// Queries to each of `count` replicas while `senders` take turns with two queries each, three queries for each replica.
fn queries_by_replica(senders: u32, count: u32) -> Vec<u32> {
    let replicas: Vec<u32> = (0..count).collect();
    let router = |phase| Router::new(Within::Turns, &[(1.0, &replicas)], phase).expect("replicas");
    let mut routers: Vec<Router> = (0..senders).map(router).collect();
    let mut queries = vec![0; count as usize];
    for at in 0..3 * count / 2 {
        let sender = &mut routers[(at % senders) as usize];
        (0..2).for_each(|_| queries[sender.pick().target as usize] += 1);
    }
    queries
}

#[test]
fn senders_that_move_on_together_load_all_replicas() {
    for (senders, count) in [(1, 14), (3, 14), (8, 40), (10, 60), (20, 100), (64, 500), (100, 20)] {
        let queries = queries_by_replica(senders, count);
        let most = queries.iter().max().copied().unwrap_or(0);
        // an even division is 3 for each; neighbouring starts gave some replicas 8 of 40 and others none
        assert!(most <= 7, "{senders} senders, {count} replicas: {queries:?}");
        let idle = queries.iter().filter(|n| **n == 0).count();
        assert!(idle * 5 <= count as usize, "{senders} senders, {count} replicas: {idle} idle");
    }
}

#[test]
fn the_least_outstanding_replica_is_the_one_that_ended_most() {
    let mut router = Router::new(Within::LeastOutstanding, &[(1.0, &[4, 5, 6])], 0).expect("replicas");
    let first: Vec<_> = (0..6).map(|_| router.pick()).collect();
    assert_eq!(first.iter().map(|p| p.target).collect::<Vec<_>>(), [4, 5, 6, 4, 5, 6]);
    router.ended(first[1].slot);
    router.ended(first[4].slot);
    router.ended(first[2].slot);
    assert_eq!((0..3).map(|_| router.pick().target).collect::<Vec<_>>(), [5, 6, 5]);
}

#[test]
fn picks_together_are_the_picks_one_by_one() {
    let tables: [&[(f64, &[u32])]; 3] = [&[(0.75, &[4, 5, 6]), (0.25, &[9])], &[(1.0, &[4, 5, 6])], &[(1.0, &[4])]];
    for groups in tables {
        for within in [Within::Turns, Within::LeastOutstanding] {
            let mut together = Router::new(within, groups, 1).expect("replicas");
            let mut one_by_one = together.clone();
            let place = |choice: RouteChoice| (choice.target, choice.slot);
            for count in [1, 0, 5, 2, 3, 12] {
                let mut picked = Vec::new();
                together.pick_each(count, |choice| picked.push(place(choice)));
                let expected: Vec<_> = (0..count).map(|_| place(one_by_one.pick())).collect();
                assert_eq!(picked, expected, "{groups:?} {within:?}");
            }
            assert_eq!(place(together.pick()), place(one_by_one.pick()), "{groups:?} {within:?}");
        }
    }
}

#[test]
fn changing_the_choice_within_groups_keeps_counts() {
    let mut router = Router::new(Within::Turns, &[(1.0, &[4, 5, 6])], 0).expect("replicas");
    let uncounted = [router.pick(), router.pick()];
    router.choose_by(Within::LeastOutstanding);
    let counted: Vec<_> = (0..3).map(|_| router.pick()).collect();
    assert_eq!(counted.iter().map(|p| p.target).collect::<Vec<_>>(), [6, 4, 5], "it goes on with its turns");
    uncounted.iter().for_each(|p| router.ended(p.slot));
    router.ended(counted[2].slot);
    router.choose_by(Within::Turns);
    assert!(router.retarget(&[Serving { targets: &[4, 5, 6], replicas: 3, wanted: 3 }]));
    assert_eq!((0..3).map(|_| router.pick().target).collect::<Vec<_>>(), [6, 4, 5]);
    router.ended(counted[0].slot);
    router.choose_by(Within::LeastOutstanding);
    // Of the counted ones that of 4 is open.
    assert_eq!((0..4).map(|_| router.pick().target).collect::<Vec<_>>(), [6, 5, 6, 4]);
}

/// Picks of each target in 120 queries.
fn picks(router: &mut Router) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    (0..120).for_each(|_| *counts.entry(router.pick().target).or_default() += 1);
    counts
}

/// The positions, among 24 requests that come to three ingresses in turn, of those that go to replica 9, the only one of
/// its group. The group has a quarter of the queries.
fn turns_of_the_small_group(mut ingresses: [Router; 3]) -> Vec<usize> {
    (0..24).filter(|at| ingresses[at % 3].pick().target == 9).collect()
}

#[test]
fn ingresses_begin_at_different_groups() {
    let groups: [(f64, &[u32]); 2] = [(0.75, &[4, 5, 6]), (0.25, &[9])];
    let router = |phase| Router::new(Within::Turns, &groups, phase).expect("replicas");
    let in_step = [0, 1, 2].map(router);
    assert_eq!(turns_of_the_small_group(in_step), [6, 7, 8, 18, 19, 20]);
    let ingresses = [0, 1, 2].map(|phase| router(phase).of_ingress());
    assert_eq!(turns_of_the_small_group(ingresses.clone()), [2, 4, 6, 14, 16, 18]);
    // They stay out of step with other weights.
    let others: [&[u32]; 2] = [&[4, 5, 6, 7, 8, 3], &[9, 10]];
    let serving = others.map(|targets| Serving { targets, replicas: targets.len() as u32, wanted: targets.len() as u32 });
    let moved = ingresses.map(|mut ingress| {
        let parts = [6, 2].map(|planned| GroupUse { fraction: 0.5, planned, stand_in: 0.0 });
        ingress.plan(parts.to_vec(), Vec::new(), Vec::new());
        assert!(ingress.retarget(&serving), "replicas");
        ingress
    });
    let first_two = moved.map(|mut ingress| [ingress.pick().target, ingress.pick().target].map(|target| target < 9));
    assert_eq!(first_two, [[true, false], [false, true], [true, false]]);
}

#[test]
fn turned_routers_go_on_where_queries_have_left_them() {
    let tables: [&[(f64, &[u32])]; 3] = [&[(0.75, &[4, 5, 6]), (0.25, &[9])], &[(1.0, &[4, 5, 6])], &[(1.0, &[4])]];
    for groups in tables {
        for queries in [0, 1, 7, 40] {
            let router = Router::new(Within::Turns, groups, 1).expect("replicas");
            let (mut used, mut turned) = (router.clone(), router.turned(queries));
            for _ in 0..queries {
                used.pick();
            }
            assert_eq!(picks(&mut used), picks(&mut turned), "{queries} queries");
            assert_eq!([used.pick(), used.pick()], [turned.pick(), turned.pick()], "{queries} queries");
        }
    }
    let mut counted = Router::new(Within::LeastOutstanding, &[(1.0, &[4, 5])], 0).expect("replicas").turned(3);
    assert_eq!([counted.pick().target, counted.pick().target], [5, 4], "no query is open");
}

#[test]
fn new_senders_and_replicas_keep_senders_out_of_step() {
    // Three senders of a task with one replica; two of them came after the first, as copies of it.
    let first = Router::new(Within::Turns, &[(1.0, &[0])], 0).expect("a replica");
    let mut senders = vec![first.for_another_sender(1), first.for_another_sender(2), first];
    let starts = |senders: &mut [Router], count: u32| -> Vec<u32> {
        let targets: Vec<u32> = (0..count).collect();
        let serving = [Serving { targets: &targets, replicas: count, wanted: count }];
        senders.iter_mut().for_each(|s| assert!(s.retarget(&serving), "replicas"));
        senders.iter_mut().map(|s| s.pick().target).collect()
    };
    assert_eq!(starts(&mut senders, 3), [1, 2, 0]);
    // Where the count stays, so do the turns.
    assert_eq!(starts(&mut senders, 3), [2, 0, 1]);
    assert_eq!(starts(&mut senders, 6), [1, 2, 0]);
    let fourth = senders[0].for_another_sender(3);
    assert_eq!([senders[0].clone(), fourth].map(|mut s| s.pick().target), [2, 3]);
}

#[test]
fn a_plan_comes_into_force_as_its_replicas_serve() {
    let mut router = Router::new(Within::Turns, &[(1.0, &[0, 1])], 0).expect("replicas");
    let old = GroupUse { fraction: 0.0, planned: 0, stand_in: 30.0 };
    let part = |fraction, planned| GroupUse { fraction, planned, stand_in: 0.0 };
    // Group 0 goes; group 1 gets three quarters with two replicas, group 2 a quarter with one.
    router.plan(vec![old, part(0.75, 2), part(0.25, 1)], Vec::new(), Vec::new());
    let mut serve = |groups: [&[u32]; 3]| {
        let groups = groups.map(|targets| Serving { targets, replicas: targets.len() as u32, wanted: 2 });
        let is_taken = router.retarget(&groups);
        (is_taken, picks(&mut router).into_iter().collect::<Vec<_>>())
    };
    assert_eq!(serve([&[0, 1], &[], &[]]), (true, vec![(0, 60), (1, 60)]));
    assert_eq!(serve([&[0, 1], &[5], &[]]), (true, vec![(0, 38), (1, 37), (5, 45)]));
    assert_eq!(serve([&[0, 1], &[5], &[7]]), (true, vec![(0, 22), (1, 23), (5, 45), (7, 30)]));
    assert_eq!(serve([&[0], &[5, 6], &[7]]), (true, vec![(5, 45), (6, 45), (7, 30)]));
    // Nobody is left: queries go where they went.
    assert_eq!(serve([&[], &[], &[]]), (false, vec![(5, 45), (6, 45), (7, 30)]));
    // A group that has never served makes up for nothing.
    router.plan(vec![part(1.0, 1); 4], vec![TimeSpan::from_millis(9.0); 4], vec![3, 1]);
    assert_eq!(router.pick_behind(TimeSpan::from_nanos(1)), None);
    // A group without a part in the plan is used rather than none.
    router.plan(vec![part(1.0, 1), GroupUse::default()], Vec::new(), Vec::new());
    let targets = [Serving { targets: &[], replicas: 0, wanted: 0 }, Serving { targets: &[9], replicas: 1, wanted: 1 }];
    assert!(router.retarget(&targets) && router.pick().target == 9);
}

#[test]
fn fractions_stay_where_replicas_follow_the_load() {
    let mut router = Router::new(Within::Turns, &[(0.75, &[0, 1]), (0.25, &[7])], 0).expect("replicas");
    let mut shares = |replicas: [&[u32]; 2], wanted: [u32; 2]| {
        let groups =
            [0, 1].map(|at| Serving { targets: replicas[at], replicas: replicas[at].len() as u32, wanted: wanted[at] });
        assert!(router.retarget(&groups), "replicas");
        picks(&mut router).into_values().collect::<Vec<_>>()
    };
    assert_eq!(shares([&[0, 1], &[7]], [2, 1]), [45, 45, 30]);
    // A replica more of the second group relieves the first one of it, and no replica of the other group.
    assert_eq!(shares([&[0, 1], &[7, 8]], [2, 2]), [45, 45, 15, 15]);
    // Where one replica of the first group is wanted, it has all of its group's queries; where two are, half of them.
    assert_eq!(shares([&[0], &[7]], [1, 1]), [90, 30]);
    assert_eq!(shares([&[0], &[7]], [2, 1]), [72, 48]);
}

fn hardware() -> Vec<Hardware> {
    vec![Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }]
}

/// A variant that serves 1,000 queries per second and replica.
fn variant(name: &str, accuracy: f64, fanout: f64) -> Variant {
    let hardware = HardwareIndex(0);
    let row = ProfileRow::of_median(hardware, Share::WHOLE, 1, 1.0);
    Variant {
        name: name.into(),
        accuracy,
        fanout,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new(vec![row]),
    }
}

/// `root` with variants `a` (accurate, fan-out 3) and `b` (fan-out 1), its child `leaf` with variants `c` and `d`.
fn pipeline() -> Pipeline {
    let task = |name: &str, variants| Task {
        name: name.into(),
        kind: TaskKind::Batch,
        route: Route::All,
        min_replicas: 1,
        variants,
    };
    let draft = PipelineDraft {
        name: "p".into(),
        demand_qps: 100.0,
        slo_ms: 100.0,
        percentile: 99.0,
        queue_factor: 2.0,
        network_ms: 0.0,
        weight: 1.0,
        min_accuracy: None,
        accuracy_model: AccuracyModel::Product,
        path_accuracy: Vec::new(),
        leaf_weights: BTreeMap::new(),
        survive: 0,
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks: vec![
            task("root", vec![variant("b", 0.5, 1.0), variant("a", 0.9, 3.0)]),
            task("leaf", vec![variant("c", 0.8, 1.0), variant("d", 0.4, 1.0)]),
        ],
        edges: vec![Edge::between(TaskIndex(0), TaskIndex(1))],
        ..PipelineDraft::default()
    };
    Pipeline::new(draft, &hardware(), "").expect("a valid pipeline")
}

fn assignment(task: &str, variant: &str, replicas: u32) -> Assignment {
    Assignment {
        group: GroupName { task: task.into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE },
        batch: 1,
        replicas,
        traffic_share: 0.0,
        latency_budget_ms: 0.0,
        utilisation: 0.0,
    }
}

/// `sender>target=fraction`, in order.
fn lines(routing: &Routing) -> Vec<String> {
    let from = |g: &Option<GroupName>| g.as_ref().map_or("-".to_owned(), |g| g.variant.clone());
    let tables = routing.tables.iter();
    tables.flat_map(|t| t.entries.iter().map(|e| format!("{}>{}={:.4}", from(&t.from), e.to.variant, e.fraction))).collect()
}

#[test]
fn the_most_accurate_variants_are_filled_first() {
    // 1,500 queries at the root: a takes its 1,000 and b 500. a makes 3,000 at leaf: c takes 2,000 and d 1,000; b's 500 go
    // to d, which has 1,500 of its 3,000 left over.
    let plan =
        [assignment("root", "b", 1), assignment("root", "a", 1), assignment("leaf", "c", 2), assignment("leaf", "d", 3)];
    let routing = most_accurate_first(&pipeline(), &hardware(), &plan, 1500.0).expect("known groups");
    assert_eq!(lines(&routing), ["->a=0.6667", "->b=0.3333", "a>c=0.6667", "a>d=0.3333", "b>d=1.0000"]);
    let backup: Vec<_> = routing.backup.iter().map(|b| (b.group.variant.as_str(), b.capacity_qps.round())).collect();
    assert_eq!(backup, [("b", 500.0), ("d", 1500.0)]);
}

#[test]
fn idle_groups_have_tables_and_overload_is_spread() {
    let plan =
        [assignment("root", "b", 1), assignment("root", "a", 1), assignment("leaf", "c", 1), assignment("leaf", "d", 1)];
    let routing = most_accurate_first(&pipeline(), &hardware(), &plan, 1000.0).expect("known groups");
    // a makes 3,000 for a capacity of 2,000: the last 1,000 go half and half. b serves nothing.
    assert_eq!(lines(&routing), ["->a=1.0000", "a>c=0.5000", "a>d=0.5000", "b>c=0.5000", "b>d=0.5000"]);
}

#[test]
fn unknown_names_are_refused_with_the_group() {
    for (task, variant, what) in [("nope", "a", "task"), ("root", "nope", "variant")] {
        let error =
            most_accurate_first(&pipeline(), &hardware(), &[assignment(task, variant, 1)], 1.0).expect_err("unknown");
        assert!(error.to_string().contains(what) && error.to_string().contains("nope"), "{error}");
    }
    let mut elsewhere = assignment("root", "a", 1);
    elsewhere.group.hardware = "cloud".into();
    assert!(group_capacity_qps(&pipeline(), &hardware(), &elsewhere).is_err());
}

proptest! {
    /// Every table sums to 1, and no group gets more than its capacity while the task has some to spare.
    #[test]
    fn tables_are_whole_and_fill_no_group_over(
        replicas in prop::array::uniform4(0_u32..5),
        demand_qps in 0.0_f64..4000.0,
    ) {
        let names = [("root", "a"), ("root", "b"), ("leaf", "c"), ("leaf", "d")];
        let plan: Vec<_> = names.iter().zip(replicas).map(|(&(t, v), n)| assignment(t, v, n)).collect();
        let routing = most_accurate_first(&pipeline(), &hardware(), &plan, demand_qps).expect("known groups");
        for table in &routing.tables {
            let sum: f64 = table.entries.iter().map(|e| e.fraction).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{table:?}");
        }
        let share = |variant: &str| {
            let root = routing.tables.iter().find(|t| t.from.is_none());
            let entries = root.into_iter().flat_map(|t| &t.entries);
            entries.filter(|e| e.to.variant == variant).map(|e| e.fraction).sum::<f64>()
        };
        if demand_qps <= 1000.0 * f64::from(replicas[0] + replicas[1]) {
            for (variant, n) in [("a", replicas[0]), ("b", replicas[1])] {
                prop_assert!(share(variant) * demand_qps <= 1000.0 * f64::from(n) + 1e-6);
            }
        }
    }
}

#[test]
fn late_queries_go_to_the_most_accurate_sufficient_backup() {
    // The table's group takes 50 ms; the backups, most accurate first, 40, 30 and 20 ms; the second one is out of replicas.
    let ms = |millis: u64| TimeSpan::from_nanos(millis * 1_000_000);
    let groups: [(f64, &[u32]); 4] = [(1.0, &[0, 1]), (0.0, &[2]), (0.0, &[]), (0.0, &[3, 4])];
    let router = Router::new(Within::Turns, &groups, 0).expect("replicas");
    let mut router = router.with_backup([50, 40, 30, 20].map(ms).to_vec(), vec![1, 2, 3]);
    let mut pick = |behind| router.pick_behind(ms(behind)).map(|p| p.target);
    assert_eq!([0, 10, 11, 30].map(&mut pick), [Some(0), Some(2), Some(3), Some(4)]);
    assert_eq!([31, 60].map(&mut pick), [None, None]);
    assert_eq!(pick(0), Some(1));
    assert_eq!(router.late(), LateQueries { behind: 5, beyond: 1, rerouted: 3 });
    let serving = [Serving { targets: &[0], replicas: 1, wanted: 1 }; 4];
    assert!(router.retarget(&serving), "there are replicas");
    assert_eq!((router.late().behind, router.for_another_sender(1).late()), (5, LateQueries::default()));
    // Without a backup table whoever is behind is dropped.
    let mut router = Router::new(Within::Turns, &[(1.0, &[7])], 0).expect("a replica");
    assert_eq!(router.pick_behind(TimeSpan::from_nanos(1)), None);
    assert_eq!(router.pick_behind(TimeSpan::ZERO).map(|p| p.target), Some(7));
}
