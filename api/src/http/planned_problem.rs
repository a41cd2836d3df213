//! Which problem does a request for a plan mean, and with which options is it planned?

use super::body::{DOCUMENT_BYTES_MAX, off_loop};
use super::project_access::may_name;
use super::refusal::Refusal;
use crate::act::agent_facts::agent_facts;
use crate::act::drift::measurements;
use crate::act::replan::live_hardware;
use crate::analyses::simulation::SimulatedTimes;
use crate::decide::default_dropping::default_to_pard;
use crate::decide::fleet::Fleet;
use crate::documents;
use crate::jobs::PlanOptions;
use crate::store::{self, PgConnection, owners::OwnedKind, plans::PlanRow};
use apportion_wire::{HardwareSpec, ObjectiveSpec, PipelineSpec, ProblemSpec, merge_patch};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A request for a plan: a problem file, registered pipelines, or another plan with a patch.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// A whole problem file. Instead of `pipelines` and `from`.
    #[serde(default)]
    #[schema(value_type = Option<ProblemSpec>)]
    pub problem: Option<Value>,
    /// Registered pipelines with their demands. Instead of `problem` and `from`.
    #[serde(default)]
    pub pipelines: Option<Vec<PlannedPipeline>>,
    /// A stored plan in any state: its problem is planned again. Instead of `problem` and `pipelines`. Options that the
    /// request leaves out are those of that plan.
    #[serde(default)]
    pub from: Option<Uuid>,
    /// Changes of that problem, with `from`: a JSON merge patch (RFC 7386). `null` removes a key, and a list is replaced as
    /// a whole. The pointer of a refused value begins with `/patch`, and goes on with its place in the changed problem.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub patch: Option<Value>,
    /// The objective, with `pipelines`; default `hardware_then_accuracy`.
    #[serde(default)]
    pub objective: Option<ObjectiveSpec>,
    /// The hardware, with `pipelines`; default: the devices of live agents, or all registered types if there is none.
    #[serde(default)]
    pub hardware: Option<Vec<HardwareSpec>>,
    /// An uploaded trace that the plan must hold on; default: Poisson at the demand, 60 s.
    #[serde(default)]
    pub trace: Option<Uuid>,
    /// `milp` (default), `greedy`, or a baseline: `hardware-only`, `proteus`, `cg-mean`, `cg-peak`.
    #[serde(default)]
    pub planner: Option<String>,
    /// Limit on the time spent solving; default 60.
    #[serde(default)]
    pub time_limit_s: Option<f64>,
    /// Relative gap at which a plan counts as optimal; default 1e-4.
    #[serde(default)]
    pub gap: Option<f64>,
    /// Also find the replicas for other loads, from the demand divided by this factor to the demand times it, 1 to 100.
    /// Agents then follow them instead of InferLine's tuner; default: none. A registered pipeline that names no dropping
    /// policy then has `pard`.
    #[serde(default)]
    pub ladder: Option<f64>,
    /// The divisor of the ladder's rates, 0.1 to 10 and at most `ladder`: a constant headroom, with which replicas come
    /// earlier. Default: the rates stay, and the misses move the headroom in the agents.
    #[serde(default)]
    pub ladder_headroom: Option<f64>,
    /// Times of batches that the plan is checked on; default `p99-matched`: draws with the profile's median and 99th
    /// percentile, where it has one. With `median` the plan's report warns of it.
    #[serde(default)]
    pub service: Option<SimulatedTimes>,
}

/// A registered pipeline to be planned.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedPipeline {
    /// Its name.
    pub name: String,
    /// Queries entering its root per second; default: the spec's.
    #[serde(default)]
    pub demand_qps: Option<f64>,
}

/// A request that is checked.
pub(super) struct CheckedPlanRequest {
    /// The valid problem document.
    pub(super) problem: Value,
    pub(super) options: PlanOptions,
}

