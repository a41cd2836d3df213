//! Which combinations of batch sizes are late? Rule `path`: every path that carries traffic keeps to the SLO, and each
//! group runs one batch size (Loki section 4.1, equations 4 to 7).
//!
//! The binary z_gb says that group g runs its b-th batch; later batches are slower. Let Z_g(l) be the sum of z_gb over
//! b < l. A prefix p of groups may carry traffic only if its batches leave time for the rest:
//!
//! `f(p) <= sum over its groups of Z_g(l_g)` for every minimal l with `sum e_g(l_g) + rest(p) > SLO`.
//!
//! Here `rest(p)` is the least time in which anything below p can end. If every group runs at its `l_g` or slower, the
//! right side is 0, and the prefix is late. If any group runs faster, the row is loose, because f is at most 1. Minimal
//! vectors are enough. Such rows need neither a large constant nor a binary for each path. Equation 7 needs both: it
//! multiplies a path's latency, itself a variable, by a binary. A vector that is late at the parent already is the
//! parent's row.

use super::groups::FeasibleGroup;
use super::trie::Trie;
use apportion_domain::{Pipeline, SLACK, StopReason};
use apportion_mip::RunLimits;

/// Most latency rows of one pipeline.
pub(crate) const COVERS_MAX: usize = 60_000;

/// Most combinations of batch sizes of one pipeline that are tested.
const TESTED_MAX: usize = 20_000_000;
/// Combinations between two checks of the limits.
const TESTED_PER_CHECK: usize = 4_096;

/// Why there are no latency rows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoversError {
    /// There are more than [`COVERS_MAX`] rows, or too many combinations to test.
    #[error("more than {COVERS_MAX} late combinations of batch sizes, or more than {TESTED_MAX} to test")]
    TooMany,
    /// The limits ended the search for them.
    #[error("stopped: {0}")]
    Stopped(StopReason),
}

/// The parts of a space that decide which paths are late. Under rule `path` each lane is one group.
#[derive(Clone, Copy)]
pub(crate) struct PathView<'a> {
    pub trie: &'a Trie,
    pub lanes: &'a [Vec<usize>],
    pub groups: &'a [FeasibleGroup],
}

/// A late combination: the prefix carries traffic only if one of these groups runs a batch before its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateCombination {
    /// The last node of the prefix.
    pub node: usize,
    /// One entry for each group of the prefix.
    pub faster_than: Vec<FasterThan>,
}

/// A group that would have to run a faster batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FasterThan {
    pub group: usize,
    /// The position of its batch must be before this one.
    pub position: usize,
}

/// The group of a node: its lane's only one.
fn group_of(view: &PathView<'_>, node: usize) -> usize {
    view.lanes[view.trie.nodes[node].lane][0]
}

/// Parent of every node.
fn parents(view: &PathView<'_>) -> Vec<Option<usize>> {
    let mut parents = vec![None; view.trie.nodes.len()];
    for split in &view.trie.splits {
        split.to.iter().for_each(|&n| parents[n] = split.from);
    }
    parents
}

/// The least time from the end of each node to the end of the last query below it; infinite if no path continues.
pub(crate) fn rests(view: &PathView<'_>, charge: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut rests = vec![0.0_f64; view.trie.nodes.len()];
    for split in view.trie.splits.iter().rev() {
        if let Some(from) = split.from {
            let fastest = split.to.iter().map(|&n| charge(group_of(view, n)) + rests[n]).fold(f64::INFINITY, f64::min);
            rests[from] = rests[from].max(fastest);
        }
    }
    rests
}

fn slo(pipeline: &Pipeline) -> f64 {
    pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0)
}

