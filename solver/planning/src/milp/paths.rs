//! Rule `path`: every way that carries traffic keeps to the SLO, each group running one batch size (Loki section 4.1,
//! equations 4 to 7).
//!
//! With z binary (group g runs its b-th batch, slower ones later) and Z_g(l) = sum of z_gb over b < l, a prefix p of groups may
//! only carry traffic if its batches leave time for the rest:
//!
//! `f(p) <= sum over its groups of Z_g(l_g)` for every minimal l with `sum e_g(l_g) + rest(p) > SLO`,
//!
//! where `rest(p)` is the fastest that anything below p can end. If every group ran at its `l_g` or slower, the right side were
//! 0 and the prefix late; if any runs faster, the row says nothing, because f is at most 1. Minimal vectors are enough and
//! there is neither a large constant nor a binary for each path, as equation 7 needs (it
//! multiplies a path's latency, itself a variable, by a binary). A vector that is late
//! at the parent already is the parent's row.

use super::formulation::{Column, Formulation};
use super::space::Part;
use super::variables::{PartColumns, load_max, replicas_max};
use crate::limits::Limits;
use apportion_domain::{Pipeline, Problem, SLACK, StopReason};

/// Most rows of latency of one pipeline.
pub(crate) const COVERS_MAX: usize = 60_000;

/// Most combinations of batch sizes of one pipeline that are looked at for rows.
const LOOKED_AT_MAX: usize = 20_000_000;
/// Combinations between two looks at the limits.
const LOOKED_AT_ONCE: usize = 4_096;

/// Why there are no rows of latency.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCovers {
    /// There would be more than [`COVERS_MAX`], or they are among too many.
    #[error("more than {COVERS_MAX} combinations of batch sizes that are late, or {LOOKED_AT_MAX} to look at")]
    TooMany,
    /// Time was up first.
    #[error("stopped: {0}")]
    Stopped(StopReason),
}

/// `sum_b z_gb <= 1`, `n_gb <= U_b z_gb`, `X_g <= U sum_b z_gb`: a group runs one batch size, if any (Loki equation 4), with
/// `U_b = D m / q_b` replicas at the most.
pub(crate) fn add_choice_of_batch(
    problem: &Problem,
    part: &Part,
    own: &PartColumns,
    g: usize,
    formulation: &mut Formulation,
) {
    let group = &part.groups[g];
    let most = replicas_max(problem, part, group, group.points[0].qps);
    let all = own.batch[g].iter();
    formulation.at_most(1.0, all.clone().map(|&z| (z, 1.0)).collect());
    formulation.at_most(0.0, all.map(|&z| (z, -most)).chain([(own.replicas[g], 1.0)]).collect());
    for (b, point) in group.points.iter().enumerate() {
        let useful = (load_max(part, group) / point.qps).min(most);
        formulation.at_most(0.0, vec![(own.running[g][b], 1.0), (own.batch[g][b], -useful)]);
    }
}

/// Adds the cover rows of latency, which stand for Loki's equations 5 to 7, and `sum of f(p) over p that end at g <= sum_b z_gb`.
pub(crate) fn add_latency(part: &Part, own: &PartColumns, formulation: &mut Formulation) {
    for (lane, groups) in part.lanes.iter().enumerate() {
        let here = part.trie.nodes.iter().zip(&own.flow).filter(|(n, _)| n.lane == lane);
        let mut terms: Vec<(Column, f64)> = here.map(|(_, &f)| (f, 1.0)).collect();
        terms.extend(groups.iter().flat_map(|&g| &own.batch[g]).map(|&z| (z, -1.0)));
        formulation.at_most(0.0, terms);
    }
    for cover in &part.covers {
        let mut terms = vec![(own.flow[cover.node], 1.0)];
        for &(g, first) in &cover.faster_than {
            terms.extend(own.batch[g][..first].iter().map(|&z| (z, -1.0)));
        }
        formulation.at_most(0.0, terms);
    }
}

/// A prefix that carries traffic only if one of these groups runs a batch before its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// The last node of the prefix.
    pub node: usize,
    /// The groups of the prefix, each with the position that its batch would have to be before.
    pub faster_than: Vec<(usize, usize)>,
}

/// The group of a node: its lane's only one.
fn group_of(part: &Part, node: usize) -> usize {
    part.lanes[part.trie.nodes[node].lane][0]
}