/// Checks a request, and makes its problem. A client of one project names resources of this one alone.
///
/// # Errors
/// The first value that is refused.
pub(super) async fn check(
    db: &mut PgConnection,
    project: Option<&str>,
    asked: PlanRequest,
) -> Result<CheckedPlanRequest, Refusal> {
    let source = match asked.from {
        Some(id) => Some(stored_plan(db, project, id).await?),
        None => None,
    };
    let options = options(&asked, source.as_ref())?;
    if let Some(trace) = options.trace
        && !(store::traces::share(db, trace).await? && may_name(db, project, OwnedKind::Trace, &trace.to_string()).await?)
    {
        return Err(Refusal::value("/trace", format!("there is no trace {trace}")));
    }
    let problem = match source {
        Some(row) => patched(row, asked).await?,
        None => problem(db, project, asked, options.ladder).await?,
    };
    Ok(CheckedPlanRequest { problem, options })
}

async fn stored_plan(db: &mut PgConnection, project: Option<&str>, id: Uuid) -> Result<PlanRow, Refusal> {
    let row = match may_name(db, project, OwnedKind::Plan, &id.to_string()).await? {
        true => store::plans::get(db, id).await?,
        false => None,
    };
    row.ok_or_else(|| Refusal::value("/from", format!("{id}: expected a plan of GET /v1/plans")))
}

/// The options of a request. Those that it leaves out are those of the plan that it begins with, or the defaults.
fn options(asked: &PlanRequest, source: Option<&PlanRow>) -> Result<PlanOptions, Refusal> {
    let base: PlanOptions = match source {
        Some(row) => serde_json::from_value(row.options.clone())
            .map_err(|error| Refusal::value("/from", format!("the options of plan {} cannot be read: {error}", row.id)))?,
        None => PlanOptions::default(),
    };
    let options = PlanOptions {
        planner: asked.planner.clone().unwrap_or(base.planner),
        gap: asked.gap.unwrap_or(base.gap),
        time_limit_s: asked.time_limit_s.unwrap_or(base.time_limit_s),
        trace: asked.trace.or(base.trace),
        ladder: asked.ladder.or(base.ladder),
        ladder_headroom: asked.ladder_headroom.or(base.ladder_headroom),
        service: asked.service.or(base.service),
    };
    match options.refused().into_iter().next() {
        Some(refused) => Err(Refusal::value(refused.pointer, refused.detail)),
        None => Ok(options),
    }
}

/// The problem of a stored plan, changed by the patch of the request.
async fn patched(row: PlanRow, asked: PlanRequest) -> Result<Value, Refusal> {
    if asked.problem.is_some() || asked.pipelines.is_some() {
        return Err(Refusal::value("", SOURCES));
    }
    if asked.objective.is_some() || asked.hardware.is_some() {
        let detail = "a stored plan brings its own objective and hardware: expected their changes in patch";
        return Err(Refusal::value("/from", detail));
    }
    off_loop(move || change(row.problem, asked.patch)).await?
}

/// A problem, changed by a patch and checked.
fn change(mut problem: Value, patch: Option<Value>) -> Result<Value, Refusal> {
    if let Some(patch) = patch {
        if !patch.is_object() {
            return Err(Refusal::value("/patch", "expected an object with the keys that change"));
        }
        merge_patch(&mut problem, patch);
        // Patches of patches could grow a problem beyond the largest body.
        let bytes = problem.to_string().len();
        if bytes > DOCUMENT_BYTES_MAX {
            let detail = format!("the patched problem has {bytes} bytes: expected at most {DOCUMENT_BYTES_MAX}");
            return Err(Refusal::value("/patch", detail));
        }
    }
    match documents::problem(&problem) {
        Ok(_) => Ok(problem),
        Err(bad) => Err(Refusal::from(bad).below("/patch")),
    }
}

/// The ways to say what is planned.
const SOURCES: &str = "expected one of problem, pipelines and from";