/// All latency rows.
pub(crate) fn late_combinations(
    pipeline: &Pipeline,
    view: &PathView<'_>,
    limits: &RunLimits,
) -> Result<Vec<LateCombination>, CoversError> {
    let mut tested = 0;
    let mut check_limits = || {
        tested += 1;
        if tested > TESTED_MAX {
            return Err(CoversError::TooMany);
        }
        let stopped = if tested.is_multiple_of(TESTED_PER_CHECK) { limits.stop_reason() } else { None };
        stopped.map_or(Ok(()), |reason| Err(CoversError::Stopped(reason)))
    };
    let rests = rests(view, |g| view.groups[g].points[0].charge_ms);
    let parents = parents(view);
    let mut covers = Vec::new();
    for node in 0..view.trie.nodes.len() {
        let mut path = vec![group_of(view, node)];
        let mut at = node;
        while let Some(parent) = parents[at] {
            path.push(group_of(view, parent));
            at = parent;
        }
        path.reverse();
        let rest_of_parent = parents[node].map_or(f64::NEG_INFINITY, |p| rests[p]);
        let late = Late { slo: slo(pipeline), rest: rests[node], rest_of_parent, most: COVERS_MAX - covers.len() };
        let levels = minimal_late(view, &path, &late, &mut check_limits)?;
        let late_combination = |levels: Vec<usize>| {
            let faster = path.iter().zip(levels).map(|(&group, position)| FasterThan { group, position });
            LateCombination { node, faster_than: faster.collect() }
        };
        covers.extend(levels.into_iter().map(late_combination));
    }
    Ok(covers)
}

/// When a path is late.
struct Late {
    slo: f64,
    /// Least time after it, and after its parent.
    rest: f64,
    rest_of_parent: f64,
    /// Most rows that it may have.
    most: usize,
}

/// The minimal batch positions along a path that are late with `rest` to come, without those late at the parent
/// already. `check_limits` decides at each combination whether to continue.
fn minimal_late(
    view: &PathView<'_>,
    path: &[usize],
    late: &Late,
    check_limits: &mut impl FnMut() -> Result<(), CoversError>,
) -> Result<Vec<Vec<usize>>, CoversError> {
    let &Late { slo, rest, rest_of_parent, most } = late;
    let charge = |i: usize, level: usize| view.groups[path[i]].points[level].charge_ms;
    let sum = |levels: &[usize]| levels.iter().enumerate().map(|(i, &l)| charge(i, l)).sum::<f64>();
    let mut found = Vec::new();
    let mut levels = vec![0; path.len()];
    loop {
        check_limits()?;
        let total = sum(&levels);
        let late = total + rest > slo;
        let minimal = || {
            (0..path.len()).all(|i| levels[i] == 0 || total - charge(i, levels[i]) + charge(i, levels[i] - 1) + rest <= slo)
        };
        let last = path.len() - 1;
        let new = || last == 0 || total - charge(last, levels[last]) + rest_of_parent <= slo;
        if late && minimal() && new() {
            if found.len() == most {
                return Err(CoversError::TooMany);
            }
            found.push(levels.clone());
        }
        // the next vector: past the first late level of a hop nothing is minimal
        let mut i = last;
        loop {
            let more = levels[i] + 1 < view.groups[path[i]].points.len();
            let tail_is_zero = levels[i + 1..].iter().all(|&l| l == 0);
            let hopeless = tail_is_zero && sum(&levels) + rest > slo;
            if more && !hopeless {
                levels[i] += 1;
                break;
            }
            levels[i] = 0;
            if i == 0 {
                return Ok(found);
            }
            i -= 1;
        }
    }
}

/// Whether a query may be at each node of the trie if the groups run at these points. It is in time so far, and some path
/// below stays in time.
pub(crate) fn nodes_in_time(pipeline: &Pipeline, view: &PathView<'_>, points: &[Option<usize>]) -> Vec<bool> {
    let parents = parents(view);
    let charge = |g: usize| points[g].map_or(f64::INFINITY, |point| view.groups[g].points[point].charge_ms);
    let rests = rests(view, charge);
    let mut so_far = vec![0.0_f64; parents.len()];
    for node in 0..parents.len() {
        so_far[node] = parents[node].map_or(0.0, |p| so_far[p]) + charge(group_of(view, node));
    }
    so_far.iter().zip(&rests).map(|(so_far, rest)| so_far + rest <= slo(pipeline)).collect()
}
