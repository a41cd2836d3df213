//! Which groups does the pipeline have, and what does the protocol ask of an autoscaler for each?

use super::load::HpaRunLength;
use super::workload::AutoscalerSettings;
use crate::reproduce::headline::protocol::HeadlineProtocol;
use crate::reproduce::headline::scalers::{ContestScaler, GroupFacts, groups_of};
use anyhow::{Context, Result, ensure};
use apportion_domain::{GroupName, Pipeline, Plan, Problem, TimeSpan, VariantIndex};
use apportion_estimator::controllers::{HpaConfig, HpaMetric, HpaRules};
use serde_json::{Value, json};

/// The pipeline of `examples/photos.yaml` with its most accurate variants: replicas are all that changes.
pub const PIPELINE: &str = "photos";
/// Its hardware type.
pub const BENCH_HARDWARE: &str = "t4";
/// Price of a device per hour.
pub const PRICE_PER_HOUR: f64 = 0.53;
/// Devices that may be had: more than either side asks for.
pub const DEVICES_MAX: u32 = 64;
/// The contender of the protocol. Its target is a share of the throughput of full batches.
const CONTENDER: &str = "HPA on rate";

/// Measurements of the variants, in CSV.
pub const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                           photos,find,find-l,t4,4,50,1\nphotos,read,read-m,t4,8,30,1\n";

/// The registered pipeline: `replan` has its defaults, and the Deployments in this namespace follow the advice.
pub fn pipeline_spec(namespace: &str, load_ms: f64) -> Value {
    let variant = |name: &str| json!({"name": name, "load_ms": load_ms});
    let mut find = variant("find-l");
    find["fanout"] = 2.into();
    let task = |name: &str, variant: Value| json!({"name": name, "variants": [variant]});
    let workload = |task: &str, variant: &str, batch: u32| {
        json!({"task": task, "variant": variant, "hardware": BENCH_HARDWARE, "batch": batch,
            "namespace": namespace, "name": variant})
    };
    let workloads = [workload("find", "find-l", 4), workload("read", "read-m", 8)];
    json!({
        "name": PIPELINE, "slo_ms": 250, "serving": {"dropping": "per_task"},
        "tasks": [task("find", find), task("read", variant("read-m"))],
        "edges": [{"from": "find", "to": "read"}],
        "replan": {"mode": "advisory", "demand": {"pushed": {}}, "kubernetes": {"workloads": workloads}},
    })
}

/// One group of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchGroup {
    /// Its name.
    pub name: GroupName,
    /// Queries of its task for each request.
    pub visits: f64,
    /// Price of a replica per hour.
    pub price_per_hour: f64,
    /// Its autoscaler.
    pub autoscaler: AutoscalerSettings,
}

impl BenchGroup {
    /// The metric at this rate of requests, in thousandths of a query per second.
    pub fn metric_milli(&self, request_qps: f64) -> u64 {
        (1e3 * self.visits * request_qps).round() as u64
    }

    /// Our model of its autoscaler. Metric and target are fed in thousandths, as whole numbers: the controller divides
    /// those, too. The formula for an external metric is the same whatever it counts. Each report is a sync.
    pub fn modelled(&self) -> HpaConfig {
        let window = TimeSpan::from_nanos(u64::from(self.autoscaler.down_window_s) * 1_000_000_000);
        HpaConfig {
            metric: HpaMetric::Concurrency,
            target: self.autoscaler.target_milli as f64,
            sync: TimeSpan::from_nanos(1),
            up: HpaRules::up(),
            down: HpaRules { stabilisation: window, ..HpaRules::down() },
            replicas_max: self.autoscaler.replicas_max,
            ..HpaConfig::default()
        }
    }
}

/// The window for scaling down: Kubernetes' default, or a short one for tests.
const fn down_window_s(length: HpaRunLength) -> u32 {
    match length {
        HpaRunLength::Full => 300,
        HpaRunLength::Quick => 15,
    }
}

/// The groups of a plan for the only pipeline of a problem, in the order of its tasks.
///
/// # Errors
/// If the plan names what the problem lacks, or the protocol lacks the contender.
pub fn bench_groups(problem: &Problem, plan: &Plan, length: HpaRunLength) -> Result<Vec<BenchGroup>> {
    let protocol = HeadlineProtocol::committed()?;
    let mut contenders = protocol.contenders.iter();
    let contender = contenders.find(|c| c.name == CONTENDER).with_context(|| format!("protocol.yaml: no {CONTENDER:?}"))?;
    let scaler =
        ContestScaler { kind: contender.scaler, setting: contender.default.clone(), service: contender.service()? };
    let share = scaler.value("target")?;
    let pipeline = &problem.pipelines[0];
    let visits = visits_per_request(pipeline);
    let mut planned: Vec<_> = plan.pipelines[0].assignments.iter().collect();
    planned.sort_by_key(|a| pipeline.task_named(&a.group.task));
    ensure!(planned.len() == pipeline.tasks.len(), "expected one group for each task, found {}", planned.len());
    let group = |(at, facts): (usize, GroupFacts)| {
        let name = planned[at].group.clone();
        let autoscaler = AutoscalerSettings {
            workload: name.variant.clone(),
            task: name.task.clone(),
            target_milli: (1e3 * share * facts.throughput_qps).round().max(1.0) as u64,
            replicas_max: facts.replicas * protocol.constants.replicas_factor_max,
            down_window_s: down_window_s(length),
        };
        BenchGroup { name, visits: visits[at], price_per_hour: facts.price, autoscaler }
    };
    Ok(groups_of(problem, plan)?.into_iter().enumerate().map(group).collect())
}

/// Queries of each task for one request, where each task has one variant.
fn visits_per_request(pipeline: &Pipeline) -> Vec<f64> {
    let mut visits = vec![0.0; pipeline.tasks.len()];
    visits[pipeline.root().get()] = 1.0;
    for &task in pipeline.order() {
        for edge in pipeline.children(task) {
            visits[edge.to.get()] += visits[task.get()] * pipeline.fanout(edge, VariantIndex(0));
        }
    }
    visits
}
