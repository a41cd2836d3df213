//! Agents and the estimator serve the same arrivals with the same plan, and their figures are compared.

use crate::{chain, inputs, profile, seconds, task_names};
use apportion_domain::nearest_rank;
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ended, Ingresses, Load, Sent};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Agents of a trial whose clients use their ingresses in turn.
pub(crate) const AGENTS: usize = 2;
const DEVICES: u32 = 4;

/// Who serves a load, and how clients choose their ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialFleet {
    /// [`AGENTS`] in turn. Each task has two replicas, and full batches of four take 35 ms.
    InTurn,
    /// Four agents, at random. Each task has two replicas, and each query is a batch of its own for 20 ms.
    AtRandom,
}

impl TrialFleet {
    fn agents(self) -> usize {
        match self {
            Self::InTurn => AGENTS,
            Self::AtRandom => 4,
        }
    }

    fn capacity_qps(self) -> f64 {
        match self {
            Self::InTurn => 2.0 * 4.0 / 0.035,
            Self::AtRandom => 2.0 / 0.020,
        }
    }

    /// The argument of the estimator.
    fn clients(self) -> &'static str {
        match self {
            Self::InTurn => "in-turn",
            Self::AtRandom => "at-random",
        }
    }

    /// The measured batch sizes of a profile that it serves.
    fn profile(self, variants: &[&str]) -> String {
        let is_kept =
            |row: &&str| self == Self::InTurn || row.split(',').nth(4).is_some_and(|cell| cell != "2" && cell != "4");
        profile(variants).lines().filter(is_kept).map(|row| format!("{row}\n")).collect()
    }
}

/// The aim for the difference between agents and estimator: in attainment, and in p99 as a part of the estimator's. The
/// table marks shapes that miss it.
const AIM: (f64, f64) = (0.01, 0.05);
/// The largest permitted difference, in the same two figures. A shape fails if each of its [`RUNS_MAX`] runs exceeds it.
/// Other work on the machine disturbs single runs; a mistake disturbs all of them.
pub(crate) const MOST: (f64, f64) = (0.04, 0.15);
const RUNS_MAX: u32 = 5;
/// Time without requests at the start. Agents need it to connect: they steer from two seconds after a new target on. Agents
/// and estimator also begin with the same past: PARD's window of states and the moving average of the load are both empty.
pub(crate) const LEAD: Duration = Duration::from_secs(5);

/// Number of starting points within a period of the steward.
///
/// With agents the starting point is chance. A steep load gains or loses a point or two of attainment by it. So the
/// estimator runs once for each of these evenly spread starting points, and its figures are of all runs together.
const PHASES: u32 = 5;
const STEWARD_PERIOD: Duration = Duration::from_secs(1);

/// Seed of the estimator's draws.
const SEED: u64 = 1;

/// A shape of load, and the policies that serve it.
struct Shape {
    name: &'static str,
    /// The rate at a part of the load's length, from 0 to 1, in parts of the capacity.
    rate: fn(f64) -> f64,
    variants: &'static [&'static str],
    serving: fn() -> Value,
    /// Demand and least accuracy of the plan.
    plan: (f64, f64),
}

/// A second in eight is a burst.
fn bursts(at: f64) -> f64 {
    if (at * 8.0).fract() < 0.2 { 1.3 } else { 0.3 }
}

/// Which shapes to run, by a part of their name.
fn is_asked(shape: &Shape) -> bool {
    std::env::var("APPORTION_TRIAL_SHAPE").map_or(true, |part| shape.name.contains(&part))
}

/// The load of [`TrialFleet::AtRandom`].
static AT_RANDOM: Shape =
    Shape { name: "four agents, at random", rate: |_| 0.6, variants: &["v"], serving: || json!({}), plan: (0.65, 0.0) };

