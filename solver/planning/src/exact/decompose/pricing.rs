//! What does one pipeline of a fleet cost at given prices of devices, in the costs of the joint problem?

use super::floor::Tariff;
use super::pricer::{FleetAnswer, FleetPlan, KnownCost, LoadSearch, Loading, Pricer, ReplicaPrices};
use super::sub::{Column, PricedColumn, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::solution::choice::PlanIntegers;
use apportion_domain::PipelineIndex;
use apportion_mip::RunLimits;

/// Prices of replicas for the pricer.
struct ScaledPrices {
    prices: ReplicaPrices,
    /// The factor from the pricer's costs to those of the joint problem.
    scale: f64,
}

/// A search for the best plan of one pipeline at given prices, in the costs of the joint problem.
pub(super) struct PipelineSearch<'a> {
    sub: &'a Subproblem,
    pricer: &'a Pricer,
    search: LoadSearch<'a>,
    goal: Goal,
    scale: f64,
}

impl PipelineSearch<'_> {
    /// No plan costs less than this.
    pub fn bound(&self) -> f64 {
        self.search.bound() * self.scale
    }

    /// The difference of the best known plan from the bound; 0 if the search is over.
    pub fn gap(&self) -> f64 {
        if self.search.is_finished() { 0.0 } else { (self.search.cost_max() - self.search.bound()) * self.scale }
    }

    /// How many lanes were split before the budgets were decided.
    pub fn early_splits(&self) -> usize {
        self.search.early_splits()
    }

    /// Searches this many boxes, or fewer.
    pub fn run(&mut self, boxes: usize, limits: &RunLimits) {
        self.search.run(boxes, limits);
    }

    /// The best plan that was found since the last call.
    pub fn take_column(&mut self, limits: &RunLimits) -> Option<Column> {
        let plan = self.pricer.plan_of_loads(self.sub.part(), &self.search.take_plan()?);
        self.sub.column_of_fleet(plan, self.goal, limits)
    }
}

impl Subproblem {
    /// Whether [`Self::price_fast`] has an answer.
    pub fn can_price_fast(&self) -> bool {
        self.pricer.is_some()
    }

    /// Answers a question with a weaker bound and a plan that need no programme ([`super::pricer`]). Counts, budget and the
    /// conditions of a question for one pipeline are left out.
    pub fn price_fast(&self, goal: Goal, worth: Goal, prices: &[f64], limits: &RunLimits) -> PricedColumn {
        let Some(pricer) = &self.pricer else { return PricedColumn { column: None, bound: f64::NEG_INFINITY } };
        let ScaledPrices { prices, scale } = self.scaled_prices(goal, prices);
        let pipeline = self.problem.pipeline(PipelineIndex(0));
        let FleetAnswer { bound, plan } = pricer.price(pipeline, self.part(), &prices, limits);
        PricedColumn { column: plan.and_then(|plan| self.column_of_fleet(plan, worth, limits)), bound: bound * scale }
    }

    /// A plan of the pricer as a column.
    fn column_of_fleet(&self, plan: FleetPlan, worth: Goal, limits: &RunLimits) -> Option<Column> {
        self.column(PlanIntegers { groups: vec![plan.groups] }, worth, Some(plan.accuracy), limits)
    }

    /// The prices of replicas at these prices of devices.
    fn scaled_prices(&self, goal: Goal, prices: &[f64]) -> ScaledPrices {
        let (goal, scale) = match goal {
            Goal::Accuracy if self.weight <= 0.0 => (Goal::Nothing, 1.0),
            Goal::Accuracy => (Goal::Accuracy, self.weight),
            other => (other, 1.0),
        };
        let scaled: Vec<f64> = prices.iter().map(|p| p / scale).collect();
        let Tariff { replica, reward } = self.tariff(goal, &scaled);
        let loading = if goal == Goal::Switching { Loading::Paid } else { Loading::Free };
        ScaledPrices { prices: ReplicaPrices { replica, loading, reward }, scale }
    }

    /// A search for the best plan of whole replicas. `cost_max` is the cost of the best known plan at these prices. `None`
    /// if the pipeline cannot be priced fast, or if it has no plan.
    pub fn search_loads(&self, goal: Goal, prices: &[f64], cost_max: f64, gap: f64) -> Option<PipelineSearch<'_>> {
        let pricer = self.pricer.as_ref()?;
        let ScaledPrices { prices, scale } = self.scaled_prices(goal, prices);
        let known = KnownCost { cost_max: cost_max / scale, gap };
        let search = pricer.search(self.problem.pipeline(PipelineIndex(0)), self.part(), prices, known)?;
        Some(PipelineSearch { sub: self, pricer, search, goal, scale })
    }
}
