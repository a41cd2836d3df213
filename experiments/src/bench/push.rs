//! How soon does every agent of a large fleet have a new target?
//!
//! The service is a process of its own, with its database. Agents are stand-ins in this process, each with a control
//! connection. The benchmark measures the work of the service: it composes, commits and pushes the target, and records the
//! acknowledgements.

use super::stand_ins::StandIns;
use crate::live::console::print_progress;
use crate::live::fleet::{FleetSettings, HARDWARE, LocalFleet};
use anyhow::{Context, Result, ensure};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_wire::AgentState;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The demand of each of the two plans, in parts of the fleet's capacity. The plans take turns.
const LOADS: [f64; 2] = [0.5, 0.8];
/// Queries per second of one replica.
const REPLICA_QPS: f64 = 1.0;
/// The tasks of the pipeline that is deployed.
const TASKS: [&str; 2] = ["a", "b"];
/// The longest time until the service has recorded all acknowledgements.
const RECORD_MAX: Duration = Duration::from_secs(60);

/// The settings of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct PushSettings {
    /// Agents, with one device each.
    pub agents: u32,
    /// Targets to push.
    pub pushes: u32,
}

/// The times of one push, from the request for the target.
struct PushTimes {
    committed: Duration,
    median: Duration,
    last: Duration,
    recorded: Duration,
}

/// Runs the benchmark.
///
/// # Errors
/// If the service does not come up, or an agent does not get its target.
pub fn run(settings: &PushSettings) -> Result<(), Failure> {
    let pushed = tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(measure(settings))?;
    output::print(&times_table(&pushed))
}

async fn measure(settings: &PushSettings) -> Result<Vec<PushTimes>> {
    let fleet = FleetSettings { agents: 0, devices: 1, multiple: None, pipeline: None, data_dir: None };
    let fleet = LocalFleet::start(&fleet).await?;
    print_progress(&format!("connecting {} agents", settings.agents));
    let mut agents = StandIns::connect(&fleet.grpc, &fleet.token, settings.agents as usize, HARDWARE).await?;
    fleet.service.wait_for_agents(settings.agents as usize, || Ok(())).await?;
    fleet.service.put("/v1/pipelines/chain", &chain_pipeline()).await?;
    fleet.service.put("/v1/pipelines/chain/profiles", &chain_profiles()).await?;
    let mut plans = Vec::new();
    for load in LOADS {
        print_progress(&format!("planning for {load} of what they serve"));
        let demand_qps = load * f64::from(settings.agents) * REPLICA_QPS / TASKS.len() as f64;
        let plan = fleet.service.make_plan("chain", demand_qps).await?;
        plans.push(plan["id"].as_str().context("a plan without an id")?.to_owned());
    }
    let mut pushed = Vec::new();
    for plan in plans.iter().cycle().take(settings.pushes as usize) {
        let begun = Instant::now();
        let generation = fleet.service.set_target(plan).await?;
        let committed = begun.elapsed();
        let heard = agents.acknowledged(generation).await?;
        let at = |place: usize| heard[place].saturating_duration_since(begun);
        let (median, last) = (at(heard.len() / 2), at(heard.len() - 1));
        wait_until_recorded(&fleet, generation).await?;
        pushed.push(PushTimes { committed, median, last, recorded: begun.elapsed() });
    }
    Ok(pushed)
}

/// Waits until the service has the acknowledgement of every agent.
async fn wait_until_recorded(fleet: &LocalFleet, generation: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let agents = fleet.service.agents().await?;
        let lacks =
            |a: &&Value| a["ack"]["generation"].as_u64() != Some(generation) || a["state"] != AgentState::Live.name();
        let lacking = agents.iter().filter(lacks).count();
        if lacking == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < RECORD_MAX, "{lacking} agents are lost or their acknowledgement was not recorded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A chain of two tasks with a variant each.
pub(super) fn chain_pipeline() -> Value {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let task = |name: &str, input: &str, output: &str| json!({"name": name, "inputs": tensor(input), "outputs": tensor(output), "variants": [{"name": "v"}]});
    json!({
        "name": "chain", "slo_ms": 10_000.0,
        "tasks": [task(TASKS[0], "x", "y"), task(TASKS[1], "y", "z")],
        "edges": [{"from": TASKS[0], "to": TASKS[1], "map": {"y": "y"}}],
    })
}

/// A profile of [`chain_pipeline`].
pub(super) fn chain_profiles() -> Value {
    let latency_ms = 1e3 / REPLICA_QPS;
    let row =
        |task: &&str| json!({"task": task, "variant": "v", "hardware": HARDWARE, "batch": 1, "latency_ms": latency_ms});
    let variant = |task: &&str| json!({"task": task, "variant": "v", "accuracy": 1.0});
    json!({"rows": TASKS.iter().map(row).collect::<Vec<_>>(), "variants": TASKS.iter().map(variant).collect::<Vec<_>>()})
}

fn times_table(pushed: &[PushTimes]) -> String {
    let ms = |time: Duration| number(time.as_secs_f64() * 1e3);
    let mut table = TextTable::new(&["push", "committed ms", "median agent ms", "last agent ms", "all recorded ms"]);
    for (at, p) in (1..).zip(pushed) {
        table.row(vec![format!("{at}"), ms(p.committed), ms(p.median), ms(p.last), ms(p.recorded)]);
    }
    table.text("")
}
