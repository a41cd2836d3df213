//! The headroom controller against its recursion, and its bound under adversarial loads on an abstract plant.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::error_budget::{AttainmentPromise, OutcomeCount};
use apportion_serving::headroom_controller::{
    GAIN, HEADROOM_MAX, HEADROOM_MIN, HEADROOM_START, HeadroomController, PROMISE, SURGE, TRACKED_MAX,
};
use proptest::prelude::*;

fn at_s(second: u64) -> Moment {
    Moment::from_nanos(second * 1_000_000_000)
}

fn ended(in_time: u64, missed: u64) -> OutcomeCount {
    OutcomeCount { in_time, missed }
}

/// One report of a script.
#[derive(Clone, Copy, Debug)]
struct Report {
    second: u64,
    count: OutcomeCount,
}

/// The largest mean rate by the reports so far, slowly: minutes begin with the report that ends the last one, and the first
/// minute also counts from its tenth second on. `None` before.
fn largest_rate(reports: &[Report]) -> Option<f64> {
    let (mut largest, mut begun) = (None::<f64>, 0);
    for (at, report) in reports.iter().enumerate() {
        let length = report.second - reports[begun].second;
        let count: u64 = reports[..=at].iter().skip(begun + 1).map(|r| r.count.total()).sum();
        if count > 0 && (length >= 60 || largest.is_none() && length >= 10) {
            let rate = count as f64 / length as f64;
            largest = Some(largest.map_or(rate, |before| before.max(rate)));
        }
        if length >= 60 {
            begun = at;
        }
    }
    largest
}

/// The tracked headroom by its recursion, each step from the whole list of reports.
fn tracked(reports: &[Report]) -> f64 {
    let (mut headroom, mut counted) = (HEADROOM_START, 0);
    for until in 1..=reports.len() {
        let Some(rate) = largest_rate(&reports[..until]) else { continue };
        let excess: f64 =
            reports[counted..until].iter().map(|r| r.count.missed as f64 - 0.01 * r.count.total() as f64).sum();
        headroom = (headroom + GAIN / rate * excess).clamp(HEADROOM_MIN, TRACKED_MAX);
        counted = until;
    }
    headroom
}

proptest! {
    #[test]
    fn the_tracked_headroom_is_its_recursion(
        script in prop::collection::vec((0_u64..30, 0_u64..400, 0_u64..40), 1..80),
    ) {
        let (mut controller, mut reports, mut second) = (HeadroomController::new(PROMISE), Vec::new(), 5);
        for (pause, in_time, missed) in script {
            second += pause;
            reports.push(Report { second, count: ended(in_time, missed) });
            controller.report(at_s(second), ended(in_time, missed));
            prop_assert!((controller.tracked() - tracked(&reports)).abs() < 1e-9);
        }
    }

    /// Whatever is reported: the bound is algebra.
    #[test]
    fn misses_never_exceed_the_bound(
        share in 0.001..0.5_f64,
        script in prop::collection::vec((0_u64..20, 0_u64..2_000, 0.0..1.0_f64), 1..300),
    ) {
        let promise = AttainmentPromise { missed_share_max: share, window: TimeSpan::from_millis(6e5) };
        let (mut controller, mut second, mut all) = (HeadroomController::new(promise), 0, OutcomeCount::default());
        for (pause, requests, missed) in script {
            second += pause;
            // half of the reports have hardly a miss
            let missed = (requests as f64 * (2.0 * missed - 1.0).max(0.0)) as u64;
            let count = ended(requests - missed, missed);
            all = all.with(count);
            controller.report(at_s(second), count);
            prop_assert!(all.missed as f64 <= controller.missed_max(all.total()) + 1e-6);
            prop_assert!((HEADROOM_MIN..=HEADROOM_MAX).contains(&controller.headroom()));
        }
    }
}

/// Requests of each second on the plant.
const RATE: u64 = 100;
/// Seconds from a headroom to its replicas.
const LOADING_S: usize = 5;

/// A pipeline that needs a headroom at each second and misses every request while it has less. Its replicas follow the
/// controller a loading time later.
struct Plant {
    controller: HeadroomController,
    /// Headrooms that were asked for, by second.
    asked: Vec<f64>,
    all: OutcomeCount,
    unreported: OutcomeCount,
}

impl Plant {
    fn new() -> Self {
        let (controller, none) = (HeadroomController::new(PROMISE), OutcomeCount::default());
        Self { controller, asked: Vec::new(), all: none, unreported: none }
    }

    /// One second with this need. Every `reported`th second has a report.
    fn step(&mut self, needed: f64, reported: usize) {
        let second = self.asked.len();
        let served = self.asked.get(second.wrapping_sub(LOADING_S)).copied().unwrap_or(HEADROOM_START);
        let count = if served < needed { ended(0, RATE) } else { ended(RATE, 0) };
        self.all = self.all.with(count);
        self.unreported = self.unreported.with(count);
        let now = at_s(second as u64);
        self.controller.advance(now);
        if second.is_multiple_of(reported) {
            self.controller.report(now, std::mem::take(&mut self.unreported));
        }
        self.asked.push(self.controller.headroom());
    }

