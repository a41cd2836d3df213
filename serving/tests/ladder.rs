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
fn a_rise_is_climbed_within_a_second_and_left_after_half_a_minute() {
    // 300/s from 20 s to 30 s: with c arrivals, (c - 2.5 sqrt(c)) / .5 s > 100 from c = 70, and 200 from c = 128. The window of
    // half a second holds 100 + (ms - 20 s) * 2 / 10 .. of which the first 70 are there at once: 50 of before leave as 150 come.
    let seen = changes(ladder(1.0), |ms| if (20_000..30_000).contains(&ms) { 3 } else { 1 }, 70_000);
    let [(first, up), rest @ ..] = seen.as_slice() else { panic!("{seen:?}") };
    assert!((20_000..20_400).contains(first) && *up == [3, 1], "{seen:?}");
    let [(second, top), (down, low)] = rest else { panic!("{seen:?}") };
    assert!((20_400..22_000).contains(second) && *top == [5, 2], "{seen:?}");
    // the rate of the last second of the burst is kept for 30 s
    assert!((60_000..=61_100).contains(down) && *low == [2, 1], "{seen:?}");
}

#[test]
fn headroom_climbs_earlier_and_loads_beyond_the_ladder_grow_in_proportion() {
    assert_eq!(changes(ladder(2.5), |_| 1, 20_000).last(), Some(&(changes(ladder(2.5), |_| 1, 20_000)[0].0, vec![3, 1])));
    let top = changes(ladder(1.0), |_| 10, 20_000);
    let (_, last) = top.last().expect("a change");
    // 1000/s less 2.5 deviations of 8 s: 972/s, over 400
    assert_eq!(*last, [13, 5], "{top:?}");
}
