//! What happens when a planner plans again every 10 s, for the load that it measures?

use crate::reproduce::contenders::PaperContender;
use crate::reproduce::lab::{Lab, constant, drop_rate, in_parallel, load, mean, replay_with_scenario, with_pipeline};
use apportion_domain::{Dropping, Plan, Problem};
use apportion_estimator::controllers::{OfferedLoad, Replanner, ReplannerConfig};
use apportion_estimator::{ArrivalProcess, Replay, Scenario, Workload};
use apportion_planning::ladder;
use apportion_support::exit::Failure;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Planned demand over offered demand. Each contender uses the headroom that misses least on another seed.
pub const HEADROOMS: [f64; 5] = [1.0, 1.5, 2.2, 3.5, 5.0];

/// The first plan is for the mean of this many seconds.
const FIRST_SECONDS: usize = 10;

/// The factor between two demands of the grid. With a grid, one plan serves many periods.
const GRID: f64 = 1.12;

/// Without a plan for a demand, the planner is asked for the next smaller demand of the grid, at most this often.
const RETRIES_MAX: i32 = 12;

/// The plans of one contender by demand. A plan is made at its first use.
pub struct PlansByDemand<'a> {
    lab: &'a Lab,
    problem: Problem,
    /// The planner.
    pub contender: PaperContender,
    /// Whether plans must hold on a Poisson sample of their demand (the check loop).
    checked: bool,
    /// The factor between two demands of the grid.
    grid: f64,
    /// The largest rate of each plan's ladder over its demand, if plans have ladders.
    ladder: Option<f64>,
    /// Whether tables follow the load between plans.
    steward: bool,
    known: Mutex<KnownPlans>,
}

struct KnownPlans {
    /// Plans by the power of the grid's factor.
    plans: BTreeMap<i32, Option<Plan>>,
    /// The least power for which there is no plan for the whole demand.
    most: i32,
}

impl<'a> PlansByDemand<'a> {
    /// A cache without plans.
    pub fn new(lab: &'a Lab, problem: &Problem, contender: PaperContender) -> Self {
        let known = Mutex::new(KnownPlans { plans: BTreeMap::new(), most: i32::MAX });
        Self { lab, problem: problem.clone(), contender, checked: false, grid: GRID, ladder: None, steward: false, known }
    }

    /// The same cache on another grid of demands. Each plan has a ladder up to `up_to` times its demand.
    pub fn with_ladders(self, grid: f64, up_to: f64) -> Self {
        Self { grid, ladder: Some(up_to), ..self }
    }

    /// The same cache with a steward, which computes routing tables each second from the measured load (Loki section 5.1).
    pub fn with_steward(self) -> Self {
        Self { steward: true, ..self }
    }

    /// The same cache with plans of the check loop.
    pub fn with_check_loop(self) -> Self {
        Self { checked: true, ..self }
    }

    /// The plan for a demand, or for the largest smaller demand that has a plan.
    pub fn plan_at(&self, demand_qps: f64) -> Option<Plan> {
        Some(self.plan_below(self.grid_step(demand_qps))?.1)
    }

    /// The plan for a demand of the grid, or for the largest smaller one that has a plan, and the number of that demand.
    pub fn plan_below(&self, step: i32) -> Option<(i32, Plan)> {
        (step - RETRIES_MAX + 1..=step).rev().find_map(|step| Some((step, self.plan_on_grid(step)?)))
    }

    /// The number of the least demand of the grid that covers a demand.
    pub fn grid_step(&self, demand_qps: f64) -> i32 {
        (demand_qps.max(1.0).ln() / self.grid.ln()).ceil() as i32
    }

    /// The plan for a demand of the grid.
    pub fn plan_on_grid(&self, step: i32) -> Option<Plan> {
        // The lock is held while planning: two parallel runs ask for the same plans.
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let step = step.min(known.most);
        if let Some(plan) = known.plans.get(&step) {
            return plan.clone();
        }
        let demand_qps = self.grid.powi(step);
        let asked = with_pipeline(&self.problem, 0, |d| {
            d.demand_qps = demand_qps;
            d.min_accuracy = self.contender.floor;
        });
        // Pipeline-agnostic planning uses a trace only for its report.
        let seconds = if self.checked { self.lab.full_or_quick(20, 2) } else { 1 };
        let shown = constant(demand_qps, seconds, ArrivalProcess::Poisson, self.lab.seed);
        let trace = (self.checked || self.contender.planner == apportion_planning::Planner::Proteus).then_some(shown);
        let plan =
            asked.ok().and_then(|asked| self.lab.plan_with_ladder(&asked, self.contender.planner, trace, self.ladder));
        // A plan for a part of the demand is the largest possible plan: more demand changes nothing.
        if plan.as_ref().is_none_or(|p| p.pipelines[0].demand_qps < (1.0 - 1e-6) * demand_qps) {
            known.most = step;
        }
        known.plans.insert(step, plan.clone());
        plan
    }

