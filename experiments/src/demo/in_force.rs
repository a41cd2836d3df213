//! Which plan was in force at each moment of a demo?

use crate::live::console::print_progress;
use crate::live::fleet::describe_groups;
use crate::live::service::Service;
use anyhow::{Context, Result};
use apportion_domain::PlanStatus;
use serde::Serialize;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One plan that was in force.
#[derive(Clone, Debug, Serialize)]
pub struct PlanInForce {
    /// Its first moment in seconds from the start of the load; below 0 for the first plan.
    pub at_s: f64,
    /// Generation of the fleet's target.
    pub generation: u64,
    /// `optimal` or `feasible`.
    pub status: String,
    /// Step of `hardware_then_accuracy`.
    pub step: Option<String>,
    /// Replicas.
    pub replicas: u64,
    /// Accuracy that it promises.
    pub accuracy: f64,
    /// Its groups, for the table.
    #[serde(skip)]
    pub groups: String,
    /// The plan's identifier, for the estimate.
    #[serde(skip)]
    pub id: String,
}

/// The time between two reads of the fleet's target: a plan's first moment is at most this much too late.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Plans in the order in which they came into force.
pub type PlansInForce = Arc<Mutex<Vec<PlanInForce>>>;

/// Reads the fleet's target until the task is aborted. A failed read is repeated at the next time.
pub async fn watch_target(service: Service, pipeline: String, start: Instant, seen: PlansInForce) {
    loop {
        if let Err(error) = record_target(&service, &pipeline, start, &seen).await {
            tracing::warn!("the fleet's target could not be read: {error:#}");
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

async fn record_target(service: &Service, pipeline: &str, start: Instant, seen: &PlansInForce) -> Result<()> {
    let target = service.get("/v1/target").await?;
    let generation = target["generation"].as_u64().context("a target without a generation")?;
    let last = seen.lock().expect("no holder panics").last().map(|p| p.generation);
    if last == Some(generation) {
        return Ok(());
    }
    let at_s = if last.is_none() { 0.0 } else { start.elapsed().as_secs_f64() };
    for id in target["plans"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let plan = service.get(&format!("/v1/plans/{id}")).await?;
        let file = &plan["plan"];
        let Some(part) = file["pipelines"].as_array().into_iter().flatten().find(|p| p["name"] == pipeline) else {
            continue;
        };
        let in_force = PlanInForce {
            at_s,
            generation,
            status: file["status"].as_str().unwrap_or(PlanStatus::Unknown.name()).to_owned(),
            step: file["objective"]["step"].as_str().map(str::to_owned),
            replicas: file["replicas"].as_u64().unwrap_or(0),
            accuracy: part["accuracy"].as_f64().unwrap_or(0.0),
            groups: describe_groups(file),
            id: id.to_owned(),
        };
        print_progress(&format!("{at_s:.1} s, generation {generation}: {}", in_force.groups));
        seen.lock().expect("no holder panics").push(in_force);
    }
    Ok(())
}
