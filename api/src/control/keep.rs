//! Whether the plan in force stays when another has been made: first whether it still holds, then what the objective says of both.
//!
//! For the fewest devices, and for the highest accuracy, a plan stays while it is within 5 % of the best: changing it would cost loads and gain
//! nothing that anybody would notice. For the least cost it stays unless the new one would have been cheaper under the loads seen
//! last, by more than the change costs ([`apportion_planning::change`]).

use super::replan::{TRACE_S, Wish};
use crate::documents;
use crate::jobs::{self, Holds};
use apportion_domain::{Mode, PipelinePlan, Plan, Problem, SLACK};
use apportion_planning::change::Comparison;
use apportion_planning::ladder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A plan this close to the best, in accuracy and in replicas, is not worth replacing; nor is a ladder that ends this close to the new one's.
const CLOSE_ENOUGH: f64 = 0.05;

/// What two plans would have cost under the loads seen last. The new one replaces the other if it and the change cost less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Costs {
    /// Over how many seconds; 0 if no load has been seen.
    pub seconds: u64,
    /// Mean price of the plan in force, by its ladder if it has one.
    pub in_force_per_hour: f64,
    /// The same of the new plan.
    pub new_per_hour: f64,
    /// Ten seconds of the new plan at the load now, held beside the old one while it loads, spread over the same time.
    pub change_per_hour: f64,
}

impl From<Comparison> for Costs {
    fn from(of: Comparison) -> Self {
        Self {
            seconds: of.seconds(),
            in_force_per_hour: of.in_force_per_hour(),
            new_per_hour: of.new_per_hour(),
            change_per_hour: of.change_per_hour(),
        }
    }
}

/// What is to be done with the plan in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Whether it stays.
    pub keep: bool,
    /// Why, in words.
    pub why: String,
    /// What was compared, where costs decided.
    pub costs: Option<Costs>,
}

impl Choice {
    fn keep(why: impl Into<String>) -> Self {
        Self { keep: true, why: why.into(), costs: None }
    }

    fn replace(why: impl Into<String>) -> Self {
        Self { keep: false, why: why.into(), costs: None }
    }
}

/// Chooses between the plan in force and a new one for `problem`, which attains so much on its sample.
///
/// # Errors
/// If checker or estimator broke down.
pub async fn choose(
    wish: &Wish,
    problem: &Problem,
    current: &PipelinePlan,
    (best, best_attainment): (&Plan, f64),
) -> Result<Choice, String> {
    let by_ladder = problem.objective.mode == Mode::MinCost && !current.ladder.is_empty();
    let keep_qps = wish.keep_qps.min(problem.pipelines[0].demand_qps);
    // Above its own demand its ladder says what it has.
    let held_qps = if by_ladder { keep_qps.min(current.demand_qps) } else { keep_qps };
    let asked = problem.pipelines[0].percentile / 100.0;
    let held = holds(problem, current, held_qps).await?;
    if let Some(finding) = held.findings.first() {
        return Ok(Choice::replace(format!("the plan in force does not fit any more: {finding}")));
    }
    if held.attainment < asked {
        let attains = format!("the plan in force attains {:.4}", held.attainment);
        let no_better = best_attainment <= held.attainment;
        let choice = if no_better { Choice::keep } else { Choice::replace };
        return Ok(choice(if no_better { format!("{attains} and none does better") } else { attains }));
    }
    let new = &best.pipelines[0];
    Ok(match problem.objective.mode {
        Mode::MinCost if by_ladder && let Some(choice) = beyond_ladder(problem, current, new, keep_qps) => choice,
        Mode::MinCost if best_attainment < asked => {
            Choice::keep(format!("the plan in force still holds and the new one attains {best_attainment:.4}"))
        }
        Mode::MinCost => by_cost(wish, problem, current, new),
        Mode::HardwareThenAccuracy | Mode::MaxAccuracy => by_closeness(wish, problem, current, new),
    })
}

/// Whether it obeys the problem's rules at a demand, and what it attains there.
async fn holds(problem: &Problem, current: &PipelinePlan, qps: f64) -> Result<Holds, String> {
    let at = problem.changed(|draft| draft.pipelines[0] = draft.pipelines[0].with_demand(qps));
    let at = at.expect("a problem with a lower demand");
    let plan = at_demand(current, &at);
    jobs::holds(at, plan, vec![documents::steady(qps, TRACE_S)]).await
}

/// The plan in force as a plan for the problem's demand. It claims neither cost nor utilisation: they are no longer its own.
fn at_demand(current: &PipelinePlan, problem: &Problem) -> Plan {
    let mut part = current.clone();
    part.demand_qps = problem.pipelines[0].demand_qps;
    part.assignments.iter_mut().for_each(|a| a.utilisation = 0.0);
    Plan { pipelines: vec![part], cost_per_hour: 0.0 }
}

