//! The ladder against scripts by hand.

use apportion_domain::Moment;
use apportion_serving::Ladder;
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::headroom_controller::{HEADROOM_START, HeadroomController, PROMISE};
use apportion_serving::ladder::{Headroom, LadderStep};
use apportion_serving::leap_reserve::LeapLoss;

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn ladder(headroom: f64) -> Ladder {
    let step = |rate_qps: f64, replicas: [u32; 2]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    Ladder::new(
        vec![step(100.0, [2, 1]), step(200.0, [3, 1]), step(400.0, [5, 2])],
        vec![2, 1],
        Headroom::Constant(headroom),
    )
}

/// Times in ms and replicas of all changes under this many arrivals in each 10 ms, decided every 100 ms.
fn changes(mut ladder: Ladder, arrivals: impl Fn(u64) -> u32, until_ms: u64) -> Vec<(u64, Vec<u32>)> {
    let mut found = Vec::new();
    for ms in (0..until_ms).step_by(10) {
        ladder.arrived(at_ms(ms), arrivals(ms));
        if ms % 100 == 90
            && let Some(replicas) = ladder.decide(at_ms(ms))
        {
            found.push((ms, replicas.to_vec()));
        }
    }
    found
}

#[test]
fn a_steady_load_stays_on_its_step() {
    assert_eq!(changes(ladder(1.0), |_| 1, 60_000), []);
    assert_eq!(changes(ladder(1.0), |_| 0, 5_000), []);
}

#[test]
fn a_rise_is_climbed_at_once_and_left_after_thirty_seconds() {
    // 300/s from 20 s to 30 s, 100/s else. On the window of half a second, the count c is 50 before and 2 more for each
    // bin. (c - 3 sqrt(c)) / .5 s exceeds 100 from c = 74 (12 bins). From c = 90 (20 bins) it exceeds 1.4 times the 91
    // of before, which is a leap: then its mean counts. The rise of 8 s over the 8 before leads to 250 + 10 * 1200 / 64
    // = 437 at 26 s, 522 at 27 s and at most 550. In proportion these are [5.5, 2.2], [6.5, 2.6] and [6.9, 2.8]. Each
    // second's maximum is kept 30 s; after the burst the window of 8 s falls below 200 in the fourth second. The last
    // minute's mean stays at 133.
    let seen = changes(ladder(1.0), |ms| if (20_000..30_000).contains(&ms) { 3 } else { 1 }, 80_000);
    let climbed = [(20_190, vec![3, 1]), (20_290, vec![5, 2]), (26_090, vec![6, 3]), (27_090, vec![7, 3])];
    assert_eq!(seen, [climbed.to_vec(), vec![(61_090, vec![5, 2]), (65_090, vec![3, 1])]].concat());
}

/// Arrivals of each 10 ms at a rate, evenly.
fn evenly(ms: u64, qps: u64) -> u32 {
    let until = |bin: u64| bin * qps / 100;
    (until(ms / 10 + 1) - until(ms / 10)) as u32
}

#[test]
fn scattered_arrivals_do_not_add_replicas() {
    // Seconds of 180/s and of 20/s in turn: 180 - 3 sqrt(180) = 140 of a Poisson process would be more than its mean is.
    let step = |rate_qps: f64, replicas: [u32; 2]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    let of = || Ladder::new(vec![step(110.0, [2, 1]), step(400.0, [5, 2])], vec![2, 1], Headroom::Constant(1.0));
    let seen = changes(of(), |ms| evenly(ms, if ms / 1000 % 2 == 0 { 180 } else { 20 }), 200_000);
    assert!(seen.iter().all(|(ms, _)| *ms < 60_000), "{seen:?}");
    assert!(seen.last().is_none_or(|(_, replicas)| *replicas == [2, 1]), "{seen:?}");
    // But a rise of the same mean is.
    let rise = changes(of(), |ms| evenly(ms, if ms < 100_000 { 20 } else { 180 }), 102_000);
    assert_eq!(rise.last().map(|(_, replicas)| replicas.clone()), Some(vec![5, 2]), "{rise:?}");
}

#[test]
fn replicas_stay_until_the_load_has_fallen_by_a_fifth() {
    let fallen_to = |qps| changes(ladder(1.0), move |ms| evenly(ms, if ms < 100_000 { 115 } else { qps }), 300_000);
    let last = |seen: Vec<(u64, Vec<u32>)>| seen.last().map(|(_, replicas)| replicas.clone());
    assert_eq!((last(fallen_to(97)), last(fallen_to(94))), (Some(vec![3, 1]), Some(vec![2, 1])));
}

#[test]
fn headroom_climbs_earlier_and_high_loads_grow_in_proportion() {
    // 100/s: (40 - 3 sqrt(40)) / .5 s = 42, by 2.5 above 100; the mean of the first second, by 2.5 above 200
    assert_eq!(changes(ladder(2.5), |_| 1, 20_000), [(390, vec![3, 1]), (1_090, vec![5, 2])]);
    let top = changes(ladder(1.0), |_| 10, 20_000);
    let (_, last) = top.last().expect("a change");
    // 1000/s over 400
    assert_eq!(*last, [13, 5], "{top:?}");
}

