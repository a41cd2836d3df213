//! The formulation: one function for each kind of constraint, with its equation.
//!
//! Notation: `f(p)` flow through prefix `p` in shares of root queries; `x(g)` replicas of group `g`, whole; `y(g,l)` those of them
//! that run choice `l`; `w(i,l)` whether task `i` has budget level `l`; `N(h)` whole devices of hardware `h`.

use super::highs::Program;
use super::variables::{Space, Tightenings};
use apportion_domain::{Problem, Share, TaskIndex};

/// Budgets of every task, by pipeline; `None` lets the program choose them.
pub type Budgets = Vec<Vec<f64>>;

/// Where the variables stand in the program.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Flow of each node.
    pub flow: Vec<usize>,
    /// Replicas of each site; `None` if no choice fits the fixed budgets.
    pub replicas: Vec<Option<usize>>,
    /// Replicas of each site by choice (index into `choices`).
    pub by_choice: Vec<Vec<(usize, usize)>>,
    /// Level binaries by pipeline, task and level; empty where budgets are fixed.
    pub level: Vec<Vec<Vec<usize>>>,
    /// Devices by hardware.
    pub devices: Vec<usize>,
    /// Replicas beyond the deployed ones, by site.
    pub added: Vec<Option<usize>>,
}

/// The program without an objective.
pub struct Formulation<'a> {
    /// What is planned.
    pub problem: &'a Problem,
    /// What can be decided.
    pub space: &'a Space,
    /// Tightening of the check loop.
    pub tightenings: &'a Tightenings,
    /// Columns and rows.
    pub program: Program,
    /// Where they stand.
    pub layout: Layout,
}

impl<'a> Formulation<'a> {
    /// Lays out variables and constraints.
    #[must_use]
    pub fn new(problem: &'a Problem, space: &'a Space, tightenings: &'a Tightenings, budgets: Option<&Budgets>) -> Self {
        let layout = Layout {
            flow: Vec::new(),
            replicas: Vec::new(),
            by_choice: Vec::new(),
            level: Vec::new(),
            devices: Vec::new(),
            added: Vec::new(),
        };
        let mut this = Self { problem, space, tightenings, program: Program::default(), layout };
        this.flow_conservation();
        this.levels(budgets);
        this.replicas(budgets);
        this.capacity();
        this.latency(budgets);
        this.min_replicas();
        this.devices();
        for p in 0..problem.pipelines.len() {
            if let Some(floor) = problem.pipelines[p].min_accuracy {
                let entries = this.accuracy_of(p, 1.0);
                this.program.row(floor, f64::INFINITY, entries);
            }
        }
        this
    }

