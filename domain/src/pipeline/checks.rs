//! Is a pipeline's draft valid? Ranges, names, profiles and graph. Each refusal names its place in the problem file.

use super::draft::{
    BATCH_MAX, EDGES_MAX, FROM_ZERO, FROM_ZERO_TO_ONE, KIB_PER_QUERY_MAX, NETWORK_MS_PER_MIB_MAX, NUMBER_MAX,
    PROFILE_ROWS_MAX, PipelineDraft, Route, SLO_MS_MAX, TASKS_MAX, Task, VARIANTS_MAX, escape,
};
use crate::invalid::Invalids;
use crate::{Hardware, ProfileRow, SHAPES_MAX, TaskIndex, Variant, are_shapes};
use std::collections::BTreeSet;
use std::ops::Bound;

/// How far probabilities written in decimals may be from summing to 1.
const PROBABILITY_SLACK: f64 = 1e-6;

/// Checks the ranges of the pipeline's own numbers.
pub(super) fn check_numbers(d: &PipelineDraft, at: &str, invalids: &mut Invalids) {
    let slos = (Bound::Excluded(0.0), Bound::Included(SLO_MS_MAX));
    invalids.check_number(&format!("{at}/slo_ms"), d.slo_ms, slos, "a number above 0, at most 1e12");
    let at_least = "a number of at least 0, at most 1e12";
    invalids.check_number(&format!("{at}/demand_qps"), d.demand_qps, FROM_ZERO, at_least);
    invalids.check_number(&format!("{at}/network_ms"), d.network_ms, FROM_ZERO, at_least);
    let slowest = 0.0..=NETWORK_MS_PER_MIB_MAX;
    let expected = "a number of at least 0, at most 2e6: milliseconds for each MiB";
    invalids.check_number(&format!("{at}/network_ms_per_mib"), d.network_ms_per_mib, slowest, expected);
    invalids.check_number(&format!("{at}/ingress_ms"), d.ingress_ms, FROM_ZERO, at_least);
    check_size(d.ingress_kib_per_query, &format!("{at}/ingress_kib_per_query"), invalids);
    invalids.check_number(&format!("{at}/weight"), d.weight, FROM_ZERO, at_least);
    let percentiles = (Bound::Excluded(0.0), Bound::Excluded(100.0));
    invalids.check_number(
        &format!("{at}/percentile"),
        d.percentile,
        percentiles,
        "a number between 0 and 100, both excluded",
    );
    invalids.check_number(&format!("{at}/queue_factor"), d.queue_factor, 1.0..=NUMBER_MAX, "a number of at least 1");
    if let Some(floor) = d.min_accuracy {
        let expected = "an accuracy from 0 to 1, or null";
        invalids.check_number(&format!("{at}/min_accuracy"), floor, FROM_ZERO_TO_ONE, expected);
    }
}

/// Checks the mean size of the inputs of one query.
fn check_size(kib_per_query: f64, at: &str, invalids: &mut Invalids) {
    let expected = "a size of at least 0 KiB, at most 1048576 KiB";
    invalids.check_number(at, kib_per_query, 0.0..=KIB_PER_QUERY_MAX, expected);
}

/// Checks the name and the sizes of the lists. The error is every refusal so far: a list of a wrong size is not read.
pub(super) fn check_sizes(d: &PipelineDraft, at: &str, invalids: &mut Invalids) -> Result<(), Invalids> {
    if d.name.is_empty() {
        invalids.push(format!("{at}/name"), "\"\"", "a name");
    }
    if d.tasks.is_empty() || d.tasks.len() > TASKS_MAX {
        let found = format!("{} tasks", d.tasks.len());
        invalids.push(format!("{at}/tasks"), found, format!("1 to {TASKS_MAX} tasks"));
        return Err(std::mem::take(invalids));
    }
    if d.edges.len() > EDGES_MAX {
        invalids.push(format!("{at}/edges"), format!("{} edges", d.edges.len()), format!("at most {EDGES_MAX} edges"));
        return Err(std::mem::take(invalids));
    }
    Ok(())
}

/// Refuses each name that stands twice.
pub(crate) fn check_unique<'a>(names: impl Iterator<Item = &'a str>, at: &str, invalids: &mut Invalids) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name) {
            invalids.push(format!("{at}/{i}/name"), format!("{name:?}"), "a name that no other has");
        }
    }
}

