//! Which problem do a profile, priced hardware and a demand make?
//!
//! Several tasks are a chain in the order in which they first appear, and a query makes one query for the next task. Where
//! the profile has measured fan-outs, their children are the edges instead.

use apportion_domain::Mode;
use apportion_wire::spec::{EdgeSpec, ProfileRowSpec};
use apportion_wire::{
    BadInput, HardwareSpec, MeasuredRow, ObjectiveSpec, PipelineSpec, ProblemSpec, ProfileSet, TaskSpec, VariantSpec,
};
use std::collections::BTreeMap;

/// Version of the problem file.
const VERSION: u32 = 1;
/// Accuracy of a variant that has none: all variants count as equally good.
const ACCURACY: f64 = 1.0;
/// The default objective over the time of a query: planners count each batch twice, for waiting and for running, and the
/// rest is room for larger batches.
pub const SLO_FACTOR: f64 = 5.0;

/// The numbers beside a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemRequest {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Queries per second.
    pub qps: f64,
    /// End-to-end latency objective.
    pub slo_ms: f64,
    /// The hardware types that may be used.
    pub hardware: Vec<HardwareSpec>,
    /// The goal. Without one: `min_cost` if a variant has no accuracy, else the default of problem files.
    pub mode: Option<Mode>,
    /// Floor on the accuracy.
    pub min_accuracy: Option<f64>,
}

/// Reads hardware types with prices and counts: `cpu=0.05x20,t4=0.53`.
///
/// # Errors
/// If a part is no name with a price.
pub fn hardware_offers(text: &str) -> Result<Vec<HardwareSpec>, BadInput> {
    const EXPECTED: &str = "NAME=PRICE or NAME=PRICExCOUNT, separated by commas, for example cpu=0.05x20,t4=0.53";
    let refused = |part: &str| BadInput::one("--hardware", "", format!("{part:?}"), EXPECTED);
    let offer = |part: &str| {
        let (name, price) = part.rsplit_once('=').filter(|(name, _)| !name.trim().is_empty())?;
        let (price, count) = match price.split_once('x') {
            Some((price, count)) => (price, Some(count.trim().parse::<u32>().ok()?)),
            None => (price, None),
        };
        let price_per_hour = price.trim().parse::<f64>().ok().filter(|price| *price >= 0.0 && price.is_finite())?;
        Some(HardwareSpec { name: name.trim().to_owned(), price_per_hour, count, memory_mib: None })
    };
    text.split(',').map(|part| offer(part.trim()).ok_or_else(|| refused(part))).collect()
}

/// The latency objective where nobody gives one, in whole milliseconds: [`SLO_FACTOR`] times the time that a query takes
/// in the slowest variant of each task. A variant counts with its smallest batch, on the fastest of these hardware types.
/// Where no whole device was measured, the largest share counts.
#[must_use]
pub fn default_slo_ms(profile: &ProfileSet, hardware: &[HardwareSpec]) -> f64 {
    let mut fastest: BTreeMap<(&str, &str), (f64, u32, f64)> = BTreeMap::new();
    let is_offered = |row: &&MeasuredRow| hardware.iter().any(|offer| offer.name == row.hardware);
    for row in profile.rows.iter().filter(is_offered) {
        let rank = (-row.share, row.batch, row.latency_ms);
        let known = fastest.entry((row.task.as_str(), row.variant.as_str())).or_insert(rank);
        if rank < *known {
            *known = rank;
        }
    }
    let mut slowest: BTreeMap<&str, f64> = BTreeMap::new();
    for ((task, _), (_, _, latency_ms)) in fastest {
        let known = slowest.entry(task).or_insert(latency_ms);
        *known = known.max(latency_ms);
    }
    (SLO_FACTOR * slowest.values().sum::<f64>()).ceil().max(1.0)
}

/// The problem, and remarks about assumptions in it. `file` is the name of the profile in errors.
///
/// # Errors
/// If a task has no latency on any of the hardware types.
pub fn problem_of(
    file: &str,
    profile: &ProfileSet,
    request: &ProblemRequest,
) -> Result<(ProblemSpec, Vec<String>), BadInput> {
    let mut notes = Vec::new();
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for row in &profile.rows {
        let task = named(&mut tasks, &row.task, |t| &t.name, || TaskSpec { name: row.task.clone(), ..TaskSpec::default() });
        let variant = || VariantSpec { name: row.variant.clone(), profile: Some(Vec::new()), ..VariantSpec::default() };
        let variant = named(&mut task.variants, &row.variant, |v| &v.name, variant);
        if request.hardware.iter().any(|h| h.name == row.hardware) {
            variant.profile.get_or_insert_default().push(profile_row(row));
        }
    }
    for task in &mut tasks {
        keep_runnable(file, profile, task, &request.hardware, &mut notes)?;
        task.variants.iter_mut().for_each(|variant| add_figures(variant, &task.name, profile));
    }
    let levelled = level_accuracies(&mut tasks);
    let mode = request.mode.unwrap_or(if levelled { Mode::MinCost } else { Mode::default() });
    if levelled {
        notes.push(levelled_note(file, mode.name()));
    }
    let edges = edges_of(&tasks);
    let pipeline = PipelineSpec {
        name: request.pipeline.clone(),
        demand_qps: request.qps,
        slo_ms: request.slo_ms,
        min_accuracy: request.min_accuracy,
        path_accuracy: if levelled { BTreeMap::new() } else { path_accuracy(profile, &tasks) },
        tasks,
        edges,
        ..PipelineSpec::default()
    };
    let objective = ObjectiveSpec { mode: mode.name().to_owned(), ..ObjectiveSpec::default() };
    let hardware = request.hardware.clone();
    let (deployed, switching) = (Vec::new(), None);
    let pipelines = vec![pipeline];
    let spec = ProblemSpec { version: VERSION, objective, hardware, pipelines, deployed, switching, notes: Vec::new() };
    Ok((spec, notes))
}

