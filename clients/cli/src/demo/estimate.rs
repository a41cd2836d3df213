//! What the estimator and the profiles say of a run.

use super::report::{PlanInForce, Predicted, joined};
use super::service::Service;
use anyhow::{Context, Result, bail};
use apportion_domain::{HardwareIndex, Moment, Plan, Problem, Trace};
use apportion_estimator::{ArrivalProcess, Arrivals, SimulateOptions, Workload, simulate};
use apportion_wire::{ProblemFile, problem_from_tree, read_plan};
use std::time::Duration;

/// Arrivals of a load that doubles for its middle third, Poisson within each second.
pub fn arrivals(base_qps: f64, seconds: u64, seed: u64) -> Result<Vec<Duration>> {
    let rate = |second: u64| if second * 3 >= seconds && second * 3 < 2 * seconds { 2.0 * base_qps } else { base_qps };
    drawn((0..seconds).map(|s| (s, rate(s))).collect(), seed)
}

/// Arrivals of these rates by second, Poisson within each.
pub fn drawn(rates: Vec<(u64, f64)>, seed: u64) -> Result<Vec<Duration>> {
    let trace = Trace::rates(rates)?;
    let drawn = Arrivals::new(&trace, ArrivalProcess::Poisson, seed, "demo");
    Ok(drawn.map(|at| Duration::from_nanos(at.as_nanos())).collect())
}

/// A plan of the service's, and the problem that it solves.
pub async fn planned(service: &Service, plan: &str) -> Result<(Problem, Plan)> {
    let document = service.get(&format!("/v1/plans/{plan}")).await?;
    let file = read_plan("plan", &document["plan"].to_string())?;
    match problem_from_tree("problem", document["problem"].clone())? {
        ProblemFile::Allocation(problem) => Ok((problem, file)),
        ProblemFile::Scaling(_) => bail!("plan {plan} has a scaling problem"),
    }
}

/// Root queries per second that `devices` devices can serve with the most accurate variants at their best batch, if no
/// time were lost: devices divided by the device seconds that a query takes.
pub async fn capacity_of_most_accurate_qps(service: &Service, pipeline: &str, hardware: &str, devices: u32) -> Result<f64> {
    let plan = service.plan(pipeline, 1.0).await?;
    let (problem, _) = planned(service, plan["id"].as_str().context("a plan without an id")?).await?;
    let index = problem.pipeline_named(pipeline).context("the pipeline is in its own problem")?;
    let hardware = problem.hardware_named(hardware).unwrap_or(HardwareIndex(0));
    let pipeline = problem.pipeline(index);
    let mut multiplier = vec![0.0; pipeline.tasks.len()];
    multiplier[pipeline.root().get()] = 1.0;
    let mut device_seconds = 0.0;
    for &task in pipeline.order() {
        let best = pipeline.most_accurate(task).next().context("a task without variants")?;
        let rows = pipeline.variant(task, best).profile.on(hardware, apportion_domain::Share::WHOLE);
        let fits = rows.iter().filter(|r| pipeline.hop_charge_ms(r.latency_ms) <= 0.5 * pipeline.slo_ms);
        let qps = fits.map(apportion_domain::ProfileRow::throughput_qps).fold(0.0, f64::max);
        device_seconds += multiplier[task.get()] / qps.max(1e-9);
        for edge in pipeline.children(task) {
            multiplier[edge.to.get()] += multiplier[task.get()] * pipeline.fanout(edge, best);
        }
    }
    Ok(f64::from(devices) / device_seconds)
}

/// Replays the run's own arrivals through the plans that were in force, each for its stretch of the run. Changes from one
/// plan to the next, and queues that one leaves to the next, are not in it.
pub async fn predict(service: &Service, plans: &[PlanInForce], arrivals: &[Duration], pipeline: &str) -> Result<Predicted> {
    let (mut estimates, mut latencies) = (Vec::new(), Vec::new());
    for (i, plan) in plans.iter().enumerate() {
        let (from, to) = (plan.at_s, plans.get(i + 1).map_or(f64::INFINITY, |next| next.at_s));
        let stretch = arrivals.iter().filter(|a| (from..to).contains(&a.as_secs_f64()));
        let moments: Vec<_> = stretch.map(|a| Moment::from_nanos(a.as_nanos() as u64)).collect();
        if moments.is_empty() {
            continue;
        }
        let (problem, file) = planned(service, &plan.id).await?;
        let index = problem.pipeline_named(pipeline).context("the plan is of another pipeline")?;
        let mut traces: Vec<_> = problem.pipelines.iter().map(|_| Trace::Rates(vec![(0, 0.0)])).collect();
        traces[index.get()] = Trace::arrivals(moments)?;
        let workload = Workload { traces, arrivals: ArrivalProcess::Poisson, seed: 1 };
        let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
        let simulation = simulate(&problem, &file, &workload, &options)?;
        let ended = simulation.requests.iter().filter_map(|r| Some(r.finish?.since(r.arrival).as_millis()));
        latencies.extend(ended);
        estimates.push(simulation.pipelines[index.get()].clone());
    }
    Ok(joined(&estimates, latencies))
}
