//! How do both sides come to the start of the load: a control plane, the metrics, our service, and equal replicas?

use super::fleet_log::FleetLog;
use super::groups::{BENCH_HARDWARE, BenchGroup, DEVICES_MAX, PIPELINE, PRICE_PER_HOUR, PROFILE, pipeline_spec};
use super::load::HpaRunLength;
use super::metrics::MetricsServer;
use super::plane::{PlaneApi, PlaneProcesses};
use super::recorder::{BenchRecorder, FleetWatches, READY_AFTER};
use super::workload::{
    BenchWorkload, METRICS_NAMESPACE, METRICS_VERSION, ScalingSide, metrics_registration, metrics_service, namespace,
};
use crate::live::console::print_progress;
use crate::live::fleet::LocalService;
use crate::live::plans::{FetchedPlan, fetch_plan};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time of any step before the load.
const STEP_MAX: Duration = Duration::from_secs(240);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Our side is settled when its replicas have been ready and equal to its advice for this time: longer than the time after
/// which a plan may be improved.
const SETTLED_FOR: Duration = Duration::from_secs(30);
/// Arguments of the controllers in a quick run. The full run has the defaults.
const QUICK_ARGUMENTS: &str = "--horizontal-pod-autoscaler-sync-period=3s";

/// A plan that the service advises.
struct AdvisedPlan {
    id: String,
    document: Value,
}

/// A plan that the Deployments follow, and since when.
struct FollowedPlan {
    id: String,
    since: Instant,
}

/// Everything that runs. Dropping it ends all processes.
pub struct HpaStage {
    /// Our service.
    pub service: LocalService,
    /// The record of the run.
    pub recorder: Arc<BenchRecorder>,
    /// The API.
    pub api: Arc<PlaneApi>,
    _watches: FleetWatches,
    _metrics: MetricsServer,
    _plane: PlaneProcesses,
}

impl HpaStage {
    /// Starts the control plane, the metrics and the service, and registers the pipeline with its Deployments.
    ///
    /// # Errors
    /// If something does not come up.
    pub async fn start(control_plane: &Path, folder: &Path, length: HpaRunLength) -> Result<Self> {
        print_progress("starting a control plane of Kubernetes");
        let arguments = if length == HpaRunLength::Quick { QUICK_ARGUMENTS } else { "" };
        let plane = PlaneProcesses::start(control_plane, folder.join("plane"), arguments)?;
        let api = Arc::new(PlaneApi::open(&plane, folder).await?);
        let recorder = Arc::new(BenchRecorder::new());
        let watches = FleetWatches::start(&api, &recorder);
        let source = recorder.clone();
        let metrics = MetricsServer::start(folder, Arc::new(move |task: &str| source.answer(task))).await?;
        register_metrics(&api, metrics.port).await?;
        for side in ScalingSide::ALL {
            api.create("/api/v1/namespaces", &namespace(side.namespace())).await?;
        }
        let kubeconfig = folder.join("service.kubeconfig");
        plane.write_unchecked_kubeconfig(&kubeconfig)?;
        let arguments = ["--kubernetes".to_owned(), kubeconfig.display().to_string()];
        let service = LocalService::start(folder, &arguments).await?;
        let stage = Self { service, recorder, api, _watches: watches, _metrics: metrics, _plane: plane };
        stage.register_pipeline().await?;
        Ok(stage)
    }

    async fn register_pipeline(&self) -> Result<()> {
        let service = &self.service.service;
        let hardware = json!({"price_per_hour": PRICE_PER_HOUR, "count_max": DEVICES_MAX});
        service.put(&format!("/v1/hardware/{BENCH_HARDWARE}"), &hardware).await?;
        let spec = pipeline_spec(ScalingSide::Service.namespace(), READY_AFTER.as_secs_f64() * 1e3);
        let workloads = spec["replan"]["kubernetes"]["workloads"].as_array().into_iter().flatten();
        for name in workloads.filter_map(|workload| workload["name"].as_str()) {
            let workload = BenchWorkload { side: ScalingSide::Service, name: name.to_owned() };
            self.api.apply(&workload.path(), &workload.deployment(None)).await?;
        }
        service.put(&format!("/v1/pipelines/{PIPELINE}"), &spec).await?;
        service.put_profile_csv(PIPELINE, PROFILE).await?;
        Ok(())
    }

    /// Tells our service the rate that is seen now.
    ///
    /// # Errors
    /// If it refuses.
    pub async fn post_demand(&self) -> Result<()> {
        let demand = json!({"qps": self.recorder.seen_qps()});
        self.service.service.post(&format!("/v1/pipelines/{PIPELINE}/demand"), &demand).await?;
        Ok(())
    }

