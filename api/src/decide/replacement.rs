//! Does the plan in force stay, or does a new plan replace it?
//!
//! A plan in force that does not hold any more is replaced. Otherwise the objective decides. For the fewest devices and for
//! the highest accuracy, it stays while it is within 5 % of the best: a change would cost loads and gain little. Under
//! `hardware_then_accuracy`, cheaper variants are for loads that the most accurate ones cannot serve: a plan with cheaper
//! variants does not stay when a plan without them serves the load again, however close its accuracy is. For the
//! least cost, it stays unless the new plan had been cheaper under the last loads, by more than the change costs
//! ([`apportion_planning::change`]).
//!
//! One rule judges whether a plan holds: on the same fresh samples of the same load, which no search has seen.

use super::replan::{ChoiceByMisses, ReplanInput};
use apportion_domain::{Mode, PipelinePlan, Plan, Problem, SLACK};
use apportion_planning::change::CostComparison;
use apportion_planning::ladder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A plan this close to the best, in accuracy and in replicas, is not replaced.
const CLOSE_ENOUGH: f64 = 0.05;

/// The costs of two plans under the last loads. The new plan replaces the other if it and the change cost less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Costs {
    /// Length of the last loads in seconds; 0 if no load has been seen.
    pub seconds: u64,
    /// Mean price per hour of the plan in force, by its ladder if it has one.
    pub in_force_per_hour: f64,
    /// Mean price per hour of the new plan, by its ladder if it has one.
    pub new_per_hour: f64,
    /// Price of the change, spread over the same seconds: the new plan runs beside the old one for ten seconds, while it
    /// loads.
    pub change_per_hour: f64,
}

impl From<CostComparison> for Costs {
    fn from(of: CostComparison) -> Self {
        Self {
            seconds: of.seconds(),
            in_force_per_hour: of.in_force_per_hour(),
            new_per_hour: of.new_per_hour(),
            change_per_hour: of.change_per_hour(),
        }
    }
}

/// The decision about the plan in force.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplacementDecision {
    /// Whether the plan in force stays.
    pub keep: bool,
    /// The reason in words.
    pub why: String,
    /// The costs, if they decided.
    pub costs: Option<Costs>,
}

impl ReplacementDecision {
    pub(super) fn keep(why: impl Into<String>) -> Self {
        Self { keep: true, why: why.into(), costs: None }
    }

    pub(super) fn replace(why: impl Into<String>) -> Self {
        Self { keep: false, why: why.into(), costs: None }
    }
}

/// The plan in force and the new one, judged on the same fresh samples at [`replay_qps`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedSides {
    /// The checker's findings about the plan in force, one sentence each. With a finding, no sample is played.
    pub findings: Vec<String>,
    /// Share of requests within the SLO under the plan in force; 0 if it could not be played.
    pub in_force: f64,
    /// The same under the new plan.
    pub new: f64,
    /// Number of samples.
    pub samples: u64,
}

/// A new plan that may replace the one in force.
#[derive(Clone, Copy, Debug)]
pub struct CandidatePlan<'a> {
    /// Its part for the pipeline.
    pub plan: &'a PipelinePlan,
    /// Share of requests within the SLO at the demand that it was made for, by its planner's judgement.
    pub at_its_demand: f64,
}

/// The load on which both plans are judged: the demand at which the plan in force must still hold to stay.
#[must_use]
pub fn replay_qps(wish: &ReplanInput, problem: &Problem, current: &PipelinePlan) -> f64 {
    let keep_qps = keep_qps(wish, problem);
    // Above its own demand, its ladder says which replicas it has.
    if is_by_ladder(problem, current) { keep_qps.min(current.demand_qps) } else { keep_qps }
}

fn keep_qps(wish: &ReplanInput, problem: &Problem) -> f64 {
    wish.keep_qps.min(problem.pipelines[0].demand_qps)
}

fn is_by_ladder(problem: &Problem, current: &PipelinePlan) -> bool {
    problem.objective.mode == Mode::MinCost && !current.ladder.is_empty()
}

