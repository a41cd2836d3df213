//! INFaaS's selection: scripts, and a brute force that says what should have been chosen.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::selector::{
    DISTURBED, LoadRule, Move, QueryNeeds, RegisteredVariant, Selector, VariantSelection, VariantState, WorkerMeasurement,
};
use proptest::prelude::*;

const CPU: u32 = 0;
const GPU: u32 = 1;
const T0: Moment = Moment::ZERO;

fn ms(time: f64) -> TimeSpan {
    TimeSpan::from_millis(time)
}

/// Three variants of ResNet50, as table 2 of the paper has them: CPU, accelerator, GPU.
fn resnet() -> Vec<RegisteredVariant> {
    let of = |inference, load, peak_qps, hardware, price| RegisteredVariant {
        application: 0,
        accuracy: 0.76,
        inference: ms(inference),
        load: ms(load),
        peak_qps,
        hardware,
        eighths: 8,
        price,
    };
    vec![of(200.0, 1_000.0, 5.0, CPU, 1.0), of(20.0, 5_000.0, 100.0, GPU, 3.0), of(15.0, 9_000.0, 800.0, GPU, 16.0)]
}

fn needs(accuracy: f64, latency: f64) -> QueryNeeds {
    QueryNeeds::Needs { application: 0, accuracy, latency: ms(latency), price: f64::INFINITY }
}

fn seen(variant: u32, served_qps: f64, inference: f64) -> WorkerMeasurement {
    WorkerMeasurement { variant, replicas: 1, served_qps, inference: ms(inference), queued: 0 }
}

#[test]
fn the_cheapest_fitting_active_variant_is_taken() {
    let mut selector = Selector::new(resnet());
    let workers: Vec<u32> = (0..3).map(|_| selector.add_worker(GPU, 8)).collect();
    selector.report(T0, workers[0], 0.5, 0, &[seen(1, 50.0, 20.0)]);
    selector.report(T0, workers[1], 0.1, 0, &[seen(1, 10.0, 20.0)]);
    selector.report(T0, workers[2], 0.0, 0, &[seen(2, 0.0, 0.0)]);
    // 16 for 800 queries is cheaper than 3 for 100.
    let serve = |variant, worker| VariantSelection::Serve { variant, worker, state: VariantState::Active };
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), serve(2, workers[2]));
    selector.report(T0, workers[2], 1.0, 0, &[seen(2, 800.0, 15.0)]);
    assert_eq!(selector.state(2, workers[2]), VariantState::Overloaded);
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), serve(1, workers[1]));
    assert_eq!(selector.select(Moment::from_nanos(1_000_000_000), QueryNeeds::Variant(1)), serve(1, workers[1]));
}

#[test]
fn without_active_variants_the_quickest_one_is_loaded() {
    let mut selector = Selector::new(resnet());
    let (a, b) = (selector.add_worker(GPU, 8), selector.add_worker(GPU, 8));
    let cpu = selector.add_worker(CPU, 8);
    selector.report(T0, a, 0.3, 8, &[]);
    selector.report(T0, b, 0.2, 8, &[]);
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), VariantSelection::Load { variant: 1, worker: b });
    assert_eq!(selector.select(T0, needs(0.7, 300.0)), VariantSelection::Load { variant: 0, worker: cpu });
    selector.report(T0, b, 0.2, 0, &[]);
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), VariantSelection::Load { variant: 1, worker: a });
    selector.remove_worker(a);
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), VariantSelection::NoRoom { variant: 2 });
}

#[test]
fn needs_that_nothing_meets_get_the_nearest_variant() {
    let mut selector = Selector::new(resnet());
    selector.add_worker(GPU, 8);
    assert_eq!(selector.select(T0, needs(0.7, 14.0)), VariantSelection::Nearest { variant: 2 });
    assert!(matches!(selector.select(T0, needs(0.9, 100.0)), VariantSelection::Nearest { .. }));
    let other = QueryNeeds::Needs { application: 9, accuracy: 0.0, latency: ms(1e6), price: f64::INFINITY };
    assert_eq!(selector.select(T0, other), VariantSelection::Unknown);
    assert_eq!(selector.select(T0, QueryNeeds::Variant(9)), VariantSelection::Unknown);
}

