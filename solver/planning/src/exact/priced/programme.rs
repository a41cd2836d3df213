//! Which whole replicas carry the demand best, if every group has its operating point? A small integer programme.
//!
//! Some pipelines are *active*: their replicas and flows are columns. The others keep theirs and take up devices. Flows are
//! shares of prefixes where the trie is small, and shares of whole ways otherwise. The ways are those that prices propose
//! (column generation on the relaxation).

use super::points::GroupPoints;
use super::prices::{PricedGoal, PricedStage};
use super::walk::{GroupPrice, LaneNeeds, LanePrices, PricedWalk, cheapest_way};
use crate::exact::model::columns::replicas_max;
use crate::exact::model::space::PipelineSpace;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::GroupChoice;
use apportion_domain::{Problem, Share};
use apportion_mip::branch::{self, BranchSettings};
use apportion_mip::tableau::{PivotEnd, Tableau};
use apportion_mip::{ColumnId, Ending, Formulation, Rounding, RunLimits};

/// Most open prefixes of a pipeline whose flows are columns. Beyond it, whole ways are.
const PREFIXES_MAX: usize = 130;
/// Most ways of a pipeline.
const WAYS_MAX: usize = 60;
/// Most pivots of one relaxation.
const PIVOTS_MAX: usize = 4_000;
/// Least nodes of one search.
const NODES_MIN: usize = 60;
/// Least entries of a tableau that are counted for one node.
const NODE_ENTRIES_MIN: usize = 1_000;
/// Cost of missing a device or a unit of accuracy while ways are generated, in units of the goal's scale.
const MISSING_COST: f64 = 1e4;

/// An active pipeline.
#[derive(Clone, Copy)]
pub(super) struct ActivePart<'a> {
    pub part: &'a PipelineSpace,
    pub points: &'a GroupPoints,
}

/// What the other pipelines take up.
#[derive(Clone, Debug)]
pub(super) struct TakenResources {
    /// Eighths of devices by hardware type.
    pub eighths: Vec<u64>,
    /// Weighted accuracy.
    pub accuracy: f64,
}

/// The best replicas of the active pipelines.
#[derive(Clone, Debug)]
pub(super) struct ActivePlan {
    /// By active pipeline and group.
    pub groups: Vec<Vec<GroupChoice>>,
    /// Cost by the goal, without the other pipelines; whole devices count with them.
    pub cost: f64,
    /// Weighted accuracy of each active pipeline.
    pub accuracy: Vec<f64>,
}

/// Result of one programme.
#[derive(Debug)]
pub(super) struct ProgrammeResult {
    /// `None` if no plan costs less than the cutoff, or if none was found.
    pub plan: Option<ActivePlan>,
    /// No plan at these points costs less than this and the cutoff. Minus infinity if nothing is proven.
    pub bound: f64,
    /// Whether more work would find nothing better.
    pub is_finished: bool,
}

/// Flows of one pipeline: shares of prefixes or of ways.
enum FlowKind {
    Prefixes,
    Ways(Vec<PricedWalk>),
}

/// Columns of one active pipeline.
struct ActiveColumns {
    /// Position of its first flow; one column for each prefix or way.
    flow: Vec<Option<ColumnId>>,
    replicas: Vec<Option<ColumnId>>,
    /// Terms of its accuracy.
    accuracy: Vec<(ColumnId, f64)>,
    /// Rows by lane: load and visits.
    load_rows: Vec<Option<usize>>,
    visit_rows: Vec<Option<usize>>,
    /// The units by which load rows are divided.
    units: Vec<f64>,
}

/// One programme.
pub(super) struct BudgetProgramme<'a> {
    pub problem: &'a Problem,
    pub stage: PricedStage,
    /// Price of a device by hardware type, in addition to the goal.
    pub device_prices: &'a [f64],
    pub active: &'a [ActivePart<'a>],
    pub taken: &'a TakenResources,
    /// Entries of all tableaus that the search may copy: nodes are many where programmes are small.
    pub entries_max: usize,
}