/// Decides whether `current`, the plan in force, stays. `judged` are both plans at [`replay_qps`].
///
/// While requests miss, no plan is said to hold. A new plan that serves more replaces it, unless it is too young to be
/// judged by them.
#[must_use]
pub fn choose(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    judged: &JudgedSides,
    candidate: CandidatePlan<'_>,
) -> ReplacementDecision {
    let by_estimate = ChoiceByEstimate { wish, problem, current, judged }.choose(candidate);
    let Some(missed) = wish.missed.filter(|_| by_estimate.keep) else { return by_estimate };
    let new = candidate.plan;
    let price = |part| ladder::price_at(problem, part, keep_qps(wish, problem));
    let serves_more = new.demand_qps > current.demand_qps * (1.0 + CLOSE_ENOUGH) || price(new) > price(current) + SLACK;
    let more = serves_more.then_some("; the new plan serves more");
    match wish.choose_by_misses(missed, more, "no plan on these devices serves more") {
        ChoiceByMisses::Replace(why) => ReplacementDecision::replace(why),
        ChoiceByMisses::Keep(why) => ReplacementDecision { why, ..by_estimate },
    }
}

/// The choice if no request missed.
struct ChoiceByEstimate<'a> {
    wish: &'a ReplanInput,
    problem: &'a Problem,
    current: &'a PipelinePlan,
    judged: &'a JudgedSides,
}

impl ChoiceByEstimate<'_> {
    fn choose(&self, candidate: CandidatePlan<'_>) -> ReplacementDecision {
        let &Self { wish, problem, current, judged } = self;
        if let Some(choice) = choose_where_it_fails(problem, judged) {
            return choice;
        }
        let asked = problem.pipelines[0].percentile / 100.0;
        let new = candidate.plan;
        let beyond = || choose_beyond_ladder(problem, current, new, keep_qps(wish, problem));
        match problem.objective.mode {
            Mode::MinCost
                if is_by_ladder(problem, current)
                    && let Some(choice) = beyond() =>
            {
                choice
            }
            Mode::MinCost if candidate.at_its_demand.min(judged.new) < asked => ReplacementDecision::keep(format!(
                "the plan in force still holds and the new one attains {:.4}",
                candidate.at_its_demand.min(judged.new)
            )),
            Mode::MinCost => choose_by_cost(wish, problem, current, new),
            Mode::HardwareThenAccuracy | Mode::MaxAccuracy => choose_by_closeness(wish, problem, current, new),
        }
    }
}

/// The choice where the plan in force does not hold; `None` where it holds.
pub(super) fn choose_where_it_fails(problem: &Problem, judged: &JudgedSides) -> Option<ReplacementDecision> {
    if let Some(finding) = judged.findings.first() {
        return Some(ReplacementDecision::replace(format!("the plan in force does not fit any more: {finding}")));
    }
    let JudgedSides { in_force, new, samples, .. } = judged;
    if *in_force >= problem.pipelines[0].percentile / 100.0 {
        return None;
    }
    let attains = format!("on {samples} fresh samples the plan in force attains {in_force:.4} and the new one {new:.4}");
    Some(match new <= in_force {
        true => ReplacementDecision::keep(format!("{attains}, and none does better")),
        false => ReplacementDecision::replace(attains),
    })
}

/// The plan in force as a plan for the problem's demand. Cost and utilisation are cleared: they belong to its own demand.
/// Latency budgets are cleared too: the time of a hop may have been measured anew. The checker computes all of them itself.
#[must_use]
pub fn at_demand(current: &PipelinePlan, problem: &Problem) -> Plan {
    let mut part = current.clone();
    part.demand_qps = problem.pipelines[0].demand_qps;
    part.assignments.iter_mut().for_each(|a| (a.utilisation, a.latency_budget_ms) = (0.0, 0.0));
    Plan { pipelines: vec![part], cost_per_hour: 0.0 }
}

