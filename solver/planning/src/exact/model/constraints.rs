//! Which rows and which objective does the formulation have?
//!
//! With X replicas and n running replicas by point, f shares of root queries, w budgets, rule `task_budget`:
//!
//! - flow: `sum f(root) = 1`, `sum f(children of p over one edge) = f(p)`;
//! - load of (task i, variant k): `sum D m(p) f(p) <= sum over its groups and points of q n`, divided by the largest q;
//! - `sum n <= X`. Where replicas may be lost: `sum n <= X - survive * y` and `sum n <= U * y`. Here y says that the
//!   group is used;
//! - `sum over b >= b0 of n_b <= U_b0 * sum of w(theta >= e_b0)`, with U the largest useful replica count: the batch
//!   must fit the task's budget;
//! - `sum f at (i, k) <= sum X`: a group with traffic has a replica (the row also tightens the relaxation);
//! - latency: `F_j >= F_i + sum theta w_j(theta)`, `F <= SLO`, divided by the SLO, over every edge of the graph;
//! - devices: `sum share * X <= d_h <= count_h`, `sum price d <= budget`; floors `sum accuracy f >= floor`;
//! - quotas: `sum share * X <= w_ph` for each pipeline p of a quota, `sum weight_h w_ph <= most` ([`QuotaRow`]).

use super::columns::{Columns, PartColumns, add_part, load_max, replicas_max};
use super::goal::{Goal, ReplicaRange, Stage};
use super::groups::FeasibleGroup;
use super::latency::optional_tasks;
use super::paths;
use super::quotas::QuotaRow;
use super::space::{PipelineSpace, Space};
use apportion_domain::{HardwareIndex, LatencyRule, Pipeline, Problem, Share, TaskIndex};
use apportion_mip::{ColumnId, Formulation};

/// A formulation with the meaning of its columns.
pub(crate) struct ExactFormulation {
    pub formulation: Formulation,
    pub columns: Columns,
}

/// Writes the formulation of one stage.
pub(crate) fn build(problem: &Problem, space: &Space, stage: Stage<'_>) -> ExactFormulation {
    let mut formulation = Formulation::default();
    let parts: Vec<PartColumns> =
        space.parts.iter().map(|part| add_part(problem, part, stage.budgets, &mut formulation)).collect();
    let devices = add_devices(problem, space, &parts, stage, &mut formulation);
    add_quotas(problem, space, &parts, &mut formulation);
    let columns = Columns { parts, devices };
    for (part, own) in space.parts.iter().zip(&columns.parts) {
        let pipeline = problem.pipeline(part.index);
        let scale = (stage.goal == Goal::Demand(part.index)).then(|| formulation.continuous(0.0, 1.0));
        add_flow(part, own, scale, &mut formulation);
        add_load(part, own, &mut formulation);
        add_links(problem, part, own, &mut formulation);
        match part.rule {
            LatencyRule::TaskBudget => {
                let is_goal = stage.goal == Goal::Slo(part.index);
                let slo = if is_goal { SloRole::Minimised } else { SloRole::Limit };
                add_latency(pipeline, part, own, slo, &mut formulation);
            }
            // within budgets every path is in time
            LatencyRule::Path if own.fixed.is_some() => {}
            LatencyRule::Path => paths::add_latency(part, own, &mut formulation),
        }
        add_minimum(pipeline, part, own, &mut formulation);
        if let Some(totals) = stage.totals {
            add_totals(part, own, totals, &mut formulation);
        }
        if let Some(floor) = pipeline.min_accuracy {
            let terms = accuracy_terms(part, own, 1.0);
            match scale {
                Some(scale) => formulation.at_least(0.0, terms.into_iter().chain([(scale, -floor)]).collect()),
                None => formulation.at_least(floor, terms),
            }
        }
        if let Some(scale) = scale {
            formulation.add_cost(scale, -1.0);
        }
    }
    if let Some(least) = stage.accuracy_min {
        let terms = space.parts.iter().zip(&columns.parts).flat_map(|(p, c)| accuracy_terms(p, c, p.weight)).collect();
        formulation.at_least(least, terms);
    }
    if let Some(budget) = problem.objective.budget_per_hour {
        formulation.at_most(budget, cost_terms(problem, &columns));
    }
    add_goal(problem, space, stage.goal, &columns, &mut formulation);
    for (part, own) in space.parts.iter().zip(&columns.parts) {
        for (group, &x) in part.groups.iter().zip(&own.replicas) {
            let price = stage.prices.map_or(0.0, |prices| prices[group.hardware.get()]);
            formulation.add_cost(x, price * group.share.value());
        }
    }
    ExactFormulation { formulation, columns }
}

