//! How many devices would each pipeline have if everything that may be had were there?
//!
//! A round deploys plans for the live devices only. After it, the same pipelines are planned for the devices in reach. That
//! plan is not deployed: its devices are what the machines are asked for. When they come, a round plans with them.

use super::apply::{ApplyError, fence};
use super::division::{DivisionInput, divide_devices};
use super::pipeline_plan::plan_pipeline;
use super::replan::{
    InForce, ReplanRound, RoundError, Verdict, free_hardware, holds_in_force, part_held, parts_in_force, share_of,
    staying_parts,
};
use super::teams::load_teams;
use crate::app::{App, now};
use crate::decide::fleet::Fleet;
use crate::decide::machines::{ReachableType, devices_in_reach, placed_in_reach};
use crate::decide::replan::{OnBetterPlan, ReplanInput};
use crate::decide::shares::devices_of;
use crate::store::{self, Time, hardware::HardwareRow};
use apportion_domain::PipelinePlan;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Plans every pipeline of the round that may be deployed for the devices in reach, and stores the devices that it wants. A
/// pipeline without such a plan keeps its wants. Nothing happens if no hardware type has a substrate.
///
/// # Errors
/// The database's, or the lease is lost.
pub(super) async fn note_wanted(
    app: &App,
    fleet: &Fleet,
    wishes: &[ReplanInput],
    round: &ReplanRound,
) -> Result<(), ApplyError> {
    let types = store::hardware::list(&mut *app.pool.acquire().await?).await?;
    let types: Vec<ReachableType> = types.into_iter().filter_map(reachable_type).collect();
    if types.is_empty() {
        return Ok(());
    }
    let InForce { parts, .. } = parts_in_force(app).await?;
    let (_, free) = part_held(wishes, &holds_in_force(app).await?);
    let free: Vec<_> = free.into_iter().filter(|wish| wish.on_better_plan == OnBetterPlan::Apply).collect();
    let reach = devices_in_reach(&fleet.counts(), &types, since_epoch(now()));
    let devices = placed_in_reach(fleet.devices(), &reach, &types);
    let hardware = free_hardware(app, reach, &parts, &free).await?;
    let plans = parts.iter().map(|p| &p.part).collect();
    let round = &ReplanRound { devices, ..round.clone() };
    let (measured, cancel, devices) = (&round.measured, &round.cancel, round.devices.as_slice());
    let teams = load_teams(&mut *app.pool.acquire().await?, &staying_parts(&parts, &free), &free).await?;
    let live = fleet.counts();
    let input = DivisionInput {
        wishes: free.clone(),
        hardware: &hardware,
        in_force: plans,
        teams: &teams,
        live: &live,
        measured,
        cancel,
        devices,
        begun: Instant::now(),
        // the machines in reach are another fleet
        memory: None,
    };
    for (wish, share) in free.iter().zip(divide_devices(&input).await) {
        // As a round would decide with all these devices: where the plan in force stays, no machine is asked for. The age
        // of that plan does not count, because machines take their time too.
        let wish = &ReplanInput { may_improve: true, ..(*wish).clone() };
        let in_force = parts.iter().map(|p| &p.part).find(|part| part.name == wish.spec.name);
        let planned = plan_pipeline(wish, share_of(&hardware, &share.devices), in_force, round).await;
        match wanted_devices(planned, in_force) {
            Ok(devices) => store_wants(app, &wish.spec.name, &devices, round).await?,
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(pipeline = wish.spec.name, why, "the pipeline wants the same devices as before");
            }
        }
    }
    Ok(())
}

fn reachable_type(row: HardwareRow) -> Option<ReachableType> {
    row.substrate.as_ref()?;
    let count_max = row.count_max.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    Some(ReachableType { hardware: row.name, count_max, retry_at: row.retry_at.map(since_epoch), zones: row.zones })
}

/// Why a pipeline's wants stay as they are.
#[derive(Debug, thiserror::Error)]
enum WantError {
    #[error(transparent)]
    Round(#[from] RoundError),
    #[error("{0}")]
    NoPlan(String),
}

/// The devices of the plan that would be in force, by hardware type.
fn wanted_devices(
    planned: Result<Verdict, RoundError>,
    in_force: Option<&PipelinePlan>,
) -> Result<BTreeMap<String, u32>, WantError> {
    match (planned?, in_force) {
        (Verdict::Replace(made), _) => Ok(devices_of(&made.part)),
        (Verdict::Keep { .. }, Some(part)) => Ok(devices_of(part)),
        (Verdict::Keep { reason, .. } | Verdict::Fail(reason), _) => Err(WantError::NoPlan(reason)),
    }
}

async fn store_wants(
    app: &App,
    pipeline: &str,
    devices: &BTreeMap<String, u32>,
    round: &ReplanRound,
) -> Result<(), ApplyError> {
    let mut tx = app.pool.begin().await?;
    fence(&mut tx, round.lease).await?;
    store::machines::put_wants(&mut tx, pipeline, devices, now()).await?;
    Ok(tx.commit().await?)
}

/// A moment as the pure decisions count it.
pub(super) fn since_epoch(time: Time) -> Duration {
    Duration::from_millis(u64::try_from(time.timestamp_millis()).unwrap_or_default())
}