/// The choice if the ladder in force does not reach the demand, or needs more devices than there are.
fn choose_beyond_ladder(
    problem: &Problem,
    current: &PipelinePlan,
    new: &PipelinePlan,
    qps: f64,
) -> Option<ReplacementDecision> {
    let plan = Plan { pipelines: vec![ladder::at_rate(current, qps)], cost_per_hour: 0.0 };
    if !ladder::fits(problem, &plan) {
        return Some(ReplacementDecision::replace(format!(
            "there are fewer devices than the ladder in force asks for at {qps:.1}/s"
        )));
    }
    let (ends, reaches) = (ladder::end_qps(current), ladder::end_qps(new));
    let is_short = ladder::is_outgrown(current, new, qps);
    let why = || format!("the ladder in force ends at {ends:.1}/s, below {qps:.1}/s, and the new one at {reaches:.1}/s");
    is_short.then(|| ReplacementDecision::replace(why()))
}

fn choose_by_cost(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    new: &PipelinePlan,
) -> ReplacementDecision {
    let price = |part| move |qps| ladder::price_at(problem, part, qps);
    let compared = wish.loads.compare(price(current), price(new));
    let costs = Costs::from(compared);
    if costs.seconds == 0 {
        return ReplacementDecision::keep("the plan in force still holds and no load has been seen yet");
    }
    let Costs { seconds, in_force_per_hour, new_per_hour, change_per_hour } = costs;
    let keep = !compared.is_worth_it();
    let verdict = if keep { "not less by more than the change costs" } else { "less" };
    let why = format!(
        "under the loads of the last {seconds} s the new plan would have cost {new_per_hour:.4} per hour and the change \
         {change_per_hour:.4}, the plan in force {in_force_per_hour:.4}: {verdict}"
    );
    ReplacementDecision { keep, why, costs: Some(costs) }
}

/// Compares accuracy, and replicas where the objective saves them.
fn choose_by_closeness(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    new: &PipelinePlan,
) -> ReplacementDecision {
    let replicas = |part: &PipelinePlan| part.assignments.iter().map(|a| f64::from(a.replicas)).sum::<f64>();
    let counts = problem.objective.mode == Mode::HardwareThenAccuracy;
    let pipeline = &problem.pipelines[0];
    let returns = counts && pipeline.is_most_accurate(new) && !pipeline.is_most_accurate(current);
    let is_accurate = !returns && current.accuracy >= new.accuracy * (1.0 - CLOSE_ENOUGH);
    let is_small = !counts || replicas(current) <= replicas(new) * (1.0 + CLOSE_ENOUGH);
    let of_each = |part: &PipelinePlan| {
        let of = format!("accuracy {:.4}", part.accuracy);
        if counts { format!("{} replicas, {of}", replicas(part)) } else { of }
    };
    let both = format!("{} against {}", of_each(current), of_each(new));
    if is_accurate && is_small {
        return ReplacementDecision::keep(format!("the plan in force still holds and is within 5 % of the best: {both}"));
    }
    if !wish.may_improve {
        return ReplacementDecision::keep("the plan in force still holds and is too young to be improved on");
    }
    ReplacementDecision::replace(format!("better than the plan in force: it had {both}"))
}

