//! One round of replanning: all pipelines are planned on their devices, and one target deploys the new plans.
//!
//! `division` divides the devices, `round_plans` plans each pipeline, and [`super::replan`] decides about
//! the plan in force.

use super::apply::{ApplyError, DuplicatePipelines, MissingDevices, PlanPart, Proposal, SpecSource, apply_to, fence};
use super::division::DivisionInput;
use super::lease::Chain;
use super::pipeline_plan::plan_pipeline;
use super::replan::{
    HeldInput, InForce, Replacement, ReplanRound, Verdict, free_hardware, holds_in_force, part_held, parts_in_force,
    staying_parts, store_decision,
};
use super::round_plans::plan_by_levels;
use super::teams::load_teams;
use crate::app::App;
use crate::decide::fleet::Fleet;
use crate::decide::on_demand::OnDemandChange;
use crate::decide::projects::{QuotaBreach, project_of};
use crate::decide::replan::{OnBetterPlan, ReplanInput};
use crate::store::{self, holds::HoldRow};
use apportion_wire::PipelineSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use uuid::Uuid;

/// The results of a round: names of pipelines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundSummary {
    /// Those with another plan in force.
    pub replaced: Vec<String>,
    /// Those without a plan.
    pub failed: Vec<String>,
    /// Those for which a hold forbade to deploy.
    pub held: Vec<String>,
}

/// Plans every wish, stores the decisions, and makes a new target if anything changes.
///
/// # Errors
/// The database's, or another target came first.
pub async fn run_round(
    app: &App,
    fleet: &Fleet,
    wishes: &[ReplanInput],
    round: &ReplanRound,
) -> Result<RoundSummary, ApplyError> {
    let InForce { parts, generation } = parts_in_force(app).await?;
    let (held, free) = part_held(wishes, &holds_in_force(app).await?);
    let held_names = held.iter().map(|held| held.wish.spec.name.clone()).collect();
    let mut summary = RoundSummary { held: held_names, ..RoundSummary::default() };
    let hardware = free_hardware(app, fleet.counts(), &parts, &free).await?;
    let staying = staying_parts(&parts, &free);
    let teams = load_teams(&mut *app.pool.acquire().await?, &staying, &free).await?;
    let (in_force, live) = (parts.iter().map(|p| &p.part).collect(), fleet.counts());
    let (measured, cancel, devices) = (&round.measured, &round.cancel, round.devices.as_slice());
    let (wishes, hardware, teams, live) = (free.clone(), &hardware, &teams, &live);
    let (begun, memory) = (Instant::now(), Some(&round.memory));
    let division = DivisionInput { wishes, hardware, in_force, teams, live, measured, cancel, devices, begun, memory };
    let verdicts = plan_by_levels(&division, round).await;
    let (mut replacements, mut decisions) = (Vec::new(), DecisionIds::new());
    for (wish, verdict) in free.into_iter().zip(verdicts) {
        if matches!(verdict, Verdict::Fail(_)) {
            summary.failed.push(wish.spec.name.clone());
        }
        match (verdict, wish.on_better_plan) {
            // its decision follows when the target is committed
            (Verdict::Replace(made), OnBetterPlan::Apply) => {
                replacements.push(DecidedReplacement { wish, made });
            }
            (verdict, _) => {
                decisions.insert(wish.spec.name.clone(), store_decision(app, wish, &verdict, round).await?);
            }
        }
    }
    for HeldInput { wish, hold } in held {
        advise_held(app, fleet, &parts, wish, &hold, round).await?;
    }
    let deployed = Deployment { app, fleet, round, plans: unique_plans(&parts), generation };
    let replaced = deployed.replace(replacements, &mut decisions).await;
    // They decide nothing, so no plan waits for them.
    if let Err(error) = note_alternatives(app, &division, &decisions, round).await {
        tracing::warn!(error = %Chain(&error), "the alternatives of a round are not noted");
    }
    summary.replaced = replaced?;
    Ok(summary)
}

/// The stored decisions of a round, by pipeline.
type DecisionIds = BTreeMap<String, Uuid>;

/// Adds to each decision the plan that its pipeline would have with all devices to itself.
async fn note_alternatives(
    app: &App,
    division: &DivisionInput<'_>,
    decisions: &DecisionIds,
    round: &ReplanRound,
) -> Result<(), ApplyError> {
    let alternatives = division.wishes.iter().zip(division.alternatives().await);
    let noted: Vec<_> =
        alternatives.filter_map(|(wish, alternative)| Some((decisions.get(&wish.spec.name)?, alternative?))).collect();
    if noted.is_empty() {
        return Ok(());
    }
    let mut tx = app.pool.begin().await?;
    fence(&mut tx, round.lease).await?;
    for (decision, alternative) in noted {
        let document = serde_json::to_value(alternative).expect("an alternative is JSON");
        store::decisions::add_alternative(&mut tx, *decision, &document).await?;
    }
    Ok(tx.commit().await?)
}

/// A plan that a round has made to be deployed.
struct DecidedReplacement<'a> {
    wish: &'a ReplanInput,
    made: Box<Replacement>,
}

/// The end of a round: one target for all its plans.
struct Deployment<'a> {
    app: &'a App,
    fleet: &'a Fleet,
    round: &'a ReplanRound,
    /// The plans in force.
    plans: Vec<Uuid>,
    generation: i64,
}