    fn missed_share(&self) -> f64 {
        self.all.missed as f64 / self.all.total() as f64
    }
}

/// A load that is made to miss: the headroom that it needs, by second and by the controller's present headroom.
struct AdversarialLoad {
    name: &'static str,
    needed: fn(usize, &mut bool, f64) -> f64,
}

const ADVERSARIES: [AdversarialLoad; 4] = [
    AdversarialLoad {
        // Calm until the headroom has fallen as far as it does, then all that a headroom can give, until it is given.
        name: "steps at the worst moment",
        needed: |_, is_high, headroom| {
            *is_high = if *is_high { headroom < HEADROOM_MAX } else { headroom <= HEADROOM_MIN + 1e-9 };
            if *is_high { HEADROOM_MAX } else { 0.5 }
        },
    },
    AdversarialLoad { name: "alternating bursts", needed: |second, _, _| if second % 97 < 20 { 2.4 } else { 0.5 } },
    AdversarialLoad {
        // Up and down again within ten hours.
        name: "a slow ramp",
        needed: |second, _, _| 1.0 + 1.9 * (1.0 - ((second % 36_000) as f64 / 18_000.0 - 1.0).abs()),
    },
    AdversarialLoad {
        // More than is there, whenever more would help.
        name: "always as much as the most",
        needed: |_, _, _| HEADROOM_MAX,
    },
];

#[test]
fn adversarial_loads_keep_the_long_run_bound() {
    const SECONDS: usize = 400_000;
    for reported in [1, 3] {
        for load in &ADVERSARIES {
            let (mut plant, mut is_high) = (Plant::new(), false);
            for second in 0..SECONDS {
                let needed = (load.needed)(second, &mut is_high, plant.controller.headroom());
                plant.step(needed, reported);
            }
            let name = load.name;
            assert_eq!(plant.controller.unpaid(), 0.0, "{name}: no second that no headroom could hold");
            // 220 seconds of load beyond one in a hundred
            let share_max = 0.01 + (TRACKED_MAX - HEADROOM_MIN) / GAIN / SECONDS as f64 + reported as f64 / SECONDS as f64;
            assert!(plant.missed_share() <= share_max, "{name}: {} > {share_max}", plant.missed_share());
            // The bound says something: these loads spend more than half of what they may.
            assert!(plant.missed_share() > 0.005, "{name}: {}", plant.missed_share());
        }
    }
}

#[test]
fn what_no_headroom_holds_is_called_saturated() {
    let mut plant = Plant::new();
    (0..2_000).for_each(|_| plant.step(HEADROOM_MAX + 1.0, 1));
    assert!(plant.controller.is_saturated() && plant.controller.unpaid() > 0.9 * (2_000 - 200) as f64 * RATE as f64);
    assert!(plant.all.missed as f64 <= plant.controller.missed_max(plant.all.total()) + 1e-6);
    // A second without misses is no longer saturated; the headroom stays high to pay for the rest.
    plant.step(0.5, 1);
    assert!(!plant.controller.is_saturated());
    assert!((plant.controller.headroom() - HEADROOM_MAX).abs() < 1e-9);
}

#[test]
fn price_follows_safety() {
    let mut controller = HeadroomController::new(PROMISE);
    // The documented example: five minutes without a miss, then two seconds that miss altogether.
    (0..=300).for_each(|second| controller.report(at_s(second), ended(100, 0)));
    let calm = controller.headroom();
    assert!((calm - 1.07).abs() < 0.001, "{calm}");
    [301, 302].iter().for_each(|&second| controller.report(at_s(second), ended(0, 100)));
    assert!((controller.tracked() - calm - 0.02).abs() < 0.001, "{}", controller.tracked());
    assert!((controller.headroom() - SURGE * controller.tracked()).abs() < 1e-9);
    // The surge ends within ten seconds of its last misses.
    (303..=315).for_each(|second| controller.report(at_s(second), ended(100, 0)));
    assert!((controller.headroom() - controller.tracked()).abs() < 1e-9);
    // Of 32,400 requests 324 may miss; 200 did, and with 200 more the budget is spent.
    assert!(controller.budget().left_ratio() > 0.0);
    controller.report(at_s(316), ended(0, 200));
    assert!(controller.budget().left_ratio() < 0.0);
    (317..=340).for_each(|second| controller.report(at_s(second), ended(100, 0)));
    assert_eq!(controller.headroom(), HEADROOM_START.max(controller.tracked()));
}

#[test]
fn silence_is_answered_with_safety() {
    let mut controller = HeadroomController::new(PROMISE);
    (0..=300).for_each(|second| controller.report(at_s(second), ended(100, 0)));
    let calm = controller.headroom();
    controller.advance(at_s(303));
    assert_eq!(controller.headroom(), calm);
    controller.advance(at_s(304));
    assert_eq!(controller.headroom(), HEADROOM_START);
    controller.report(at_s(305), ended(500, 0));
    assert!(controller.headroom() < calm);
}