/// Where the ladder in force does not reach the demand, or asks for more than there is.
fn beyond_ladder(problem: &Problem, current: &PipelinePlan, new: &PipelinePlan, qps: f64) -> Option<Choice> {
    let plan = Plan { pipelines: vec![ladder::at_rate(current, qps)], cost_per_hour: 0.0 };
    if !ladder::fits(problem, &plan) {
        return Some(Choice::replace(format!("there are fewer devices than the ladder in force asks for at {qps:.1}/s")));
    }
    let end = |part: &PipelinePlan| part.ladder.last().map_or(part.demand_qps, |step| step.rate_qps);
    let (ends, reaches) = (end(current), end(new));
    let is_short = ends < qps * (1.0 - SLACK) && reaches > ends * (1.0 + CLOSE_ENOUGH);
    let why = || format!("the ladder in force ends at {ends:.1}/s, below {qps:.1}/s, and the new one at {reaches:.1}/s");
    is_short.then(|| Choice::replace(why()))
}

fn by_cost(wish: &Wish, problem: &Problem, current: &PipelinePlan, new: &PipelinePlan) -> Choice {
    let price = |part| move |qps| ladder::price_at(problem, part, qps);
    let compared = wish.loads.compare(price(current), price(new));
    let costs = Costs::from(compared);
    if costs.seconds == 0 {
        return Choice::keep("the plan in force still holds and no load has been seen yet");
    }
    let Costs { seconds, in_force_per_hour, new_per_hour, change_per_hour } = costs;
    let keep = !compared.is_worth_it();
    let verdict = if keep { "not less by more than the change costs" } else { "less" };
    let why = format!(
        "under the loads of the last {seconds} s the new plan would have cost {new_per_hour:.4} per hour and the change \
         {change_per_hour:.4}, the plan in force {in_force_per_hour:.4}: {verdict}"
    );
    Choice { keep, why, costs: Some(costs) }
}

