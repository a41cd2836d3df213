//! The ladder against scripts by hand.

use apportion_domain::Moment;
use apportion_serving::Ladder;
use apportion_serving::ladder::Step;

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn ladder(headroom: f64) -> Ladder {
    let step = |rate_qps: f64, replicas: [u32; 2]| Step { rate_qps, replicas: replicas.to_vec() };
    Ladder::new(vec![step(100.0, [2, 1]), step(200.0, [3, 1]), step(400.0, [5, 2])], vec![2, 1], headroom)
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
fn a_rise_is_climbed_within_a_second_and_left_half_a_minute_after_it_was_seen() {
    // 300/s from 20 s to 30 s, 100/s else. On the window of half a second, 50 before and 2 more for each bin: (c - 2.5 sqrt(c)) / .5 s
    // exceeds 100 from c = 71 (11 bins) and 200 from c = 129 (40 bins). After the burst the window of 8 s, with 2400 - 200 for each
    // second, is the last to fall: below 200 from c = 1703 (3.5 s), below 100 from c = 873 (7.6 s). Each second's maximum is kept 30 s.
    let seen = changes(ladder(1.0), |ms| if (20_000..30_000).contains(&ms) { 3 } else { 1 }, 80_000);
    assert_eq!(seen, [(20_190, vec![3, 1]), (20_390, vec![5, 2]), (64_090, vec![3, 1]), (68_090, vec![2, 1])]);
}

#[test]
fn headroom_climbs_earlier_and_loads_beyond_the_ladder_grow_in_proportion() {
    // 100/s: (40 - 2.5 sqrt(40)) / .5 s = 48, by 2.5 above 100; (200 - 2.5 sqrt(200)) / 2 s = 82, by 2.5 above 200
    assert_eq!(changes(ladder(2.5), |_| 1, 20_000), [(390, vec![3, 1]), (1_990, vec![5, 2])]);
    let top = changes(ladder(1.0), |_| 10, 20_000);
    let (_, last) = top.last().expect("a change");
    // 1000/s less 2.5 deviations of 8 s: 972/s, over 400
    assert_eq!(*last, [13, 5], "{top:?}");
}

#[test]
fn below_its_first_steps_rate_a_ladder_gives_up_what_the_plan_has_but_never_the_last() {
    let step = |rate_qps: f64, replicas: [u32; 2]| Step { rate_qps, replicas: replicas.to_vec() };
    let steps = vec![step(50.0, [1, 1]), step(150.0, [2, 1]), step(400.0, [5, 2])];
    // The plan has [5, 2]; nothing is known for 30 s from the first decision, then 100/s need [2, 1], and none the lowest step.
    let seen = changes(Ladder::new(steps, vec![5, 2], 1.0), |ms| u32::from(ms < 40_000), 120_000);
    let counts: Vec<_> = seen.iter().map(|(_, replicas)| replicas.clone()).collect();
    assert_eq!(counts, [vec![2, 1], vec![1, 1]], "{seen:?}");
    assert!((30_000..31_000).contains(&seen[0].0) && (70_000..80_000).contains(&seen[1].0), "{seen:?}");
}

#[test]
fn the_next_plans_ladder_goes_on_from_what_was_seen() {
    let mut former = ladder(1.0);
    for ms in (0..40_000).step_by(10) {
        former.arrived(at_ms(ms), 3);
    }
    assert_eq!(former.decide(at_ms(40_000)), Some(&[5, 2][..]));
    // Its plan has [1, 1] and two added; what 300/s need stays, and goes half a minute after they end.
    let step = |rate_qps: f64, replicas: [u32; 2]| Step { rate_qps, replicas: replicas.to_vec() };
    let mut next = Ladder::new(vec![step(100.0, [1, 1]), step(350.0, [3, 1])], vec![3, 1], 1.0);
    next.inherit(&former);
    assert_eq!(next.decide(at_ms(40_100)), None, "as it is");
    let seen: Vec<_> =
        (401_u64..900).filter_map(|n| next.decide(at_ms(n * 100)).map(|replicas| (n * 100, replicas.to_vec()))).collect();
    assert_eq!(seen, [(70_000, vec![1, 1])].map(|(_, r): (u64, Vec<u32>)| (seen[0].0, r)), "{seen:?}");
    assert!((69_000..72_000).contains(&seen[0].0), "{seen:?}");
    // One that has seen nothing keeps what there is, and knows of no load.
    let mut blank = Ladder::new(vec![step(100.0, [1, 1]), step(350.0, [3, 1])], vec![1, 1], 1.0);
    assert_eq!(blank.decide(at_ms(40_100)), None);
}