    /// Waits at the base rate until our Deployments follow the advice, and returns the advised plan.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn settle(&self) -> Result<FetchedPlan> {
        print_progress("waiting until the Deployments follow the advice at the base rate");
        let begun = Instant::now();
        let mut settled: Option<FollowedPlan> = None;
        loop {
            self.post_demand().await?;
            let advised = self.newest_plan().await?;
            let log = self.recorder.fleet()?;
            match advised {
                Some(AdvisedPlan { id, document }) if follows(&log, &document) => {
                    let before = settled.take().filter(|before| before.id == id);
                    let since = before.map_or_else(Instant::now, |before| before.since);
                    if since.elapsed() >= SETTLED_FOR {
                        return fetch_plan(&self.service.service, &id).await;
                    }
                    settled = Some(FollowedPlan { id, since });
                }
                _ => settled = None,
            }
            ensure!(begun.elapsed() < STEP_MAX, "our Deployments do not follow the advice: {:?}", log.settings);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The plan of the newest decision that has one.
    async fn newest_plan(&self) -> Result<Option<AdvisedPlan>> {
        let service = &self.service.service;
        let decisions = service.get(&format!("/v1/decisions?pipeline={PIPELINE}&limit=100")).await?;
        let newest = decisions.as_array().into_iter().flatten().find_map(|decision| decision["plan"].as_str());
        let Some(id) = newest else { return Ok(None) };
        let document = service.get(&format!("/v1/plans/{id}")).await?["plan"].take();
        Ok(Some(AdvisedPlan { id: id.to_owned(), document }))
    }

    /// Gives the autoscaler's side the same replicas, and waits until they are ready.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn copy_replicas(&self, groups: &[BenchGroup]) -> Result<()> {
        print_progress("giving the autoscaler's Deployments the same replicas");
        let side = |side: ScalingSide, group: &BenchGroup| BenchWorkload { side, name: group.autoscaler.workload.clone() };
        for group in groups {
            let ours = side(ScalingSide::Service, group);
            let replicas = self.recorder.fleet()?.replicas_at(&ours, Duration::MAX).context("our Deployment is unknown")?;
            let workload = side(ScalingSide::Autoscaler, group);
            self.api.apply(&workload.path(), &workload.deployment(Some(replicas))).await?;
        }
        let begun = Instant::now();
        loop {
            self.post_demand().await?;
            let log = self.recorder.fleet()?;
            let is_ready = |workload: &BenchWorkload| log.replicas_at(workload, Duration::MAX) == Some(log.ready(workload));
            if groups.iter().all(|group| is_ready(&side(ScalingSide::Autoscaler, group))) {
                return Ok(());
            }
            ensure!(begun.elapsed() < STEP_MAX, "the autoscaler's Deployments are not ready: {:?}", log.pods);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Creates an autoscaler for each group, in the newest version of the API that the control plane has.
    ///
    /// # Errors
    /// If the API refuses one.
    pub async fn create_autoscalers(&self, groups: &[BenchGroup]) -> Result<()> {
        let known = self.api.get("/apis/autoscaling").await?;
        let is_known = |version: &str| {
            let mut versions = known["versions"].as_array().into_iter().flatten();
            versions.any(|entry| entry["version"] == version)
        };
        // Kubernetes 1.20 has the same fields under the older name.
        let version = if is_known("v2") { "v2" } else { "v2beta2" };
        let namespace = ScalingSide::Autoscaler.namespace();
        let path = format!("/apis/autoscaling/{version}/namespaces/{namespace}/horizontalpodautoscalers");
        for group in groups {
            self.api.create(&path, &group.autoscaler.object(version)).await?;
        }
        Ok(())
    }

    /// Changes that the author of a side tells in events of its own, for each Deployment. Both authors write `/scale` only.
    ///
    /// # Errors
    /// If the events cannot be read.
    pub async fn told_changes(&self, workload: &BenchWorkload) -> Result<u64> {
        match workload.side {
            ScalingSide::Autoscaler => {
                let events = self.api.get(&format!("/api/v1/namespaces/{}/events", workload.side.namespace())).await?;
                let is_rescale = |event: &&Value| {
                    event["reason"] == "SuccessfulRescale" && event["involvedObject"]["name"] == workload.name.as_str()
                };
                let rescales = events["items"].as_array().into_iter().flatten().filter(is_rescale);
                // Kubernetes counts repeated events in one.
                Ok(rescales.map(|event| event["count"].as_u64().unwrap_or(1)).sum())
            }
            ScalingSide::Service => {
                let path = format!("/v1/events?kind=workload&pipeline={PIPELINE}");
                let events = self.service.service.get(&path).await?;
                let name = format!("Deployment {}/{}", workload.side.namespace(), workload.name);
                let is_change =
                    |event: &&Value| event["detail"]["workload"] == name.as_str() && event["detail"]["to"].is_u64();
                Ok(events.as_array().into_iter().flatten().filter(is_change).count() as u64)
            }
        }
    }
}

/// Registers the external metrics API, and waits until Kubernetes passes calls on to it.
async fn register_metrics(api: &PlaneApi, port: u16) -> Result<()> {
    api.create("/api/v1/namespaces", &namespace(METRICS_NAMESPACE)).await?;
    api.create(&format!("/api/v1/namespaces/{METRICS_NAMESPACE}/services"), &metrics_service(port)).await?;
    api.create("/apis/apiregistration.k8s.io/v1/apiservices", &metrics_registration(port)).await?;
    let begun = Instant::now();
    while let Err(error) = api.get(&format!("/apis/{METRICS_VERSION}")).await {
        ensure!(begun.elapsed() < STEP_MAX, "Kubernetes does not reach the metrics: {error:#}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Whether each Deployment of our side has the replicas of the plan, all ready.
fn follows(log: &FleetLog, plan: &Value) -> bool {
    let assignments: Vec<&Value> = plan["pipelines"][0]["assignments"].as_array().into_iter().flatten().collect();
    let is_followed = |assignment: &&Value| {
        let name = assignment["variant"].as_str().unwrap_or_default().to_owned();
        let workload = BenchWorkload { side: ScalingSide::Service, name };
        let planned = assignment["replicas"].as_u64().and_then(|count| u32::try_from(count).ok());
        planned.is_some() && log.replicas_at(&workload, Duration::MAX) == planned && Some(log.ready(&workload)) == planned
    };
    !assignments.is_empty() && assignments.iter().all(is_followed)
}
