//! When is a pipeline planned again, for which demand, and which plan does it ask for?

use super::budget::{MissedRequests, PipelineBudget, promise_of};
use super::demand::Demand;
use apportion_domain::{Constraint, Mode, Problem, Shortfall};
use apportion_planning::change::{IMPROVE_AFTER_SECONDS, Loads, keep_headroom};
use apportion_wire::{ObjectiveSpec, PipelineSpec, ReplanMode, ReplanSpec};
use std::time::{Duration, Instant};

/// Seconds of Poisson arrivals on which a plan must hold. 20 s show queues that build up; more would make a round slow.
pub const TRACE_S: u64 = 20;
/// How often a round lowers a demand that the devices cannot serve.
pub const LOWER_MAX: u32 = 8;
/// See [`IMPROVE_AFTER_SECONDS`].
const IMPROVE_AFTER: Duration = Duration::from_secs(IMPROVE_AFTER_SECONDS);
/// Two seconds of a changed load say little of it. A second round follows when the mean is over more seconds. Four seconds
/// halve the error.
const CONFIRM_AFTER: Duration = Duration::from_secs(4);
/// A round for missed requests follows the last one after this time. Meanwhile replicas load, and the misses of before
/// leave the window.
const MISSES_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A large change of the load that moves the planned demand by less than this share changes no plan: the demand may have a
/// floor.
const DEMAND_CHANGE_MIN: f64 = 0.1;

/// What happens when a better plan is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBetterPlan {
    /// It is deployed.
    Apply,
    /// It is only stored, for people to read.
    Advise,
}

/// A pipeline to be planned.
#[derive(Clone, Debug)]
pub struct ReplanInput {
    /// Its spec with profiles.
    pub spec: PipelineSpec,
    /// The demand to plan for.
    pub demand_qps: f64,
    /// The demand at which the plan in force must still hold to stay. It is lower than `demand_qps`: otherwise a small
    /// change of the load would replace a plan that was made for exactly that demand.
    pub keep_qps: f64,
    /// The last loads, by which costs are compared.
    pub loads: Loads,
    /// What happens when a better plan is found.
    pub on_better_plan: OnBetterPlan,
    /// Whether a better plan may replace one that still holds: not right after a change. Where costs decide, the change has
    /// a price instead.
    pub may_improve: bool,
    /// The misses of the last seconds, if they are more than the promise permits. They count as much as an estimate: no
    /// plan is said to hold beside them.
    pub missed: Option<MissedRequests>,
    /// Factor on a constant headroom of ladders, at least 1. Missed requests raise it, as they raise `demand_qps`. Ladders
    /// without a constant one follow the misses by themselves.
    pub ladder_factor: f64,
}

/// What missed requests say of the plan in force, whatever an estimate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChoiceByMisses {
    /// Another plan replaces it, for this reason.
    Replace(String),
    /// It stays, for this reason.
    Keep(String),
}

impl ReplanInput {
    /// The choice while so many requests miss. `more` says how another plan serves more, if one does, and `none` that none
    /// does. A plan in force that is too young is not judged by its misses.
    pub(super) fn choose_by_misses(&self, missed: MissedRequests, more: Option<&str>, none: &str) -> ChoiceByMisses {
        match (more, self.may_improve) {
            (Some(how), true) => ChoiceByMisses::Replace(format!("{missed}, whatever the estimate says{how}")),
            (Some(_), false) => {
                ChoiceByMisses::Keep(format!("{missed}; the plan in force is too young to be judged by that"))
            }
            (None, _) => ChoiceByMisses::Keep(format!("{missed}; {none}")),
        }
    }