impl Deployment<'_> {
    /// Deploys these plans and adds their decisions; returns the names of the pipelines. Where a quota has become smaller
    /// meanwhile, the plans of its project wait for the next round.
    async fn replace(
        &self,
        mut replacements: Vec<DecidedReplacement<'_>>,
        decisions: &mut DecisionIds,
    ) -> Result<Vec<String>, ApplyError> {
        if replacements.is_empty() {
            return Ok(Vec::new());
        }
        store_plans(self.app, &replacements, self.round).await?;
        while !replacements.is_empty() {
            let applied = self.propose(&replacements).await;
            let (refused, rest): (Vec<_>, Vec<_>) = match &applied {
                Err(ApplyError::Quota(breaches)) => {
                    replacements.into_iter().partition(|of| is_of_project(&of.wish.spec, breaches))
                }
                _ => (Vec::new(), replacements),
            };
            let is_partial = !refused.is_empty();
            let (decided, later) = if is_partial { (refused, rest) } else { (rest, Vec::new()) };
            let names: Vec<String> = decided.iter().map(|of| of.wish.spec.name.clone()).collect();
            for (of, name) in decided.into_iter().zip(&names) {
                decisions.insert(name.clone(), self.store(of, applied.as_ref().err()).await?);
            }
            if !is_partial {
                return applied.map(|()| names);
            }
            replacements = later;
        }
        Ok(Vec::new())
    }

    async fn propose(&self, replacements: &[DecidedReplacement<'_>]) -> Result<(), ApplyError> {
        let replaced: Vec<String> = replacements.iter().map(|of| of.wish.spec.name.clone()).collect();
        let made = || replacements.iter().map(|of| of.made.row.id);
        let proposal = Proposal {
            plans: self.plans.iter().copied().chain(made()).collect(),
            duplicates: DuplicatePipelines::LastWins,
            replaces: Some(self.generation),
            missing_devices: MissingDevices::Allowed,
            specs: SpecSource::Registered,
            on_demand: OnDemandChange::None,
            reason: format!("{} for {}", self.round.why, replaced.join(", ")),
            hold: None,
            heeds_holds_of: replaced,
            lease: Some(self.round.lease),
        };
        self.apply(proposal).await
    }

    /// Applies a proposal. A newer target with the same plans has other replicas or peers only, so it is no obstacle.
    async fn apply(&self, mut proposal: Proposal) -> Result<(), ApplyError> {
        let set = |plans: &[Uuid]| plans.iter().copied().collect::<BTreeSet<Uuid>>();
        loop {
            let applied = apply_to(self.app, &proposal, Some(&self.fleet.numbers())).await;
            let Err(ApplyError::Stale(generation)) = applied else { return applied.map(|_| ()) };
            let current = store::target::get(&mut *self.app.pool.acquire().await?).await?;
            if set(&current.plans) != set(&self.plans) {
                return Err(ApplyError::Stale(generation));
            }
            proposal.replaces = Some(current.generation);
        }
    }

    /// Stores the decision about a plan that was deployed, or that was not because of an error.
    async fn store(&self, of: DecidedReplacement<'_>, error: Option<&ApplyError>) -> Result<Uuid, ApplyError> {
        let DecidedReplacement { wish, made } = of;
        let verdict = match error {
            None => Verdict::Replace(made),
            Some(error) => Verdict::Fail(format!("{}; it is not deployed: {error}", made.reason)),
        };
        store_decision(self.app, wish, &verdict, self.round).await
    }
}

fn is_of_project(spec: &PipelineSpec, breaches: &[QuotaBreach]) -> bool {
    breaches.iter().any(|breach| breach.project == project_of(spec))
}

/// Stores the plans that a target is about to name.
async fn store_plans(app: &App, replacements: &[DecidedReplacement<'_>], round: &ReplanRound) -> Result<(), ApplyError> {
    let mut tx = app.pool.begin().await?;
    fence(&mut tx, round.lease).await?;
    for of in replacements {
        store::plans::insert_finished(&mut tx, &of.made.row).await?;
    }
    Ok(tx.commit().await?)
}

/// Plans a held pipeline on its own and the free devices, and stores the decision. Nothing is deployed.
async fn advise_held(
    app: &App,
    fleet: &Fleet,
    parts: &[PlanPart],
    wish: &ReplanInput,
    hold: &HoldRow,
    round: &ReplanRound,
) -> Result<(), ApplyError> {
    let hardware = free_hardware(app, fleet.counts(), parts, &[wish]).await?;
    let hardware = hardware.into_iter().filter(|h| h.count.unwrap_or(0) > 0).collect();
    let current = parts.iter().map(|p| &p.part).find(|part| part.name == wish.spec.name);
    let planned = plan_pipeline(wish, hardware, current, round).await;
    let verdict = planned.unwrap_or_else(|error| Verdict::Fail(error.to_string()));
    let advice = ReplanInput { on_better_plan: OnBetterPlan::Advise, ..wish.clone() };
    let until = hold.until.map_or_else(|| "it is released".to_owned(), |until| until.to_rfc3339());
    let why = format!("{}, held by {} until {until} ({})", round.why, hold.made_by, hold.reason);
    let round = ReplanRound { why, ..round.clone() };
    store_decision(app, &advice, &verdict, &round).await?;
    Ok(())
}

/// The plans of these parts, each once.
fn unique_plans(parts: &[PlanPart]) -> Vec<Uuid> {
    let mut plans: Vec<Uuid> = Vec::new();
    for part in parts {
        if !plans.contains(&part.plan) {
            plans.push(part.plan);
        }
    }
    plans
}
