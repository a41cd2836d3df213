//! What has been seen since the benchmark began? Watches, metrics and the load share this record.

use super::fleet_log::{FleetLog, PodRecord};
use super::groups::BenchGroup;
use super::load::{BASE_QPS, METRIC_WINDOW, OfferedTrace};
use super::plane::PlaneApi;
use super::syncs::MetricQuestion;
use anyhow::{Context, Result, bail};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A replica is ready this long after it was made, as in the protocol.
pub const READY_AFTER: Duration = Duration::from_secs(5);

/// The load that runs.
struct RunningLoad {
    start: Duration,
    trace: OfferedTrace,
    groups: Vec<BenchGroup>,
}

/// The record. Its moments are from the start of the benchmark.
pub struct BenchRecorder {
    begun: Instant,
    fleet: Mutex<FleetLog>,
    questions: Mutex<Vec<MetricQuestion>>,
    load: OnceLock<RunningLoad>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BenchRecorder {
    /// The benchmark begins now.
    pub fn new() -> Self {
        Self { begun: Instant::now(), fleet: Mutex::default(), questions: Mutex::default(), load: OnceLock::new() }
    }

    /// Time since the benchmark began.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The load starts now. Returns its start.
    ///
    /// # Errors
    /// If one has started before.
    pub fn start_load(&self, trace: OfferedTrace, groups: Vec<BenchGroup>) -> Result<Duration> {
        let start = self.now();
        let load = RunningLoad { start, trace, groups };
        self.load.set(load).ok().context("one load has started already")?;
        Ok(start)
    }

    /// The rate of requests that measurements show now. Our side hears the base until the window is full.
    pub fn seen_qps(&self) -> f64 {
        let Some(load) = self.load.get() else { return BASE_QPS };
        let at = self.now().saturating_sub(load.start);
        if at < METRIC_WINDOW { BASE_QPS } else { load.trace.seen_qps(at) }
    }

    /// The answer to a question of the autoscaler about a task, which is noted. `None` before the load, or for another
    /// name.
    pub fn answer(&self, task: &str) -> Option<u64> {
        let load = self.load.get()?;
        let group = load.groups.iter().find(|group| group.name.task == task)?;
        let at = self.now();
        let milli = group.metric_milli(load.trace.seen_qps(at.saturating_sub(load.start)));
        lock(&self.questions).push(MetricQuestion { at, task: task.to_owned(), milli });
        Some(milli)
    }

    /// All questions so far.
    pub fn questions(&self) -> Vec<MetricQuestion> {
        lock(&self.questions).clone()
    }

    /// A copy of the log.
    ///
    /// # Errors
    /// If a watch has ended: then the log is not whole.
    pub fn fleet(&self) -> Result<FleetLog> {
        let log = lock(&self.fleet).clone();
        match &log.failure {
            Some(failure) => bail!("the replicas are not recorded: {failure}"),
            None => Ok(log),
        }
    }

    fn fail(&self, error: &anyhow::Error) {
        lock(&self.fleet).failure.get_or_insert(format!("{error:#}"));
    }
}

/// The watches of a run, and the stand-in for kubelets. Dropping it ends them.
pub struct FleetWatches {
    works: [JoinHandle<()>; 2],
}

impl Drop for FleetWatches {
    fn drop(&mut self) {
        self.works.iter().for_each(JoinHandle::abort);
    }
}

impl FleetWatches {
    /// Watches all Pods and Deployments. Each new Pod of either side becomes ready after [`READY_AFTER`].
    pub fn start(api: &Arc<PlaneApi>, recorder: &Arc<BenchRecorder>) -> Self {
        let pods = follow_pods(api.clone(), recorder.clone());
        let deployments = follow_deployments(api.clone(), recorder.clone());
        Self { works: [tokio::spawn(pods), tokio::spawn(deployments)] }
    }
}

async fn follow_pods(api: Arc<PlaneApi>, recorder: Arc<BenchRecorder>) {
    let ended = api.follow("/api/v1/pods", |change| {
        let new = lock(&recorder.fleet).note_pod(&change.kind, &change.object, recorder.now());
        if let Some(pod) = new.filter(|pod| pod.ready.is_none() && pod.gone.is_none()) {
            tokio::spawn(make_ready(api.clone(), recorder.clone(), pod));
        }
    });
    if let Err(error) = ended.await {
        recorder.fail(&error);
    }
}

async fn follow_deployments(api: Arc<PlaneApi>, recorder: Arc<BenchRecorder>) {
    let ended = api.follow("/apis/apps/v1/deployments", |change| {
        lock(&recorder.fleet).note_deployment(&change.object, recorder.now());
    });
    if let Err(error) = ended.await {
        recorder.fail(&error);
    }
}

/// Lets a Pod load, and then says that it is ready.
async fn make_ready(api: Arc<PlaneApi>, recorder: Arc<BenchRecorder>, pod: PodRecord) {
    tokio::time::sleep(READY_AFTER).await;
    if let Err(error) = api.make_ready(pod.workload.side.namespace(), &pod.name).await {
        recorder.fail(&error);
    }
}
