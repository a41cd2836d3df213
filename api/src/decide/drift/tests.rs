//! Drifts of profiles, against a slow judge on drawn histories.

use super::*;
use apportion_serving::mix::SplitMix;

const LATENCY: FigureKind = FigureKind::Latency;

fn part(session: u128, count: u64, measured: f64, expected: f64) -> MeasuredPart {
    MeasuredPart { session: Uuid::from_u128(session), count, measured, expected, variance: expected }
}

/// One agent in the periods from 0 on: each has `count` batches of 10 ms by the profile, at these ratios.
fn history(count: u64, ratios: &[f64]) -> Vec<PeriodSums> {
    let expected = 10.0 * count as f64;
    let of = |(period, ratio): (i64, &f64)| PeriodSums { period, parts: vec![part(1, count, ratio * expected, expected)] };
    (0..).zip(ratios).map(of).collect()
}

/// The judgement at the end of the history.
fn judged(kind: FigureKind, periods: &[PeriodSums], known: Option<f64>) -> Option<DriftChange> {
    let until = periods.last().map_or(0, |last| last.period + 1);
    judge(kind, &last_windows(kind, periods, until), known)
}

/// The factor of a drift that begins or changes.
fn factor(change: Option<DriftChange>) -> Option<f64> {
    match change? {
        DriftChange::Begun(numbers) | DriftChange::Changed(numbers) => Some(numbers.factor),
        DriftChange::Over(_) => None,
    }
}

#[test]
fn a_slowdown_is_a_drift_after_three_windows() {
    assert_eq!(judged(LATENCY, &history(20, &[1.0, 1.3, 1.3]), None), None);
    let begun = judged(LATENCY, &history(20, &[1.0, 1.3, 1.3, 1.3]), None);
    let numbers = DriftNumbers { factor: 1.3, profile: 10.0, measured: 13.0, begin: 1 };
    assert_eq!(begun, Some(DriftChange::Begun(numbers)));
}

#[test]
fn a_slowdown_is_known_within_thirty_seconds() {
    // It begins right after the begin of a period, and reports take two seconds.
    let (periods, delay_s) = (WINDOWS as i64 + 1, 3);
    assert!(periods * PERIOD_S + delay_s < 30);
}

#[test]
fn ratios_within_the_band_are_no_drift() {
    for ratio in [0.86, 1.0, 1.14] {
        assert_eq!(judged(LATENCY, &history(20, &[ratio; 4]), None), None, "{ratio}");
    }
    for (ratio, expected) in [(0.84, 0.84), (1.16, 1.16), (1e-9, 0.01), (1e9, 100.0)] {
        assert_eq!(factor(judged(LATENCY, &history(20, &[ratio; 4]), None)), Some(expected), "{ratio}");
    }
    assert_eq!(judged(LATENCY, &history(20, &[1.3, 0.7, 1.3]), None), None, "on both sides");
}

#[test]
fn a_drift_ends_within_a_narrower_band() {
    let over = Some(DriftChange::Over(DriftEnd::Recovered));
    assert_eq!(judged(LATENCY, &history(20, &[1.12; 3]), Some(1.2)), None, "neither in the band nor far from the factor");
    assert_eq!(judged(LATENCY, &history(20, &[1.3, 1.09, 1.0]), Some(1.3)), None, "two windows");
    assert_eq!(judged(LATENCY, &history(20, &[1.09, 1.0, 0.92]), Some(1.3)), over);
}

#[test]
fn a_drift_changes_when_its_factor_is_far() {
    assert_eq!(judged(LATENCY, &history(20, &[1.35; 3]), Some(1.3)), None);
    assert_eq!(factor(judged(LATENCY, &history(20, &[1.6; 3]), Some(1.3))), Some(1.6));
    assert_eq!(factor(judged(LATENCY, &history(20, &[0.7; 3]), Some(1.3))), Some(0.7));
}

#[test]
fn rare_batches_make_longer_windows() {
    // Two batches in a period: a window of five batches needs three periods.
    let windows = last_windows(LATENCY, &history(2, &[1.3; 9]), 9);
    assert_eq!(windows.iter().map(|window| (window.begin, window.end)).collect::<Vec<_>>(), [(6, 9), (3, 6), (0, 3)]);
    assert_eq!(last_windows(LATENCY, &history(2, &[1.3; 8]), 8).len(), 2);
    let rare: Vec<PeriodSums> = history(1, &[1.3; 40]).into_iter().filter(|of| of.period % 2 == 0).collect();
    assert_eq!(last_windows(LATENCY, &rare, 40), [], "too few in the longest window");
    let quiet = history(20, &[1.3; 3]);
    assert_eq!(last_windows(LATENCY, &quiet, 3 + WINDOW_PERIODS_MAX), [], "nothing in the last 30 s");
}

