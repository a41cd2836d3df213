//! How fast are the decisions of the serving policies: routing tables, and the choice of a variant for a query?

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::mix::SplitMix;
use apportion_serving::selector::{QueryNeeds, RegisteredVariant, Selector, VariantSelection, WorkerMeasurement};
use apportion_serving::tables::{RoutedGroup, TaskGraph, route};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use std::hint::black_box;
use std::time::Instant;

/// Workers of the routing tables. Each has a variant of its own, which is the hardest case: equal replicas count once.
const WORKERS: usize = 1_000;
/// Variants of one application, as many as the paper registers in all.
pub(super) const VARIANTS: usize = 175;
/// Machines that have them.
const MACHINES: usize = 40;
/// Replicas on one machine.
const REPLICAS: usize = 4;
const CHOICES: usize = 200_000;
/// Choices by searching everything.
const BRUTE: usize = 2_000;
const TABLES: usize = 200;
/// Simulated seconds of the comparison with an all-knowing choice.
const SECONDS: f64 = 60.0;
/// Seconds between two reports of a worker, as in the paper.
const REPORT_S: f64 = 2.0;

/// Prints the figures.
///
/// # Errors
/// If stdout cannot be written.
pub fn run() -> Result<(), Failure> {
    let mut table = TextTable::new(&["decision", "median", "worst", "unit"]);
    let mut times = table_times_ms();
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    table.row(vec![format!("tables of {WORKERS} workers"), number(median), number(worst), "ms".into()]);
    for (load, what) in [(0.3, "all active"), (1.5, "all overloaded")] {
        let ns = choice_ns(load);
        let name = format!("one of {VARIANTS} variants, {what}");
        table.row(vec![name, number(ns / 1e3), "-".into(), "us".into()]);
    }
    output::print(&table.text(""))?;
    let mut table = TextTable::new(&["load", "late with reports every 2 s %", "late all-knowing %", "regret (points)"]);
    for load in [0.3, 0.6, 0.9] {
        let [ours, best] = [Some(REPORT_S), None].map(|every_s| 100.0 * share_late(load, every_s));
        table.row([100.0 * load, ours, best, ours - best].map(number).to_vec());
    }
    output::print(&table.text(""))
}

fn table_times_ms() -> Vec<f64> {
    let graph = TaskGraph { order: vec![0, 1, 2], children: vec![vec![1, 2], vec![], vec![]] };
    let mut draw = SplitMix(1);
    let server = |at: usize| RoutedGroup {
        task: at % 3,
        accuracy: draw.unit(),
        capacity_qps: 50.0 + 100.0 * draw.unit(),
        fanout: if at.is_multiple_of(3) { vec![1.0, 0.8] } else { vec![] },
    };
    let servers: Vec<RoutedGroup> = (0..WORKERS).map(server).collect();
    let table_ms = |at: usize| {
        let start = Instant::now();
        black_box(route(&graph, black_box(&servers), 20_000.0 + at as f64));
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..TABLES).map(table_ms).collect()
}

pub(super) fn draw_variants() -> Vec<RegisteredVariant> {
    let mut draw = SplitMix(2);
    let variant = |_| {
        let inference = 5.0 + 95.0 * draw.unit();
        RegisteredVariant {
            application: 0,
            accuracy: 0.5 + 0.5 * draw.unit(),
            inference: TimeSpan::from_millis(inference),
            load: TimeSpan::from_millis(500.0 + 5_000.0 * draw.unit()),
            peak_qps: 1e3 / inference * (1.0 + 7.0 * draw.unit()),
            hardware: 0,
            eighths: 2,
            price: 1.0,
        }
    };
    (0..VARIANTS).map(variant).collect()
}

/// Which variants each machine has.
fn draw_placements() -> Vec<Vec<usize>> {
    let mut draw = SplitMix(3);
    (0..MACHINES).map(|_| (0..REPLICAS).map(|_| (draw.unit() * VARIANTS as f64) as usize).collect()).collect()
}

fn new_selector(registered: &[RegisteredVariant], placed: &[Vec<usize>]) -> Selector {
    let mut selector = Selector::new(registered.to_vec());
    for _ in placed {
        selector.add_worker(0, 0);
    }
    selector
}

fn report_machine(
    selector: &mut Selector,
    registered: &[RegisteredVariant],
    now_s: f64,
    machine: usize,
    replicas: &[usize],
    load: impl Fn(usize) -> f64,
) {
    let seen = |(slot, &v): (usize, &usize)| {
        let r = &registered[v];
        WorkerMeasurement {
            variant: v as u32,
            replicas: 1,
            served_qps: load(slot) * r.peak_qps,
            inference: r.inference,
            queued: 0,
        }
    };
    let seen: Vec<WorkerMeasurement> = replicas.iter().enumerate().map(seen).collect();
    selector.report(moment(now_s), machine as u32, 0.5, 0, &seen);
}

pub(super) fn moment(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as u64)
}

pub(super) fn draw_query(draw: &mut SplitMix) -> QueryNeeds {
    let (accuracy, latency) = (0.5 + 0.45 * draw.unit(), TimeSpan::from_millis(20.0 + 180.0 * draw.unit()));
    QueryNeeds::Needs { application: 0, accuracy, latency, price: f64::INFINITY }
}

/// How long it takes to choose a variant and a machine for a query.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceTimes {
    /// The selector's choice, in microseconds.
    pub choice_us: f64,
    /// A search of every variant on every machine, in microseconds.
    pub search_us: f64,
}