#[test]
fn a_price_is_a_need_like_another() {
    let mut selector = Selector::new(resnet());
    let gpu = selector.add_worker(GPU, 8);
    selector.report(T0, gpu, 0.1, 0, &[seen(1, 10.0, 20.0), seen(2, 10.0, 15.0)]);
    // 16 an hour for 800 queries a second, 3 for 100.
    let [of_one, of_two] = [1, 2].map(|v: usize| resnet()[v].query_price());
    assert!(of_two < of_one, "{of_two} {of_one}");
    let at_most = |price| QueryNeeds::Needs { application: 0, accuracy: 0.7, latency: ms(100.0), price };
    let mut chosen = |price| match selector.select(T0, at_most(price)) {
        VariantSelection::Serve { variant, .. } | VariantSelection::Nearest { variant } => variant,
        other => panic!("{other:?}"),
    };
    assert_eq!([chosen(f64::INFINITY), chosen(1.01 * of_two), chosen(0.5 * of_two)], [2, 2, 2]);
    // The cheap one is gone: the other one costs more, and is the nearest to a lower price.
    selector.report(T0, gpu, 0.1, 0, &[seen(1, 10.0, 20.0)]);
    assert!(matches!(selector.select(T0, at_most(f64::INFINITY)), VariantSelection::Serve { variant: 1, .. }));
    assert_eq!(selector.select(T0, at_most(1.01 * of_two)), VariantSelection::NoRoom { variant: 2 });
    let any = at_most(f64::INFINITY);
    assert!((selector.regret(any, 1, |_| true) - (of_one - of_two)).abs() < 1e-15);
    assert_eq!(selector.regret(any, 2, |_| true), 0.0);
    assert_eq!(selector.regret(any, 1, |variant| variant == 1), 0.0, "no other one is allowed");
}

#[test]
fn a_rule_says_whether_busy_variants_serve_before_others_are_loaded() {
    let mut selector = Selector::new(resnet());
    let (a, _empty) = (selector.add_worker(GPU, 8), selector.add_worker(GPU, 8));
    selector.report(T0, a, 1.0, 0, &[seen(1, 100.0, 20.0)]);
    let mut by = |rule, asked| selector.select_among(T0, asked, 1, rule, |_| true);
    let overloaded = VariantSelection::Serve { variant: 1, worker: a, state: VariantState::Overloaded };
    let asked = needs(0.7, 100.0);
    assert_eq!(by(LoadRule::WhenBusy, asked), VariantSelection::Load { variant: 1, worker: 1 });
    assert_eq!(by(LoadRule::WhenMissing, asked), overloaded);
    assert_eq!(by(LoadRule::WhenMissing, QueryNeeds::Variant(1)), overloaded);
    assert_eq!(by(LoadRule::WhenBusy, QueryNeeds::Variant(1)), VariantSelection::Load { variant: 1, worker: 1 });
    // Nothing that is so fast is loaded: that is a reason for both.
    let fast = needs(0.7, 18.0);
    let load = VariantSelection::Load { variant: 2, worker: 1 };
    assert_eq!([by(LoadRule::WhenBusy, fast), by(LoadRule::WhenMissing, fast)], [load; 2]);
}

#[test]
fn a_choice_is_made_among_the_allowed_variants_only() {
    let mut selector = Selector::new(resnet());
    let gpu = selector.add_worker(GPU, 8);
    selector.report(T0, gpu, 0.1, 0, &[seen(1, 10.0, 20.0), seen(2, 10.0, 15.0)]);
    let mut among =
        |allowed: u32| selector.select_among(T0, needs(0.7, 100.0), 1, LoadRule::WhenMissing, |variant| variant == allowed);
    assert!(matches!(among(1), VariantSelection::Serve { variant: 1, .. }));
    assert!(matches!(among(2), VariantSelection::Serve { variant: 2, .. }));
    assert_eq!(among(7), VariantSelection::Unknown);
    assert_eq!(among(0), VariantSelection::Nearest { variant: 0 }, "it takes longer");
}

#[test]
fn disturbed_variants_are_avoided_and_moved() {
    let mut selector = Selector::new(resnet());
    let (a, b) = (selector.add_worker(GPU, 16), selector.add_worker(GPU, 8));
    let slow = 20.0 * DISTURBED + 1.0;
    selector.report(T0, a, 0.5, 8, &[seen(1, 50.0, slow)]);
    selector.report(T0, b, 0.1, 8, &[]);
    assert_eq!(selector.state(1, a), VariantState::Interfered);
    assert_eq!(selector.moves(), [Move { variant: 1, from: a, to: a }]);
    selector.report(T0, a, 0.5, 0, &[seen(1, 50.0, slow)]);
    assert_eq!(selector.moves(), [Move { variant: 1, from: a, to: b }]);
    assert_eq!(selector.select(T0, needs(0.7, 100.0)), VariantSelection::Load { variant: 1, worker: b });
    // With nowhere to load, the disturbed one still serves.
    selector.report(T0, b, 0.1, 0, &[]);
    assert_eq!(
        selector.select(T0, needs(0.7, 100.0)),
        VariantSelection::Serve { variant: 1, worker: a, state: VariantState::Interfered }
    );
    assert!(selector.moves().is_empty());
}