/// `sum of A(p) f(p)`, the objective of Loki's equation 12: A is a coefficient, so tables and products cost nothing.
fn accuracy_terms(part: &PipelineSpace, own: &PartColumns, weight: f64) -> Vec<(ColumnId, f64)> {
    let nodes = part.trie.nodes.iter().zip(&own.flow);
    nodes.filter(|(n, _)| n.accuracy > 0.0).map(|(n, &f)| (f, weight * n.accuracy)).collect()
}

/// `sum over h of price_h d_h`.
fn cost_terms(problem: &Problem, columns: &Columns) -> Vec<(ColumnId, f64)> {
    problem.hardware.iter().zip(&columns.devices).map(|(h, &d)| (d, h.price_per_hour)).collect()
}

/// Adds the costs of a goal: `sum of X` (Loki equation 11), `-sum of weight A(p) f(p)` (equation 12), `sum of price d`,
/// or the goal of an explanation. Switching adds `c_g p_g` with `p_g >= X_g - deployed_g, p_g >= 0`.
fn add_goal(problem: &Problem, space: &Space, goal: Goal, columns: &Columns, formulation: &mut Formulation) {
    match goal {
        Goal::Replicas => {
            for &x in columns.parts.iter().flat_map(|p| &p.replicas) {
                formulation.add_cost(x, 1.0);
            }
        }
        Goal::Accuracy => {
            for (part, own) in space.parts.iter().zip(&columns.parts) {
                for (f, accuracy) in accuracy_terms(part, own, part.weight) {
                    formulation.add_cost(f, -accuracy);
                }
            }
        }
        Goal::Devices(h) => formulation.add_cost(columns.devices[h.get()], 1.0),
        Goal::AccuracyOf(p) => {
            for (f, accuracy) in accuracy_terms(&space.parts[p.get()], &columns.parts[p.get()], 1.0) {
                formulation.add_cost(f, -accuracy);
            }
        }
        Goal::Demand(_) | Goal::Slo(_) | Goal::Switching | Goal::Nothing => {}
        Goal::Cost | Goal::CostAndSwitching => {
            for (d, price) in cost_terms(problem, columns) {
                formulation.add_cost(d, price);
            }
        }
    }
    if matches!(goal, Goal::CostAndSwitching | Goal::Switching) {
        for (part, own) in space.parts.iter().zip(&columns.parts) {
            for (group, &x) in part.groups.iter().zip(&own.replicas).filter(|(g, _)| g.switch_cost > 0.0) {
                // p >= X - X0, p >= 0: loading costs, unloading is free
                let most = formulation.columns[x.0].upper;
                let p = formulation.continuous(0.0, most);
                formulation.at_most(f64::from(group.deployed), vec![(x, 1.0), (p, -1.0)]);
                formulation.add_cost(p, group.switch_cost);
            }
        }
    }
}

