//! How much load can the most accurate variants of a pipeline serve, and how fast?

use anyhow::{Context, Result};
use apportion_domain::{HardwareIndex, Pipeline, Problem, Share};

/// The largest rate of root queries that the devices could serve without any lost time, in queries per second. Each task
/// has its most accurate variant at its best batch size. The rate is the number of devices over the device seconds of one
/// query.
pub fn capacity_of_most_accurate_qps(problem: &Problem, pipeline: &str, hardware: &str, devices: u32) -> Result<f64> {
    let index = problem.pipeline_named(pipeline).context("the pipeline is in its own problem")?;
    let hardware = problem.hardware_named(hardware).unwrap_or(HardwareIndex(0));
    let pipeline = problem.pipeline(index);
    let mut multiplier = vec![0.0; pipeline.tasks.len()];
    multiplier[pipeline.root().get()] = 1.0;
    let mut device_seconds = 0.0;
    for &task in pipeline.order() {
        let best = pipeline.most_accurate(task).next().context("a task without variants")?;
        let rows = pipeline.variant(task, best).profile.on(hardware, Share::WHOLE);
        let fits = rows.iter().filter(|r| pipeline.hop_charge_ms(task, r.latency_ms) <= 0.5 * pipeline.slo_ms);
        let qps = fits.map(apportion_domain::ProfileRow::throughput_qps).fold(0.0, f64::max);
        device_seconds += multiplier[task.get()] / qps.max(1e-9);
        for edge in pipeline.children(task) {
            multiplier[edge.to.get()] += multiplier[task.get()] * pipeline.fanout(edge, best);
        }
    }
    Ok(f64::from(devices) / device_seconds)
}

/// The size of a path through a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSize {
    /// Its number of tasks.
    pub tasks: u32,
    /// The time that it charges, in ms.
    pub charge_ms: f64,
}

impl PathSize {
    /// The larger number of tasks and the larger charge of two sizes.
    fn max(self, other: Self) -> Self {
        Self { tasks: self.tasks.max(other.tasks), charge_ms: self.charge_ms.max(other.charge_ms) }
    }
}

/// The size of the longest path of a pipeline. Variants are the most accurate ones, and batches hold one query.
pub fn longest_path(pipeline: &Pipeline) -> PathSize {
    let mut before = vec![PathSize::default(); pipeline.tasks.len()];
    let mut most = PathSize::default();
    for &task in pipeline.order() {
        let rows = pipeline.most_accurate(task).next().map(|best| pipeline.variant(task, best).profile.rows());
        let alone_ms = rows.into_iter().flatten().map(|row| row.latency_ms).fold(f64::INFINITY, f64::min);
        let PathSize { tasks, charge_ms } = before[task.get()];
        let here = PathSize { tasks: tasks + 1, charge_ms: charge_ms + pipeline.hop_charge_ms(task, alone_ms) };
        most = most.max(here);
        for edge in pipeline.children(task) {
            let child = &mut before[edge.to.get()];
            *child = child.max(here);
        }
    }
    most
}