/// A formulation with the meaning of its columns.
struct BuiltProgramme {
    formulation: Formulation,
    parts: Vec<ActiveColumns>,
    missing: Vec<ColumnId>,
    /// The rows of floors by active pipeline, and of the weighted accuracy.
    floor_rows: Vec<Option<usize>>,
    total_row: Option<usize>,
}

/// Whether a programme may miss devices and accuracy, at a price.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hardness {
    /// Its rows must hold.
    Hard,
    /// They may be missed at a price.
    Elastic,
}

impl BudgetProgramme<'_> {
    /// The best plan that costs less than `cutoff`, by a search that ends after a fixed number of nodes.
    pub fn solve(&self, gap: f64, cutoff: f64, limits: &RunLimits) -> ProgrammeResult {
        let nothing = ProgrammeResult { plan: None, bound: f64::NEG_INFINITY, is_finished: true };
        let Some(kinds) = self.flow_kinds(limits) else { return nothing };
        let built = self.build(&kinds, Hardness::Hard);
        let entries = built.formulation.columns.len() * built.formulation.rows.len();
        let settings = BranchSettings {
            gap: STAGE_GAP_SHARE * gap,
            cutoff,
            nodes_max: (self.entries_max / entries.max(NODE_ENTRIES_MIN)).max(NODES_MIN),
            rounding: Rounding::WithDependents,
        };
        let Some(solved) = branch::solve_with(&built.formulation, settings, limits) else { return nothing };
        let has_all_flows = kinds.iter().all(|k| matches!(k, FlowKind::Prefixes));
        let is_finished = matches!(solved.ending, Ending::Optimal | Ending::Infeasible);
        let bound = if has_all_flows && is_finished { solved.bound } else { f64::NEG_INFINITY };
        let plan = solved.values.map(|values| self.read_plan(&built, &values, solved.cost));
        ProgrammeResult { plan, bound, is_finished }
    }

    /// The plan of a solution.
    fn read_plan(&self, built: &BuiltProgramme, values: &[f64], cost: f64) -> ActivePlan {
        let part = |(active, columns): (&ActivePart<'_>, &ActiveColumns)| {
            let group = |(x, point): (&Option<ColumnId>, &Option<usize>)| match (x, point) {
                (Some(x), Some(point)) => GroupChoice { replicas: values[x.0].round() as u32, point: *point },
                _ => GroupChoice::default(),
            };
            columns.replicas.iter().zip(&active.points.points).map(group).collect()
        };
        let groups = self.active.iter().zip(&built.parts).map(part).collect();
        let weighted = |(active, columns): (&ActivePart<'_>, &ActiveColumns)| {
            active.part.weight * columns.accuracy.iter().map(|&(c, a)| values[c.0] * a).sum::<f64>()
        };
        let accuracy = self.active.iter().zip(&built.parts).map(weighted).collect();
        ActivePlan { groups, cost, accuracy }
    }

    /// Which flows are columns. `None` if some pipeline has no way.
    fn flow_kinds(&self, limits: &RunLimits) -> Option<Vec<FlowKind>> {
        let mut kinds = Vec::with_capacity(self.active.len());
        for active in self.active {
            if active.points.open.iter().filter(|open| **open).count() <= PREFIXES_MAX {
                kinds.push(FlowKind::Prefixes);
                continue;
            }
            let lanes = active.part.lanes.len();
            let replica = vec![1.0; active.part.groups.len()];
            let needs = LaneNeeds::new(active.part, self.problem.pipeline(active.part.index).survive);
            let mut ways = Vec::new();
            for reward in [0.0, 1e-2, 1.0, 1e6] {
                let prices = needs.prices(active.points, &replica, reward * lanes as f64);
                let way = cheapest_way(active.part, active.points, &prices)?;
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
            kinds.push(FlowKind::Ways(ways));
        }
        self.generate_ways(&mut kinds, limits);
        Some(kinds)
    }

    /// Adds the ways that the prices of the relaxation propose, until none improves it.
    fn generate_ways(&self, kinds: &mut [FlowKind], limits: &RunLimits) {
        while kinds.iter().any(|k| matches!(k, FlowKind::Ways(ways) if ways.len() < WAYS_MAX)) && !limits.exceeded() {
            let built = self.build(kinds, Hardness::Elastic);
            let Some(mut tableau) = Tableau::new(&built.formulation) else { return };
            let ended = tableau.reoptimise(f64::INFINITY, PIVOTS_MAX);
            limits.count_work(tableau.size() * (1 + tableau.pivots()));
            if ended != PivotEnd::Optimal {
                return;
            }
            let first = built.formulation.columns.len();
            let dual = |row: Option<usize>| row.map_or(0.0, |row| tableau.reduced_cost(first + row).max(0.0));
            let mut added = 0;
            for (a, kind) in kinds.iter_mut().enumerate() {
                let FlowKind::Ways(ways) = kind else { continue };
                let (ActivePart { part, points }, columns) = (self.active[a], &built.parts[a]);
                let goal = if self.stage.goal == PricedGoal::Accuracy { part.weight } else { 0.0 };
                let mut prices = LanePrices::new(goal + dual(built.floor_rows[a]) + part.weight * dual(built.total_row));
                for lane in 0..part.lanes.len() {
                    let price = |row: usize| GroupPrice {
                        visit: dual(columns.visit_rows[lane]),
                        rate: dual(Some(row)) / columns.units[lane],
                    };
                    prices.add_lane(columns.load_rows[lane].map(price).into_iter());
                }
                if let Some(way) = cheapest_way(part, points, &prices)
                    && ways.len() < WAYS_MAX
                    && !ways.contains(&way)
                {
                    ways.push(way);
                    added += 1;
                }
            }
            if added == 0 {
                return;
            }
        }
    }

    /// Writes the programme.
    fn build(&self, kinds: &[FlowKind], hardness: Hardness) -> BuiltProgramme {
        let mut f = Formulation::default();
        let parts: Vec<ActiveColumns> = self.active.iter().zip(kinds).map(|(a, k)| self.add_part(a, k, &mut f)).collect();
        let mut built =
            BuiltProgramme { formulation: f, parts, missing: Vec::new(), floor_rows: Vec::new(), total_row: None };
        self.add_devices(hardness, &mut built);
        self.add_accuracy(hardness, &mut built);
        let scale = built.formulation.costs.iter().map(|c| c.abs()).fold(1.0, f64::max);
        for &column in &built.missing {
            built.formulation.add_cost(column, MISSING_COST * scale);
        }
        built
    }

    /// Flow, load, visits, losses and least replicas of one pipeline.
    fn add_part(&self, active: &ActivePart<'_>, kind: &FlowKind, f: &mut Formulation) -> ActiveColumns {
        let &ActivePart { part, points } = active;
        let lanes = part.lanes.len();
        let mut columns = ActiveColumns {
            flow: Vec::new(),
            replicas: vec![None; part.groups.len()],
            accuracy: Vec::new(),
            load_rows: vec![None; lanes],
            visit_rows: vec![None; lanes],
            units: vec![1.0; lanes],
        };
        let mut load: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); lanes];
        let mut visits: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); lanes];
        match kind {
            FlowKind::Prefixes => add_prefixes(part, points, f, &mut columns),
            FlowKind::Ways(ways) => {
                columns.flow = ways.iter().map(|_| Some(f.continuous(0.0, 1.0))).collect();
                f.equal(1.0, columns.flow.iter().flatten().map(|&w| (w, 1.0)).collect());
            }
        }
        let mut visit = |column: ColumnId, n: usize, times: f64| {
            let node = &part.trie.nodes[n];
            load[node.lane].push((column, times * node.load_qps));
            visits[node.lane].push((column, times));
        };
        for (i, column) in columns.flow.iter().enumerate().filter_map(|(i, c)| c.map(|c| (i, c))) {
            let accuracy = match kind {
                FlowKind::Prefixes => {
                    visit(column, i, 1.0);
                    part.trie.nodes[i].accuracy
                }
                FlowKind::Ways(ways) => {
                    ways[i].nodes.iter().for_each(|&n| visit(column, n, 1.0));
                    ways[i].accuracy
                }
            };
            if accuracy != 0.0 {
                columns.accuracy.push((column, accuracy));
            }
        }
        self.add_replicas(active, load, visits, f, &mut columns);
        columns
    }

    /// The replicas of a pipeline, and the rows that bind its flows to them.
    fn add_replicas(
        &self,
        active: &ActivePart<'_>,
        load: Vec<Vec<(ColumnId, f64)>>,
        visits: Vec<Vec<(ColumnId, f64)>>,
        f: &mut Formulation,
        columns: &mut ActiveColumns,
    ) {
        let &ActivePart { part, points } = active;
        let pipeline = self.problem.pipeline(part.index);
        let survive = f64::from(pipeline.survive);
        for (lane, (mut load, mut visits)) in load.into_iter().zip(visits).enumerate() {
            let qps = |g: usize| points.points[g].map(|b| part.groups[g].points[b].qps);
            let running: Vec<(usize, f64)> = part.lanes[lane].iter().filter_map(|&g| Some((g, qps(g)?))).collect();
            let unit = running.iter().map(|r| r.1).fold(f64::MIN_POSITIVE, f64::max);
            load.iter_mut().for_each(|term| term.1 /= unit);
            for &(g, qps) in &running {
                let group = &part.groups[g];
                let most = replicas_max(self.problem, part, group, qps);
                let x = f.integer(0.0, most.floor());
                columns.replicas[g] = Some(x);
                let (mut counted, mut present) = (x, x);
                if survive > 0.0 {
                    let used = f.integer(0.0, 1.0);
                    let serving = f.continuous(0.0, most);
                    f.at_most(0.0, vec![(serving, 1.0), (used, survive), (x, -1.0)]);
                    f.at_most(0.0, vec![(serving, 1.0), (used, -most)]);
                    (counted, present) = (serving, used);
                }
                load.push((counted, -qps / unit));
                visits.push((present, -1.0));
                self.add_replica_cost(group, x, most, f);
                f.add_cost(x, self.device_prices[group.hardware.get()] * group.share.value());
            }
            if !running.is_empty() {
                columns.load_rows[lane] = Some(f.rows.len());
                f.at_most(0.0, load);
                columns.visit_rows[lane] = Some(f.rows.len());
                f.at_most(0.0, visits);
                columns.units[lane] = unit;
            }
        }
        for (t, task) in pipeline.tasks.iter().enumerate().filter(|(_, task)| task.min_replicas > 0) {
            let of_task = part.groups.iter().zip(&columns.replicas).filter(|(g, _)| g.task.get() == t);
            f.at_least(f64::from(task.min_replicas), of_task.filter_map(|(_, x)| Some(((*x)?, 1.0))).collect());
        }
    }

    /// The cost of the replicas of a group: one each, or the cost of loading them.
    fn add_replica_cost(
        &self,
        group: &crate::exact::model::groups::FeasibleGroup,
        x: ColumnId,
        most: f64,
        f: &mut Formulation,
    ) {
        match self.stage.goal {
            PricedGoal::Replicas => f.add_cost(x, 1.0),
            PricedGoal::Cost if group.switch_cost > 0.0 && self.stage.accuracy_min.is_none() => {
                let loaded = f.continuous(0.0, most.floor());
                f.at_most(f64::from(group.deployed), vec![(x, 1.0), (loaded, -1.0)]);
                f.add_cost(loaded, group.switch_cost);
            }
            _ => {}
        }
    }

    /// Counts of devices, the budget, and the cost of devices.
    fn add_devices(&self, hardness: Hardness, built: &mut BuiltProgramme) {
        let f = &mut built.formulation;
        let budget = self.problem.objective.budget_per_hour;
        let priced = self.stage.goal == PricedGoal::Cost || budget.is_some();
        let mut spent = Vec::new();
        for (h, hardware) in self.problem.hardware.iter().enumerate() {
            let taken = self.taken.eighths[h] as f64 / 8.0;
            let mut terms = Vec::new();
            let mut whole = self.taken.eighths[h].is_multiple_of(8);
            let mut used_max = taken;
            for (active, columns) in self.active.iter().zip(&built.parts) {
                for (group, x) in active.part.groups.iter().zip(&columns.replicas).filter(|(g, _)| g.hardware.get() == h) {
                    let Some(x) = *x else { continue };
                    whole &= group.share == Share::WHOLE;
                    used_max += group.share.value() * f.columns[x.0].upper;
                    terms.push((x, group.share.value()));
                }
            }
            if terms.is_empty() && taken == 0.0 {
                continue;
            }
            let limit = hardware.count.map_or(f64::INFINITY, f64::from);
            if hardness == Hardness::Elastic && hardware.count.is_some() {
                let missing = f.continuous(0.0, used_max.ceil());
                built.missing.push(missing);
                terms.push((missing, -1.0));
            }
            if priced {
                let most = limit.min(used_max.ceil()).max(taken.ceil());
                let d = if whole { f.continuous(0.0, most) } else { f.integer(0.0, most) };
                if self.stage.goal == PricedGoal::Cost {
                    f.add_cost(d, hardware.price_per_hour);
                }
                spent.push((d, hardware.price_per_hour));
                terms.push((d, -1.0));
                f.at_most(-taken, terms);
            } else if limit < f64::INFINITY {
                f.at_most(limit - taken, terms);
            }
        }
        if let Some(budget) = budget {
            if hardness == Hardness::Elastic {
                let most: f64 = spent.iter().map(|&(d, price)| f.columns[d.0].upper * price).sum();
                let missing = f.continuous(0.0, most + 1.0);
                built.missing.push(missing);
                spent.push((missing, -1.0));
            }
            f.at_most(budget, spent);
        }
    }

    /// Floors, the least weighted accuracy, and the goal of accuracy.
    fn add_accuracy(&self, hardness: Hardness, built: &mut BuiltProgramme) {
        let f = &mut built.formulation;
        let mut total = Vec::new();
        for (active, columns) in self.active.iter().zip(&built.parts) {
            let weight = active.part.weight;
            total.extend(columns.accuracy.iter().map(|&(c, a)| (c, weight * a)));
            if self.stage.goal == PricedGoal::Accuracy {
                columns.accuracy.iter().for_each(|&(c, a)| f.add_cost(c, -weight * a));
            }
            let Some(floor) = self.problem.pipeline(active.part.index).min_accuracy else {
                built.floor_rows.push(None);
                continue;
            };
            let mut terms = columns.accuracy.clone();
            if hardness == Hardness::Elastic {
                let missing = f.continuous(0.0, 1.0);
                built.missing.push(missing);
                terms.push((missing, 1.0));
            }
            built.floor_rows.push(Some(f.rows.len()));
            f.at_least(floor, terms);
        }
        if let Some(least) = self.stage.accuracy_min {
            if hardness == Hardness::Elastic {
                let missing = f.continuous(0.0, 1.0);
                built.missing.push(missing);
                total.push((missing, 1.0));
            }
            built.total_row = Some(f.rows.len());
            f.at_least(least - self.taken.accuracy, total);
        }
    }
}

/// The flow columns of the open prefixes, and the rows that keep the children's shares equal to their parent's.
fn add_prefixes(part: &PipelineSpace, points: &GroupPoints, f: &mut Formulation, columns: &mut ActiveColumns) {
    columns.flow = points.open.iter().map(|open| open.then(|| f.continuous(0.0, 1.0))).collect();
    for split in &part.trie.splits {
        let to = split.to.iter().filter_map(|&n| Some((columns.flow[n]?, 1.0)));
        match split.from.map(|from| columns.flow[from]) {
            Some(Some(from)) => f.equal(0.0, to.chain([(from, -1.0)]).collect()),
            Some(None) => {}
            None => f.equal(1.0, to.collect()),
        }
    }
}