/// Replicas are what is saved with the fewest devices; with the highest accuracy they are there to be used.
fn by_closeness(wish: &Wish, problem: &Problem, current: &PipelinePlan, new: &PipelinePlan) -> Choice {
    let replicas = |part: &PipelinePlan| part.assignments.iter().map(|a| f64::from(a.replicas)).sum::<f64>();
    let counts = problem.objective.mode == Mode::HardwareThenAccuracy;
    let is_accurate = current.accuracy >= new.accuracy * (1.0 - CLOSE_ENOUGH);
    let is_small = !counts || replicas(current) <= replicas(new) * (1.0 + CLOSE_ENOUGH);
    let of_each = |part: &PipelinePlan| {
        let of = format!("accuracy {:.4}", part.accuracy);
        if counts { format!("{} replicas, {of}", replicas(part)) } else { of }
    };
    let both = format!("{} against {}", of_each(current), of_each(new));
    if is_accurate && is_small {
        return Choice::keep(format!("the plan in force still holds and is within 5 % of the best: {both}"));
    }
    if !wish.may_improve {
        return Choice::keep("the plan in force still holds and is too young to be improved on");
    }
    Choice::replace(format!("better than the plan in force: it had {both}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_estimator::{ArrivalProcess, Workload};
    use apportion_planning::{PlanOptions, plan};
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;

    /// One task, a cheap type and a dear one that is no faster; two variants.
    fn problem(mode: &str, demand_qps: f64, counts: [u32; 2], budget_per_hour: Option<f64>) -> Problem {
        let rows = |latency_ms: f64| {
            ["cheap", "dear"].map(|hardware| json!({"hardware": hardware, "batch": 1, "latency_ms": latency_ms}))
        };
        let variant = |name: &str, accuracy: f64, latency_ms: f64| json!({"name": name, "accuracy": accuracy, "profile": rows(latency_ms)});
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

    /// Its plan, with what that attains.
    fn planned(problem: &Problem, ladder: Option<f64>) -> (Plan, f64) {
        let traces = vec![documents::steady(problem.pipelines[0].demand_qps, TRACE_S)];
        let trace = Some(Workload { traces, arrivals: ArrivalProcess::Poisson, seed: 1 });
        let options = PlanOptions { ladder, trace, explain: false, ..PlanOptions::new(Arc::new(Duration::default)) };
        let (outcome, report) = plan(problem, &options);
        (outcome.plan().expect("a plan").clone(), report.estimate.map_or(1.0, |estimate| estimate.attainment))
    }

    fn wish(qps: f64, loads: &[f64]) -> Wish {
        let spec = apportion_wire::PipelineSpec { name: "p".into(), ..Default::default() };
        let loads = loads.iter().copied().collect();
        Wish { spec, demand_qps: qps, keep_qps: qps, loads, apply: true, may_improve: true }
    }

    const MANY: [u32; 2] = [40, 40];
    const MINUTE: [f64; 8] = [100.0; 8];

    async fn chosen(wish: &Wish, problem: &Problem, in_force: &Plan, new: &Plan) -> Choice {
        choose(wish, problem, &in_force.pipelines[0], (new, 1.0)).await.expect("no breakdown")
    }

    #[tokio::test]
    async fn costs_are_those_of_the_replicas_that_the_ladders_have_at_the_load() {
        // Made where only the dear type was there, for four times the load.
        let (dear, _) = planned(&problem("min_cost", 400.0, [0, 40], None), Some(4.0));
        let now = problem("min_cost", 100.0, MANY, None);
        let (cheap, _) = planned(&now, Some(4.0));
        let choice = chosen(&wish(100.0, &MINUTE), &now, &dear, &cheap).await;
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
        // The other way round nothing is gained.
        let choice = chosen(&wish(100.0, &MINUTE), &now, &cheap, &dear).await;
        assert!(choice.keep && choice.costs.is_some() && choice.why.contains("not less"), "{choice:?}");
        // Before any load was seen, nothing is known of costs.
        let choice = chosen(&wish(100.0, &[]), &now, &dear, &cheap).await;
        assert!(choice.keep && choice.costs.is_none(), "{choice:?}");
    }

    #[tokio::test]
    async fn a_ladder_that_reaches_the_load_stays_and_one_that_does_not_goes() {
        let (small, _) = planned(&problem("min_cost", 50.0, MANY, None), Some(4.0));
        let within = problem("min_cost", 150.0, MANY, None);
        let (new, _) = planned(&within, Some(4.0));
        let choice = chosen(&wish(150.0, &MINUTE), &within, &small, &new).await;
        assert!(choice.keep && choice.costs.is_some(), "its own replicas are for 50/s, but not its ladder: {choice:?}");
        let beyond = problem("min_cost", 400.0, MANY, None);
        let (new, _) = planned(&beyond, Some(4.0));
        let choice = chosen(&wish(400.0, &MINUTE), &beyond, &small, &new).await;
        assert!(!choice.keep && choice.why.starts_with("the ladder in force ends at"), "{choice:?}");
        // One that reaches no further is no help.
        assert!(chosen(&wish(400.0, &MINUTE), &beyond, &small, &small).await.keep);
        // Devices have gone that the step of the load asks for.
        let few = problem("min_cost", 150.0, [1, 40], None);
        let choice = chosen(&wish(150.0, &MINUTE), &few, &small, &planned(&few, Some(4.0)).0).await;
        assert!(!choice.keep && choice.why.starts_with("there are fewer devices"), "{choice:?}");
    }

    #[tokio::test]
    async fn a_plan_over_the_budget_goes_and_one_that_holds_stays_where_the_new_one_does_not() {
        let (plan, _) = planned(&problem("min_cost", 100.0, MANY, None), None);
        let poor = problem("min_cost", 100.0, MANY, Some(0.5 * plan.cost_per_hour));
        let choice = chosen(&wish(100.0, &MINUTE), &poor, &plan, &plan).await;
        assert!(!choice.keep && choice.why.contains("budget"), "{choice:?}");
        let same = problem("min_cost", 100.0, MANY, None);
        let (dear, _) = planned(&problem("min_cost", 100.0, [0, 40], None), None);
        let choice = choose(&wish(100.0, &MINUTE), &same, &dear.pipelines[0], (&plan, 0.5)).await.expect("no breakdown");
        assert!(choice.keep && choice.why.contains("0.5000"), "{choice:?}");
        assert!(!chosen(&wish(100.0, &MINUTE), &same, &dear, &plan).await.keep);
    }

    #[tokio::test]
    async fn replicas_are_worth_saving_only_where_they_are_counted() {
        // The same accuracy, on more replicas than the load needs.
        let large = |mode| planned(&problem(mode, 400.0, MANY, None), None).0;
        for (mode, keep) in [("hardware_then_accuracy", false), ("max_accuracy", true)] {
            let now = problem(mode, 100.0, MANY, None);
            let (new, _) = planned(&now, None);
            let choice = chosen(&wish(100.0, &MINUTE), &now, &large(mode), &new).await;
            assert_eq!((choice.keep, choice.costs), (keep, None), "{mode}: {choice:?}");
            let young = Wish { may_improve: false, ..wish(100.0, &MINUTE) };
            assert!(chosen(&young, &now, &large(mode), &new).await.keep, "{mode}");
        }
    }
}