/// Checks one task with its variants.
pub(super) fn check_task(task: &Task, hardware: &[Hardware], at: &str, d: &PipelineDraft, invalids: &mut Invalids) {
    if task.name.is_empty() || task.name.contains(['>', ':']) {
        invalids.push(format!("{at}/name"), format!("{:?}", task.name), "a name without '>' and ':'");
    }
    if task.variants.is_empty() || task.variants.len() > VARIANTS_MAX {
        let found = format!("{} variants", task.variants.len());
        invalids.push(format!("{at}/variants"), found, format!("1 to {VARIANTS_MAX} variants"));
        return;
    }
    check_unique(task.variants.iter().map(|v| v.name.as_str()), &format!("{at}/variants"), invalids);
    for (v, variant) in task.variants.iter().enumerate() {
        check_variant(variant, hardware, &format!("{at}/variants/{v}"), d, invalids);
    }
}

fn check_variant(v: &Variant, hardware: &[Hardware], at: &str, d: &PipelineDraft, invalids: &mut Invalids) {
    let at_least = "a number of at least 0, at most 1e12";
    if v.name.is_empty() || v.name.contains(['>', ':']) {
        invalids.push(format!("{at}/name"), format!("{:?}", v.name), "a name without '>' and ':'");
    }
    invalids.check_number(&format!("{at}/accuracy"), v.accuracy, FROM_ZERO_TO_ONE, "an accuracy from 0 to 1");
    invalids.check_number(&format!("{at}/fanout"), v.fanout, FROM_ZERO, at_least);
    invalids.check_number(&format!("{at}/load_ms"), v.load_ms, FROM_ZERO, at_least);
    if let Some(memory) = v.memory_mib {
        invalids.check_number(&format!("{at}/memory_mib"), memory, FROM_ZERO, at_least);
    }
    for (task, &mean) in &v.fanout_to {
        let place = format!("{at}/fanout_to/{}", escape(&d.tasks[task.0].name));
        invalids.check_number(&place, mean, FROM_ZERO, at_least);
    }
    for (task, counts) in &v.fanout_counts {
        let place = format!("{at}/fanout_counts/{}", escape(&d.tasks[task.0].name));
        let total: f64 = counts.0.iter().map(|&(_, p)| p).sum();
        if counts.0.is_empty()
            || counts.0.iter().any(|&(_, p)| !(0.0..=1.0).contains(&p))
            || (total - 1.0).abs() > PROBABILITY_SLACK
        {
            invalids.push(&place, format!("a sum of {total}"), "probabilities from 0 to 1 that sum to 1");
        }
    }
    check_profile(v, hardware, at, invalids);
}

/// Profile rows are reported at the profile's pointer with their key, because sorting has lost their position.
fn check_profile(v: &Variant, hardware: &[Hardware], at: &str, invalids: &mut Invalids) {
    let at = format!("{at}/profile");
    let rows = v.profile.rows();
    if rows.is_empty() || rows.len() > PROFILE_ROWS_MAX {
        invalids.push(&at, format!("{} rows", rows.len()), format!("1 to {PROFILE_ROWS_MAX} rows"));
    }
    for row in rows {
        let key = format!("{} batch {} share {}", hardware[row.hardware.0].name, row.batch, row.share);
        if !(1..=BATCH_MAX).contains(&row.batch) {
            invalids.push(&at, &key, format!("a batch from 1 to {BATCH_MAX}"));
        }
        if !(row.latency_ms > 0.0 && row.latency_ms <= NUMBER_MAX) {
            invalids.push(&at, format!("{key}: latency_ms {}", row.latency_ms), "a latency above 0, at most 1e12");
        }
        if let Some(p99) = row.p99_ms.filter(|p| !(*p >= row.latency_ms && *p <= NUMBER_MAX)) {
            invalids.push(&at, format!("{key}: p99_ms {p99}"), "a p99 of at least the median latency");
        }
        if !row.by_shape.is_empty() && !are_shapes(&row.by_shape) {
            let found = format!("{key}: {} shapes", row.by_shape.len());
            let expected = format!("1 to {SHAPES_MAX} shapes with shares that sum to 1, and a p99 of at least the median");
            invalids.push(&at, found, expected);
        }
    }
    let place = |row: &ProfileRow| (row.hardware, row.share);
    let shares = |row: &ProfileRow| row.by_shape.iter().map(|shape| shape.share.to_bits()).collect::<Vec<u64>>();
    for pair in rows.windows(2) {
        if place(&pair[0]) == place(&pair[1]) && shares(&pair[0]) != shares(&pair[1]) {
            let key = format!("{} batch {} share {}", hardware[pair[1].hardware.0].name, pair[1].batch, pair[1].share);
            invalids.push(&at, key, "the same shapes, with the same shares, at each batch size");
        }
        if (pair[0].hardware, pair[0].share, pair[0].batch) == (pair[1].hardware, pair[1].share, pair[1].batch) {
            let key = format!("{} batch {} share {}", hardware[pair[0].hardware.0].name, pair[0].batch, pair[0].share);
            invalids.push(&at, key, "one row for each hardware, batch and share");
        }
    }
}