#[test]
fn one_disturbed_agent_of_several_makes_no_drift() {
    // (ratios of agents with equal work, the ratio on which they agree)
    let cases: [(&[f64], f64); 6] = [
        (&[1.0, 1.6], 1.0),
        (&[1.3, 1.6], 1.3),
        (&[1.0, 1.0, 2.0], 1.0),
        (&[1.0, 1.3, 1.4], 1.3),
        (&[0.7, 0.8, 1.0], 0.8),
        (&[0.7, 1.3], 1.0),
    ];
    for (ratios, expected) in cases {
        let parts = (1..).zip(ratios).map(|(agent, ratio)| part(agent, 20, ratio * 200.0, 200.0)).collect();
        let window = MeasuredWindow::of(&[PeriodSums { period: 0, parts }], 0, 1);
        assert_eq!(window.ratio(), expected, "{ratios:?}");
    }
}

#[test]
fn an_agent_with_most_of_the_work_decides() {
    let parts = vec![part(1, 80, 1_040.0, 800.0), part(2, 20, 200.0, 200.0)];
    assert_eq!(MeasuredWindow::of(&[PeriodSums { period: 0, parts }], 0, 1).ratio(), 1.3);
}

#[test]
fn differences_below_the_noise_are_no_drift() {
    let short = |ms: f64| {
        let of = |period| PeriodSums { period, parts: vec![part(1, 100, 130.0 * ms, 100.0 * ms)] };
        (0..3).map(of).collect::<Vec<_>>()
    };
    assert_eq!(judged(LATENCY, &short(1.0), None), None, "0.3 ms");
    assert_eq!(factor(judged(LATENCY, &short(2.0), None)), Some(1.3), "0.6 ms");
}

#[test]
fn a_fanout_needs_more_queries_than_its_poisson_error() {
    let with = |queries: u64, per_query: f64| {
        let count = queries as f64;
        let of = |period| PeriodSums { period, parts: vec![part(1, queries, per_query * count, count)] };
        judged(FigureKind::Fanout, &(0..3).map(of).collect::<Vec<_>>(), None)
    };
    assert_eq!(with(60, 1.3), None, "78 children instead of 60 are 2 deviations");
    // 3,000 queries with 1.3 children each, and 20 with 1.
    assert_eq!(factor(with(1_000, 1.3)), Some(1.3));
    // 180 queries with 2 children each, and 20 with 1: (360 + 20) / 200.
    assert_eq!(factor(with(60, 2.0)), Some(1.9), "the prior counts");
}

#[test]
fn a_wide_distribution_needs_a_larger_difference() {
    let is_drift = |measured: f64, variance: f64| {
        let of = |period| PeriodSums { period, parts: vec![MeasuredPart { variance, ..part(1, 100, measured, 100.0) }] };
        judged(FigureKind::Fanout, &(0..3).map(of).collect::<Vec<_>>(), None).is_some()
    };
    // (children instead of 100, variance, whether the difference is more than three deviations)
    for (measured, variance, expected) in
        [(130.0, 0.0, false), (140.0, 0.0, true), (150.0, 250.0, true), (150.0, 300.0, false)]
    {
        assert_eq!(is_drift(measured, variance), expected, "{measured} {variance}");
    }
}

#[test]
fn measurements_without_a_profile_say_nothing() {
    let periods: Vec<PeriodSums> =
        (0..3).map(|period| PeriodSums { period, parts: vec![part(1, 50, 900.0, 0.0)] }).collect();
    assert_eq!(last_windows(LATENCY, &periods, 3), []);
    assert_eq!(last_measured(LATENCY, &periods, 3), None);
}

/// The slow judge: one list entry for each millisecond of expected work, and every way to cut the history into windows.
mod slow {
    use super::*;

