//! What do Kubernetes' own autoscaler and our service cost under the same load, and is our model of that autoscaler right?
//!
//! Example: the rate doubles. The real HorizontalPodAutoscaler asks for the metric at its next sync and writes `/scale`.
//! Our service is told the same rate, plans, and writes `/scale` of its own Deployments. Pods of both are ready 5 s after
//! they were made. The estimator then replays the requests through the replicas that each side really had.
//!
//! The rooms are [`load`], `groups` (the pipeline with the protocol's target) and `workload` (the objects of Kubernetes).
//! `plane` starts the control plane, `metrics` answers its autoscaler, `recorder` and `fleet_log` record the replicas, and
//! `stage` brings both sides to the start. `judge` says what a side cost and how it served, and `syncs` compares the real
//! decisions with those of the model.

mod fleet_log;
mod groups;
mod judge;
pub mod load;
mod metrics;
mod plane;
mod recorder;
mod report;
mod stage;
mod syncs;
mod workload;

use crate::live::console::print_progress;
use crate::reproduce::headline::protocol;
use anyhow::{Context, Result};
use apportion_support::exit::Failure;
use apportion_support::output::OutputFormat;
use fleet_log::{FleetLog, PodRecord};
use groups::{BenchGroup, bench_groups};
use judge::SideJudge;
use load::{HpaRunLength, LoadPhases, OfferedTrace};
use plane::control_plane_program;
use report::{HpaReport, ReplicaStep, SideReport, SyncReport, WorkloadReport};
use stage::HpaStage;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use syncs::{ComparedSpan, compare_syncs};
use workload::{BenchWorkload, ScalingSide};

/// How often our service is told the rate.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Progress is told after this many seconds of load.
const PROGRESS_EVERY_S: u64 = 60;
/// Events and watches show the last changes after this time.
const SHOWN_AFTER: Duration = Duration::from_secs(3);

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct HpaBenchSettings {
    /// A program that starts a control plane of Kubernetes, or the folder that has it.
    pub control_plane: PathBuf,
    /// How long the load is.
    pub length: HpaRunLength,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How the figures are printed.
    pub format: OutputFormat,
}

/// Runs the benchmark.
///
/// # Errors
/// If the control plane or the service does not come up, or the replicas cannot be recorded.
pub fn run(settings: &HpaBenchSettings) -> Result<(), Failure> {
    let Some(program) = control_plane_program(&settings.control_plane) else {
        let found = settings.control_plane.display();
        let expected = "a program that starts a control plane of Kubernetes, or the folder of `control-plane`";
        return Err(Failure::BadInput(format!("--control-plane {found}: expected {expected}")));
    };
    let folder = tempfile::tempdir().context("a temporary folder")?;
    // Where this runs as root, the database runs as another user, who must get there.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).context("opening the temporary folder")?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let report = match runtime.block_on(measure(settings, &program, folder.path())) {
        Ok(report) => report,
        Err(error) => return Err(error.context(format!("logs are in {}", folder.keep().display())).into()),
    };
    settings.format.print(&report, || report.text())
}

async fn measure(settings: &HpaBenchSettings, program: &Path, folder: &Path) -> Result<HpaReport> {
    let phases = LoadPhases::of(settings.length);
    let trace = OfferedTrace::draw(&phases, settings.seed)?;
    let stage = HpaStage::start(program, folder, settings.length).await?;
    let settled = stage.settle().await?;
    let groups = bench_groups(&settled.problem, &settled.plan, settings.length)?;
    stage.copy_replicas(&groups).await?;
    let span = play(&stage, &trace, &groups, &phases).await?;
    let log = stage.recorder.fleet()?;
    let (problem, plan) = (&settled.problem, &settled.plan);
    let judge = SideJudge { problem, plan, groups: &groups, trace: &trace, span, seed: settings.seed };
    let mut sides = Vec::new();
    for side in ScalingSide::ALL {
        sides.push(side_report(side, &stage, &log, &judge).await?);
    }
    let questions = stage.recorder.questions();
    let mut syncs: Vec<_> = groups.iter().flat_map(|group| compare_syncs(&questions, &log, group, span)).collect();
    syncs.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let (protocol, seed, requests) = (protocol::hash(), settings.seed, trace.requests());
    Ok(HpaReport { protocol, seed, phases, requests, sides, syncs: SyncReport::of(syncs) })
}

/// Plays the load for both sides at the same time.
async fn play(stage: &HpaStage, trace: &OfferedTrace, groups: &[BenchGroup], phases: &LoadPhases) -> Result<ComparedSpan> {
    print_progress(&format!("playing {} requests in {} s", trace.requests(), phases.end_s));
    let from = stage.recorder.start_load(trace.clone(), groups.to_vec())?;
    stage.create_autoscalers(groups).await?;
    let until = from + phases.end();
    let mut told_s = 0;
    loop {
        let now = stage.recorder.now();
        if now >= until {
            break;
        }
        stage.post_demand().await?;
        // A watch that has ended would make the rest of the run worthless.
        stage.recorder.fleet()?;
        let second = (now - from).as_secs();
        if second >= told_s + PROGRESS_EVERY_S {
            told_s = second;
            print_progress(&format!("{second} of {} s", phases.end_s));
        }
        tokio::time::sleep(TELL_EVERY.min(until.saturating_sub(stage.recorder.now()))).await;
    }
    tokio::time::sleep(SHOWN_AFTER).await;
    Ok(ComparedSpan { from, until })
}

async fn side_report(side: ScalingSide, stage: &HpaStage, log: &FleetLog, judge: &SideJudge<'_>) -> Result<SideReport> {
    let pods: Vec<&PodRecord> = log.pods.values().filter(|pod| pod.workload.side == side).collect();
    let served = judge.judge(&pods)?;
    let mut workloads = Vec::new();
    for group in judge.groups {
        let workload = BenchWorkload { side, name: group.autoscaler.workload.clone() };
        let in_load = |at: Duration| (judge.span.from..judge.span.until).contains(&at);
        let changes = log
            .changes(&workload)
            .filter(|change| in_load(change.at))
            .map(|change| ReplicaStep { at_s: (change.at - judge.span.from).as_secs_f64(), replicas: change.replicas });
        workloads.push(WorkloadReport {
            at_start: log.replicas_at(&workload, judge.span.from).context("a Deployment without replicas")?,
            changes: changes.collect(),
            recorded: log.changes(&workload).count() as u64,
            told: stage.told_changes(&workload).await?,
            workload: workload.name,
        });
    }
    Ok(SideReport { side, served, workloads })
}