/// `sum over groups on h of share_g X_g <= d_h <= count_h` (Loki equation 3 for many kinds of device).
///
/// Shares divide each other, so first-fit decreasing packs them, and the one row is exact. `d` is integer only where shares
/// are mixed. The columns exist only if the goal or a budget counts devices. Otherwise the counts bound the replicas
/// directly, and the list is empty.
fn add_devices(
    problem: &Problem,
    space: &Space,
    parts: &[PartColumns],
    stage: Stage<'_>,
    formulation: &mut Formulation,
) -> Vec<ColumnId> {
    let priced = matches!(stage.goal, Goal::Cost | Goal::CostAndSwitching | Goal::Devices(_));
    let counted = priced || problem.objective.budget_per_hour.is_some();
    let mut devices = Vec::new();
    for (h, hardware) in problem.hardware.iter().enumerate() {
        let mut terms = Vec::new();
        let mut fractional = false;
        let free = stage.free.map_or(0.0, |free| free[h]);
        for (part, own) in space.parts.iter().zip(parts) {
            for (group, &x) in part.groups.iter().zip(&own.replicas).filter(|(g, _)| g.hardware == HardwareIndex(h)) {
                terms.push((x, group.share.value()));
                fractional |= group.share != Share::WHOLE;
            }
        }
        if counted {
            let used: f64 = terms.iter().map(|&(x, share): &(ColumnId, f64)| share * formulation.columns[x.0].upper).sum();
            let count = hardware.count.map_or(used.ceil(), f64::from);
            let d = if fractional { formulation.integer(0.0, count) } else { formulation.continuous(0.0, count) };
            terms.push((d, -1.0));
            formulation.at_most(free, terms);
            devices.push(d);
        } else if let Some(count) = hardware.count {
            formulation.at_most(f64::from(count) + free, terms);
        }
    }
    devices
}

/// `sum over the pipelines p of a quota and over h of weight_h w_ph <= most`. A pipeline has whole devices of its own:
/// `sum over its groups on h of share_g X_g <= w_ph`. Where all its groups take whole devices, their replicas are `w_ph`.
fn add_quotas(problem: &Problem, space: &Space, parts: &[PartColumns], formulation: &mut Formulation) {
    let rows = QuotaRow::all(problem);
    if rows.is_empty() {
        return;
    }
    let mut whole: Vec<Vec<Vec<ColumnId>>> = Vec::with_capacity(parts.len());
    for (part, own) in space.parts.iter().zip(parts) {
        let is_limited = rows.iter().any(|row| row.has(part.index));
        let types = (0..problem.hardware.len()).map(HardwareIndex);
        whole.push(types.map(|h| if is_limited { whole_devices(part, own, h, formulation) } else { Vec::new() }).collect());
    }
    for row in &rows {
        let mut terms = Vec::new();
        for (_, own) in space.parts.iter().zip(&whole).filter(|(part, _)| row.has(part.index)) {
            for (h, columns) in own.iter().enumerate() {
                let weight = row.weight(HardwareIndex(h));
                terms.extend(columns.iter().filter(|_| weight > 0.0).map(|&column| (column, weight)));
            }
        }
        formulation.at_most(row.most, terms);
    }
}

/// Columns whose sum is the whole devices of one type that a pipeline has.
fn whole_devices(
    part: &PipelineSpace,
    own: &PartColumns,
    hardware: HardwareIndex,
    formulation: &mut Formulation,
) -> Vec<ColumnId> {
    let here: Vec<(&FeasibleGroup, ColumnId)> =
        part.groups.iter().zip(own.replicas.iter().copied()).filter(|(group, _)| group.hardware == hardware).collect();
    if here.iter().all(|(group, _)| group.share == Share::WHOLE) {
        return here.into_iter().map(|(_, x)| x).collect();
    }
    let most: f64 = here.iter().map(|(group, x)| group.share.value() * formulation.columns[x.0].upper).sum();
    let devices = formulation.integer(0.0, most.ceil());
    let mut terms: Vec<(ColumnId, f64)> = here.iter().map(|(group, x)| (*x, group.share.value())).collect();
    terms.push((devices, -1.0));
    formulation.at_most(0.0, terms);
    vec![devices]
}

