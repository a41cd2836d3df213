//! What would a target change, or what has one changed? Nothing is written.

use super::apply::{ApplyError, MissingDevices, PreparedTarget, Proposal, describe, load_plan, prepare};
use crate::app::App;
use crate::decide::change::{DeployedPlans, FleetChange, change_between};
use crate::decide::placement::Placement;
use crate::decide::target::PipelineFacts;
use crate::documents;
use crate::store::target::HistoryRow;
use crate::store::{self, PgConnection};
use apportion_domain::PipelinePlan;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The change from one target to another.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TargetChange {
    /// The generation of the earlier target.
    pub from: i64,
    /// The generation of the later target; the next one if it is not committed.
    pub to: i64,
    /// Whether they differ.
    pub changed: bool,
    /// The plans of the later target.
    pub plans: Vec<Uuid>,
    /// Replicas that find no device. A target with such a shortage is refused.
    pub shortages: Vec<String>,
    /// The cost per hour of the earlier target's replicas, at the registered prices; 1 for an unregistered type.
    pub cost_per_hour_before: f64,
    /// The cost per hour of the later target's replicas.
    pub cost_per_hour_after: f64,
    /// Tasks and replicas.
    #[serde(flatten)]
    pub change: FleetChange,
}

/// What this proposal would change now.
///
/// # Errors
/// As [`super::apply::apply`], except that missing devices are a part of the answer.
pub async fn preview(app: &App, proposal: &Proposal) -> Result<TargetChange, ApplyError> {
    // The transaction ends with its drop, and nothing of it remains.
    let mut tx = app.pool.begin().await?;
    let asked = Proposal { missing_devices: MissingDevices::Allowed, ..proposal.clone() };
    let PreparedTarget { current, next, changed, parts, placement, mut facts, shortages } =
        prepare(&mut tx, &asked, None).await?;
    let before = Deployed::read(&mut tx, &current.plans, &current.placement).await?;
    add_facts(&mut tx, &mut facts, &before.parts).await?;
    let prices = prices(&mut tx).await?;
    let after = Deployed { parts, placement };
    Ok(TargetChange {
        from: current.generation,
        to: next.generation,
        changed,
        plans: next.plans,
        shortages: shortages.iter().map(|s| describe(std::slice::from_ref(s))).collect(),
        cost_per_hour_before: before.cost_per_hour(&prices),
        cost_per_hour_after: after.cost_per_hour(&prices),
        change: change_between(before.plans(), after.plans(), &facts),
    })
}

/// The change from one committed target to another, with the pipelines as they are registered now.
///
/// # Errors
/// The database's, or a plan cannot be read.
pub async fn compare(app: &App, from: &HistoryRow, to: &HistoryRow) -> Result<TargetChange, ApplyError> {
    let mut db = app.pool.acquire().await?;
    let before = Deployed::read(&mut db, &from.plans, &from.placement).await?;
    let after = Deployed::read(&mut db, &to.plans, &to.placement).await?;
    let mut facts = BTreeMap::new();
    add_facts(&mut db, &mut facts, &before.parts).await?;
    add_facts(&mut db, &mut facts, &after.parts).await?;
    let prices = prices(&mut db).await?;
    Ok(TargetChange {
        from: from.generation,
        to: to.generation,
        changed: from.plans != to.plans || before.placement != after.placement,
        plans: to.plans.clone(),
        shortages: Vec::new(),
        cost_per_hour_before: before.cost_per_hour(&prices),
        cost_per_hour_after: after.cost_per_hour(&prices),
        change: change_between(before.plans(), after.plans(), &facts),
    })
}

/// The plans of a target with their placement.
struct Deployed {
    parts: Vec<PipelinePlan>,
    placement: Placement,
}

impl Deployed {
    async fn read(db: &mut PgConnection, plans: &[Uuid], placement: &Value) -> Result<Self, ApplyError> {
        let mut parts: Vec<PipelinePlan> = Vec::new();
        for &plan in plans {
            for part in load_plan(db, plan).await? {
                parts.retain(|earlier| earlier.name != part.name);
                parts.push(part);
            }
        }
        let placement = serde_json::from_value(placement.clone()).unwrap_or_default();
        Ok(Self { parts, placement })
    }

    fn plans(&self) -> DeployedPlans<'_> {
        DeployedPlans { parts: &self.parts, placement: &self.placement }
    }

    fn cost_per_hour(&self, prices: &BTreeMap<String, f64>) -> f64 {
        let groups = self.placement.replicas.iter().filter_map(|r| self.placement.group(r.group));
        groups.map(|g| g.share * prices.get(&g.hardware).copied().unwrap_or(1.0)).sum()
    }
}

/// Adds the facts of the registered pipelines among these parts. Unregistered ones are left out.
async fn add_facts(
    db: &mut PgConnection,
    facts: &mut BTreeMap<String, PipelineFacts>,
    parts: &[PipelinePlan],
) -> Result<(), ApplyError> {
    for part in parts {
        if facts.contains_key(&part.name) {
            continue;
        }
        if let Some(row) = store::pipelines::get(db, &part.name).await? {
            facts.insert(part.name.clone(), documents::facts(&documents::measured(&row)?)?);
        }
    }
    Ok(())
}

/// The registered prices per hour by hardware type.
async fn prices(db: &mut PgConnection) -> store::Result<BTreeMap<String, f64>> {
    Ok(store::hardware::list(db).await?.into_iter().map(|row| (row.name, row.price_per_hour)).collect())
}