/// Lets all variants count as equally good if one of them has no accuracy. Returns whether it did: accuracies of paths mean
/// nothing then, and `min_cost` is the goal that they do not disturb.
pub fn level_accuracies(tasks: &mut [TaskSpec]) -> bool {
    let has_all = tasks.iter().flat_map(|t| &t.variants).all(|v| v.accuracy.is_some());
    if !has_all {
        tasks.iter_mut().flat_map(|t| &mut t.variants).for_each(|v| v.accuracy = Some(ACCURACY));
    }
    !has_all
}

/// Says that [`level_accuracies`] has changed the problem of `file`, which has this goal.
#[must_use]
pub fn levelled_note(file: &str, goal: &str) -> String {
    format!("{file}: not every variant has an accuracy: each counts as {ACCURACY}, and the goal is {goal}")
}

/// The measured accuracies of paths whose variants are there.
fn path_accuracy(profile: &ProfileSet, tasks: &[TaskSpec]) -> BTreeMap<String, f64> {
    let has = |stage: &str| {
        stage.trim().split_once(':').is_some_and(|(task, variant)| {
            tasks.iter().any(|t| t.name == task && t.variants.iter().any(|v| v.name == variant))
        })
    };
    let paths = profile.path_accuracy.iter().filter(|(path, _)| path.split('>').all(has));
    paths.map(|(path, accuracy)| (path.clone(), *accuracy)).collect()
}

/// The member with this name; a new one if there is none.
fn named<'a, T>(list: &'a mut Vec<T>, name: &str, of: impl Fn(&T) -> &String, make: impl FnOnce() -> T) -> &'a mut T {
    let at = list.iter().position(|member| of(member) == name).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

fn profile_row(row: &MeasuredRow) -> ProfileRowSpec {
    ProfileRowSpec {
        hardware: row.hardware.clone(),
        batch: row.batch,
        latency_ms: row.latency_ms,
        p99_ms: row.p99_ms,
        share: (row.share != 1.0).then_some(row.share),
        measured: row.measured.clone(),
    }
}

/// Removes the variants without latencies on this hardware.
fn keep_runnable(
    file: &str,
    profile: &ProfileSet,
    task: &mut TaskSpec,
    hardware: &[HardwareSpec],
    notes: &mut Vec<String>,
) -> Result<(), BadInput> {
    let can_run = |v: &VariantSpec| v.profile.as_ref().is_some_and(|rows| !rows.is_empty());
    let offered = || hardware.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(", ");
    if !task.variants.iter().any(can_run) {
        let mut known: Vec<&str> =
            profile.rows.iter().filter(|r| r.task == task.name).map(|r| r.hardware.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        let found = format!("{} has no latency on {}", task.name, offered());
        return Err(BadInput::one(file, "", found, format!("--hardware with one of {}", known.join(", "))));
    }
    for variant in task.variants.iter().filter(|v| !can_run(v)) {
        notes.push(format!("{file}: left out {}/{}: it has no latency on {}", task.name, variant.name, offered()));
    }
    task.variants.retain(can_run);
    Ok(())
}

fn add_figures(variant: &mut VariantSpec, task: &str, profile: &ProfileSet) {
    if let Some(m) = profile.variants.iter().find(|m| m.task == task && m.variant == variant.name) {
        variant.accuracy = m.accuracy;
        variant.load_ms = m.load_ms;
        variant.memory_mib = m.memory_mib;
        variant.fanout_counts = m.fanout_counts.clone();
    }
}

fn edges_of(tasks: &[TaskSpec]) -> Vec<EdgeSpec> {
    let edge = |from: &str, to: &str| EdgeSpec { from: from.to_owned(), to: to.to_owned(), ..EdgeSpec::default() };
    let mut measured: Vec<EdgeSpec> = Vec::new();
    for task in tasks {
        for child in task.variants.iter().flat_map(|v| v.fanout_counts.keys()) {
            if !measured.iter().any(|e| e.from == task.name && e.to == *child) {
                measured.push(edge(&task.name, child));
            }
        }
    }
    match measured.is_empty() {
        true => tasks.windows(2).map(|pair| edge(&pair[0].name, &pair[1].name)).collect(),
        false => measured,
    }
}
