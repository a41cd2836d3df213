//! How does a plan file become a plan? Only the necessary keys are required, so a plan may be written by hand.

use crate::bad_input::BadInput;
use crate::check::read;
use crate::convert::share_at;
use crate::plan::{BackupFile, GroupFile, LadderStepFile, PlanFile, RoutingTableFile};
use crate::problem::check_version;
use crate::record::FileKind;
use crate::spec::ServingSpec;
use crate::tree::parse_tree;
use apportion_domain::pipeline::{BATCH_MAX, NUMBER_MAX};
use apportion_domain::{
    Assignment, BackupEntry, Batching, Dropping, Flow, GroupName, Invalid, LadderStep, PipelinePlan, Plan, PlanStatus,
    Problem, Queueing, Routing, RoutingEntry, RoutingPolicy, RoutingTable, ServingWishes, Share,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Read {
    status: Option<String>,
    cost_per_hour: Option<f64>,
    pipelines: Vec<ReadPipeline>,
}

#[derive(Deserialize)]
struct ReadPipeline {
    name: String,
    #[serde(default)]
    demand_qps: f64,
    accuracy: Option<f64>,
    serving: Option<ServingSpec>,
    assignments: Vec<ReadAssignment>,
    #[serde(default)]
    flows: Vec<ReadFlow>,
    #[serde(default)]
    routing: ReadRouting,
    #[serde(default)]
    ladder: Vec<LadderStepFile>,
}

#[derive(Deserialize)]
struct ReadAssignment {
    task: String,
    variant: String,
    hardware: String,
    share: Option<f64>,
    batch: u32,
    replicas: u32,
    #[serde(default)]
    traffic_share: f64,
    #[serde(default)]
    latency_budget_ms: f64,
    #[serde(default)]
    utilisation: f64,
}

#[derive(Deserialize)]
struct ReadFlow {
    path: Vec<Vec<Value>>,
    share: f64,
}

#[derive(Default, Deserialize)]
struct ReadRouting {
    #[serde(default)]
    tables: Vec<RoutingTableFile>,
    #[serde(default)]
    backup: Vec<BackupFile>,
}

/// Reads a plan file, JSON or YAML. Names stay names: the checker finds those that a problem does not have.
///
/// # Errors
/// Every refused value, and a file that says that there is no plan.
pub fn read_plan(file: &str, text: &str) -> Result<Plan, BadInput> {
    plan_from_tree(file, parse_tree(file, text)?)
}

/// Reads a plan for `problem`. A missing cost and missing demands are those of the problem.
///
/// # Errors
/// As [`read_plan`].
pub fn read_plan_for(problem: &Problem, file: &str, text: &str) -> Result<Plan, BadInput> {
    plan_for_from_tree(problem, file, parse_tree(file, text)?)
}

/// Reads a plan for `problem` from a parsed tree.
///
/// # Errors
/// As [`read_plan_for`].
pub fn plan_for_from_tree(problem: &Problem, file: &str, tree: Value) -> Result<Plan, BadInput> {
    let absent = |tree: &Value, key: &str| tree.get(key).is_none_or(Value::is_null);
    let no_cost = absent(&tree, "cost_per_hour");
    let parts = tree.get("pipelines").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let no_demand: Vec<bool> = parts.iter().map(|p| absent(p, "demand_qps")).collect();
    let mut plan = plan_from_tree(file, tree)?;
    if no_cost {
        let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
        plan.cost_per_hour = plan.devices().into_iter().map(|(name, count)| price(name) * count as f64).sum();
    }
    for (part, _) in plan.pipelines.iter_mut().zip(no_demand).filter(|(_, absent)| *absent) {
        if let Some(index) = problem.pipeline_named(&part.name) {
            part.demand_qps = problem.pipeline(index).demand_qps;
        }
    }
    Ok(plan)
}

/// Reads a plan from a parsed tree.
///
/// # Errors
/// As [`read_plan`].
pub fn plan_from_tree(file: &str, tree: Value) -> Result<Plan, BadInput> {
    check_version(file, &tree)?;
    if tree.get("scaling").is_some_and(|s| !s.is_null()) {
        return Err(BadInput::one(file, "/scaling", "the plan of a scaling problem", "a plan with pipelines"));
    }
    let parsed: Read = read(file, tree, FileKind::Plan, &PlanFile::RECORD)?;
    let none = [PlanStatus::Infeasible, PlanStatus::Unknown].map(PlanStatus::name);
    if let Some(status) = parsed.status.as_deref().filter(|s| none.contains(s)) {
        let expected = "a plan: this file says that there is none";
        return Err(BadInput::one(file, "/status", format!("{status:?}"), expected));
    }
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let mut pipelines = Vec::with_capacity(parsed.pipelines.len());
    for (i, p) in parsed.pipelines.into_iter().enumerate() {
        let at = format!("/pipelines/{i}");
        if !seen.insert(p.name.clone()) {
            problems.push(Invalid::new(format!("{at}/name"), format!("{:?}", p.name), "a name that no other has"));
        }
        pipelines.push(pipeline_of(p, &at, &mut problems));
    }
    if problems.is_empty() {
        Ok(Plan { pipelines, cost_per_hour: parsed.cost_per_hour.unwrap_or(0.0) })
    } else {
        Err(BadInput { file: file.to_owned(), problems })
    }
}

fn pipeline_of(p: ReadPipeline, at: &str, problems: &mut Vec<Invalid>) -> PipelinePlan {
    share_of_one(p.accuracy.unwrap_or(0.0), &format!("{at}/accuracy"), problems);
    if !(0.0..=NUMBER_MAX).contains(&p.demand_qps) {
        problems.push(Invalid::new(format!("{at}/demand_qps"), p.demand_qps, "a number of at least 0"));
    }
    let wishes = p.serving.map_or_else(ServingWishes::default, |s| serving_of(&s));
    let mut groups = BTreeSet::new();
    let mut assignments = Vec::with_capacity(p.assignments.len());
    for (a, spec) in p.assignments.into_iter().enumerate() {
        let at = format!("{at}/assignments/{a}");
        let assignment = assignment_of(spec, &at, problems);
        if !groups.insert(assignment.group.clone()) {
            problems.push(Invalid::new(at, &assignment.group, "each group once"));
        }
        assignments.push(assignment);
    }
    let flows = p.flows.into_iter().enumerate().map(|(f, flow)| flow_of(flow, &format!("{at}/flows/{f}"), problems));
    let flows = flows.collect();
    let ladder = ladder_of(p.ladder, &assignments, &format!("{at}/ladder"), problems);
    PipelinePlan {
        flows,
        name: p.name,
        demand_qps: p.demand_qps,
        accuracy: p.accuracy.unwrap_or(0.0),
        serving: wishes.resolve(),
        assignments,
        routing: routing_of(p.routing, &format!("{at}/routing"), problems),
        ladder,
    }
}

/// The steps of a ladder. Rates rise, and every group has a replica. Steps below the plan's demand may have fewer replicas
/// than the plan.
fn ladder_of(
    steps: Vec<LadderStepFile>,
    assignments: &[Assignment],
    at: &str,
    problems: &mut Vec<Invalid>,
) -> Vec<LadderStep> {
    let mut below_qps = 0.0;
    let mut read = Vec::with_capacity(steps.len());
    for (s, step) in steps.into_iter().enumerate() {
        let at = format!("{at}/{s}");
        if !(step.rate_qps > below_qps && step.rate_qps <= NUMBER_MAX) {
            let expected = format!("a rate above {below_qps}: steps rise");
            problems.push(Invalid::new(format!("{at}/rate_qps"), step.rate_qps, expected));
        }
        below_qps = step.rate_qps;
        if step.replicas.len() != assignments.len() {
            let expected = format!("{} counts, one for each assignment", assignments.len());
            problems.push(Invalid::new(format!("{at}/replicas"), format!("a list of {}", step.replicas.len()), expected));
        }
        for (g, (&count, a)) in step.replicas.iter().zip(assignments).enumerate().filter(|(_, (n, _))| **n == 0) {
            let expected = format!("at least 1 replica of {}", a.group);
            problems.push(Invalid::new(format!("{at}/replicas/{g}"), count, expected));
        }
        read.push(LadderStep { rate_qps: step.rate_qps, replicas: step.replicas });
    }
    read
}

/// The words are valid: the file was checked against its record.
fn serving_of(s: &ServingSpec) -> ServingWishes {
    ServingWishes {
        queueing: s.queueing.as_deref().and_then(Queueing::from_name),
        batching: s.batching.as_deref().and_then(Batching::from_name),
        routing: s.routing.as_deref().and_then(RoutingPolicy::from_name),
        dropping: s.dropping.as_deref().and_then(Dropping::from_name_or_alias),
    }
}

fn share_of_one(value: f64, at: &str, problems: &mut Vec<Invalid>) {
    if !(-1e-9..=1.0 + 1e-9).contains(&value) {
        problems.push(Invalid::new(at, value, "a number from 0 to 1"));
    }
}

fn assignment_of(a: ReadAssignment, at: &str, problems: &mut Vec<Invalid>) -> Assignment {
    if !(1..=BATCH_MAX).contains(&a.batch) {
        problems.push(Invalid::new(format!("{at}/batch"), a.batch, format!("a batch from 1 to {BATCH_MAX}")));
    }
    if a.replicas == 0 {
        problems.push(Invalid::new(format!("{at}/replicas"), 0, "at least 1 replica"));
    }
    let share = share_at(a.share, || format!("{at}/share"), problems);
    Assignment {
        group: GroupName { task: a.task, variant: a.variant, hardware: a.hardware, share },
        batch: a.batch,
        replicas: a.replicas,
        traffic_share: a.traffic_share,
        latency_budget_ms: a.latency_budget_ms,
        utilisation: a.utilisation,
    }
}

fn flow_of(f: ReadFlow, at: &str, problems: &mut Vec<Invalid>) -> Flow {
    share_of_one(f.share, &format!("{at}/share"), problems);
    if f.path.is_empty() {
        problems.push(Invalid::new(format!("{at}/path"), "a list of 0", "at least one node"));
    }
    let node = |(n, node): (usize, &Vec<Value>)| {
        let at = format!("{at}/path/{n}");
        let parsed = match node.as_slice() {
            [Value::String(t), Value::String(v), Value::String(h)] => Some((t, v, h, Share::WHOLE)),
            [Value::String(t), Value::String(v), Value::String(h), share] if share.is_number() => {
                Some((t, v, h, share_at(share.as_f64(), || format!("{at}/3"), problems)))
            }
            _ => None,
        };
        let Some((task, variant, hardware, share)) = parsed else {
            let shown = crate::bad_input::clipped(&Value::Array(node.clone()).to_string());
            problems.push(Invalid::new(at, shown, "[task, variant, hardware], with the share as fourth where it is not 1"));
            return None;
        };
        Some(GroupName { task: task.clone(), variant: variant.clone(), hardware: hardware.clone(), share })
    };
    Flow { path: f.path.iter().enumerate().filter_map(node).collect(), share: f.share }
}

fn routing_of(r: ReadRouting, at: &str, problems: &mut Vec<Invalid>) -> Routing {
    let tables = r.tables.into_iter().enumerate().map(|(t, table)| {
        let at = format!("{at}/tables/{t}");
        let entry = |(e, entry): (usize, &crate::plan::RoutingEntryFile)| {
            share_of_one(entry.fraction, &format!("{at}/entries/{e}/fraction"), problems);
            RoutingEntry {
                to: GroupName {
                    task: table.to.clone(),
                    variant: entry.variant.clone(),
                    hardware: entry.hardware.clone(),
                    share: share_at(Some(entry.share), || format!("{at}/entries/{e}/share"), problems),
                },
                fraction: entry.fraction,
            }
        };
        let entries = table.entries.iter().enumerate().map(entry).collect();
        let from = table.from.map(|g| group_of(g, &format!("{at}/from"), problems));
        RoutingTable { from, to_task: table.to, entries }
    });
    let tables = tables.collect();
    let backup = r.backup.into_iter().enumerate().map(|(b, entry)| {
        let at = format!("{at}/backup/{b}");
        if !(0.0..=NUMBER_MAX).contains(&entry.capacity_qps) {
            problems.push(Invalid::new(format!("{at}/capacity_qps"), entry.capacity_qps, "a number of at least 0"));
        }
        let group = GroupFile { task: entry.task, variant: entry.variant, hardware: entry.hardware, share: entry.share };
        BackupEntry { group: group_of(group, &at, problems), capacity_qps: entry.capacity_qps }
    });
    Routing { backup: backup.collect(), tables }
}

fn group_of(g: GroupFile, at: &str, problems: &mut Vec<Invalid>) -> GroupName {
    let share = share_at(Some(g.share), || format!("{at}/share"), problems);
    GroupName { task: g.task, variant: g.variant, hardware: g.hardware, share }
}
