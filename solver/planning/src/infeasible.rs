//! Why there is no plan: one relaxation at a time, each the smallest that alone makes the problem feasible.

use crate::Control;
use crate::exact::{self};
use apportion_domain::{Constraint, HardwareIndex, Invalids, Pipeline, Problem, ProblemDraft, Relaxation, Shortfall, TaskIndex};

/// Relative width at which a bisection ends.
const PRECISION: f64 = 1e-4;
/// A relaxation by more than this factor is not offered.
const FACTOR_MAX: f64 = 1024.0;

/// Every shortfall, the ones that no number of replicas can fix first; never empty.
#[must_use]
pub fn shortfalls(problem: &Problem, control: &Control) -> Vec<Shortfall> {
    if let Some(shortfall) = too_slow(problem) {
        return vec![shortfall];
    }
    let mut found = Vec::new();
    for (p, pipeline) in problem.pipelines.iter().enumerate() {
        let at = format!("/pipelines/{p}");
        let slo = |factor: f64| change(problem, |d| set(problem, d, p, |q| q.slo_ms *= factor));
        if let Some(factor) = smallest(control, slo) {
            let to = pipeline.slo_ms * factor;
            found.push(shortfall(Constraint::Latency, &pipeline.name, &format!("{at}/slo_ms"), pipeline.slo_ms, to, to));
        }
        let demand = |factor: f64| change(problem, |d| set(problem, d, p, |q| q.demand_qps /= factor));
        if let Some(factor) = smallest(control, demand) {
            let to = pipeline.demand_qps / factor;
            found.push(shortfall(Constraint::Load, &pipeline.name, &format!("{at}/demand_qps"), pipeline.demand_qps, to, to));
        }
        if let Some(floor) = pipeline.min_accuracy {
            let lowered = |factor: f64| change(problem, |d| set(problem, d, p, |q| q.min_accuracy = Some(floor / factor)));
            if let Some(factor) = smallest(control, lowered) {
                let to = floor / factor;
                found.push(shortfall(Constraint::Accuracy, &pipeline.name, &format!("{at}/min_accuracy"), floor, to, to));
            }
        }
    }
    for (h, hardware) in problem.hardware.iter().enumerate() {
        let Some(count) = hardware.count else { continue };
        if let Some(to) = fewest_devices(problem, control, h, count) {
            let pointer = format!("/hardware/{h}/count");
            found.push(shortfall(Constraint::Capacity, &hardware.name, &pointer, f64::from(count), f64::from(to), f64::from(count)));
        }
    }
    if let Some(budget) = problem.objective.budget_per_hour {
        let raised = |factor: f64| change(problem, |d| d.objective.budget_per_hour = Some(budget.max(1e-9) * factor));
        if let Some(factor) = smallest(control, raised) {
            let to = budget.max(1e-9) * factor;
            found.push(shortfall(Constraint::Budget, "plan", "/objective/budget_per_hour", budget, to, to));
        }
    }
    if found.is_empty() {
        let asked = problem.pipelines.iter().map(|p| p.demand_qps).sum();
        found.push(Shortfall { constraint: Constraint::Capacity, place: "plan".into(), asked, best: 0.0, relax: None });
    }
    found
}

fn shortfall(constraint: Constraint, place: &str, pointer: &str, from: f64, to: f64, best: f64) -> Shortfall {
    let relax = Some(Relaxation { pointer: pointer.to_owned(), from, to });
    let asked = if constraint == Constraint::Capacity { to } else { from };
    Shortfall { constraint, place: place.to_owned(), asked, best, relax }
}

/// A pipeline whose fastest way is slower than its SLO: no number of replicas can fix that.
#[must_use]
pub fn too_slow(problem: &Problem) -> Option<Shortfall> {
    problem.pipelines.iter().enumerate().find_map(|(p, pipeline)| {
        let fastest = fastest_ms(problem, pipeline);
        let slow = fastest > pipeline.slo_ms * (1.0 + apportion_domain::SLACK);
        let pointer = format!("/pipelines/{p}/slo_ms");
        slow.then(|| shortfall(Constraint::Latency, &pipeline.name, &pointer, pipeline.slo_ms, fastest, fastest))
    })
}

/// Longest task path with the fastest group of each task.
fn fastest_ms(problem: &Problem, pipeline: &Pipeline) -> f64 {
    let fastest = |t: TaskIndex| {
        let usable = |h: HardwareIndex| problem.hardware_at(h).count != Some(0);
        let variants = pipeline.task(t).variants.iter();
        let rows = variants.flat_map(|v| v.profile.rows().iter().map(move |r| (v, r)));
        let fits = rows.filter(|(v, r)| usable(r.hardware) && problem.fits_memory(v.memory_mib, r.hardware, r.share));
        fits.map(|(_, r)| pipeline.hop_charge_ms(r.latency_ms)).fold(f64::INFINITY, f64::min)
    };
    let mut ends = vec![0.0_f64; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let before = pipeline.edges_into(t).map(|e| ends[e.from.get()]).fold(0.0, f64::max);
        ends[t.get()] = before + fastest(t);
    }
    ends.into_iter().fold(0.0, f64::max)
}

fn set(problem: &Problem, draft: &mut ProblemDraft, p: usize, change: impl FnOnce(&mut apportion_domain::PipelineDraft)) {
    if let Ok(changed) = draft.pipelines[p].changed(&problem.hardware, change) {
        draft.pipelines[p] = changed;
    }
}

fn change(problem: &Problem, change: impl FnOnce(&mut ProblemDraft)) -> Result<Problem, Invalids> {
    problem.changed(change)
}

/// Whether a changed problem is feasible; a change out of range, or an answer that does not come in time, is no.
fn is_feasible(control: &Control, changed: Result<Problem, Invalids>) -> bool {
    changed.is_ok_and(|problem| exact::feasible(&problem, control) == Some(true))
}

/// The smallest factor that makes the problem feasible, by bisection; `None` if no factor up to the largest does.
fn smallest(control: &Control, with: impl Fn(f64) -> Result<Problem, Invalids>) -> Option<f64> {
    let (mut no, mut yes) = (1.0, 2.0);
    while !is_feasible(control, with(yes)) {
        (no, yes) = (yes, yes * 2.0);
        if yes > FACTOR_MAX || control.cancelled() {
            return None;
        }
    }
    while yes - no > PRECISION * no && !control.cancelled() {
        let middle = 0.5 * (no + yes);
        if is_feasible(control, with(middle)) { yes = middle } else { no = middle }
    }
    Some(yes)
}

fn fewest_devices(problem: &Problem, control: &Control, h: usize, count: u32) -> Option<u32> {
    let with = |n: u32| change(problem, |d| d.hardware[h].count = Some(n));
    let (mut no, mut yes) = (count, count.saturating_mul(2).max(1));
    while !is_feasible(control, with(yes)) {
        (no, yes) = (yes, yes.saturating_mul(2));
        if f64::from(yes) > f64::from(count.max(1)) * FACTOR_MAX || control.cancelled() {
            return None;
        }
    }
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if is_feasible(control, with(middle)) { yes = middle } else { no = middle }
    }
    Some(yes)
}
