//! Every way to choose batch sizes and replicas of a tiny problem, with the best flows for each. It is written from the
//! file formats' "Meaning", sharing nothing with the planner.

use crate::simplex::{Row, maximise};
use apportion_domain::{
    AccuracyModel, HardwareIndex, LatencyRule, Mode, Pipeline, PipelineIndex, Problem, Share, TaskIndex, VariantIndex,
};

/// Slack of comparisons.
const SLACK: f64 = 1e-9;
/// Most replicas of one group that are tried.
const REPLICAS_MAX: u32 = 24;

/// The best that can be had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Step `hardware` of mode `hardware_then_accuracy`.
    pub by_hardware: bool,
    pub value: f64,
    /// The least of what breaks ties: replicas, or in `max_accuracy` cost.
    pub second: f64,
}

/// One (task, variant, hardware, share).
#[derive(Clone, Copy)]
struct Place {
    task: TaskIndex,
    variant: VariantIndex,
    hardware: HardwareIndex,
    share: Share,
}

/// A place that runs.
#[derive(Clone, Copy)]
struct Running {
    place: Place,
    replicas: u32,
    latency_ms: f64,
    qps: f64,
}

/// One way to run a pipeline.
#[derive(Clone, Debug)]
struct Way {
    eighths: Vec<u64>,
    replicas: u64,
    switching: f64,
    accuracy: f64,
    only_best: bool,
    /// Whole devices of each pipeline; empty without quotas.
    devices: Vec<Vec<u64>>,
}

/// The best of all ways; `None` if there is none.
pub fn best(problem: &Problem) -> Option<Best> {
    let mut ways = vec![Way::nothing(problem)];
    let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    for (p, pipeline) in problem.pipelines.iter().enumerate() {
        let own = ways_of(problem, PipelineIndex(p));
        let weight = pipeline.weight / total;
        ways = ways.iter().flat_map(|a| own.iter().map(move |b| join(a, b, weight))).filter(|w| fits(problem, w)).collect();
    }
    let cost = |w: &Way| cost(problem, w);
    let budget = problem.objective.budget_per_hour.unwrap_or(f64::INFINITY);
    ways.retain(|w| cost(w) <= budget + SLACK * budget.clamp(1.0, 1e9) && keeps_quotas(problem, w));
    let least = |value: &dyn Fn(&Way) -> f64| ways.iter().map(value).fold(f64::INFINITY, f64::min);
    if ways.is_empty() {
        return None;
    }
    let accuracy = -least(&|w| -w.accuracy);
    let kept = accuracy * (1.0 - 2e-6);
    let among = |value: &dyn Fn(&Way) -> f64| least(&|w| if w.accuracy >= kept { value(w) } else { f64::INFINITY });
    Some(match problem.objective.mode {
        Mode::MinCost => {
            let value = least(&|w| cost(w) + w.switching);
            Best { by_hardware: false, value, second: 0.0 }
        }
        Mode::MaxAccuracy => Best { by_hardware: false, value: accuracy, second: among(&cost) },
        Mode::HardwareThenAccuracy => {
            let fewest = least(&|w| if w.only_best { w.replicas as f64 } else { f64::INFINITY });
            if fewest.is_finite() {
                Best { by_hardware: true, value: fewest, second: fewest }
            } else {
                Best { by_hardware: false, value: accuracy, second: among(&|w| w.replicas as f64) }
            }
        }
    })
}

fn join(a: &Way, b: &Way, weight: f64) -> Way {
    Way {
        eighths: a.eighths.iter().zip(&b.eighths).map(|(x, y)| x + y).collect(),
        replicas: a.replicas + b.replicas,
        switching: a.switching + b.switching,
        accuracy: a.accuracy + weight * b.accuracy,
        only_best: a.only_best && b.only_best,
        devices: a.devices.iter().chain(&b.devices).cloned().collect(),
    }
}