    /// The cost per hour of a plan at a load, by its ladder; infinite without a ladder.
    pub fn price_per_hour(&self, plan: &Plan, load_qps: f64) -> f64 {
        ladder::price_per_hour(&self.problem, &plan.pipelines[0], load_qps).unwrap_or(f64::INFINITY)
    }

    /// All plans that were made, by demand.
    pub fn plans_made(&self) -> Vec<Plan> {
        let known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.plans.values().flatten().cloned().collect()
    }

    /// Runs a load that plans follow. `None` without a first plan.
    pub fn run(&self, rates: &[f64], seed: u64, headroom: f64, dropping: Dropping) -> Result<Option<Replay>, Failure> {
        let workload: Workload = load(rates, ArrivalProcess::Poisson, seed);
        let first = &rates[..rates.len().min(FIRST_SECONDS)];
        let Some(start) = self.plan_at(headroom * mean(first)) else { return Ok(None) };
        let follow = |offered: &OfferedLoad| self.plan_at(headroom * offered.qps[0].max(offered.ewma_qps[0]));
        let controllers: Vec<Box<dyn apportion_estimator::Controller + '_>> =
            vec![Box::new(Replanner::new(ReplannerConfig::default(), follow))];
        let scenario = Scenario { controllers, steward: self.steward, ..Scenario::default() };
        replay_with_scenario(&self.problem, &start, &workload, dropping, scenario).map(Some)
    }

    /// Every headroom with every policy.
    pub fn settings(headrooms: &[f64], policies: &[Dropping]) -> Vec<TunedSetting> {
        headrooms.iter().flat_map(|&h| policies.iter().map(move |&d| TunedSetting { headroom: h, dropping: d })).collect()
    }

    /// The shares that settings miss on a load, under the seed that chooses. Without a plan everything is missed.
    pub fn missed_by_setting(&self, rates: &[f64], settings: &[TunedSetting]) -> Result<Vec<f64>, Failure> {
        in_parallel(settings, |&TunedSetting { headroom, dropping }| {
            let run = self.run(rates, self.lab.seed, headroom, dropping)?;
            Ok(run.map_or(1.0, |r| drop_rate(&r.simulation.total)))
        })
    }

    /// Runs a setting under the seed that judges.
    pub fn run_held_out(&self, rates: &[f64], setting: TunedSetting) -> Result<Option<TunedRun>, Failure> {
        let run = self.run(rates, self.lab.held_out_seed(), setting.headroom, setting.dropping)?;
        Ok(run.map(|run| TunedRun { setting, run }))
    }

    /// Chooses the headroom and the dropping policy that miss least on one seed, and runs them on the next seed.
    pub fn run_with_best_settings(
        &self,
        rates: &[f64],
        headrooms: &[f64],
        policies: &[Dropping],
    ) -> Result<Option<TunedRun>, Failure> {
        let tried = Self::settings(headrooms, policies);
        let missed = self.missed_by_setting(rates, &tried)?;
        let Some(least) = (0..tried.len()).min_by(|&a, &b| missed[a].total_cmp(&missed[b])) else { return Ok(None) };
        self.run_held_out(rates, tried[least])
    }
}

/// What a contender may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunedSetting {
    /// Planned demand over offered demand.
    pub headroom: f64,
    /// The dropping policy.
    pub dropping: Dropping,
}

/// A run under the seed that judges.
pub struct TunedRun {
    /// Its setting, which was chosen elsewhere.
    pub setting: TunedSetting,
    /// The run.
    pub run: Replay,
}

/// Chooses the least headroom that misses at most `misses_max` of the requests on one seed, or else the one that misses
/// least. Runs it on the next seed.
pub fn run_with_least_headroom(
    planned: &PlansByDemand<'_>,
    rates: &[f64],
    misses_max: f64,
) -> Result<Option<TunedRun>, Failure> {
    let settings = PlansByDemand::settings(&HEADROOMS, &planned.contender.dropping[..1]);
    let missed = planned.missed_by_setting(rates, &settings)?;
    let enough = missed.iter().position(|m| *m <= misses_max);
    let least = (0..missed.len()).min_by(|&a, &b| missed[a].total_cmp(&missed[b])).unwrap_or_default();
    planned.run_held_out(rates, settings[enough.unwrap_or(least)])
}
