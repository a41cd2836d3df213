//! How fast does INFaaS's selector choose among many variants on many workers, and how far are its choices from the best?
//!
//! The paper registers 175 variants (section 6.4). Here 1,000 workers have them. Each choice is made three times from the
//! same state, and its shortest time counts, so that other work of the machine is left out.
//!
//! The best choice is found by looking at every replica with its true queue. Several gateways choose, each with a selector
//! of its own: it hears of the others' queries by reports only.

use super::serving::{VARIANTS, draw_query, draw_variants, moment};
use apportion_domain::nearest_rank;
use apportion_serving::mix::SplitMix;
use apportion_serving::selector::{QueryNeeds, RegisteredVariant, Selector, VariantSelection, WorkerMeasurement};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use std::hint::black_box;
use std::time::Instant;

/// Workers, by default.
pub const WORKERS: u32 = 1_000;
/// Choices of each case, by default.
pub const CHOICES: u32 = 50_000;
/// Simulated seconds of the comparison with the best choice, by default.
pub const SECONDS: u32 = 3;
/// Replicas of one worker.
const REPLICAS: usize = 4;
/// How often each choice is made.
const REPETITIONS: usize = 3;
/// Gateways of the comparison.
const GATEWAYS: usize = 4;
/// Seconds between two reports, as agents announce their loads.
const REPORT_S: f64 = 1.0;

/// The size of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct SelectorBenchSettings {
    /// Workers.
    pub workers: u32,
    /// Choices of each case.
    pub choices: u32,
    /// Simulated seconds of the comparison with the best choice.
    pub seconds: u32,
}

/// What the selector finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// All variants are active.
    Active,
    /// The cheapest one is active on every worker.
    Everywhere,
    /// All are overloaded, and no worker has room.
    Overloaded,
    /// None is loaded, and all workers have room.
    Unloaded,
}

impl Case {
    const ALL: [Self; 4] = [Self::Active, Self::Everywhere, Self::Overloaded, Self::Unloaded];

    fn name(self) -> &'static str {
        match self {
            Self::Active => "all active",
            Self::Everywhere => "the cheapest on every worker",
            Self::Overloaded => "all overloaded, no room",
            Self::Unloaded => "none loaded, room everywhere",
        }
    }

    /// The variants of each worker.
    fn replicas(self, registered: &[RegisteredVariant], workers: u32) -> Vec<Vec<usize>> {
        let price = |v: &usize| registered[*v].query_price();
        let cheapest = (0..registered.len()).min_by(|a, b| price(a).total_cmp(&price(b))).unwrap_or(0);
        let own = |worker: usize| (0..REPLICAS).map(|slot| (worker * REPLICAS + slot) % VARIANTS).collect::<Vec<_>>();
        let of = |worker: usize| match self {
            Self::Unloaded => Vec::new(),
            Self::Everywhere => vec![cheapest],
            Self::Active | Self::Overloaded => own(worker),
        };
        (0..workers as usize).map(of).collect()
    }

    fn selector(self, registered: &[RegisteredVariant], replicas: &[Vec<usize>]) -> Selector {
        let (load, eighths) = match self {
            Self::Active | Self::Everywhere => (0.3, 0),
            Self::Overloaded => (1.5, 0),
            Self::Unloaded => (0.0, 8),
        };
        let mut selector = Selector::new(registered.to_vec());
        for of_worker in replicas {
            let worker = selector.add_worker(0, eighths);
            let seen: Vec<_> = of_worker.iter().map(|&v| measured(registered, v, load, 0)).collect();
            selector.report(moment(0.0), worker, load, eighths, &seen);
        }
        selector
    }
}

fn measured(registered: &[RegisteredVariant], variant: usize, load: f64, queued: u64) -> WorkerMeasurement {
    let r = &registered[variant];
    let served_qps = load * r.peak_qps;
    WorkerMeasurement { variant: variant as u32, replicas: 1, served_qps, inference: r.inference, queued }
}

/// Prints the figures.
///
/// # Errors
/// If stdout cannot be written.
pub fn run(settings: &SelectorBenchSettings) -> Result<(), Failure> {
    let mut table = TextTable::new(&["variants", "median us", "99.9 % us", "worst us"]);
    for case in Case::ALL {
        let mut times = times_us(case, settings);
        times.sort_by(f64::total_cmp);
        let at = |part: f64| nearest_rank(&times, part).expect("at least one choice was timed");
        let [median, most, worst] = [0.5, 0.999, 1.0].map(|part| number(at(part)));
        table.row(vec![case.name().to_owned(), median, most, worst]);
    }
    let head = format!("{VARIANTS} variants, {} workers, {} choices\n\n", settings.workers, settings.choices);
    output::print(&(head + &table.text("") + "\n"))?;
    let mut table = TextTable::new(&["load %", "dearer than the best %", "extra price %", "late and the best is not %"]);
    for load in [0.3, 0.6, 0.9] {
        let regret = regret(load, settings);
        table.row([100.0 * load, regret.dearer, regret.extra_price, regret.late].map(number).to_vec());
    }
    output::print(&table.text(""))
}