#[test]
fn offline_queries_run_on_idle_undisturbed_workers() {
    let mut selector = Selector::new(resnet());
    let a = selector.add_worker(GPU, 8);
    assert!(selector.runs_offline(a));
    selector.report(T0, a, 0.39, 0, &[seen(1, 10.0, 20.0)]);
    assert!(selector.runs_offline(a));
    selector.report(T0, a, 0.4, 0, &[seen(1, 10.0, 20.0)]);
    assert!(!selector.runs_offline(a));
    selector.report(T0, a, 0.2, 0, &[seen(1, 10.0, 30.0)]);
    assert!(!selector.runs_offline(a));
}

#[test]
fn three_rules_add_workers_and_idle_ones_leave() {
    let mut selector = Selector::new(resnet());
    let gpus = [selector.add_worker(GPU, 8), selector.add_worker(GPU, 8)];
    let cpu = selector.add_worker(CPU, 8);
    assert_eq!(selector.wanted_workers(), Vec::<u32>::new());
    // 1: all of a type are used.
    selector.report(T0, gpus[0], 0.9, 0, &[seen(1, 50.0, 20.0)]);
    assert!(selector.wanted_workers().is_empty());
    selector.report(T0, gpus[1], 0.9, 0, &[seen(2, 50.0, 15.0)]);
    assert_eq!(selector.wanted_workers(), [GPU]);
    // 2: all variants of a type are disturbed.
    selector.report(T0, gpus[0], 0.5, 0, &[seen(1, 50.0, 30.0)]);
    selector.report(T0, gpus[1], 0.5, 0, &[seen(2, 50.0, 15.0)]);
    assert!(selector.wanted_workers().is_empty());
    selector.report(T0, gpus[1], 0.5, 0, &[seen(2, 50.0, 30.0)]);
    assert_eq!(selector.wanted_workers(), [GPU]);
    // 3: more than 80 % of workers have overloaded variants.
    selector.report(T0, gpus[0], 0.5, 0, &[seen(1, 100.0, 20.0)]);
    selector.report(T0, gpus[1], 0.5, 0, &[seen(2, 900.0, 15.0)]);
    assert!(selector.wanted_workers().is_empty(), "two of three are not more than 80 %");
    assert_eq!(selector.idle_workers(), [cpu]);
    selector.remove_worker(cpu);
    assert_eq!(selector.wanted_workers(), [GPU]);
    assert!(selector.idle_workers().is_empty());
}

#[test]
fn queries_sent_since_the_last_report_count() {
    let mut selector = Selector::new(resnet());
    let workers = [selector.add_worker(GPU, 8), selector.add_worker(GPU, 8)];
    workers.iter().for_each(|&w| selector.report(T0, w, 0.1, 0, &[seen(1, 10.0, 20.0)]));
    let mut select = |now: Moment| match selector.select(now, needs(0.7, 50.0)) {
        VariantSelection::Serve { worker, .. } => worker,
        other => panic!("both serve: {other:?}"),
    };
    // Both in turn, 10 ms each: three fit before the 30 ms that a query may wait are over, and then the fourth.
    let at_once: Vec<u32> = (0..10).map(|_| select(T0)).collect();
    assert_eq!(at_once.iter().filter(|&&w| w == workers[0]).count(), 5);
    // With more queued than there is time for, a cheaper one does not stay the first choice.
    let fast = selector.add_worker(GPU, 8);
    selector.report(T0, fast, 0.1, 0, &[seen(2, 799.0, 15.0)]);
    selector.report(T0, workers[0], 0.1, 0, &[WorkerMeasurement { queued: 100, ..seen(1, 10.0, 20.0) }]);
    assert!(matches!(selector.select(T0, needs(0.7, 50.0)), VariantSelection::Serve { variant: 2, .. }));
    // A second later all that is served.
    let later = Moment::from_nanos(5_000_000_000);
    assert!(matches!(selector.select(later, QueryNeeds::Variant(1)), VariantSelection::Serve { variant: 1, .. }));
}

/// The last report of a worker.
struct Report {
    hardware: u32,
    utilisation: f64,
    eighths_free: u32,
    seen: Vec<WorkerMeasurement>,
}

/// A variant that is loaded on a worker.
struct Loaded {
    state: VariantState,
    variant: u32,
    worker: u32,
    load: f64,
}

/// A variant that a worker could load.
struct Start {
    done: TimeSpan,
    utilisation: f64,
    variant: u32,
    worker: u32,
}