/// The valid problem document of a request without a stored plan, for plans with this ladder.
async fn problem(
    db: &mut PgConnection,
    project: Option<&str>,
    asked: PlanRequest,
    ladder: Option<f64>,
) -> Result<Value, Refusal> {
    if asked.patch.is_some() {
        return Err(Refusal::value("/patch", "a patch changes the problem of a stored plan: expected from with it"));
    }
    match (asked.problem, asked.pipelines) {
        (Some(problem), None) => {
            if asked.objective.is_some() || asked.hardware.is_some() {
                return Err(Refusal::value("/problem", "a problem brings its own objective and hardware"));
            }
            off_loop(move || match documents::problem(&problem) {
                Ok(_) => Ok(problem),
                Err(bad) => Err(Refusal::from(bad).below("/problem")),
            })
            .await?
        }
        (None, Some(pipelines)) => {
            let objective = asked.objective.unwrap_or_default();
            let hardware = match asked.hardware {
                Some(hardware) => hardware,
                None => available_hardware(db).await?,
            };
            if hardware.is_empty() {
                return Err(Refusal::value("/hardware", "no agent is live and no hardware type is registered"));
            }
            let FilledSpecs { mut specs, notes } = specs(db, project, pipelines).await?;
            if ladder.is_some() {
                specs.iter_mut().for_each(default_to_pard);
            }
            let made = move || {
                let mut document = documents::problem_document(objective, hardware, specs)?;
                documents::add_notes(&mut document, notes);
                documents::problem(&document)?;
                Ok::<_, Refusal>(document)
            };
            off_loop(made).await?
        }
        _ => Err(Refusal::value("", SOURCES)),
    }
}

async fn available_hardware(db: &mut PgConnection) -> Result<Vec<HardwareSpec>, Refusal> {
    let counts = Fleet::live(store::agents::list(db).await?.iter().map(agent_facts).collect()).counts();
    if !counts.is_empty() {
        return Ok(live_hardware(db, counts).await?);
    }
    let spec = |row: store::hardware::HardwareRow| HardwareSpec {
        name: row.name,
        price_per_hour: row.price_per_hour,
        count: None,
        memory_mib: row.memory_mib,
    };
    Ok(store::hardware::list(db).await?.into_iter().map(spec).collect())
}

/// Registered pipelines with the measurements of agents: times where their files have none, and corrected profiles.
struct FilledSpecs {
    specs: Vec<PipelineSpec>,
    /// Sentences about these measurements.
    notes: Vec<String>,
}

async fn specs(
    db: &mut PgConnection,
    project: Option<&str>,
    pipelines: Vec<PlannedPipeline>,
) -> Result<FilledSpecs, Refusal> {
    let measured = measurements(db).await?;
    let (mut specs, mut notes) = (Vec::with_capacity(pipelines.len()), Vec::new());
    for (i, planned) in pipelines.into_iter().enumerate() {
        let row = match may_name(db, project, OwnedKind::Pipeline, &planned.name).await? {
            true => store::pipelines::get(db, &planned.name).await?,
            false => None,
        };
        let missing =
            || Refusal::value(format!("/pipelines/{i}/name"), format!("{}: expected a registered pipeline", planned.name));
        let mut spec = documents::measured(&row.ok_or_else(missing)?)?;
        spec.demand_qps = planned.demand_qps.unwrap_or(spec.demand_qps);
        notes.extend(measured.fill(&mut spec));
        specs.push(spec);
    }
    Ok(FilledSpecs { specs, notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patched_problem_is_bounded() {
        let half = "x".repeat(DOCUMENT_BYTES_MAX / 2);
        let refused = change(json!({"a": half}), Some(json!({"b": half}))).expect_err("it is too large");
        assert_eq!((refused.status, refused.errors[0].pointer.as_str()), (422, "/patch"));
        assert!(refused.detail.contains("bytes"), "{refused}");
    }
}
