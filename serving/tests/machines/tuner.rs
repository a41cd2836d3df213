//! The tuner against scripts by hand, and its envelope against the obvious way to count.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::tuner::{TrafficEnvelope, TunedTask, Tuner, WINDOW_MAX, Windows};
use proptest::prelude::*;

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn task(scale: f64, replica_qps: f64, provisioning: f64) -> TunedTask {
    TunedTask { scale, replica_qps, provisioning }
}

/// 10 queries per second for 60 s.
fn steady() -> TrafficEnvelope {
    TrafficEnvelope::of(TimeSpan::from_millis(100.0), (0..600).map(|i| at_ms(i * 100)))
}

#[test]
fn windows_double_from_the_service_time_to_a_minute() {
    let windows = Windows::new(TimeSpan::from_millis(25.0));
    let lengths: Vec<f64> = windows.lengths_s().collect();
    assert!((lengths[0] - 0.025).abs() < 1e-6 && windows.bin() <= TimeSpan::from_millis(10.0), "{lengths:?}");
    let doubled = lengths[..lengths.len() - 1].windows(2).all(|w| (w[1] / w[0] - 2.0).abs() < 1e-9);
    assert!(doubled && (60.0..60.1).contains(&lengths[lengths.len() - 1]), "{lengths:?}");
}

#[test]
fn the_envelope_of_even_arrivals_is_rate_times_window() {
    // Windows of .1, .2, .4, ..., 51.2 and 60 s.
    assert_eq!(steady().counts(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]);
}

#[test]
fn bursts_within_the_sample_change_nothing() {
    let mut tuner = Tuner::new(&steady(), vec![task(1.0, 5.0, 0.5)], vec![4]);
    for i in 0..600 {
        tuner.arrived(at_ms(i * 100), 1);
        assert_eq!(tuner.decide(at_ms(i * 100)), None, "after {i}");
    }
}

#[test]
fn a_burst_scales_up_at_once() {
    // Planned: 10/s on 4 replicas of 5/s (rho .5); a second task sees a tenth of it on one replica (rho .1).
    let tasks = vec![task(1.0, 5.0, 0.5), task(0.1, 10.0, 0.1)];
    let mut tuner = Tuner::new(&steady(), tasks, vec![4, 1]);
    tuner.arrived(at_ms(1_000), 1);
    assert_eq!(tuner.decide(at_ms(1_000)), None);
    // A second arrival within a window of 100 ms: 20/s there, 10/s over 200 ms, which the sample had too.
    tuner.arrived(at_ms(1_050), 1);
    // 20 * 1 / (5 * .5) = 8; 20 * .1 / (10 * .1) = 2.
    assert_eq!(tuner.decide(at_ms(1_050)), Some([8, 2].as_slice()));
    assert_eq!(tuner.decide(at_ms(1_060)), None, "said once");
}

#[test]
fn scale_down_follows_fifteen_stable_seconds() {
    let tasks = vec![task(1.0, 5.0, 0.5), task(1.0, 10.0, 0.25)];
    let mut tuner = Tuner::new(&steady(), tasks, vec![4, 4]);
    tuner.arrived(at_ms(1_000), 2);
    assert_eq!(tuner.decide(at_ms(1_000)), Some([8, 8].as_slice()));
    let mut script = Vec::new();
    for second in 1..60 {
        // 5/s in the first ten seconds, then 1/s.
        let each = if second <= 10 { 200 } else { 1_000 };
        (0..1_000 / each).for_each(|i| tuner.arrived(at_ms(second * 1_000 + i * each), u32::from(second > 1)));
        if let Some(replicas) = tuner.decide(at_ms(second * 1_000 + 990)) {
            script.push((second, replicas.to_vec()));
        }
    }
    // Worst five seconds 25 arrivals, 5/s: 5 / (5 * .25) = 4 and 5 / (10 * .25) = 2. Fifteen seconds later still, the same
    // five seconds are in sight; they leave it one by one, and each new rate waits for another fifteen seconds.
    assert_eq!(script[0], (16, vec![4, 2]));
    let last = script.last().expect("some");
    assert_eq!(last.1, vec![1, 1], "1/s needs 1 / (5 * .25) = 0.8 replicas");
    assert!(script.windows(2).all(|w| w[1].0 - w[0].0 >= 15), "{script:?}");
}

#[test]
fn a_silent_hour_is_forgotten_and_one_replica_stays() {
    let mut tuner = Tuner::new(&steady(), vec![task(1.0, 5.0, 0.5)], vec![4]);
    tuner.arrived(at_ms(10), 1);
    assert_eq!(tuner.decide(at_ms(3_600_000)), Some([1].as_slice()));
    tuner.arrived(at_ms(3_600_000), 1);
    assert_eq!(tuner.decide(at_ms(3_600_000)), None);
}

/// The obvious way: for every arrival, count the arrivals so far whose bins are among the window's last.
fn slow(service: TimeSpan, arrivals: &[Moment]) -> Vec<u64> {
    let windows = Windows::new(service);
    let bin = windows.bin().as_nanos();
    let most = |length_s: f64| {
        let bins = (length_s * 1e9 / bin as f64).round() as u64;
        let seen = |i: usize| {
            let last = arrivals[i].as_nanos() / bin;
            arrivals[..=i].iter().filter(|a| a.as_nanos() / bin + bins > last).count() as u64
        };
        (0..arrivals.len()).map(seen).max().unwrap_or(0)
    };
    windows.lengths_s().map(most).collect()
}

/// The definition, without bins: most arrivals in any interval of the length.
fn exact(length: u64, arrivals: &[Moment]) -> u64 {
    let seen = |a: &Moment| arrivals.iter().filter(|b| *b <= a && a.since(**b).as_nanos() < length).count() as u64;
    arrivals.iter().map(seen).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn the_envelope_equals_an_obvious_count(
        service_us in 500_u64..200_000,
        gaps in prop::collection::vec(prop_oneof![6 => 0_u64..3_000, 3 => 0_u64..400_000, 1 => 0_u64..90_000_000], 0..120),
    ) {
        let service = TimeSpan::from_nanos(service_us * 1_000);
        let mut now = 0;
        let arrivals: Vec<Moment> = gaps.iter().map(|g| { now += g * 1_000; Moment::from_nanos(now) }).collect();
        let envelope = TrafficEnvelope::of(service, arrivals.iter().copied());
        prop_assert_eq!(envelope.counts(), slow(service, &arrivals));
        // Bins only round within one of them.
        let windows = Windows::new(service);
        for (&count, length_s) in envelope.counts().iter().zip(windows.lengths_s()) {
            let length = (length_s * 1e9).round() as u64;
            prop_assert!(count <= exact(length, &arrivals));
            prop_assert!(count >= exact((length - windows.bin().as_nanos()).max(1), &arrivals));
        }
        prop_assert!(windows.lengths_s().all(|l| l < WINDOW_MAX.as_millis() / 1e3 + 0.011));
    }
}