/// The graph of a valid pipeline.
pub(super) struct PipelineGraph {
    pub(super) root: TaskIndex,
    /// Parents before children.
    pub(super) order: Vec<TaskIndex>,
    /// By task: positions of the edges out of it.
    pub(super) out_edges: Vec<Vec<usize>>,
    /// By task: positions of the edges into it.
    pub(super) in_edges: Vec<Vec<usize>>,
}

/// Checks the edges; `None` if one of them was refused.
pub(super) fn check_graph(d: &PipelineDraft, at: &str, invalids: &mut Invalids) -> Option<PipelineGraph> {
    let before = invalids.0.len();
    let n = d.tasks.len();
    let name = |t: TaskIndex| format!("{:?}", d.tasks[t.0].name);
    let (mut out_edges, mut in_edges) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    let mut seen = BTreeSet::new();
    for (i, e) in d.edges.iter().enumerate() {
        let place = format!("{at}/edges/{i}");
        invalids.check_number(&format!("{place}/ratio"), e.ratio, FROM_ZERO, "a number of at least 0");
        check_size(e.kib_per_query, &format!("{place}/kib_per_query"), invalids);
        if e.from == e.to {
            invalids.push(&place, name(e.from), "an edge between two tasks");
        }
        if !seen.insert((e.from, e.to)) {
            invalids.push(&place, format!("{} to {}", name(e.from), name(e.to)), "each pair of tasks once");
        }
        out_edges[e.from.0].push(i);
        in_edges[e.to.0].push(i);
    }
    let roots: Vec<_> = (0..n).filter(|&t| in_edges[t].is_empty()).map(TaskIndex).collect();
    let order = topological_order(n, d, &out_edges, &in_edges);
    if order.len() < n {
        let rest: Vec<_> = (0..n).map(TaskIndex).filter(|t| !order.contains(t)).map(name).collect();
        invalids.push(format!("{at}/edges"), format!("a cycle through or before {}", rest.join(", ")), "no cycle");
    }
    if roots.len() != 1 && order.len() == n {
        let names: Vec<_> = roots.iter().map(|&t| name(t)).collect();
        invalids.push(
            format!("{at}/tasks"),
            format!("{} roots ({})", roots.len(), names.join(", ")),
            "one task without a parent",
        );
    }
    for t in 0..n {
        check_edges_of_task(d, TaskIndex(t), &out_edges[t], &in_edges[t], at, invalids);
    }
    (invalids.0.len() == before).then(|| PipelineGraph { root: roots[0], order, out_edges, in_edges })
}

/// Checks the primary edges and the ratios of one task.
fn check_edges_of_task(d: &PipelineDraft, t: TaskIndex, out: &[usize], into: &[usize], at: &str, invalids: &mut Invalids) {
    let name = &d.tasks[t.0].name;
    let primaries = into.iter().filter(|&&e| d.edges[e].primary).count();
    if !into.is_empty() && primaries != 1 {
        let place = format!("{at}/edges/{}", into[0]);
        let found = format!("{primaries} primary edges into {name:?}");
        invalids.push(place, found, "exactly one incoming edge of a join with `primary: true`");
    }
    if d.tasks[t.0].route == Route::OneOf {
        let making: Vec<_> = out.iter().filter(|&&e| d.edges[e].primary).collect();
        let total: f64 = making.iter().map(|&&e| d.edges[e].ratio).sum();
        if !making.is_empty() && (total - 1.0).abs() > PROBABILITY_SLACK {
            let found = format!("a sum of {total} over the edges out of {name:?}");
            invalids.push(format!("{at}/edges"), found, "ratios that sum to 1 under `route: one_of`");
        }
    }
}

/// The tasks, parents before children, ties in the file's order. Tasks on a cycle or after one are left out.
fn topological_order(n: usize, d: &PipelineDraft, out: &[Vec<usize>], into: &[Vec<usize>]) -> Vec<TaskIndex> {
    let mut waiting: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut ready: BTreeSet<usize> = (0..n).filter(|&t| waiting[t] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(t) = ready.pop_first() {
        order.push(TaskIndex(t));
        for &e in &out[t] {
            let to = d.edges[e].to.0;
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.insert(to);
            }
        }
    }
    order
}