/// Whether the pipelines of each quota, by their own whole devices, have no more than it permits.
fn keeps_quotas(problem: &Problem, way: &Way) -> bool {
    problem.quotas.iter().all(|quota| {
        let of_type = |h: usize| quota.pipelines.iter().map(|p| way.devices[p.get()][h]).sum::<u64>();
        let used: Vec<u64> = (0..problem.hardware.len()).map(of_type).collect();
        let cost: f64 = problem.hardware.iter().zip(&used).map(|(h, &n)| h.price_per_hour * n as f64).sum();
        used.iter().zip(&quota.counts).all(|(&n, count)| count.is_none_or(|count| n <= u64::from(count)))
            && quota.devices.is_none_or(|most| used.iter().sum::<u64>() <= u64::from(most))
            && quota.cost_per_hour.is_none_or(|most| cost <= most + SLACK * most.max(1.0))
    })
}

impl Way {
    /// No pipeline runs.
    fn nothing(problem: &Problem) -> Self {
        let eighths = vec![0; problem.hardware.len()];
        Self { eighths, replicas: 0, switching: 0.0, accuracy: 0.0, only_best: true, devices: Vec::new() }
    }
}

fn fits(problem: &Problem, way: &Way) -> bool {
    let all = problem.hardware.iter().zip(&way.eighths);
    all.into_iter().all(|(h, &e)| h.count.is_none_or(|count| e.div_ceil(8) <= u64::from(count)))
}

fn cost(problem: &Problem, way: &Way) -> f64 {
    problem.hardware.iter().zip(&way.eighths).map(|(h, &e)| h.price_per_hour * e.div_ceil(8) as f64).sum()
}

/// Every way to run one pipeline that obeys everything that concerns it alone, with its best flows. Of ways that differ in
/// accuracy alone, the best.
fn ways_of(problem: &Problem, index: PipelineIndex) -> Vec<Way> {
    let pipeline = problem.pipeline(index);
    let places = places(problem, pipeline);
    let mut found: Vec<Way> = Vec::new();
    let mut running: Vec<Option<Running>> = Vec::new();
    choose(problem, index, &places, &mut running, &mut |running| {
        let running: Vec<Running> = running.iter().flatten().copied().collect();
        let Some(accuracy) = most_accurate(problem, pipeline, &running) else { return };
        if pipeline.min_accuracy.is_some_and(|floor| accuracy < floor - SLACK) {
            return;
        }
        let way = way(problem, index, &running, accuracy);
        let same = |w: &&mut Way| {
            w.eighths == way.eighths
                && w.replicas == way.replicas
                && w.only_best == way.only_best
                && w.switching == way.switching
        };
        match found.iter_mut().find(same) {
            Some(other) => other.accuracy = other.accuracy.max(accuracy),
            None => found.push(way),
        }
    });
    found
}

fn places(problem: &Problem, pipeline: &Pipeline) -> Vec<Place> {
    let mut all = Vec::new();
    for (t, task) in pipeline.tasks.iter().enumerate() {
        for (v, variant) in task.variants.iter().enumerate() {
            for (hardware, share) in variant.profile.places() {
                let there = problem.hardware_at(hardware).memory_mib.unwrap_or(f64::INFINITY);
                if variant.memory_mib.unwrap_or(0.0) <= share.value() * there {
                    all.push(Place { task: TaskIndex(t), variant: VariantIndex(v), hardware, share });
                }
            }
        }
    }
    all
}

/// Calls `each` with every choice of batch size and replicas for every place.
fn choose(
    problem: &Problem,
    index: PipelineIndex,
    places: &[Place],
    running: &mut Vec<Option<Running>>,
    each: &mut impl FnMut(&[Option<Running>]),
) {
    let pipeline = problem.pipeline(index);
    let Some(&place) = places.get(running.len()) else {
        if obeys(problem, pipeline, running) {
            each(running);
        }
        return;
    };
    running.push(None);
    choose(problem, index, places, running, each);
    running.pop();
    let variant = pipeline.variant(place.task, place.variant);
    for row in variant.profile.on(place.hardware, place.share) {
        let qps = 1000.0 * f64::from(row.batch) / row.latency_ms;
        let useful = (most_load(pipeline, place.task) / qps).ceil() as u32 + pipeline.survive;
        let useful = useful.max(pipeline.task(place.task).min_replicas).max(1);
        let there =
            problem.hardware_at(place.hardware).count.map_or(u32::MAX, |c| c * 8 / u32::from(place.share.eighths()));
        assert!(useful.min(there) <= REPLICAS_MAX, "too many replicas to try: {useful} of {there}");
        for replicas in 1..=useful.min(there) {
            running.push(Some(Running { place, replicas, latency_ms: row.latency_ms, qps }));
            choose(problem, index, places, running, each);
            running.pop();
        }
    }
}