    /// The wish of a pipeline with a demand that was seen elsewhere. Its plans are only advice. A plan that holds is not
    /// improved.
    #[must_use]
    pub fn for_seen_demand(spec: PipelineSpec, seen_qps: f64) -> Self {
        let settings = spec.replan.clone().unwrap_or_default();
        let with = |headroom: f64| (seen_qps * headroom).max(settings.min_qps);
        Self {
            demand_qps: with(settings.headroom),
            keep_qps: with(keep_headroom(settings.headroom)),
            loads: std::iter::once(seen_qps).collect(),
            on_better_plan: OnBetterPlan::Advise,
            may_improve: false,
            missed: None,
            ladder_factor: 1.0,
            spec,
        }
    }

    /// The replan settings of the pipeline.
    #[must_use]
    pub fn settings(&self) -> ReplanSpec {
        self.spec.replan.clone().unwrap_or_default()
    }

    /// The objective of its plans. Scaling actions have the least cost.
    #[must_use]
    pub fn objective(&self) -> ObjectiveSpec {
        let ReplanSpec { objective, scaling, .. } = self.settings();
        let least_cost = || ObjectiveSpec { mode: Mode::MinCost.name().to_owned(), ..ObjectiveSpec::default() };
        objective.unwrap_or_else(|| scaling.map_or_else(ObjectiveSpec::default, |_| least_cost()))
    }
}

/// One pipeline between two rounds of replanning.
#[derive(Debug, Default)]
pub struct WatchedPipeline {
    /// Its load.
    pub demand: Demand,
    /// All seconds before this unix second were observed; 0 before the first observation.
    pub observed_until: i64,
    /// The version of its row.
    pub version: i64,
    /// Its outcomes; `None` before the first report.
    pub budget: Option<PipelineBudget>,
    due_at: Option<Instant>,
    changed_at: Option<Instant>,
    /// The last round for missed requests.
    missed_at: Option<Instant>,
    planned_qps: f64,
    /// Whether the next round is for a large change of the load.
    has_changed: bool,
}

impl WatchedPipeline {
    /// Whether it is time for a round.
    #[must_use]
    pub fn is_due(&self, at: Instant) -> bool {
        self.due_at.is_none_or(|due| due <= at)
    }

    /// Makes the pipeline due at once.
    pub fn make_due(&mut self) {
        self.due_at = None;
    }

    /// Notes that the plan in force came into force at this moment.
    pub fn plan_changed(&mut self, at: Instant) {
        self.changed_at = Some(at);
    }

    /// Waits for one period before the first round, because the plan in force is another leader's.
    pub fn inherit_plan(&mut self, at: Instant, settings: &ReplanSpec) {
        self.due_at = Some(at + period(settings));
        self.changed_at = Some(at);
    }

    /// Takes one more second into account; returns whether a large change of the load needs another plan.
    pub fn observe(&mut self, at: Instant, offered: u64, settings: &ReplanSpec) -> bool {
        let is_large = self.demand.observe(offered);
        let factor = self.budget.as_ref().map_or(1.0, PipelineBudget::demand_factor);
        let demand_qps = self.demand.planned_qps(settings.headroom * factor, settings.min_qps);
        let has_moved = (demand_qps - self.planned_qps).abs() > DEMAND_CHANGE_MIN * self.planned_qps;
        if is_large && has_moved {
            self.due_at = Some(at);
            self.has_changed = true;
        }
        is_large && has_moved
    }

    /// The budget of a promise of this percentile. Another promise begins another budget.
    pub fn budget_for(&mut self, percentile: Option<f64>) -> &mut PipelineBudget {
        let promise = promise_of(percentile);
        if self.budget.as_ref().is_some_and(|budget| budget.promise() != promise) {
            self.budget = None;
        }
        self.budget.get_or_insert_with(|| PipelineBudget::new(promise))
    }

    /// Makes the pipeline due if requests miss, and no round for them was lately; returns whether it did.
    pub fn react_to_misses(&mut self, at: Instant) -> bool {
        let is_known = self.missed_at.is_some_and(|last| at.saturating_duration_since(last) < MISSES_AGAIN_AFTER);
        let is_due = !is_known && self.budget.as_ref().is_some_and(|budget| budget.missed().is_some());
        if is_due {
            (self.due_at, self.missed_at) = (Some(at), Some(at));
        }
        is_due
    }