/// `sum_k f(root, k) = 1`; for each prefix p and each child task j, `sum_k f(p, (j, k)) = f(p)`.
///
/// Loki's shares c(p) belong to whole paths. The paper leaves out that they sum to 1; without this row no replica is needed
/// at all. With `scale`, 1 becomes the share of the demand that can be served.
fn add_flow(part: &PipelineSpace, own: &PartColumns, scale: Option<ColumnId>, formulation: &mut Formulation) {
    for split in &part.trie.splits {
        let mut terms: Vec<_> = split.to.iter().map(|&n| (own.flow[n], 1.0)).collect();
        match split.from {
            Some(from) => {
                terms.push((own.flow[from], -1.0));
                formulation.equal(0.0, terms);
            }
            None => match scale {
                Some(scale) => {
                    terms.push((scale, -1.0));
                    formulation.equal(0.0, terms);
                }
                None => formulation.equal(1.0, terms),
            },
        }
    }
}

/// `sum over p that end at a lane of D m(p) f(p) <= sum over its groups and points of q_gb n_gb`, divided by the
/// largest q (Loki equation 2; m is equation 1 over the **ancestors** only). And `sum of f(p) <= sum of X_g`: a replica
/// wherever there is traffic. The second row is implied for integers and tightens the relaxation.
fn add_load(part: &PipelineSpace, own: &PartColumns, formulation: &mut Formulation) {
    for (lane, groups) in part.lanes.iter().enumerate() {
        let nodes = || part.trie.nodes.iter().zip(&own.flow).filter(|(n, _)| n.lane == lane);
        let points = groups.iter().flat_map(|&g| &part.groups[g].points);
        let unit = points.map(|p| p.qps).fold(0.0, f64::max);
        let mut load: Vec<_> = nodes().map(|(n, &f)| (f, n.load_qps / unit)).collect();
        let mut presence: Vec<_> = nodes().map(|(_, &f)| (f, 1.0)).collect();
        for &g in groups {
            let group = &part.groups[g];
            match &own.fixed {
                Some(fixed) => {
                    let Some(point) = fixed[g] else { continue };
                    let counted = own.running[g].first().copied().unwrap_or(own.replicas[g]);
                    load.push((counted, -group.points[point].qps / unit));
                }
                None => {
                    let n = own.running[g].iter().zip(&group.points);
                    load.extend(n.map(|(&n, p)| (n, -p.qps / unit)));
                }
            }
            presence.push((own.used[g].unwrap_or(own.replicas[g]), -1.0));
        }
        formulation.at_most(0.0, load);
        formulation.at_most(0.0, presence);
    }
}

/// Where replicas may be lost: `sum_b n_gb + survive y_g <= X_g`, `X_g >= (survive + 1) y_g` and `sum_b n_gb <= U y_g`.
/// For every point b0: `sum over b >= b0 of n_gb <= U_b0 sum of w_i(theta >= e_g(b0))`. So a batch runs only if its task's
/// budget admits it. U is the largest useful replica count, `D m / q`.
fn add_links(problem: &Problem, part: &PipelineSpace, own: &PartColumns, formulation: &mut Formulation) {
    let survive = f64::from(problem.pipeline(part.index).survive);
    for (g, group) in part.groups.iter().enumerate() {
        let x = own.replicas[g];
        if let Some(y) = own.used[g] {
            // a used group keeps more replicas than it may lose, and an unused group carries nothing
            formulation.at_least(0.0, vec![(x, 1.0), (y, -(survive + 1.0))]);
            let most = replicas_max(problem, part, group, group.points[0].qps);
            let running = own.running[g].iter().map(|&n| (n, 1.0));
            formulation.at_most(0.0, running.chain([(y, -most)]).collect());
        }
        if !own.running[g].is_empty() {
            let mut running: Vec<_> = own.running[g].iter().map(|&n| (n, 1.0)).collect();
            running.push((x, -1.0));
            running.extend(own.used[g].map(|y| (y, survive)));
            formulation.at_most(0.0, running);
        }
        if own.fixed.is_some() {
            continue;
        }
        if part.rule == LatencyRule::Path {
            paths::add_choice_of_batch(problem, part, own, g, formulation);
            continue;
        }
        let levels = &part.levels[group.task.get()];
        for (b, point) in group.points.iter().enumerate() {
            let first = levels.partition_point(|&theta| theta < point.charge_ms);
            let admits = &own.level[group.task.get()][first..];
            let most = if b == 0 {
                replicas_max(problem, part, group, point.qps)
            } else {
                (load_max(part, group) / point.qps).min(replicas_max(problem, part, group, group.points[0].qps))
            };
            let mut terms: Vec<_> =
                if b == 0 { vec![(x, 1.0)] } else { own.running[g][b..].iter().map(|&n| (n, 1.0)).collect() };
            terms.extend(admits.iter().map(|&w| (w, -most)));
            formulation.at_most(0.0, terms);
        }
    }
}