/// The most queries per second that can reach a task.
fn most_load(pipeline: &Pipeline, task: TaskIndex) -> f64 {
    match pipeline.primary_parent(task) {
        None => pipeline.demand_qps,
        Some(edge) => {
            let variants = (0..pipeline.task(edge.from).variants.len()).map(VariantIndex);
            let factor = variants.map(|v| pipeline.fanout(edge, v)).fold(0.0, f64::max);
            factor * most_load(pipeline, edge.from)
        }
    }
}

/// Least replicas, counts of this pipeline alone, and rule `task_budget`.
fn obeys(problem: &Problem, pipeline: &Pipeline, running: &[Option<Running>]) -> bool {
    let mut replicas = vec![0; pipeline.tasks.len()];
    let mut slowest = vec![0.0_f64; pipeline.tasks.len()];
    let mut eighths = vec![0_u64; problem.hardware.len()];
    for r in running.iter().flatten() {
        let t = r.place.task.get();
        replicas[t] += r.replicas;
        slowest[t] = slowest[t].max(charge_ms(pipeline, r));
        eighths[r.place.hardware.get()] += u64::from(r.replicas) * u64::from(r.place.share.eighths());
    }
    let enough = pipeline.tasks.iter().zip(&replicas).all(|(task, &n)| n >= task.min_replicas);
    let counts = problem.hardware.iter().zip(&eighths).all(|(h, &e)| h.count.is_none_or(|c| e.div_ceil(8) <= u64::from(c)));
    if !(enough && counts) {
        return false;
    }
    problem.objective.latency_rule == LatencyRule::Path
        || longest(pipeline, &slowest, pipeline.root()) <= pipeline.slo_ms * (1.0 + SLACK)
}

/// The time of a query at a group: its wait, its batch, and the hop into its task. Of several edges into a task, the one
/// that brings the most counts. Requests pass the ingress before the root.
fn charge_ms(pipeline: &Pipeline, group: &Running) -> f64 {
    let brought = pipeline.edges.iter().filter(|e| e.to == group.place.task).map(|e| e.kib_per_query);
    let (kib, ingress_ms) = match brought.max_by(f64::total_cmp) {
        Some(kib) => (kib, 0.0),
        None => (pipeline.ingress_kib_per_query, pipeline.ingress_ms),
    };
    let hop_ms = pipeline.network_ms + ingress_ms + pipeline.network_ms_per_mib * kib / 1024.0;
    pipeline.queue_factor * group.latency_ms + hop_ms
}

/// The longest way from a task to any end, over every edge.
fn longest(pipeline: &Pipeline, charges: &[f64], from: TaskIndex) -> f64 {
    let below = pipeline.edges_from(from).map(|e| longest(pipeline, charges, e.to)).fold(0.0, f64::max);
    charges[from.get()] + below
}

/// A path of running groups with what it means.
struct Prefix {
    groups: Vec<usize>,
    load_qps: f64,
    accuracy: f64,
}

/// The prefixes that continue one prefix over one edge, by position.
struct Split {
    /// `None` at the root.
    from: Option<usize>,
    to: Vec<usize>,
}

/// A split without its prefixes.
struct OpenSplit {
    from: Option<usize>,
    task: TaskIndex,
    /// Queries per second at the task if all root queries came this way.
    load_qps: f64,
}