/// Measures the selector and a search of everything. `load` is a part of what the replicas serve.
pub fn choice_times(load: f64) -> ChoiceTimes {
    let (registered, placed) = (draw_variants(), draw_placements());
    let mut draw = SplitMix(4);
    let asked: Vec<QueryNeeds> = (0..BRUTE).map(|_| draw_query(&mut draw)).collect();
    let start = Instant::now();
    for asked in &asked {
        black_box(search_everything(black_box(&registered), black_box(&placed), *asked));
    }
    let brute_us = start.elapsed().as_secs_f64() * 1e6 / BRUTE as f64;
    ChoiceTimes { choice_us: choice_ns(load) / 1e3, search_us: brute_us }
}

/// A variant on a machine.
struct FoundReplica {
    /// Price of one query.
    price: f64,
    variant: usize,
    machine: usize,
}

/// The cheapest variant that fits and the first machine that has it: every variant and every machine is tried.
fn search_everything(registered: &[RegisteredVariant], placed: &[Vec<usize>], asked: QueryNeeds) -> Option<(usize, usize)> {
    let QueryNeeds::Needs { accuracy, latency, .. } = asked else { return None };
    let mut best: Option<FoundReplica> = None;
    for (variant, r) in registered.iter().enumerate() {
        for (machine, replicas) in placed.iter().enumerate() {
            let serves = replicas.contains(&variant);
            let price = r.price / r.peak_qps;
            if serves && r.accuracy >= accuracy && r.inference <= latency && best.as_ref().is_none_or(|b| price < b.price) {
                best = Some(FoundReplica { price, variant, machine });
            }
        }
    }
    best.map(|found| (found.variant, found.machine))
}

fn choice_ns(load: f64) -> f64 {
    let (registered, placed) = (draw_variants(), draw_placements());
    let mut selector = new_selector(&registered, &placed);
    for (machine, replicas) in placed.iter().enumerate() {
        report_machine(&mut selector, &registered, 0.0, machine, replicas, |_| load);
    }
    let mut draw = SplitMix(4);
    let asked: Vec<QueryNeeds> = (0..CHOICES).map(|_| draw_query(&mut draw)).collect();
    // Half of the rate that all replicas can serve.
    let total_qps: f64 = placed.iter().flatten().map(|&v| registered[v].peak_qps).sum();
    let gap_s = 2.0 / total_qps;
    let start = Instant::now();
    for (at, asked) in asked.iter().enumerate() {
        black_box(selector.select(moment(at as f64 * gap_s), black_box(*asked)));
    }
    start.elapsed().as_secs_f64() * 1e9 / CHOICES as f64
}

/// The share of late queries among those that some variant could serve in time. `load` is a part of the rate that all
/// replicas can serve. With `every_s` the selector chooses by reports of that age. Without it, each query goes to the
/// fitting replica that ends it first.
fn share_late(load: f64, every_s: Option<f64>) -> f64 {
    let (registered, placed) = (draw_variants(), draw_placements());
    let mut selector = new_selector(&registered, &placed);
    let total_qps: f64 = placed.iter().flatten().map(|&v| registered[v].peak_qps).sum();
    let mut free_s: Vec<Vec<f64>> = placed.iter().map(|r| vec![0.0; r.len()]).collect();
    let mut served: Vec<Vec<f64>> = free_s.clone();
    for (machine, replicas) in placed.iter().enumerate() {
        report_machine(&mut selector, &registered, 0.0, machine, replicas, |_| 0.0);
    }
    let (mut now_s, mut next_s) = (0.0, every_s.unwrap_or(f64::INFINITY));
    let (mut arrivals, mut draw) = (SplitMix(5), SplitMix(6));
    let (mut asked, mut late) = (0_u64, 0_u64);
    while now_s < SECONDS {
        now_s += -(1.0 - arrivals.unit()).ln() / (load * total_qps);
        if let Some(every_s) = every_s.filter(|_| now_s >= next_s) {
            for (machine, replicas) in placed.iter().enumerate() {
                let load = |slot: usize| served[machine][slot] / (every_s * registered[replicas[slot]].peak_qps);
                report_machine(&mut selector, &registered, now_s, machine, replicas, load);
                served[machine].fill(0.0);
            }
            next_s += every_s;
        }
        let QueryNeeds::Needs { accuracy, latency, .. } = draw_query(&mut draw) else { continue };
        let latency_s = latency.as_millis() / 1e3;
        let done_s = |machine: usize, slot: usize| {
            let r = &registered[placed[machine][slot]];
            now_s.max(free_s[machine][slot]) - now_s + r.inference.as_millis() / 1e3
        };
        let fits = |r: &RegisteredVariant| r.accuracy >= accuracy && r.inference <= latency;
        let all = || (0..placed.len()).flat_map(|m| (0..placed[m].len()).map(move |s| (m, s)));
        let able = all().filter(|&(m, s)| fits(&registered[placed[m][s]]));
        let Some(best) = able.min_by(|&(m, s), &(n, t)| done_s(m, s).total_cmp(&done_s(n, t))) else { continue };
        let (machine, slot) = if every_s.is_some() {
            let asked = QueryNeeds::Needs { application: 0, accuracy, latency, price: f64::INFINITY };
            let VariantSelection::Serve { variant, worker, .. } = selector.select(moment(now_s), asked) else { continue };
            let slot = placed[worker as usize].iter().position(|&v| v == variant as usize).unwrap_or(0);
            (worker as usize, slot)
        } else {
            best
        };
        asked += 1;
        late += u64::from(done_s(machine, slot) > latency_s);
        served[machine][slot] += 1.0;
        free_s[machine][slot] = now_s.max(free_s[machine][slot]) + 1.0 / registered[placed[machine][slot]].peak_qps;
    }
    late as f64 / asked.max(1) as f64
}