    /// All measurements from `begin` to `end`, one entry for each millisecond of expected work.
    fn entries(periods: &[PeriodSums], begin: i64, end: i64) -> Vec<f64> {
        let inside: Vec<&MeasuredPart> =
            periods.iter().filter(|p| begin <= p.period && p.period < end).flat_map(|p| &p.parts).collect();
        let mut all = Vec::new();
        for part in &inside {
            let mine = inside.iter().filter(|other| other.session == part.session);
            let (measured, expected) = mine.fold((0.0, 0.0), |(m, e), other| (m + other.measured, e + other.expected));
            all.extend(std::iter::repeat_n(measured / expected, part.expected as usize));
        }
        all.sort_by(f64::total_cmp);
        all
    }

    /// The agreed ratio: the nearest to 1 between the entries at 45 and 55 %.
    pub fn ratio(periods: &[PeriodSums], begin: i64, end: i64) -> f64 {
        let all = entries(periods, begin, end);
        let at = |percent: usize| all[(percent * all.len()).div_ceil(100).max(1) - 1];
        let (low, high) = (at(45), at(55));
        if low > 1.0 {
            low
        } else if high < 1.0 {
            high
        } else {
            1.0
        }
    }

    pub fn count(periods: &[PeriodSums], begin: i64, end: i64) -> u64 {
        periods.iter().filter(|p| begin <= p.period && p.period < end).flat_map(|p| &p.parts).map(|part| part.count).sum()
    }

    /// The begins of the three last windows, each as short as it may be; fewer if there are fewer.
    pub fn begins(periods: &[PeriodSums], until: i64) -> Vec<i64> {
        let (mut begins, mut end, mut begin) = (Vec::new(), until, until);
        while begins.len() < 3 && end - begin < 6 {
            begin -= 1;
            if count(periods, begin, end) >= 5 {
                begins.push(begin);
                end = begin;
            }
        }
        begins
    }

    /// Whether a drift begins.
    pub fn begins_drift(periods: &[PeriodSums], until: i64) -> bool {
        let begins = begins(periods, until);
        let ends = std::iter::once(until).chain(begins.iter().copied());
        let windows: Vec<(i64, i64)> = begins.iter().copied().zip(ends).collect();
        let is_far = |begin: i64, end: i64| {
            let inside = || periods.iter().filter(move |p| begin <= p.period && p.period < end).flat_map(|p| &p.parts);
            let difference: f64 = inside().map(|part| part.measured - part.expected).sum();
            difference.abs() > 0.5 * count(periods, begin, end) as f64
        };
        let ratios: Vec<f64> = windows.iter().map(|(begin, end)| ratio(periods, *begin, *end)).collect();
        let beyond = ratios.iter().all(|ratio| *ratio > 1.15) || ratios.iter().all(|ratio| *ratio < 0.85);
        windows.len() == 3 && beyond && windows.iter().all(|(begin, end)| is_far(*begin, *end))
    }
}

#[test]
fn drawn_histories_are_judged_as_slowly() {
    let (mut drifts, mut longer, mut agreed) = (0, 0, 0);
    for seed in 0..400 {
        let mut stream = SplitMix(seed);
        let mut draw = |up_to: u64| (stream.unit() * up_to as f64) as u64;
        let (agents, slowest) = (1 + draw(4), 1 + draw(8));
        let busy = 1 + draw(6);
        let periods: Vec<PeriodSums> = (0..20)
            .map(|period| {
                let mut parts = Vec::new();
                for agent in 0..agents {
                    let count = draw(busy);
                    // Whole milliseconds for each batch, so that the slow judge counts them exactly.
                    let per_batch = 4 + draw(slowest);
                    if count > 0 {
                        let expected = 5 * count;
                        parts.push(part(u128::from(agent), count, (per_batch * count) as f64, expected as f64));
                    }
                }
                PeriodSums { period, parts }
            })
            .collect();
        let windows = last_windows(LATENCY, &periods, 20);
        assert_eq!(windows.iter().map(|w| w.begin).collect::<Vec<_>>(), slow::begins(&periods, 20), "seed {seed}");
        for window in &windows {
            let slow = slow::ratio(&periods, window.begin, window.end);
            assert!((window.ratio() - slow).abs() < 1e-9, "seed {seed}: {} and {slow}", window.ratio());
            longer += usize::from(window.end - window.begin > 1);
            agreed += usize::from(slow == 1.0);
        }
        let begins = matches!(judge(LATENCY, &windows, None), Some(DriftChange::Begun(_)));
        assert_eq!(begins, slow::begins_drift(&periods, 20), "seed {seed}");
        drifts += usize::from(begins);
    }
    assert!(drifts > 20 && longer > 20 && agreed > 20, "{drifts} drifts, {longer} longer windows, {agreed} agreed");
}
