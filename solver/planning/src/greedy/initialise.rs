//! Algorithm 1: from which settings does the search start?
//!
//! The paper adds one replica at a time to the bottleneck and simulates each time. Which replica is next does not depend on
//! the simulation. So the settings form a list, and the first ones that hold are found by doubling and bisection. With n
//! added replicas this takes about 2 log n simulations. It assumes that a further replica never makes settings miss.

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
    let mut additions = Additions { arithmetic, all: vec![settings], ended: false };
    // the number of added replicas doubles until the settings hold
    let (mut misses, mut at) = (None, 0);
    let holds = loop {
        let next = additions.index_up_to(2 * at + 1);
        if is_feasible(judge, &additions.all[at], (next > at).then(|| additions.all[next].as_slice()))? {
            break at;
        }
        if next == at {
            return Err(NoStart::Capacity);
        }
        (misses, at) = (Some(at), next);
    };
    // the least number between one that misses and one that holds
    let (mut low, mut high) = (misses.map_or(holds, |misses| misses + 1), holds);
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_feasible(judge, &additions.all[middle], None)? { high = middle } else { low = middle + 1 }
    }
    Ok(additions.all.swap_remove(high))
}

/// Whether settings hold. A second thread judges `next` meanwhile.
fn is_feasible(judge: &SettingJudge<'_>, settings: &[TaskSetting], next: Option<&[TaskSetting]>) -> Result<bool, NoStart> {
    match judge.check_settings_before(settings, next) {
        ReplayVerdict::Holds => Ok(true),
        ReplayVerdict::Misses => judge.limits.stop_reason().map_or(Ok(false), |reason| Err(NoStart::Stopped(reason))),
        ReplayVerdict::Unknown(stopped) => Err(NoStart::Stopped(stopped)),
    }
}

/// The settings after each added replica. The next replica does not depend on a verdict.
struct Additions<'a> {
    arithmetic: &'a SettingArithmetic<'a>,
    all: Vec<Vec<TaskSetting>>,
    /// Whether no replica can be added to the last settings.
    ended: bool,
}

impl Additions<'_> {
    /// Adds replicas until there are settings with this number. Returns the number, or the last one that is possible.
    fn index_up_to(&mut self, number: usize) -> usize {
        while self.all.len() <= number && !self.ended {
            let last = &self.all[self.all.len() - 1];
            match bottleneck(self.arithmetic, last) {
                Some(bottleneck) => {
                    let mut more = last.clone();
                    more[bottleneck].replicas += 1;
                    self.all.push(more);
                }
                None => self.ended = true,
            }
        }
        number.min(self.all.len() - 1)
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