    /// The demand of the last round.
    #[must_use]
    pub fn planned_qps(&self) -> f64 {
        self.planned_qps
    }

    /// Begins a round: the pipeline's wish. The next round comes one period later, and earlier after a large change of the
    /// load.
    pub fn begin_round(
        &mut self,
        at: Instant,
        spec: PipelineSpec,
        settings: &ReplanSpec,
        cause: ReplanCause,
    ) -> ReplanInput {
        let missed = self.budget.as_ref().and_then(PipelineBudget::missed);
        let ladder_factor = self.budget.as_ref().map_or(1.0, PipelineBudget::demand_factor);
        let demand_qps = self.demand.planned_qps(settings.headroom * ladder_factor, settings.min_qps);
        let keep_qps = self.demand.planned_qps(keep_headroom(settings.headroom) * ladder_factor, settings.min_qps);
        self.planned_qps = demand_qps;
        self.demand.set_planned_rate(demand_qps / (settings.headroom * ladder_factor).max(1.0));
        let wait = if std::mem::take(&mut self.has_changed) { CONFIRM_AFTER } else { Duration::MAX };
        self.due_at = Some(at + period(settings).min(wait));
        let is_old = may_improve_after(self.changed_at, at);
        let on_better_plan =
            if settings.mode == ReplanMode::Apply.name() { OnBetterPlan::Apply } else { OnBetterPlan::Advise };
        let may_improve = cause == ReplanCause::Change || is_old;
        let loads = self.demand.loads();
        let peak_qps = loads.peak_qps(stabilisation_s(&spec)) * settings.headroom * ladder_factor;
        // the planned rate stays that of the demand: what is kept for a while is no change of the load
        let demand_qps = if settings.scaling.is_some() { demand_qps.max(peak_qps) } else { demand_qps };
        ReplanInput { spec, demand_qps, keep_qps, loads, on_better_plan, may_improve, missed, ladder_factor }
    }
}

/// Why a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplanCause {
    /// The fleet or the load has changed.
    Change,
    /// More requests miss than the promise permits.
    Misses,
    /// The period is over.
    Period,
}

/// The stabilisation window of scaling actions, in seconds: replicas go after a lower load for the load latency of the
/// slowest variant (INFaaS section 4.2.2, T_v), and no earlier than a plan in force is improved.
fn stabilisation_s(spec: &PipelineSpec) -> f64 {
    let loads_ms = spec.tasks.iter().flat_map(|task| &task.variants).filter_map(|variant| variant.load_ms);
    loads_ms.fold(0.0, f64::max).max(IMPROVE_AFTER.as_secs_f64() * 1_000.0) / 1_000.0
}

/// Whether a plan that came into force at `changed_at` is old enough to be improved while it still holds.
pub(crate) fn may_improve_after(changed_at: Option<Instant>, at: Instant) -> bool {
    changed_at.is_none_or(|changed| at.saturating_duration_since(changed) >= IMPROVE_AFTER)
}

/// Time from one round to the next.
pub(crate) fn period(settings: &ReplanSpec) -> Duration {
    Duration::from_secs_f64(settings.period_s.clamp(0.5, 86_400.0))
}

/// Why no demand was found that the devices can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no plan exists: {0}")]
pub struct NoPlan(pub String);

impl NoPlan {
    /// The shortfalls in words.
    #[must_use]
    pub fn of(shortfalls: &[Shortfall]) -> Self {
        let all: Vec<_> = shortfalls.iter().map(|s| format!("{} at {}", s.constraint, s.place)).collect();
        Self(all.join(", "))
    }
}