#[test]
fn low_rates_give_up_planned_replicas_but_never_the_last() {
    let step = |rate_qps: f64, replicas: [u32; 2]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    let steps = vec![step(50.0, [1, 1]), step(150.0, [2, 1]), step(400.0, [5, 2])];
    // The plan has [5, 2]; nothing is known for 30 s from the first decision, then 100/s need [2, 1], and none the lowest
    // step.
    let seen = changes(Ladder::new(steps, vec![5, 2], Headroom::Constant(1.0)), |ms| u32::from(ms < 40_000), 120_000);
    let counts: Vec<_> = seen.iter().map(|(_, replicas)| replicas.clone()).collect();
    assert_eq!(counts, [vec![2, 1], vec![1, 1]], "{seen:?}");
    assert!((30_000..31_000).contains(&seen[0].0) && (70_000..80_000).contains(&seen[1].0), "{seen:?}");
}

#[test]
fn the_next_plans_ladder_inherits_the_seen_load() {
    let mut former = ladder(1.0);
    for ms in (0..40_000).step_by(10) {
        former.arrived(at_ms(ms), 3);
    }
    assert_eq!(former.decide(at_ms(40_000)), Some(&[5, 2][..]));
    // Its plan has [1, 1] and two added; what 300/s need stays. After half a minute the mean of the last minute counts,
    // which falls by 5 each second. A rate is given up for a rate that is lower by a fifth: the kept rate is 150 then,
    // 120, and below 100 from 83 s on at the latest.
    let step = |rate_qps: f64, replicas: [u32; 2]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    let mut next = Ladder::new(vec![step(100.0, [1, 1]), step(350.0, [3, 1])], vec![3, 1], Headroom::Constant(1.0));
    next.inherit(&former);
    assert_eq!(next.decide(at_ms(40_100)), None, "as it is");
    let seen: Vec<_> =
        (401_u64..900).filter_map(|n| next.decide(at_ms(n * 100)).map(|replicas| (n * 100, replicas.to_vec()))).collect();
    let [(changed_ms, replicas)] = seen.as_slice() else { panic!("one change: {seen:?}") };
    assert_eq!(replicas, &[1, 1], "{seen:?}");
    assert!((80_000..84_500).contains(changed_ms), "{seen:?}");
    // One that has seen nothing keeps what there is, and knows of no load.
    let mut blank = Ladder::new(vec![step(100.0, [1, 1]), step(350.0, [3, 1])], vec![1, 1], Headroom::Constant(1.0));
    assert_eq!(blank.decide(at_ms(40_100)), None);
}

#[test]
fn feedback_holds_leaps_until_steady_traffic_shows_none() {
    // Even arrivals of 62/s. The reserve of 1.7 asks for the step of 200/s; the headroom of 1.1 would take that of 100/s.
    // The reserve falls by 0.0005 each second. The step is left once a sixth less than the 104/s at first is asked for.
    let feedback = Headroom::Feedback(Box::new(HeadroomController::new(PROMISE)));
    let step = |rate_qps: f64, replicas: [u32; 2]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    let steps = vec![step(100.0, [2, 1]), step(200.0, [3, 1]), step(400.0, [5, 2])];
    let seen = changes(Ladder::new(steps, vec![2, 1], feedback), |ms| evenly(ms, 62), 800_000);
    let [(climbed_ms, climbed), (left_ms, left)] = seen.as_slice() else { panic!("two changes: {seen:?}") };
    assert!(*climbed_ms < 30_000 && (500_000..700_000).contains(left_ms), "{seen:?}");
    assert_eq!((&climbed[..], &left[..]), (&[3, 1][..], &[2, 1][..]), "{seen:?}");
}

#[test]
fn the_next_plans_ladder_inherits_the_headroom() {
    let feedback = || Headroom::Feedback(Box::new(HeadroomController::new(PROMISE)));
    let steps = || vec![LadderStep { rate_qps: 100.0, replicas: vec![1] }];
    let mut former = Ladder::new(steps(), vec![1], feedback());
    (0..20).for_each(|second| former.ended(at_ms(1_000 * second), OutcomeCount { in_time: 90, missed: 10 }));
    assert!(former.headroom() > HEADROOM_START + 0.01);
    let mut next = Ladder::new(steps(), vec![1], feedback());
    next.inherit(&former);
    assert_eq!(next.headroom(), former.headroom());
    // Another promise begins anew.
    let mut promised = Ladder::new(steps(), vec![1], feedback().for_percentile(95.0));
    promised.inherit(&former);
    let budget = promised.feedback().expect("misses move it").budget();
    assert_eq!((promised.headroom(), budget.counted().total()), (HEADROOM_START, 0));
    assert_eq!(budget.promise().missed_share_max, 0.05);
    // So is what a leap misses: the dropping policy is the plan's.
    let mut dropping = Ladder::new(steps(), vec![1], feedback());
    dropping.lose_by_leaps(LeapLoss::Excess);
    dropping.inherit(&former);
    assert_eq!(dropping.feedback().expect("misses move it").leap().loss(), LeapLoss::Excess);
    // A constant one is the plan's own.
    let mut constant = Ladder::new(steps(), vec![1], Headroom::Constant(1.5));
    constant.inherit(&former);
    constant.ended(at_ms(30_000), OutcomeCount { in_time: 0, missed: 100 });
    assert_eq!((constant.headroom(), constant.feedback().is_none()), (1.5, true));
}