/// The role of a pipeline's SLO in a formulation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SloRole {
    /// No path takes longer.
    Limit,
    /// The time of the longest path, as a share of the SLO, is minimised. It has no limit.
    Minimised,
}

/// Rule `task_budget`: `sum over theta of w_i(theta) = 1`, `F_j >= F_i + sum of theta w_j(theta) / SLO` over every
/// edge, `F <= 1`. It replaces Loki's equations 5 to 7, with the slowest group of each task in place of each path's
/// own.
fn add_latency(pipeline: &Pipeline, part: &PipelineSpace, own: &PartColumns, slo: SloRole, formulation: &mut Formulation) {
    if own.fixed.is_some() {
        return;
    }
    let optional = optional_tasks(pipeline);
    let last = match slo {
        SloRole::Limit => 1.0,
        SloRole::Minimised => f64::INFINITY,
    };
    let finish: Vec<ColumnId> = pipeline.tasks.iter().map(|_| formulation.continuous(0.0, last)).collect();
    if slo == SloRole::Minimised {
        let worst = formulation.continuous(0.0, f64::INFINITY);
        formulation.add_cost(worst, 1.0);
        finish.iter().for_each(|&f| formulation.at_most(0.0, vec![(f, 1.0), (worst, -1.0)]));
    }
    for t in (0..pipeline.tasks.len()).map(TaskIndex) {
        let ones: Vec<_> = own.level[t.get()].iter().map(|&w| (w, 1.0)).collect();
        if optional[t.get()] {
            formulation.at_most(1.0, ones);
        } else {
            formulation.equal(1.0, ones);
        }
        let charge = || {
            let levels = part.levels[t.get()].iter().zip(&own.level[t.get()]);
            levels.map(|(&theta, &w)| (w, theta / pipeline.slo_ms))
        };
        let mut edges = pipeline.edges_into(t).peekable();
        if edges.peek().is_none() {
            formulation.at_most(0.0, charge().chain([(finish[t.get()], -1.0)]).collect());
        }
        for edge in edges {
            let ends = [(finish[edge.from.get()], 1.0), (finish[t.get()], -1.0)];
            formulation.at_most(0.0, charge().chain(ends).collect());
        }
    }
}

/// `sum of X_g over the groups of a task >= min_replicas`.
fn add_minimum(pipeline: &Pipeline, part: &PipelineSpace, own: &PartColumns, formulation: &mut Formulation) {
    for (t, task) in pipeline.tasks.iter().enumerate().filter(|(_, task)| task.min_replicas > 0) {
        let of_task = part.groups.iter().zip(&own.replicas).filter(|(g, _)| g.task.get() == t);
        formulation.at_least(f64::from(task.min_replicas), of_task.map(|(_, &x)| (x, 1.0)).collect());
    }
}

/// `least <= sum of X_g over the groups of a task on one hardware type and share <= most`.
fn add_totals(part: &PipelineSpace, own: &PartColumns, totals: &[ReplicaRange], formulation: &mut Formulation) {
    for total in totals {
        let is_here = |g: &FeasibleGroup| (g.task, g.hardware, g.share) == (total.task, total.hardware, total.share);
        let here = part.groups.iter().zip(&own.replicas).filter(|(g, _)| is_here(g));
        let terms: Vec<_> = here.map(|(_, &x)| (x, 1.0)).collect();
        if terms.iter().map(|(x, _)| formulation.columns[x.0].upper).sum::<f64>() > f64::from(total.most) {
            formulation.at_most(f64::from(total.most), terms.clone());
        }
        if total.least > 0 {
            formulation.at_least(f64::from(total.least), terms);
        }
    }
}
