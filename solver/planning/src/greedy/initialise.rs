//! Algorithm 1: from which settings does the search start?

use super::search::{GreedySearch, TaskSetting};
use crate::replay::Verdict;
use apportion_domain::{PipelineIndex, SLACK, StopReason, TaskIndex};

/// Most replicas of one task that Algorithm 1 tries.
const REPLICAS_MAX: u32 = 100_000;

/// Why Algorithm 1 has no start.
pub(super) enum NoStart {
    Latency(PipelineIndex, f64),
    /// The devices, or the largest replica count, are not enough for the load.
    Capacity,
    /// The limits or the size of the replays ended the search.
    Stopped(StopReason),
}

impl GreedySearch<'_> {
    /// Algorithm 1.
    pub(super) fn initialise(&self) -> Result<Vec<TaskSetting>, NoStart> {
        let mut settings = Vec::new();
        for (p, pipeline) in self.problem.pipelines.iter().enumerate() {
            let p = PipelineIndex(p);
            for t in (0..pipeline.tasks.len()).map(TaskIndex) {
                settings.push(self.fastest(p, t).ok_or(NoStart::Capacity)?);
            }
            let service = self.service_ms(p, &settings);
            if service > pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) {
                return Err(NoStart::Latency(p, service));
            }
        }
        loop {
            // the next replica does not depend on the verdict
            let more = self.bottleneck(&settings).map(|bottleneck| {
                let mut more = settings.clone();
                more[bottleneck].replicas += 1;
                more
            });
            match self.check_settings_before(&settings, more.as_deref()) {
                Verdict::Holds => return Ok(settings),
                Verdict::Misses => self.limits.stop_reason().map_or(Ok(()), |reason| Err(NoStart::Stopped(reason)))?,
                Verdict::Unknown(stopped) => return Err(NoStart::Stopped(stopped)),
            }
            settings = more.ok_or(NoStart::Capacity)?;
        }
    }

    /// The setting whose capacity over its load is least and that can still get a replica.
    pub(super) fn bottleneck(&self, settings: &[TaskSetting]) -> Option<usize> {
        let mut open: Vec<(f64, usize)> = Vec::new();
        for (i, s) in settings.iter().enumerate() {
            let pipeline = self.problem.pipeline(s.pipeline);
            let load = self.load(s, settings);
            let capacity = f64::from(s.replicas - pipeline.survive) * self.row(s).throughput_qps();
            open.push((capacity / load.max(f64::MIN_POSITIVE), i));
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // a bottleneck that cannot grow stays the bottleneck, so more of any other task is waste
        let &(_, first) = open.first()?;
        let mut more = settings.to_vec();
        more[first].replicas += 1;
        (more[first].replicas <= REPLICAS_MAX && self.within_devices(&more)).then_some(first)
    }
}