static SHAPES: [Shape; 9] = [
    Shape { name: "steady, light", rate: |_| 0.3, variants: &["v"], serving: || json!({}), plan: (0.95, 0.0) },
    Shape { name: "steady, 85 %", rate: |_| 0.85, variants: &["v"], serving: || json!({}), plan: (0.95, 0.0) },
    Shape {
        name: "bursts, pard",
        rate: bursts,
        variants: &["v"],
        serving: || json!({"batching": "forming", "dropping": "pard"}),
        plan: (0.95, 0.0),
    },
    Shape {
        name: "bursts, central",
        rate: bursts,
        variants: &["v"],
        serving: || json!({"queueing": "central"}),
        plan: (0.95, 0.0),
    },
    Shape {
        name: "bursts, central, pard",
        rate: bursts,
        variants: &["v"],
        serving: || json!({"queueing": "central", "batching": "forming", "dropping": "pard"}),
        plan: (0.95, 0.0),
    },
    Shape {
        name: "day, per_task",
        rate: |at| 0.55 - 0.35 * (at * std::f64::consts::TAU).cos(),
        variants: &["v"],
        serving: || json!({"dropping": "per_task"}),
        plan: (0.95, 0.0),
    },
    Shape {
        name: "bursts, rerouting",
        rate: bursts,
        variants: &["slow", "fast"],
        serving: || json!({"dropping": "reroute", "routing": "most_accurate_first"}),
        plan: (1.25, 0.7),
    },
    Shape {
        name: "ramp, rerouting",
        rate: |at| 0.4 + 1.2 * at,
        variants: &["slow", "fast"],
        serving: || json!({"dropping": "reroute", "routing": "most_accurate_first"}),
        plan: (1.25, 0.7),
    },
    Shape {
        name: "twice capacity, pard",
        rate: |_| 2.0,
        variants: &["v"],
        serving: || json!({"batching": "forming", "dropping": "pard"}),
        plan: (0.95, 0.0),
    },
];

/// A shape, and the fleet that serves it.
type Trial = (TrialFleet, &'static Shape);

/// Shapes that run at the same time first, by name. A shape that differs then is run alone. With `APPORTION_TRIAL_S` each
/// shape runs alone from the start: such runs are made for their figures.
///
/// Together they send less than the shape that sends most. So one machine serves them with little waiting for processors.
const TOGETHER: [[&str; 2]; 4] = [
    ["steady, light", "bursts, rerouting"],
    ["steady, 85 %", "day, per_task"],
    ["bursts, pard", "four agents, at random"],
    ["bursts, central", "bursts, central, pard"],
];

/// The second shape begins a sixteenth of the length later: [`bursts`] of one come between those of the other.
const LATER: u32 = 16;

/// Attainment, and the 99th percentile of the answered in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) attainment: f64,
    pub(crate) p99_ms: f64,
}

impl Figures {
    fn of(ok: usize, requests: usize, mut answered_ms: Vec<f64>) -> Self {
        answered_ms.sort_by(f64::total_cmp);
        let p99_ms = nearest_rank(&answered_ms, 0.99).unwrap_or(f64::NAN);
        Self { attainment: ok as f64 / requests as f64, p99_ms }
    }

    fn is_within(&self, bounds: (f64, f64), of: &Self) -> bool {
        (self.attainment - of.attainment).abs() <= bounds.0 && (self.p99_ms / of.p99_ms - 1.0).abs() <= bounds.1
    }

    pub(crate) fn measured(sent: &[Sent]) -> Self {
        let is_answered = |s: &&Sent| matches!(s.ended, Ended::Ok | Ended::Late);
        let answered = sent.iter().filter(is_answered).map(|s| s.latency.as_secs_f64() * 1e3).collect();
        Self::of(sent.iter().filter(|s| s.ended == Ended::Ok).count(), sent.len(), answered)
    }

    /// From the estimator's rows of requests, of several runs together.
    pub(crate) fn estimated(runs: &[String]) -> Self {
        let (mut ok, mut requests, mut answered) = (0, 0, Vec::new());
        let rows = runs.iter().flat_map(|csv| csv.lines().skip(1));
        for row in rows.map(|line| line.split(',').collect::<Vec<_>>()) {
            requests += 1;
            ok += usize::from(row[4] == "ok");
            if matches!(row[4], "ok" | "late") {
                answered.push(row[3].parse::<f64>().expect("a latency"));
            }
        }
        Self::of(ok, requests, answered)
    }
}

/// The estimator's rows of requests for these arrivals and a plan of the service's, with draws from this seed. Clients use
/// the ingresses of [`AGENTS`] in turn, and batches take times around the profile's, as on emulated devices.
pub(crate) fn estimate(planned: &Value, arrivals: &[Duration], seed: u64) -> String {
    estimate_for(TrialFleet::InTurn, planned, arrivals, seed)
}

