//! How do rows state rule `path`? The module [`super::covers`] lists the combinations that are late.

use super::columns::{PartColumns, load_max, replicas_max};
use super::space::PipelineSpace;
use apportion_domain::Problem;
use apportion_mip::{ColumnId, Formulation};

/// `sum_b z_gb <= 1`, `n_gb <= U_b z_gb`, `X_g <= U sum_b z_gb`: a group runs one batch size, if any (Loki equation 4),
/// with `U_b = D m / q_b` replicas at the most.
pub(crate) fn add_choice_of_batch(
    problem: &Problem,
    part: &PipelineSpace,
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

/// Adds the cover rows of latency, which stand for Loki's equations 5 to 7, and
/// `sum of f(p) over p that end at g <= sum_b z_gb`.
pub(crate) fn add_latency(part: &PipelineSpace, own: &PartColumns, formulation: &mut Formulation) {
    for (lane, groups) in part.lanes.iter().enumerate() {
        let here = part.trie.nodes.iter().zip(&own.flow).filter(|(n, _)| n.lane == lane);
        let mut terms: Vec<(ColumnId, f64)> = here.map(|(_, &f)| (f, 1.0)).collect();
        terms.extend(groups.iter().flat_map(|&g| &own.batch[g]).map(|&z| (z, -1.0)));
        formulation.at_most(0.0, terms);
    }
    for cover in &part.covers {
        let mut terms = vec![(own.flow[cover.node], 1.0)];
        for faster in &cover.faster_than {
            terms.extend(own.batch[faster.group][..faster.position].iter().map(|&z| (z, -1.0)));
        }
        formulation.at_most(0.0, terms);
    }
}