/// Describes a new plan, and why it replaces another.
#[must_use]
pub fn describe_plan(problem: &Problem, plan: &Plan, choice: Option<&ReplacementDecision>) -> String {
    let part = &plan.pipelines[0];
    let mut text = format!("{} replicas, accuracy {:.4}", plan.replicas(), part.accuracy);
    if problem.objective.mode == Mode::MinCost {
        text += &format!(", {:.4} per hour at its demand", ladder::price_at(problem, part, part.demand_qps));
    }
    choice.map_or(text.clone(), |choice| format!("{text}; {}", choice.why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::budget::MissedRequests;
    use crate::decide::replan::{OnBetterPlan, TRACE_S};
    use crate::documents;
    use apportion_estimator::{ArrivalProcess, Workload};
    use apportion_planning::{JudgeEffort, PlanningOptions, judge_side_by_side, plan};
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;

    /// One task with two variants, on a cheap hardware type and a dear one that is no faster.
    fn problem(mode: &str, demand_qps: f64, counts: [u32; 2], budget_per_hour: Option<f64>) -> Problem {
        let rows = |latency_ms: f64| {
            ["cheap", "dear"].map(|hardware| json!({"hardware": hardware, "batch": 1, "latency_ms": latency_ms}))
        };
        let variant = |name: &str, accuracy: f64, latency_ms: f64| {
            let profile = rows(latency_ms);
            json!({"name": name, "accuracy": accuracy, "profile": profile})
        };
        let document = json!({
            "version": 1,
            "objective": {"mode": mode, "budget_per_hour": budget_per_hour},
            "hardware": [
                {"name": "cheap", "price_per_hour": 1.0, "count": counts[0]},
                {"name": "dear", "price_per_hour": 3.0, "count": counts[1]}],
            "pipelines": [{"name": "p", "demand_qps": demand_qps, "slo_ms": 200.0, "tasks": [
                {"name": "t", "variants": [variant("good", 0.9, 20.0), variant("fair", 0.88, 10.0)]}]}]
        });
        documents::problem(&document).expect("a problem")
    }

    /// Its plan with the attainment.
    fn planned(problem: &Problem, ladder: Option<f64>) -> (Plan, f64) {
        let trace = Some(workload(problem.pipelines[0].demand_qps));
        let options = PlanningOptions { ladder, trace, ..PlanningOptions::new(Arc::new(Duration::default)) };
        let (outcome, report) = plan(problem, &options);
        (outcome.plan().expect("a plan").clone(), report.estimate.map_or(1.0, |estimate| estimate.attainment))
    }

    fn wish(qps: f64, loads: &[f64]) -> ReplanInput {
        let spec = apportion_wire::PipelineSpec { name: "p".into(), ..Default::default() };
        let loads = loads.iter().copied().collect();
        ReplanInput {
            spec,
            demand_qps: qps,
            keep_qps: qps,
            loads,
            on_better_plan: OnBetterPlan::Apply,
            may_improve: true,
            missed: None,
            ladder_factor: 1.0,
        }
    }

    const MANY: [u32; 2] = [40, 40];
    const MINUTE: [f64; 8] = [100.0; 8];

    fn chosen(wish: &ReplanInput, problem: &Problem, in_force: &Plan, new: &Plan) -> ReplacementDecision {
        chosen_with(wish, problem, in_force, new, 1.0)
    }

    /// The choice with both plans judged as `act` does it.
    fn chosen_with(
        wish: &ReplanInput,
        problem: &Problem,
        in_force: &Plan,
        new: &Plan,
        at_its_demand: f64,
    ) -> ReplacementDecision {
        let current = &in_force.pipelines[0];
        let qps = replay_qps(wish, problem, current);
        let at = problem.changed(|draft| draft.pipelines[0] = draft.pipelines[0].with_demand(qps)).expect("a problem");
        let (in_force, candidate) = (at_demand(current, &at), at_demand(&new.pipelines[0], &at));
        let findings = apportion_checker::check(&at, &in_force).iter().map(ToString::to_string).collect();
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(Duration::default);
        let plans = [&in_force, &candidate];
        let runs = judge_side_by_side(&at, &plans, &workload(qps), JudgeEffort::ROUND, &clock, None);
        let attainment = |side: usize| runs[side].as_ref().map_or(0.0, |run| run.total.attainment);
        let judged = JudgedSides { findings, in_force: attainment(0), new: attainment(1), samples: 4 };
        choose(wish, problem, current, &judged, CandidatePlan { plan: &new.pipelines[0], at_its_demand })
    }

    fn workload(qps: f64) -> Workload {
        Workload { traces: vec![documents::steady(qps, TRACE_S)], arrivals: ArrivalProcess::Poisson, seed: 1 }
    }

    #[test]
    fn costs_count_the_replicas_of_the_ladder_at_the_load() {
        // Made where only the dear type was there, for four times the load.
        let (dear, _) = planned(&problem("min_cost", 400.0, [0, 40], None), Some(4.0));
        let now = problem("min_cost", 100.0, MANY, None);
        let (cheap, _) = planned(&now, Some(4.0));
        let choice = chosen(&wish(100.0, &MINUTE), &now, &dear, &cheap);
        let costs = choice.costs.expect("they decided");
        let at_load = |plan: &Plan, price: f64| {
            let part = ladder::at_rate(&plan.pipelines[0], 100.0);
            price * part.assignments.iter().map(|a| f64::from(a.replicas)).sum::<f64>()
        };
        assert!(!choice.keep && choice.why.ends_with("less"), "{choice:?}");
        assert_eq!(
            (costs.in_force_per_hour, costs.new_per_hour),
            (at_load(&dear, 3.0), at_load(&cheap, 1.0)),
            "{choice:?}"
        );
        assert!((costs.change_per_hour - costs.new_per_hour / 6.0).abs() < 1e-9, "{costs:?}");
        assert!(at_load(&dear, 3.0) < dear.cost_per_hour, "not what it has at its own demand");
        // The other way round, nothing is gained.
        let choice = chosen(&wish(100.0, &MINUTE), &now, &cheap, &dear);
        assert!(choice.keep && choice.costs.is_some() && choice.why.contains("not less"), "{choice:?}");
        // Without loads, costs are unknown.
        let choice = chosen(&wish(100.0, &[]), &now, &dear, &cheap);
        assert!(choice.keep && choice.costs.is_none(), "{choice:?}");
    }

    #[test]
    fn a_plan_that_misses_is_not_replaced_by_itself() {
        // A device with batches of 20 ms is 98 % busy. The rules allow this, and queues become long.
        let now = problem("hardware_then_accuracy", 49.0, [1, 0], None);
        let options = PlanningOptions { ..PlanningOptions::new(Arc::new(Duration::default)) };
        let busy = plan(&now, &options).0.plan().expect("a plan").clone();
        let (held, _) = planned(&now, None);
        let variant = |plan: &Plan| plan.pipelines[0].assignments[0].group.variant.clone();
        assert_eq!([variant(&busy), variant(&held)], ["good", "fair"]);
        // Its planner's judgement was luckier.
        let choice = chosen_with(&wish(49.0, &MINUTE), &now, &busy, &busy, 0.999);
        assert!(choice.keep && choice.why.ends_with("and none does better"), "{choice:?}");
        let choice = chosen(&wish(49.0, &MINUTE), &now, &busy, &held);
        assert!(!choice.keep && choice.why.contains("and the new one 1.0000"), "{choice:?}");
    }

    #[test]
    fn a_hop_that_is_measured_anew_changes_no_fit() {
        let now = problem("hardware_then_accuracy", 100.0, MANY, None);
        let (in_force, _) = planned(&now, None);
        let slower = now.changed(|draft| {
            let slower = draft.pipelines[0].changed(&now.hardware, |of| of.network_ms += 0.25);
            draft.pipelines[0] = slower.expect("a valid pipeline");
        });
        let slower = slower.expect("a valid problem");
        let choice = chosen(&wish(100.0, &MINUTE), &slower, &in_force, &in_force);
        assert!(choice.keep, "{choice:?}");
    }

    #[test]
    fn misses_count_as_much_as_the_estimate() {
        let (in_force, _) = planned(&problem("max_accuracy", 80.0, MANY, None), None);
        let raised = problem("max_accuracy", 100.0, MANY, None);
        let (new, _) = planned(&raised, None);
        let calm = ReplanInput { keep_qps: 60.0, ..wish(100.0, &MINUTE) };
        let choice = chosen(&calm, &raised, &in_force, &new);
        assert!(choice.keep && choice.why.starts_with("the plan in force still holds"), "{choice:?}");
        let missed = Some(MissedRequests { missed: 219, ended: 370, permitted: 3.7 });
        let missing = ReplanInput { missed, ..calm };
        let says = "219 of 370 requests of the last 10 s missed, and 3.7 may";
        let choice = chosen(&missing, &raised, &in_force, &new);
        assert!(!choice.keep && choice.why.starts_with(says), "{choice:?}");
        let choice = chosen(&ReplanInput { may_improve: false, ..missing.clone() }, &raised, &in_force, &new);
        assert!(choice.keep && choice.why.starts_with(says) && choice.why.contains("too young"), "{choice:?}");
        let choice = chosen(&missing, &raised, &new, &new);
        assert!(choice.keep && choice.why.ends_with("no plan on these devices serves more"), "{choice:?}");
    }

    #[test]
    fn a_ladder_stays_while_it_reaches_the_load() {
        let (small, _) = planned(&problem("min_cost", 50.0, MANY, None), Some(4.0));
        let within = problem("min_cost", 150.0, MANY, None);
        let (new, _) = planned(&within, Some(4.0));
        let choice = chosen(&wish(150.0, &MINUTE), &within, &small, &new);
        assert!(choice.keep && choice.costs.is_some(), "its own replicas are for 50/s, but not its ladder: {choice:?}");
        let beyond = problem("min_cost", 400.0, MANY, None);
        let (new, _) = planned(&beyond, Some(4.0));
        let choice = chosen(&wish(400.0, &MINUTE), &beyond, &small, &new);
        assert!(!choice.keep && choice.why.starts_with("the ladder in force ends at"), "{choice:?}");
        // A new ladder that reaches no further does not help.
        assert!(chosen(&wish(400.0, &MINUTE), &beyond, &small, &small).keep);
        // Devices are gone that the step of the load needs.
        let few = problem("min_cost", 150.0, [1, 40], None);
        let choice = chosen(&wish(150.0, &MINUTE), &few, &small, &planned(&few, Some(4.0)).0);
        assert!(!choice.keep && choice.why.starts_with("there are fewer devices"), "{choice:?}");
    }

    #[test]
    fn a_plan_over_the_budget_is_replaced() {
        let (plan, _) = planned(&problem("min_cost", 100.0, MANY, None), None);
        let poor = problem("min_cost", 100.0, MANY, Some(0.5 * plan.cost_per_hour));
        let choice = chosen(&wish(100.0, &MINUTE), &poor, &plan, &plan);
        assert!(!choice.keep && choice.why.contains("budget"), "{choice:?}");
        let same = problem("min_cost", 100.0, MANY, None);
        let (dear, _) = planned(&problem("min_cost", 100.0, [0, 40], None), None);
        let choice = chosen_with(&wish(100.0, &MINUTE), &same, &dear, &plan, 0.5);
        assert!(choice.keep && choice.why.contains("0.5000"), "{choice:?}");
        assert!(!chosen(&wish(100.0, &MINUTE), &same, &dear, &plan).keep);
    }

    #[test]
    fn replicas_are_saved_only_where_they_count() {
        // The same accuracy, on more replicas than the load needs.
        let large = |mode| planned(&problem(mode, 400.0, MANY, None), None).0;
        for (mode, keep) in [("hardware_then_accuracy", false), ("max_accuracy", true)] {
            let now = problem(mode, 100.0, MANY, None);
            let (new, _) = planned(&now, None);
            let choice = chosen(&wish(100.0, &MINUTE), &now, &large(mode), &new);
            assert_eq!((choice.keep, choice.costs), (keep, None), "{mode}: {choice:?}");
            let young = ReplanInput { may_improve: false, ..wish(100.0, &MINUTE) };
            assert!(chosen(&young, &now, &large(mode), &new).keep, "{mode}");
        }
    }

    #[test]
    fn the_most_accurate_variants_return_once_they_serve_the_load() {
        // 2 % less accurate, which is close enough where no better variant was replaced.
        let made_for = |mode, qps| planned(&problem(mode, qps, [2, 0], None), None).0;
        for (mode, keep) in [("hardware_then_accuracy", false), ("max_accuracy", true)] {
            let (peak, calm) = (made_for(mode, 120.0), made_for(mode, 60.0));
            let variants = |plan: &Plan| plan.pipelines[0].assignments.iter().any(|a| a.group.variant == "fair");
            assert_eq!([variants(&peak), variants(&calm)], [true, false], "{mode}");
            let now = problem(mode, 60.0, [2, 0], None);
            assert_eq!(chosen(&wish(60.0, &MINUTE), &now, &peak, &calm).keep, keep, "{mode}");
            let young = ReplanInput { may_improve: false, ..wish(60.0, &MINUTE) };
            assert!(chosen(&young, &now, &peak, &calm).keep, "a load that has just fallen may be back");
        }
    }
}