/// The highest accuracy that these replicas can carry; `None` if they cannot carry the demand.
fn most_accurate(problem: &Problem, pipeline: &Pipeline, running: &[Running]) -> Option<f64> {
    let mut prefixes: Vec<Prefix> = Vec::new();
    let mut splits: Vec<Split> = Vec::new();
    let mut open = vec![OpenSplit { from: None, task: pipeline.root(), load_qps: pipeline.demand_qps }];
    while let Some(OpenSplit { from, task, load_qps }) = open.pop() {
        let stem: Vec<usize> = from.map_or(Vec::new(), |f: usize| prefixes[f].groups.clone());
        let mut to = Vec::new();
        for g in (0..running.len()).filter(|&g| running[g].place.task == task) {
            let groups = [stem.as_slice(), &[g]].concat();
            if problem.objective.latency_rule == LatencyRule::Path && !in_time(pipeline, running, &groups) {
                continue;
            }
            let position = prefixes.len();
            to.push(position);
            let accuracy = accuracy_of(pipeline, running, &groups);
            prefixes.push(Prefix { groups, load_qps, accuracy });
            for edge in pipeline.children(task) {
                let factor = pipeline.fanout(edge, running[g].place.variant);
                if factor > 0.0 {
                    open.push(OpenSplit { from: Some(position), task: edge.to, load_qps: load_qps * factor });
                }
            }
        }
        splits.push(Split { from, to });
    }
    let mut rows: Vec<Row> = Vec::new();
    for Split { from, to } in &splits {
        let mut coefficients = vec![0.0; prefixes.len()];
        to.iter().for_each(|&n| coefficients[n] = 1.0);
        from.iter().for_each(|&n| coefficients[n] = -1.0);
        rows.push(Row::equal(if from.is_none() { 1.0 } else { 0.0 }, coefficients));
    }
    for (g, r) in running.iter().enumerate() {
        let capacity = f64::from(r.replicas.saturating_sub(pipeline.survive)) * r.qps;
        let here = |p: &Prefix| if p.groups.last() == Some(&g) { p.load_qps / r.qps } else { 0.0 };
        rows.push(Row::at_most(capacity / r.qps, prefixes.iter().map(here).collect()));
    }
    maximise(&prefixes.iter().map(|p| p.accuracy).collect::<Vec<_>>(), &rows)
}

fn in_time(pipeline: &Pipeline, running: &[Running], groups: &[usize]) -> bool {
    groups.iter().map(|&g| charge_ms(pipeline, &running[g])).sum::<f64>() <= pipeline.slo_ms * (1.0 + SLACK)
}

/// What a whole share of a prefix adds to the accuracy.
fn accuracy_of(pipeline: &Pipeline, running: &[Running], groups: &[usize]) -> f64 {
    let stages: Vec<_> = groups.iter().map(|&g| (running[g].place.task, running[g].place.variant)).collect();
    let (task, variant) = stages[stages.len() - 1];
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return pipeline.variant(task, variant).accuracy / pipeline.tasks.len() as f64;
    }
    let ended = |sink: TaskIndex| {
        // the task after this one on the way to the sink
        let mut at = sink;
        while let Some(edge) = pipeline.primary_parent(at) {
            if edge.from == task {
                return pipeline.fanout(edge, variant) <= 0.0;
            }
            at = edge.from;
        }
        false
    };
    let weight: f64 = pipeline.sinks().filter(|&s| s == task || ended(s)).map(|s| pipeline.leaf_weight(s)).sum();
    if weight > 0.0 { weight * pipeline.path_accuracy(&stages) } else { 0.0 }
}

fn way(problem: &Problem, index: PipelineIndex, running: &[Running], accuracy: f64) -> Way {
    let pipeline = problem.pipeline(index);
    let mut way = Way { accuracy, ..Way::nothing(problem) };
    for r in running {
        let (p, variant) = (r.place, pipeline.variant(r.place.task, r.place.variant));
        way.eighths[p.hardware.get()] += u64::from(r.replicas) * u64::from(p.share.eighths());
        way.replicas += u64::from(r.replicas);
        let best = pipeline.task(p.task).variants.iter().map(|v| v.accuracy).fold(0.0, f64::max);
        way.only_best &= variant.accuracy >= best;
        let same = |d: &&apportion_domain::Deployed| {
            (d.pipeline, d.task, d.variant, d.hardware, d.share) == (index, p.task, p.variant, p.hardware, p.share)
        };
        let runs: u32 = problem.deployed.iter().filter(same).map(|d| d.replicas).sum();
        let price = problem.hardware_at(p.hardware).price_per_hour / 3600.0;
        way.switching +=
            problem.switching_weight * variant.load_ms / 1000.0 * price * f64::from(r.replicas.saturating_sub(runs));
    }
    if !problem.quotas.is_empty() {
        way.devices = vec![way.eighths.iter().map(|e| e.div_ceil(8)).collect()];
    }
    way
}