    /// Root flows sum to 1; for each prefix and each child at which it makes queries, the children's flows sum to its own
    /// (Loki, section 4.1: without this the paper's formulation is met by no traffic at all).
    fn flow_conservation(&mut self) {
        let nodes = &self.space.nodes;
        self.layout.flow = nodes.iter().map(|_| self.program.column(0.0, 1.0, false)).collect();
        for p in 0..self.problem.pipelines.len() {
            let roots = (0..nodes.len()).filter(|&n| nodes[n].pipeline == p && nodes[n].parent.is_none());
            let entries = roots.map(|n| (self.layout.flow[n], 1.0)).collect();
            self.program.row(1.0, 1.0, entries);
        }
        let mut rows: std::collections::BTreeMap<(usize, TaskIndex), Vec<(usize, f64)>> = std::collections::BTreeMap::new();
        for (n, node) in nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                let row = rows.entry((parent, node.task)).or_insert_with(|| vec![(self.layout.flow[parent], -1.0)]);
                row.push((self.layout.flow[n], 1.0));
            }
        }
        for (_, entries) in rows {
            self.program.row(0.0, 0.0, entries);
        }
    }

    /// `sum_l w(i,l) = 1`.
    fn levels(&mut self, budgets: Option<&Budgets>) {
        for tasks in &self.space.levels {
            let mut of_pipeline = Vec::new();
            for levels in tasks {
                let columns: Vec<_> = match budgets {
                    Some(_) => Vec::new(),
                    None => levels.iter().map(|_| self.program.column(0.0, 1.0, true)).collect(),
                };
                if !columns.is_empty() {
                    self.program.row(1.0, 1.0, columns.iter().map(|&c| (c, 1.0)).collect());
                }
                of_pipeline.push(columns);
            }
            self.layout.level.push(of_pipeline);
        }
    }

    /// `x(g) = sum_l y(g,l)`, `y(g,l) <= U(g,l) * sum of w over the levels that the choice fits and no faster choice does`.
    ///
    /// With budget level `l` the fastest choice within it is best, so each level allows one choice of each group.
    fn replicas(&mut self, budgets: Option<&Budgets>) {
        for site in &self.space.sites {
            let (p, t) = (site.pipeline, site.task.get());
            let pipeline = &self.problem.pipelines[p];
            let load = pipeline.demand_qps * self.tightenings[p][t].headroom * self.space.multiplier_max(site);
            let floor = f64::from(pipeline.tasks[t].min_replicas.max(1));
            let hardware = &self.problem.hardware[site.hardware.get()];
            let fits = hardware.count.map_or(f64::INFINITY, |c| (f64::from(c) / site.share.value()).floor());
            let upper = |qps: f64| ((load / qps - 1e-9).ceil() + f64::from(pipeline.survive)).max(floor).min(fits);
            let allowed: Vec<usize> = match budgets {
                Some(b) => {
                    let best = site.best_within(b[p][t]);
                    site.choices.iter().position(|c| Some(c) == best).into_iter().collect()
                }
                None => (0..site.choices.len()).collect(),
            };
            if allowed.is_empty() {
                self.layout.replicas.push(None);
                self.layout.by_choice.push(Vec::new());
                self.layout.added.push(None);
                continue;
            }
            let largest = allowed.iter().map(|&l| upper(site.choices[l].qps)).fold(0.0, f64::max);
            let x = self.program.column(0.0, largest, true);
            let mut by_choice = Vec::new();
            if budgets.is_some() {
                by_choice.push((allowed[0], x));
            } else {
                for &l in &allowed {
                    let y = self.program.column(0.0, upper(site.choices[l].qps), false);
                    by_choice.push((l, y));
                    let next = site.choices.get(l + 1).map_or(f64::INFINITY, |c| c.charge_ms);
                    let mut entries = vec![(y, 1.0)];
                    for (k, &level) in self.space.levels[p][t].iter().enumerate() {
                        if level >= site.choices[l].charge_ms && level < next {
                            entries.push((self.layout.level[p][t][k], -upper(site.choices[l].qps)));
                        }
                    }
                    self.program.row(f64::NEG_INFINITY, 0.0, entries);
                }
                let mut entries: Vec<_> = by_choice.iter().map(|&(_, y)| (y, -1.0)).collect();
                entries.push((x, 1.0));
                self.program.row(0.0, 0.0, entries);
            }
            self.layout.replicas.push(Some(x));
            self.layout.by_choice.push(by_choice);
            self.layout.added.push(None);
        }
    }

    /// Loki, equation 2 with the load of equation 1 over the ancestors only: for each task and variant,
    /// `sum over prefixes that end there of D*h*m(p)*f(p) <= sum over groups of q(g,l) * (y(g,l) - survive*u(g,l))`,
    /// divided by the largest q. `u` says whether a group is used at all; it is there only if replicas must survive.
    fn capacity(&mut self) {
        let mut pairs: Vec<_> = self.space.nodes.iter().map(|n| (n.pipeline, n.task, n.variant)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        for (p, task, variant) in pairs {
            let pipeline = &self.problem.pipelines[p];
            let sites: Vec<_> = (0..self.space.sites.len())
                .filter(|&s| {
                    let site = &self.space.sites[s];
                    (site.pipeline, site.task, site.variant) == (p, task, variant)
                })
                .collect();
            let choices = sites.iter().flat_map(|&s| self.layout.by_choice[s].iter().map(move |&(l, y)| (s, l, y)));
            let choices: Vec<_> = choices.collect();
            let scale = choices.iter().map(|&(s, l, _)| self.space.sites[s].choices[l].qps).fold(1e-9, f64::max);
            let rate = pipeline.demand_qps * self.tightenings[p][task.get()].headroom / scale;
            let mut entries = Vec::new();
            for (n, node) in self.space.nodes.iter().enumerate() {
                if (node.pipeline, node.task, node.variant) == (p, task, variant) && rate * node.multiplier > 0.0 {
                    entries.push((self.layout.flow[n], rate * node.multiplier));
                }
            }
            for (s, l, y) in choices {
                let q = self.space.sites[s].choices[l].qps / scale;
                entries.push((y, -q));
                if pipeline.survive > 0 {
                    let used = self.program.column(0.0, 1.0, true);
                    self.program.row(f64::NEG_INFINITY, 0.0, vec![(y, 1.0), (used, -self.program.columns[y].upper)]);
                    entries.push((used, q * f64::from(pipeline.survive)));
                }
            }
            self.program.row(f64::NEG_INFINITY, 0.0, entries);
        }
    }

    /// Rule `task_budget`: `F(j) >= F(i) + t(j)` on every edge, `F <= slo`, `t(i) = sum_l theta(l)*w(i,l)`, divided by the SLO.
    fn latency(&mut self, budgets: Option<&Budgets>) {
        if budgets.is_some() {
            return;
        }
        for (p, pipeline) in self.problem.pipelines.iter().enumerate() {
            let ends: Vec<_> = pipeline.tasks.iter().map(|_| self.program.column(0.0, 1.0 + 1e-12, false)).collect();
            for &t in pipeline.order() {
                let t = t.get();
                let levels = self.space.levels[p][t].iter().zip(&self.layout.level[p][t]);
                let own: Vec<_> = levels.map(|(theta, &w)| (w, -theta / pipeline.slo_ms)).collect();
                let parents: Vec<_> = pipeline.edges_into(TaskIndex(t)).map(|e| e.from.get()).collect();
                let mut row = own.clone();
                row.push((ends[t], 1.0));
                self.program.row(0.0, f64::INFINITY, row);
                for parent in parents {
                    let mut row = own.clone();
                    row.extend([(ends[t], 1.0), (ends[parent], -1.0)]);
                    self.program.row(0.0, f64::INFINITY, row);
                }
            }
        }
    }

    /// `sum over the groups of a task of x(g) >= min_replicas`.
    fn min_replicas(&mut self) {
        for (p, pipeline) in self.problem.pipelines.iter().enumerate() {
            for (t, task) in pipeline.tasks.iter().enumerate() {
                let sites = self.space.sites.iter().zip(&self.layout.replicas);
                let here = sites.filter(|(s, _)| s.pipeline == p && s.task == TaskIndex(t));
                let entries: Vec<_> = here.filter_map(|(_, x)| x.map(|x| (x, 1.0))).collect();
                let floor = if TaskIndex(t) == pipeline.root() { task.min_replicas.max(1) } else { task.min_replicas };
                self.program.row(f64::from(floor), f64::INFINITY, entries);
            }
        }
    }

    /// `N(h) >= sum of share(g)*x(g)`, `N(h) <= count(h)`, whole where shares are fractions; `sum of price*N <= budget`. Shares divide
    /// each other, so the one row is exact.
    fn devices(&mut self) {
        for (h, hardware) in self.problem.hardware.iter().enumerate() {
            let sites: Vec<_> = self.space.sites.iter().zip(&self.layout.replicas).filter(|(s, _)| s.hardware.get() == h).collect();
            let fractions = sites.iter().any(|(s, _)| s.share != Share::WHOLE);
            let upper = hardware.count.map_or(f64::INFINITY, f64::from);
            let entries: Vec<_> = sites.iter().filter_map(|(s, x)| x.map(|x| (x, s.share.value()))).collect();
            let devices = self.program.column(0.0, upper, fractions);
            let mut row = entries;
            row.push((devices, -1.0));
            self.program.row(f64::NEG_INFINITY, 0.0, row);
            self.layout.devices.push(devices);
        }
        if let Some(budget) = self.problem.objective.budget_per_hour {
            let prices = self.problem.hardware.iter().map(|h| h.price_per_hour);
            let entries = self.layout.devices.iter().copied().zip(prices).collect();
            self.program.row(f64::NEG_INFINITY, budget, entries);
        }
    }

    /// Linear in the flows: `sum of A(p)*f(p)` of one pipeline, times `factor`.
    #[must_use]
    pub fn accuracy_of(&self, pipeline: usize, factor: f64) -> Vec<(usize, f64)> {
        let nodes = self.space.nodes.iter().zip(&self.layout.flow);
        let with = nodes.filter(|(n, _)| n.pipeline == pipeline && n.accuracy > 0.0);
        with.map(|(n, &f)| (f, n.accuracy * factor)).collect()
    }

    /// The weighted mean accuracy over the pipelines.
    #[must_use]
    pub fn accuracy(&self) -> Vec<(usize, f64)> {
        let total: f64 = self.problem.pipelines.iter().map(|p| p.weight).sum();
        let share = |weight: f64| if total > 0.0 { weight / total } else { 0.0 };
        (0..self.problem.pipelines.len()).flat_map(|p| self.accuracy_of(p, share(self.problem.pipelines[p].weight))).collect()
    }

    /// Objective: fewest replicas.
    pub fn minimise_replicas(&mut self) {
        self.clear();
        for x in self.layout.replicas.iter().flatten() {
            self.program.columns[*x].cost = 1.0;
        }
    }

    /// Objective: highest accuracy.
    pub fn maximise_accuracy(&mut self) {
        self.clear();
        for (column, value) in self.accuracy() {
            self.program.columns[column].cost -= value;
        }
    }

    /// Objective: least cost of devices, with `weight * load_ms/1000 * price/3600` for each replica beyond the deployed ones.
    pub fn minimise_cost(&mut self, switching: bool) {
        self.clear();
        for (h, hardware) in self.problem.hardware.iter().enumerate() {
            self.program.columns[self.layout.devices[h]].cost = hardware.price_per_hour;
        }
        let weight = self.problem.switching_weight;
        if !switching || weight == 0.0 {
            return;
        }
        for (s, site) in self.space.sites.iter().enumerate() {
            let Some(x) = self.layout.replicas[s] else { continue };
            let load_ms = self.problem.pipelines[site.pipeline].variant(site.task, site.variant).load_ms;
            let price = self.problem.hardware[site.hardware.get()].price_per_hour;
            let added = *self.layout.added[s].get_or_insert_with(|| {
                let added = self.program.column(0.0, f64::INFINITY, false);
                let row = vec![(x, 1.0), (added, -1.0)];
                self.program.row(f64::NEG_INFINITY, f64::from(site.deployed), row);
                added
            });
            self.program.columns[added].cost = weight * load_ms / 1000.0 * price / 3600.0;
        }
    }

    fn clear(&mut self) {
        self.program.columns.iter_mut().for_each(|c| c.cost = 0.0);
    }
}