fn estimate_for(fleet: TrialFleet, planned: &Value, arrivals: &[Duration], seed: u64) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let file = |name: &str, text: &str| {
        std::fs::write(path(name), text).expect("a file");
        path(name)
    };
    let mut trace = "arrival_ms\n".to_owned();
    for at in arrivals {
        writeln!(trace, "{:.6}", at.as_secs_f64() * 1e3).expect("memory");
    }
    let document = |part: &str| file(&format!("{part}.json"), &planned[part].to_string());
    let mut command = std::process::Command::new(apportion_tests::programs().join("apportion"));
    command.args(["simulate", &document("problem"), &document("plan"), "--steward", "--seed", &seed.to_string()]);
    command.args(["--ingresses", &fleet.agents().to_string(), "--clients", fleet.clients()]);
    command.args(["--format", "json", "--requests", &path("requests.csv"), "--trace", &file("trace.csv", &trace)]);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(path("requests.csv")).expect("rows")
}

/// A cluster that serves a shape's plan, and the plan.
async fn served(fleet: TrialFleet, shape: &Shape, network_ms: f64) -> (Cluster, Value) {
    let cluster = Cluster::start(fleet.agents(), DEVICES / fleet.agents() as u32).await;
    let more = json!({"serving": (shape.serving)(), "min_accuracy": shape.plan.1, "network_ms": network_ms});
    cluster.register(&chain(shape.variants, more), &fleet.profile(shape.variants)).await;
    let demand_qps = shape.plan.0 * fleet.capacity_qps();
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": demand_qps}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("chain").await;
    (cluster, plan)
}

/// Sends a load to all agents.
async fn send(fleet: TrialFleet, cluster: &Cluster, load: &Load, start: Instant) -> Vec<Sent> {
    let urls = (0..fleet.agents()).map(|at| cluster.ingress(at)).collect();
    let ingresses = match fleet {
        TrialFleet::InTurn => Ingresses::new(urls),
        // another stream than that of the arrivals
        TrialFleet::AtRandom => Ingresses::at_random(urls, !load.seed),
    };
    load.run(ingresses, start).await
}

fn load(rates: Vec<(Duration, f64)>, length: Duration, seed: u64) -> Load {
    Load { pipeline: "chain".into(), inputs: inputs(), rates, length, seed }
}

/// What a hop takes on this machine: of what a request takes that comes alone, beyond its batches, the part of each.
async fn hop_ms() -> f64 {
    let (cluster, plan) = served(TrialFleet::InTurn, &SHAPES[0], 0.0).await;
    let quiet =
        send(TrialFleet::InTurn, &cluster, &load(vec![(Duration::ZERO, 5.0)], Duration::from_secs(6), 3), Instant::now())
            .await;
    let mut taken: Vec<f64> = quiet.iter().map(|s| s.latency.as_secs_f64() * 1e3).collect();
    taken.sort_by(f64::total_cmp);
    let alone = Figures::estimated(&[estimate(&plan, &[Duration::ZERO], SEED)]).p99_ms;
    ((taken[taken.len() / 2] - alone) / task_names().len() as f64).max(0.0)
}

/// The load of a shape.
fn load_of((fleet, shape): Trial, length: Duration) -> Load {
    let step = |s: u64| {
        let at = Duration::from_millis(250 * s);
        (at, fleet.capacity_qps() * (shape.rate)(at.as_secs_f64() / length.as_secs_f64()))
    };
    load((0..length.as_millis() as u64 / 250).map(step).collect(), length, 5)
}

/// Does the same for one or two shapes at the same time, by their positions.
async fn at_once<T, F: Future<Output = T>>(shapes: usize, work: impl Fn(usize) -> F) -> Vec<T> {
    if shapes == 1 {
        return vec![work(0).await];
    }
    let (first, second) = tokio::join!(work(0), work(1));
    vec![first, second]
}

