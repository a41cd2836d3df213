//! How does a process have its agents measure for profile jobs?
//!
//! The leader claims devices. The process that holds the stream of a claim's agent gives it one order after the other, and
//! stores the answers. Each order is a row, so that another process goes on where this one ends. An answer counts if the
//! claim and the order still have its numbers.

use super::lease::Chain;
use super::slot_backends;
use crate::app::measurements::AgentMeasurement;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::measurement::{MeasuredAt, NoisyMeasurement, reason, row_of};
use crate::decide::profile_job::{JobPart, JobPoint, PointFailure, PointOrder, ProfileJobRequest, next_order, ready_parts};
use crate::decide::tensors::{TaskTensors, provider_target, runtime_target};
use crate::documents::{self, ProfileExtent};
use crate::store::device_claims::{self as claims, ClaimRow, NewOrder, VersionedClaimRow};
use crate::store::profile_jobs::{self as jobs, ProfileJobRow, ProfilePointRow};
use crate::store::{self, Condition, PgConnection, pipelines};
use apportion_domain::{TaskKind, TimeSpan};
use apportion_protocol::v1;
use apportion_wire::{BadInput, MeasuredRow, PipelineSpec, ProfileJobState, ProfileSet, TensorSpec};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// Pause between two looks for claims of other processes' leader.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Why an order or an answer of a job could not be dealt with.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasuringError {
    /// The database's.
    #[error("the database did not answer")]
    Database(#[from] store::Error),
    /// A stored document cannot be used.
    #[error(transparent)]
    Document(#[from] BadInput),
    /// The stored request cannot be read.
    #[error("the stored request cannot be read")]
    Request(#[source] serde_json::Error),
    /// Measured rows do not pass the check of the pipeline's profile.
    #[error("the profile refuses the rows of {variant} on {hardware}")]
    Rows {
        /// The variant.
        variant: String,
        /// The hardware type.
        hardware: String,
        /// The refused values.
        #[source]
        refusal: BadInput,
    },
}

/// Gives orders and stores answers, until the service stops.
pub async fn run(app: App) {
    let mut given = GivenMeasures::new();
    while !app.is_stopping() {
        match take_turn(&app, &mut given).await {
            Ok(()) => app.parts.note_alive(ServicePart::Measuring),
            Err(error) => tracing::warn!(%error, "measurements wait for the database"),
        }
        tokio::select! {
            () = app.stopped() => return,
            () = app.measurements.added() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The orders of the last turn, by claim.
type GivenMeasures = BTreeMap<i64, GivenMeasure>;

/// An order with the rows from which it was made.
struct GivenMeasure {
    rows: VersionedClaimRow,
    order: v1::Measure,
}

async fn take_turn(app: &App, given: &mut GivenMeasures) -> store::Result<()> {
    while let Some(arrived) = app.measurements.take() {
        if let Err(error) = take_answer(app, &arrived).await {
            if store::is_unavailable(&error) {
                app.measurements.put_back(arrived);
                return Err(error);
            }
            tracing::error!(agent = arrived.agent, %error, "a measurement could not be stored");
        }
    }
    let held = claims::held_by(&mut *app.pool.acquire().await?, app.heartbeats.process).await?;
    let (mut last, mut orders) = (std::mem::take(given), BTreeMap::new());
    for rows in held {
        let known = last.remove(&rows.claim.claim).filter(|known| known.rows == rows);
        let order = match known {
            Some(known) => Some(known.order),
            None => give_order(app, &rows.claim).await?,
        };
        let Some(order) = order else { continue };
        orders.insert(rows.claim.agent as u64, order.clone());
        // A claim without an order has just got one, so its row is another one.
        if rows.claim.task.is_some() {
            given.insert(rows.claim.claim, GivenMeasure { rows, order });
        }
    }
    app.measurements.set_orders(orders);
    Ok(())
}

/// The request of a job.
pub(super) fn request_of(job: &ProfileJobRow) -> Result<ProfileJobRequest, MeasuringError> {
    serde_json::from_value(job.request.clone()).map_err(MeasuringError::Request)
}

/// What was measured for a job.
pub(super) async fn read_points(db: &mut PgConnection, job: Uuid) -> store::Result<Vec<JobPoint>> {
    Ok(jobs::points(db, job).await?.into_iter().map(point_of).collect())
}

/// The point of a row. One of another release whose document this one cannot read counts as failed.
fn point_of(row: ProfilePointRow) -> JobPoint {
    let ProfilePointRow { hardware, task, variant, batch, measured, error } = row;
    let outcome = match measured {
        Some(document) => serde_json::from_value(document).map_err(|error| PointFailure(error.to_string())),
        None => Err(PointFailure(error.unwrap_or_default())),
    };
    JobPoint { hardware, task, variant, batch: batch.unsigned_abs(), outcome }
}

/// Ends a job whose documents or rows cannot be used.
async fn fail(app: &App, job: Uuid, why: &MeasuringError) -> store::Result<()> {
    let why = Chain(why).to_string();
    tracing::error!(%job, error = why, "a profile job fails");
    let mut tx = app.pool.begin().await?;
    jobs::finish(&mut tx, job, ProfileJobState::Failed, Some(&why), now()).await?;
    tx.commit().await
}

/// The order that a claim's agent has now; `None` if its claim has ended.
async fn give_order(app: &App, claim: &ClaimRow) -> store::Result<Option<v1::Measure>> {
    let mut tx = app.pool.begin().await?;
    match next_message(&mut tx, claim).await {
        Ok(given) => {
            tx.commit().await?;
            match given {
                GivenOrder::Measure(order) => return Ok(Some(*order)),
                GivenOrder::LookAgain => app.measurements.wake(),
                // The leader ends the job, or claims another device.
                GivenOrder::Ended => app.fleet_changed.notify_one(),
            }
            Ok(None)
        }
        Err(MeasuringError::Database(error)) => Err(error),
        Err(why) => {
            tx.rollback().await?;
            fail(app, claim.job, &why).await?;
            Ok(None)
        }
    }
}

/// What a claim's agent does next.
enum GivenOrder {
    /// It measures.
    Measure(Box<v1::Measure>),
    /// A variant is gone: the next one follows.
    LookAgain,
    /// Nothing is left, or the job is over.
    Ended,
}

async fn next_message(tx: &mut PgConnection, held: &ClaimRow) -> Result<GivenOrder, MeasuringError> {
    let Some(job) = jobs::lock_job(tx, held.job).await? else { return Ok(GivenOrder::Ended) };
    let Some(claim) = claims::lock(tx, held.claim).await? else { return Ok(GivenOrder::Ended) };
    if !job.state.is_open() {
        claims::end(tx, claim.claim).await?;
        return Ok(GivenOrder::Ended);
    }
    let request = request_of(&job)?;
    let (order, point) = match order_of(&claim) {
        Some(order) => (order, claim.point),
        None => {
            let points = read_points(tx, job.id).await?;
            let Some(order) = next_order(&request, &claim.hardware, &points) else {
                claims::end(tx, claim.claim).await?;
                return Ok(GivenOrder::Ended);
            };
            let new = NewOrder { task: &order.task, variant: &order.variant, batch: order.batch as i32 };
            let point = claims::set_order(tx, claim.claim, Some(new)).await?;
            (order, point)
        }
    };
    let row = pipelines::get(tx, &job.pipeline).await?;
    let spec = row.map(|row| documents::measured(&row)).transpose()?;
    let Some(variant) = spec.as_ref().and_then(|spec| ordered_variant(spec, &order, &claim.hardware)) else {
        let gone = PointFailure("the pipeline has no such variant any more".to_owned());
        store_point(tx, &request, &claim, &order, Err(gone)).await?;
        return Ok(GivenOrder::LookAgain);
    };
    let sizes = request.shapes.iter().map(|(input, sizes)| v1::InputSizes { input: input.clone(), sizes: sizes.clone() });
    let message = v1::Measure {
        claim: claim.claim as u64,
        point: point as u64,
        device: claim.device as u32,
        task: Some(variant.task),
        group: Some(variant.group),
        batch: order.batch,
        time_max_ms: (request.point_time_max_s * 1e3).ceil() as u32,
        sizes: sizes.collect(),
    };
    Ok(GivenOrder::Measure(Box::new(message)))
}

/// The order of a claim that is not answered yet.
fn order_of(claim: &ClaimRow) -> Option<PointOrder> {
    let (task, variant) = (claim.task.clone()?, claim.variant.clone()?);
    Some(PointOrder { task, variant, batch: claim.batch?.unsigned_abs() })
}

/// A variant as the message names it.
struct OrderedVariant {
    task: v1::TaskTarget,
    group: v1::GroupTarget,
}

fn ordered_variant(spec: &PipelineSpec, order: &PointOrder, hardware: &str) -> Option<OrderedVariant> {
    let task = spec.tasks.iter().find(|task| task.name == order.task)?;
    let variant = task.variants.iter().find(|variant| variant.name == order.variant)?;
    let tensors =
        |list: &Option<Vec<TensorSpec>>| -> Vec<v1::TensorSpec> { list.iter().flatten().map(documents::tensor).collect() };
    let rows = variant.profile.iter().flatten().filter(|row| row.hardware == hardware && row.share.unwrap_or(1.0) == 1.0);
    let mut service: Vec<v1::ServicePoint> = rows
        .map(|row| v1::ServicePoint {
            batch: row.batch,
            latency_ns: TimeSpan::from_millis(row.latency_ms).as_nanos(),
            p99_ns: TimeSpan::from_millis(row.p99_ms.unwrap_or(row.latency_ms)).as_nanos(),
        })
        .collect();
    service.sort_by_key(|point| point.batch);
    service.dedup_by_key(|point| point.batch);
    let glue = spec.glue().swap_remove(spec.tasks.iter().position(|known| known.name == task.name)?);
    let glued = TaskTensors { inputs: tensors(&task.inputs), outputs: tensors(&task.outputs), glue };
    let is_continuous = task.kind.as_deref() == Some(TaskKind::Continuous.name());
    let asked = variant.execution();
    Some(OrderedVariant {
        task: v1::TaskTarget { name: task.name.clone(), continuous: is_continuous, ..glued.target() },
        group: v1::GroupTarget {
            variant: variant.name.clone(),
            hardware: hardware.to_owned(),
            share: 1.0,
            batch: order.batch,
            file_digest: variant.model_digest.clone().unwrap_or_default(),
            service,
            runtime: runtime_target(variant.file_runtime()),
            threads: asked.threads.unwrap_or(0),
            provider: provider_target(asked.provider),
            ..Default::default()
        },
    })
}

/// Stores the answer of an agent, if its claim still waits for it.
async fn take_answer(app: &App, arrived: &AgentMeasurement) -> store::Result<()> {
    let mut tx = app.pool.begin().await?;
    let number = i64::try_from(arrived.measurement.claim).unwrap_or(0);
    let Some(claim) = claims::get(&mut tx, number).await? else { return Ok(()) };
    match store_answer(&mut tx, &claim, arrived).await {
        Ok(()) => tx.commit().await,
        Err(MeasuringError::Database(error)) => Err(error),
        Err(why) => {
            tx.rollback().await?;
            fail(app, claim.job, &why).await
        }
    }
}

async fn store_answer(tx: &mut PgConnection, held: &ClaimRow, arrived: &AgentMeasurement) -> Result<(), MeasuringError> {
    let AgentMeasurement { agent, measurement } = arrived;
    let Some(job) = jobs::lock_job(tx, held.job).await? else { return Ok(()) };
    let Some(claim) = claims::lock(tx, held.claim).await? else { return Ok(()) };
    let Some(order) = order_of(&claim) else { return Ok(()) };
    let is_answer = claim.agent as u64 == *agent && claim.point as u64 == measurement.point;
    if !is_answer || !job.state.is_open() {
        tracing::debug!(agent, claim = claim.claim, point = measurement.point, "an answer that nobody waits for");
        return Ok(());
    }
    if !measurement.yielded.is_empty() {
        return Ok(claims::note_yielded(tx, claim.claim, &reason(&measurement.yielded)).await?);
    }
    let request = request_of(&job)?;
    let name = store::agents::get(tx, claim.agent).await?.map(|row| row.name).unwrap_or_default();
    let place = MeasuredAt { hardware: &claim.hardware, agent: &name, at: now() };
    let noisy = if request.strict { NoisyMeasurement::Refused } else { NoisyMeasurement::Counts };
    let outcome = row_of(measurement, &order, place, noisy);
    let points = store_point(tx, &request, &claim, &order, outcome).await?;
    let part = JobPart { hardware: &claim.hardware, task: &order.task, variant: &order.variant };
    if part.next_size(&request, &points).is_none() {
        merge_rows(tx, &job.pipeline, part, part.profile_rows(&request, &points)).await?;
    }
    Ok(())
}

/// Stores what was measured of one batch size, and how much of the job is ready. Returns all that the job has measured.
async fn store_point(
    tx: &mut PgConnection,
    request: &ProfileJobRequest,
    claim: &ClaimRow,
    order: &PointOrder,
    outcome: Result<MeasuredRow, PointFailure>,
) -> Result<Vec<JobPoint>, MeasuringError> {
    let (measured, error) = match outcome {
        Ok(row) => (Some(serde_json::to_value(&row).expect("a row is JSON")), None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    let (task, variant, batch) = (order.task.clone(), order.variant.clone(), order.batch as i32);
    let point = ProfilePointRow { hardware: claim.hardware.clone(), task, variant, batch, measured, error };
    jobs::add_point(tx, claim.job, &point).await?;
    claims::set_order(tx, claim.claim, None).await?;
    let points = read_points(tx, claim.job).await?;
    jobs::write_progress(tx, claim.job, ready_parts(request, &points) as i32).await?;
    Ok(points)
}

/// Puts the rows of one variant on one hardware type into the profile of a pipeline. Rows of others stay.
async fn merge_rows(
    tx: &mut PgConnection,
    pipeline: &str,
    part: JobPart<'_>,
    rows: Vec<MeasuredRow>,
) -> Result<(), MeasuringError> {
    // Locked, so that two that measure at once keep the rows of both.
    let Some(row) = pipelines::lock(tx, pipeline).await?.filter(|_| !rows.is_empty()) else { return Ok(()) };
    let refused =
        |refusal| MeasuringError::Rows { variant: part.variant.to_owned(), hardware: part.hardware.to_owned(), refusal };
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", row.spec.clone())?;
    if let Some(refusal) = slot_backends::refuse_rows(tx, &spec, &rows).await? {
        return Err(refused(refusal));
    }
    let measured = ProfileSet { rows, ..ProfileSet::default() };
    let document = documents::merged_profile(&row, measured, ProfileExtent::Growing).map_err(refused)?;
    pipelines::put_profile(tx, pipeline, &document, &Condition::Any, now()).await?;
    Ok(())
}