/// A lower demand after the devices could not serve `demand_qps`: the highest that they can serve, if the shortfalls name
/// it.
///
/// # Errors
/// If a lower demand does not help.
pub fn lower_demand(demand_qps: f64, shortfalls: &[Shortfall]) -> Result<f64, NoPlan> {
    if !shortfalls.iter().any(|s| s.constraint == Constraint::Capacity) {
        return Err(NoPlan::of(shortfalls));
    }
    let relaxed = shortfalls.iter().filter_map(|s| s.relax.as_ref());
    let highest = relaxed.filter(|r| r.pointer.ends_with("/demand_qps")).map(|r| r.to * 0.999).next();
    Ok(highest.unwrap_or(demand_qps * 0.85).min(demand_qps * 0.999))
}

/// The addition to a reason if the demand was lowered.
#[must_use]
pub fn describe_lowered(problem: &Problem, asked_qps: f64) -> String {
    let budget = problem.objective.budget_per_hour.map_or("", |_| " within the budget");
    format!("; the devices cannot serve {asked_qps:.1}/s{budget}, so it is made for the most they can")
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_serving::scaling::error_budget::OutcomeCount;
    use apportion_wire::ScalingReplanSpec;

    #[test]
    fn a_pipeline_is_due_again_after_its_period() {
        let (begin, settings) = (Instant::now(), ReplanSpec::default());
        let mut watched = WatchedPipeline::default();
        assert!(watched.is_due(begin));
        let spec = PipelineSpec { name: "p".into(), ..Default::default() };
        let wish = watched.begin_round(begin, spec, &settings, ReplanCause::Period);
        assert_eq!((wish.demand_qps, wish.on_better_plan), (settings.min_qps, OnBetterPlan::Advise));
        assert!(!watched.is_due(begin) && watched.is_due(begin + period(&settings)));
    }

    #[test]
    fn a_large_change_is_confirmed_before_the_period_is_over() {
        let (begin, settings) = (Instant::now(), ReplanSpec::default());
        let round = |watched: &mut WatchedPipeline, at| {
            let spec = PipelineSpec { name: "p".into(), ..Default::default() };
            watched.begin_round(at, spec, &settings, ReplanCause::Change);
        };
        let mut watched = WatchedPipeline::default();
        (0..20).for_each(|_| assert!(!watched.observe(begin, 100, &settings)));
        round(&mut watched, begin);
        assert!(!watched.is_due(begin + CONFIRM_AFTER));
        assert!(watched.observe(begin, 200, &settings) && watched.is_due(begin));
        round(&mut watched, begin);
        assert!(!watched.is_due(begin) && watched.is_due(begin + CONFIRM_AFTER));
        round(&mut watched, begin + CONFIRM_AFTER);
        assert!(!watched.is_due(begin + 2 * CONFIRM_AFTER), "once");
    }

    #[test]
    fn misses_make_a_round_due_and_raise_its_demand() {
        let (begin, settings) = (Instant::now(), ReplanSpec::default());
        let mut watched = WatchedPipeline::default();
        for second in 0..30 {
            watched.budget_for(None).count(second, OutcomeCount { in_time: 100, missed: 0 });
            watched.observe(begin, 100, &settings);
        }
        let spec = || PipelineSpec { name: "p".into(), ..Default::default() };
        let calm = watched.begin_round(begin, spec(), &settings, ReplanCause::Period);
        assert!(!watched.react_to_misses(begin) && calm.missed.is_none());
        (30..35).for_each(|second| watched.budget_for(None).count(second, OutcomeCount { in_time: 50, missed: 50 }));
        assert!(watched.react_to_misses(begin) && watched.is_due(begin));
        assert!(!watched.react_to_misses(begin + Duration::from_secs(9)), "replicas load meanwhile");
        assert!(watched.react_to_misses(begin + MISSES_AGAIN_AFTER));
        let raised = watched.begin_round(begin, spec(), &settings, ReplanCause::Misses);
        assert_eq!(raised.missed.map(|m| (m.missed, m.ended)), Some((250, 1_000)));
        assert!(raised.demand_qps > 1.4 * calm.demand_qps, "{} after {}", raised.demand_qps, calm.demand_qps);
        assert!((raised.demand_qps - calm.demand_qps * raised.ladder_factor).abs() < 1e-9, "{raised:?}");
        watched.budget_for(Some(95.0));
        assert!(watched.budget.as_ref().is_some_and(|b| b.missed().is_none()), "another promise, another budget");
    }

    #[test]
    fn scaling_actions_keep_the_demand_of_a_load_that_fell() {
        let begin = Instant::now();
        let spec = |load_ms: f64| {
            let variant = apportion_wire::VariantSpec { name: "v".into(), load_ms: Some(load_ms), ..Default::default() };
            let task = apportion_wire::TaskSpec { name: "t".into(), variants: vec![variant], ..Default::default() };
            PipelineSpec { name: "p".into(), tasks: vec![task], ..Default::default() }
        };
        let scaling = ReplanSpec { scaling: Some(ScalingReplanSpec::default()), ..ReplanSpec::default() };
        let demand_after = |seconds: u32, load_ms: f64, settings: &ReplanSpec| {
            let mut watched = WatchedPipeline::default();
            for _ in 0..60 {
                watched.observe(begin, 100, settings);
            }
            watched.begin_round(begin, spec(load_ms), settings, ReplanCause::Change);
            for _ in 0..seconds {
                watched.observe(begin, 10, settings);
            }
            let wish = watched.begin_round(begin, spec(load_ms), settings, ReplanCause::Change);
            assert!(wish.keep_qps < 0.5 * 120.0, "{wish:?}");
            let is_change = watched.observe(begin, 10, settings);
            assert!(!is_change, "what is kept is no change of the load");
            wish.demand_qps
        };
        assert!(demand_after(20, 50.0, &ReplanSpec::default()) < 20.0);
        assert!(demand_after(10, 50.0, &scaling) > 100.0, "the window has periods of ten seconds");
        assert!(demand_after(20, 50.0, &scaling) < 20.0);
        assert!(demand_after(20, 40_000.0, &scaling) > 100.0, "the variant loads for 40 s");
        let wish = ReplanInput::for_seen_demand(PipelineSpec { replan: Some(scaling), ..spec(1.0) }, 1.0);
        assert_eq!(wish.objective().mode, "min_cost");
    }

    #[test]
    fn a_seen_demand_gets_the_headroom_and_is_only_advised() {
        let spec = || PipelineSpec { name: "p".into(), ..Default::default() };
        let wish = ReplanInput::for_seen_demand(spec(), 100.0);
        assert_eq!((wish.demand_qps, wish.on_better_plan), (120.0, OnBetterPlan::Advise));
        assert!((wish.keep_qps - 110.0).abs() < 1e-9, "{}", wish.keep_qps);
        let idle = ReplanInput::for_seen_demand(spec(), 0.0);
        assert_eq!((idle.demand_qps, idle.keep_qps), (1.0, 1.0));
    }

    #[test]
    fn a_young_plan_is_improved_only_after_a_change() {
        let (begin, settings) = (Instant::now(), ReplanSpec::default());
        let spec = || PipelineSpec { name: "p".into(), ..Default::default() };
        let mut watched = WatchedPipeline::default();
        watched.plan_changed(begin);
        assert!(!watched.begin_round(begin, spec(), &settings, ReplanCause::Period).may_improve);
        assert!(watched.begin_round(begin, spec(), &settings, ReplanCause::Change).may_improve);
        assert!(watched.begin_round(begin + IMPROVE_AFTER, spec(), &settings, ReplanCause::Period).may_improve);
    }

    #[test]
    fn a_demand_without_a_capacity_shortfall_is_not_lowered() {
        assert_eq!(lower_demand(10.0, &[]), Err(NoPlan(String::new())));
    }
}