/// Runs one or two shapes of load at the same time, each on a cluster of its own: of each, what was measured and estimated.
async fn compare(trials: &[Trial], length: Duration, network_ms: f64) -> Vec<(Figures, Figures)> {
    let clusters = at_once(trials.len(), |at| served(trials[at].0, trials[at].1, network_ms)).await;
    let loads: Vec<Load> = trials.iter().map(|&trial| load_of(trial, length)).collect();
    let start = Instant::now() + LEAD;
    let start_of = |at: usize| start + length * at as u32 / LATER;
    let sent = at_once(trials.len(), |at| send(trials[at].0, &clusters[at].0, &loads[at], start_of(at))).await;
    // The estimator takes all processors, so it begins when all is measured.
    let estimated = |at: usize| {
        let (fleet, plan) = (trials[at].0, &clusters[at].1);
        let after = |idle: Duration| loads[at].arrivals().iter().map(|at| *at + idle).collect::<Vec<_>>();
        // chance chooses other ingresses in each run
        let seed = |phase: u32| if fleet == TrialFleet::AtRandom { SEED + u64::from(phase) } else { SEED };
        let run = |phase: u32| estimate_for(fleet, plan, &after(LEAD + STEWARD_PERIOD * phase / PHASES), seed(phase));
        let run = &run;
        let rows: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..PHASES).map(|phase| scope.spawn(move || run(phase))).collect();
            running.into_iter().map(|run| run.join().expect("the estimator runs")).collect()
        });
        Figures::estimated(&rows)
    };
    sent.iter().enumerate().map(|(at, sent)| (Figures::measured(sent), estimated(at))).collect()
}

/// Runs shapes at the same time, and gives those whose agents did not do as estimated.
async fn differing(trials: &[Trial], length: Duration, network_ms: f64) -> Vec<Trial> {
    let compared = compare(trials, length, network_ms).await;
    let mut differing = Vec::new();
    for (&trial, (measured, estimated)) in trials.iter().zip(&compared) {
        let mark = if measured.is_within(AIM, estimated) { "" } else { "  further apart than aimed at" };
        eprintln!(
            "{:24}{:>12.4}{:>12.4}{:>12.1}{:>12.1}{mark}",
            trial.1.name, measured.attainment, estimated.attainment, measured.p99_ms, estimated.p99_ms
        );
        if !measured.is_within(MOST, estimated) {
            differing.push(trial);
        }
    }
    differing
}

/// The asked shapes, by the runs in which they are first.
fn first_runs() -> Vec<Vec<Trial>> {
    let in_turn = SHAPES.iter().map(|shape| (TrialFleet::InTurn, shape));
    let asked = in_turn.chain([(TrialFleet::AtRandom, &AT_RANDOM)]).filter(|(_, shape)| is_asked(shape));
    let is_each_alone = std::env::var_os("APPORTION_TRIAL_S").is_some();
    let mut runs: Vec<Vec<Trial>> = Vec::new();
    for trial in asked {
        let is_pair = |run: &&mut Vec<Trial>| TOGETHER.contains(&[run[0].1.name, trial.1.name]);
        match runs.iter_mut().find(|run| !is_each_alone && is_pair(run)) {
            Some(run) => run.push(trial),
            None => runs.push(vec![trial]),
        }
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_do_what_the_estimator_says() {
    let length = seconds(20);
    let network_ms = hop_ms().await;
    eprintln!("{:24}{:>12}{:>12}{:>12}{:>12}", "load", "attained", "estimated", "p99 ms", "estimated");
    let mut failed = Vec::new();
    for trials in first_runs() {
        let mut open = differing(&trials, length, network_ms).await;
        for _ in 1..RUNS_MAX {
            let mut again = Vec::new();
            for trial in open {
                again.extend(differing(&[trial], length, network_ms).await);
            }
            open = again;
        }
        failed.extend(open.iter().map(|trial| trial.1.name));
    }
    eprintln!("a hop takes {network_ms:.2} ms here");
    assert!(failed.is_empty(), "not as estimated: {}", failed.join("; "));
}

#[test]
fn shapes_at_the_same_time_send_less_than_the_steepest() {
    let trial = |name: &str| {
        let shape = SHAPES.iter().find(|shape| shape.name == name);
        shape.map_or((TrialFleet::AtRandom, &AT_RANDOM), |shape| (TrialFleet::InTurn, shape))
    };
    let qps = |(fleet, shape): Trial, at: f64| {
        if (0.0..1.0).contains(&at) { fleet.capacity_qps() * (shape.rate)(at) } else { 0.0 }
    };
    let steepest = TrialFleet::InTurn.capacity_qps() * 2.0;
    for [first, second] in TOGETHER {
        let (one, other) = (trial(first), trial(second));
        assert_eq!([one.1.name, other.1.name], [first, second]);
        for step in 0..2_000 {
            let at = f64::from(step) / 1_000.0;
            let both = qps(one, at) + qps(other, at - 1.0 / f64::from(LATER));
            assert!(both < steepest, "{first} and {second}: {both} requests/s at {at}, of less than {steepest}");
        }
    }
}