/// The time of each choice in microseconds: the shortest of its repetitions.
fn times_us(case: Case, settings: &SelectorBenchSettings) -> Vec<f64> {
    let registered = draw_variants();
    let replicas = case.replicas(&registered, settings.workers);
    let begun = case.selector(&registered, &replicas);
    let total_qps: f64 = replicas.iter().flatten().map(|&v| registered[v].peak_qps).sum();
    // Half of the rate that all replicas can serve.
    let gap_s = 2.0 / total_qps.max(1.0);
    let mut best_us = vec![f64::INFINITY; settings.choices.max(1) as usize];
    for _ in 0..REPETITIONS {
        let (mut selector, mut draw) = (begun.clone(), SplitMix(4));
        for (at, best_us) in best_us.iter_mut().enumerate() {
            let (now, asked) = (moment(at as f64 * gap_s), draw_query(&mut draw));
            let start = Instant::now();
            black_box(selector.select(now, black_box(asked)));
            *best_us = best_us.min(start.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    best_us
}

/// How far choices are from the best ones, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ChoiceRegret {
    /// Choices that cost more than the best one.
    dearer: f64,
    /// What they cost more, over the price of all best choices.
    extra_price: f64,
    /// Choices that end late though the best one does not.
    late: f64,
}

/// A replica of a fleet.
#[derive(Clone, Copy, Debug)]
struct ReplicaChoice {
    worker: usize,
    slot: usize,
    price: f64,
    /// Seconds from now until a query is done there.
    done_s: f64,
}

/// The replicas with their true queues.
struct TrueFleet<'r> {
    registered: &'r [RegisteredVariant],
    replicas: Vec<Vec<usize>>,
    /// When each is free.
    free_s: Vec<Vec<f64>>,
    /// Queries since the last report.
    served: Vec<Vec<f64>>,
}

impl<'r> TrueFleet<'r> {
    fn new(registered: &'r [RegisteredVariant], replicas: Vec<Vec<usize>>) -> Self {
        let free_s: Vec<Vec<f64>> = replicas.iter().map(|of| vec![0.0; of.len()]).collect();
        Self { registered, replicas, served: free_s.clone(), free_s }
    }

    fn choice(&self, now_s: f64, worker: usize, slot: usize) -> ReplicaChoice {
        let r = &self.registered[self.replicas[worker][slot]];
        let wait_s = (self.free_s[worker][slot] - now_s).max(0.0);
        ReplicaChoice { worker, slot, price: r.query_price(), done_s: wait_s + r.inference.as_millis() / 1e3 }
    }

    /// The cheapest replica that fits and is in time, of equals the one that is done first; else the one that is done
    /// first. Every replica is looked at.
    fn best(&self, now_s: f64, accuracy: f64, latency_s: f64) -> Option<ReplicaChoice> {
        let mut best: Option<ReplicaChoice> = None;
        for (worker, of_worker) in self.replicas.iter().enumerate() {
            for (slot, &variant) in of_worker.iter().enumerate() {
                let r = &self.registered[variant];
                if r.accuracy < accuracy || r.inference.as_millis() / 1e3 > latency_s {
                    continue;
                }
                let found = self.choice(now_s, worker, slot);
                let rank = |c: &ReplicaChoice| match c.done_s <= latency_s {
                    true => (false, c.price, c.done_s),
                    false => (true, c.done_s, c.price),
                };
                if best.as_ref().is_none_or(|best| rank(&found) < rank(best)) {
                    best = Some(found);
                }
            }
        }
        best
    }

    fn send(&mut self, now_s: f64, to: ReplicaChoice) {
        let peak_qps = self.registered[self.replicas[to.worker][to.slot]].peak_qps;
        let free_s = &mut self.free_s[to.worker][to.slot];
        *free_s = free_s.max(now_s) + 1.0 / peak_qps;
        self.served[to.worker][to.slot] += 1.0;
    }

    /// Tells all selectors what has happened since the last report.
    fn report(&mut self, now_s: f64, selectors: &mut [Selector]) {
        for (worker, of_worker) in self.replicas.iter().enumerate() {
            let seen = |(slot, &v): (usize, &usize)| {
                let peak_qps = self.registered[v].peak_qps;
                let queued = ((self.free_s[worker][slot] - now_s).max(0.0) * peak_qps) as u64;
                measured(self.registered, v, self.served[worker][slot] / (REPORT_S * peak_qps), queued)
            };
            let seen: Vec<_> = of_worker.iter().enumerate().map(seen).collect();
            selectors.iter_mut().for_each(|s| s.report(moment(now_s), worker as u32, 0.5, 0, &seen));
        }
        self.served.iter_mut().for_each(|of_worker| of_worker.fill(0.0));
    }
}

/// Compares each choice with the best one at its moment. `load` is a part of the rate that all replicas can serve.
fn regret(load: f64, settings: &SelectorBenchSettings) -> ChoiceRegret {
    let registered = draw_variants();
    let replicas = Case::Active.replicas(&registered, settings.workers);
    let begun = Case::Active.selector(&registered, &replicas);
    let mut selectors = vec![begun; GATEWAYS];
    let total_qps: f64 = replicas.iter().flatten().map(|&v| registered[v].peak_qps).sum();
    let mut fleet = TrueFleet::new(&registered, replicas);
    let (mut arrivals, mut draw) = (SplitMix(5), SplitMix(6));
    let (mut now_s, mut next_s, mut chosen, mut sum) = (0.0, REPORT_S, 0.0, ChoiceRegret::default());
    let mut best_price = 0.0;
    while now_s < f64::from(settings.seconds) {
        now_s += -(1.0 - arrivals.unit()).ln() / (load * total_qps);
        if now_s >= next_s {
            fleet.report(now_s, &mut selectors);
            next_s += REPORT_S;
        }
        let asked = draw_query(&mut draw);
        let QueryNeeds::Needs { accuracy, latency, .. } = asked else { continue };
        let latency_s = latency.as_millis() / 1e3;
        let Some(best) = fleet.best(now_s, accuracy, latency_s) else { continue };
        let gateway = (arrivals.unit() * GATEWAYS as f64) as usize;
        let found = selectors[gateway].select(moment(now_s), asked);
        let VariantSelection::Serve { variant, worker, .. } = found else { continue };
        let of_worker = &fleet.replicas[worker as usize];
        let Some(slot) = of_worker.iter().position(|&v| v == variant as usize) else { continue };
        let ours = fleet.choice(now_s, worker as usize, slot);
        chosen += 1.0;
        best_price += best.price;
        sum.dearer += f64::from(u8::from(ours.price > best.price * (1.0 + 1e-9)));
        sum.extra_price += (ours.price - best.price).max(0.0);
        sum.late += f64::from(u8::from(ours.done_s > latency_s && best.done_s <= latency_s));
        fleet.send(now_s, ours);
    }
    ChoiceRegret {
        dearer: 100.0 * sum.dearer / f64::max(chosen, 1.0),
        extra_price: 100.0 * sum.extra_price / f64::max(best_price, f64::MIN_POSITIVE),
        late: 100.0 * sum.late / f64::max(chosen, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SelectorBenchSettings = SelectorBenchSettings { workers: 60, choices: 200, seconds: 1 };

    #[test]
    fn every_case_has_a_time_for_each_choice() {
        for case in Case::ALL {
            let times = times_us(case, &SMALL);
            assert_eq!(times.len(), 200, "{}", case.name());
            assert!(times.iter().all(|us| us.is_finite() && *us > 0.0), "{}", case.name());
        }
    }

    #[test]
    fn the_best_choice_is_the_cheapest_in_time() {
        let registered = draw_variants();
        let replicas = Case::Active.replicas(&registered, SMALL.workers);
        let mut fleet = TrueFleet::new(&registered, replicas);
        let idle = fleet.best(0.0, 0.6, 0.1).expect("a variant fits");
        let fits = |r: &&RegisteredVariant| r.accuracy >= 0.6 && r.inference.as_millis() <= 100.0;
        let cheapest = registered.iter().filter(fits).map(RegisteredVariant::query_price).fold(f64::INFINITY, f64::min);
        assert!((idle.price - cheapest).abs() < 1e-12, "{} {cheapest}", idle.price);
        (0..100_000).for_each(|_| fleet.send(0.0, idle));
        let other = fleet.best(0.0, 0.6, 0.1).expect("a variant fits");
        assert!(other.done_s <= 0.1 && (other.worker, other.slot) != (idle.worker, idle.slot));
    }
}