/// Parent of every node.
fn parents(part: &Part) -> Vec<Option<usize>> {
    let mut parents = vec![None; part.trie.nodes.len()];
    for split in &part.trie.splits {
        split.to.iter().for_each(|&n| parents[n] = split.from);
    }
    parents
}

/// The least time from the end of each node to the end of the last query below it; infinite where there is no way on.
fn rests(part: &Part, charge: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut rests = vec![0.0_f64; part.trie.nodes.len()];
    for split in part.trie.splits.iter().rev() {
        if let Some(from) = split.from {
            let fastest = split.to.iter().map(|&n| charge(group_of(part, n)) + rests[n]).fold(f64::INFINITY, f64::min);
            rests[from] = rests[from].max(fastest);
        }
    }
    rests
}

fn slo(pipeline: &Pipeline) -> f64 {
    pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0)
}

/// All rows of latency.
pub(crate) fn covers(pipeline: &Pipeline, part: &Part, limits: &Limits) -> Result<Vec<Cover>, NoCovers> {
    let mut looked_at = 0;
    let mut look = || {
        looked_at += 1;
        if looked_at > LOOKED_AT_MAX {
            return Err(NoCovers::TooMany);
        }
        let stopped = if looked_at.is_multiple_of(LOOKED_AT_ONCE) { limits.reason() } else { None };
        stopped.map_or(Ok(()), |reason| Err(NoCovers::Stopped(reason)))
    };
    let rests = rests(part, |g| part.groups[g].points[0].charge_ms);
    let parents = parents(part);
    let mut covers = Vec::new();
    for node in 0..part.trie.nodes.len() {
        let mut path = vec![group_of(part, node)];
        let mut at = node;
        while let Some(parent) = parents[at] {
            path.push(group_of(part, parent));
            at = parent;
        }
        path.reverse();
        let rest_of_parent = parents[node].map_or(f64::NEG_INFINITY, |p| rests[p]);
        let late = Late { slo: slo(pipeline), rest: rests[node], rest_of_parent, most: COVERS_MAX - covers.len() };
        let levels = minimal_late(part, &path, &late, &mut look)?;
        covers.extend(levels.into_iter().map(|l| Cover { node, faster_than: path.iter().copied().zip(l).collect() }));
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

/// The minimal batch positions along a path that are late with `rest` to come, without those late at the parent already. `look` is asked
/// at each combination whether to go on.
fn minimal_late(
    part: &Part,
    path: &[usize],
    late: &Late,
    look: &mut impl FnMut() -> Result<(), NoCovers>,
) -> Result<Vec<Vec<usize>>, NoCovers> {
    let &Late { slo, rest, rest_of_parent, most } = late;
    let charge = |i: usize, level: usize| part.groups[path[i]].points[level].charge_ms;
    let sum = |levels: &[usize]| levels.iter().enumerate().map(|(i, &l)| charge(i, l)).sum::<f64>();
    let mut found = Vec::new();
    let mut levels = vec![0; path.len()];
    loop {
        look()?;
        let total = sum(&levels);
        let late = total + rest > slo;
        let minimal = || {
            (0..path.len()).all(|i| levels[i] == 0 || total - charge(i, levels[i]) + charge(i, levels[i] - 1) + rest <= slo)
        };
        let last = path.len() - 1;
        let new = || last == 0 || total - charge(last, levels[last]) + rest_of_parent <= slo;
        if late && minimal() && new() {
            if found.len() == most {
                return Err(NoCovers::TooMany);
            }
            found.push(levels.clone());
        }
        // the next vector: past the first late level of a hop nothing is minimal
        let mut i = last;
        loop {
            let more = levels[i] + 1 < part.groups[path[i]].points.len();
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

/// Whether a query may be at each node of the trie, its groups running at these points: so far it is in time, and below it
/// there is a way that stays so.
pub(crate) fn in_time(pipeline: &Pipeline, part: &Part, groups: &[(u32, usize)]) -> Vec<bool> {
    let parents = parents(part);
    let charge = |g: usize| match groups[g] {
        (0, _) => f64::INFINITY,
        (_, point) => part.groups[g].points[point].charge_ms,
    };
    let rests = rests(part, charge);
    let mut so_far = vec![0.0_f64; parents.len()];
    for node in 0..parents.len() {
        so_far[node] = parents[node].map_or(0.0, |p| so_far[p]) + charge(group_of(part, node));
    }
    so_far.iter().zip(&rests).map(|(so_far, rest)| so_far + rest <= slo(pipeline)).collect()
}
