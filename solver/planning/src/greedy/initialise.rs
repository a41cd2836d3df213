//! Algorithm 1: from which settings does the search start?

use super::judge::SettingJudge;
use super::settings::{SettingArithmetic, TaskSetting};
use crate::replay::ReplayVerdict;
use apportion_domain::{PipelineIndex, SLACK, StopReason, TaskIndex};

/// Most replicas of one task that Algorithm 1 tries.
const REPLICAS_MAX: u32 = 100_000;

/// Why Algorithm 1 has no start.
pub(super) enum NoStart {
    /// One batch at every task takes longer than the SLO of this pipeline.
    Latency { pipeline: PipelineIndex, service_ms: f64 },
    /// The devices, or the largest replica count, are not enough for the load.
    Capacity,
    /// The limits or the size of the replays ended the search.
    Stopped(StopReason),
}

/// Algorithm 1: the first settings that hold.
pub(super) fn initialise(judge: &SettingJudge<'_>) -> Result<Vec<TaskSetting>, NoStart> {
    let arithmetic = &judge.arithmetic;
    let mut settings = Vec::new();
    for (p, pipeline) in arithmetic.problem.pipelines.iter().enumerate() {
        let p = PipelineIndex(p);
        for t in (0..pipeline.tasks.len()).map(TaskIndex) {
            settings.push(arithmetic.fastest_setting(p, t).ok_or(NoStart::Capacity)?);
        }
        let service_ms = arithmetic.service_ms(p, &settings);
        if service_ms > pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) {
            return Err(NoStart::Latency { pipeline: p, service_ms });
        }
    }
    loop {
        // the next replica does not depend on the verdict
        let more = bottleneck(arithmetic, &settings).map(|bottleneck| {
            let mut more = settings.clone();
            more[bottleneck].replicas += 1;
            more
        });
        match judge.check_settings_before(&settings, more.as_deref()) {
            ReplayVerdict::Holds => return Ok(settings),
            ReplayVerdict::Misses => judge.limits.stop_reason().map_or(Ok(()), |reason| Err(NoStart::Stopped(reason)))?,
            ReplayVerdict::Unknown(stopped) => return Err(NoStart::Stopped(stopped)),
        }
        settings = more.ok_or(NoStart::Capacity)?;
    }
}

/// The setting whose capacity over its load is least and that can still get a replica.
pub(super) fn bottleneck(arithmetic: &SettingArithmetic<'_>, settings: &[TaskSetting]) -> Option<usize> {
    let room = |s: &TaskSetting| {
        let pipeline = arithmetic.problem.pipeline(s.pipeline);
        let load = arithmetic.load_qps(s, settings);
        let capacity = f64::from(s.replicas - pipeline.survive) * arithmetic.profile_row(s).throughput_qps();
        capacity / load.max(f64::MIN_POSITIVE)
    };
    let rooms: Vec<f64> = settings.iter().map(room).collect();
    // among equals the first
    let first = (0..rooms.len()).min_by(|&a, &b| rooms[a].total_cmp(&rooms[b]).then(a.cmp(&b)))?;
    // a bottleneck that cannot grow stays the bottleneck, so more of any other task is waste
    let mut more = settings.to_vec();
    more[first].replicas += 1;
    (more[first].replicas <= REPLICAS_MAX && arithmetic.within_devices(&more)).then_some(first)
}