/// All variants on all workers, one by one.
fn brute_force(registered: &[RegisteredVariant], reports: &[Report], accuracy: f64, latency: TimeSpan) -> VariantSelection {
    let fits: Vec<u32> = (0..registered.len() as u32)
        .filter(|&v| registered[v as usize].accuracy >= accuracy && registered[v as usize].inference <= latency)
        .collect();
    let of = |v: u32| &registered[v as usize];
    let mut loaded = Vec::new();
    for (worker, report) in (0..).zip(reports) {
        for s in report.seen.iter().filter(|s| fits.contains(&s.variant)) {
            let load = s.served_qps / (of(s.variant).peak_qps * f64::from(s.replicas));
            let is_slow = s.inference.as_nanos() as f64 > DISTURBED * of(s.variant).inference.as_nanos() as f64;
            let state = if load >= 1.0 {
                VariantState::Overloaded
            } else if is_slow {
                VariantState::Interfered
            } else {
                VariantState::Active
            };
            loaded.push(Loaded { state, variant: s.variant, worker, load });
        }
    }
    let price = |v: u32| of(v).price / of(v).peak_qps;
    let done = |l: &Loaded| (of(l.variant).inference, l.state);
    let cheaper = |a: &Loaded, b: &Loaded| price(a.variant).total_cmp(&price(b.variant));
    loaded.sort_by(|a, b| cheaper(a, b).then(a.state.cmp(&b.state)).then(a.load.total_cmp(&b.load)));
    if let Some(&Loaded { state, variant, worker, .. }) = loaded.iter().find(|l| l.state == VariantState::Active) {
        return VariantSelection::Serve { variant, worker, state };
    }
    let mut starts = Vec::new();
    for &v in &fits {
        for (worker, report) in (0..).zip(reports) {
            if report.hardware == of(v).hardware && report.eighths_free >= of(v).eighths {
                let done = of(v).load + of(v).inference;
                starts.push(Start { done, utilisation: report.utilisation, variant: v, worker });
            }
        }
    }
    starts.sort_by(|a, b| a.done.cmp(&b.done).then(a.utilisation.total_cmp(&b.utilisation)));
    if let Some(&Start { variant, worker, .. }) = starts.first() {
        return VariantSelection::Load { variant, worker };
    }
    if let Some(&Loaded { state, variant, worker, .. }) = loaded.iter().min_by_key(|l| done(l)) {
        return VariantSelection::Serve { variant, worker, state };
    }
    let mut dear = fits;
    dear.sort_by(|&a, &b| price(a).total_cmp(&price(b)));
    match dear.first() {
        Some(&variant) => VariantSelection::NoRoom { variant },
        None => VariantSelection::Unknown,
    }
}

prop_compose! {
    fn registered()(accuracy in 0.0..1.0_f64, inference in 1.0..100.0_f64, load in 1.0..1e4_f64, peak in 1.0..500.0_f64,
        hardware in 0..2_u32, eighths in 1..9_u32, price in 0.1..10.0_f64) -> RegisteredVariant {
        let (inference, load) = (TimeSpan::from_millis(inference), TimeSpan::from_millis(load));
        RegisteredVariant { application: 0, accuracy, inference, load, peak_qps: peak, hardware, eighths, price }
    }
}

prop_compose! {
    fn report(variants: u32)(hardware in 0..2_u32, utilisation in 0.0..1.0_f64, free in 0..9_u32,
        seen in prop::collection::btree_map(0..variants, (1..4_u32, 0.0..600.0_f64, 0.5..2.0_f64), 0..4))
        -> (u32, f64, u32, Vec<(u32, u32, f64, f64)>) {
        (hardware, utilisation, free, seen.into_iter().map(|(v, (n, qps, slow))| (v, n, qps, slow)).collect())
    }
}

proptest! {
    #[test]
    fn the_selector_agrees_with_a_brute_force(
        registered in prop::collection::vec(registered(), 1..9),
        drawn in prop::collection::vec(report(8), 1..5),
        accuracy in 0.0..1.0_f64,
        latency in 1.0..120.0_f64,
    ) {
        let mut selector = Selector::new(registered.clone());
        let mut reports = Vec::new();
        for (hardware, utilisation, free, seen) in drawn {
            let worker = selector.add_worker(hardware, free);
            let known = seen.into_iter().filter(|&(variant, ..)| (variant as usize) < registered.len());
            let seen: Vec<WorkerMeasurement> = known.map(|(variant, replicas, served_qps, slow)| {
                let inference = TimeSpan::from_millis(registered[variant as usize].inference.as_millis() * slow);
                WorkerMeasurement { variant, replicas, served_qps, inference, queued: 0 }
            }).collect();
            selector.report(T0, worker, utilisation, free, &seen);
            reports.push(Report { hardware, utilisation, eighths_free: free, seen });
        }
        let latency = TimeSpan::from_millis(latency);
        let chosen = selector.select(T0, QueryNeeds::Needs { application: 0, accuracy, latency, price: f64::INFINITY });
        match brute_force(&registered, &reports, accuracy, latency) {
            VariantSelection::Unknown => {
                let is_nearest = matches!(chosen, VariantSelection::Nearest { .. });
                prop_assert!(is_nearest, "{:?}", chosen);
            }
            expected => prop_assert_eq!(chosen, expected),
        }
    }
}
