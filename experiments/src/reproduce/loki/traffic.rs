//! What is the traffic pipeline of Loki's evaluation, and which loads does it meet?

use crate::reproduce::lab::{Lab, TRAFFIC, day_ramp, with_pipeline};
use apportion_domain::{Dropping, Problem};
use apportion_support::exit::Failure;

/// Devices of the paper's cluster (section 6.1).
pub const DEVICES: u32 = 20;

/// A load is served if no more than this share of its requests misses.
pub const MISSES_MAX: f64 = 0.01;

/// The traffic pipeline on the paper's cluster.
pub fn traffic_problem(lab: &Lab) -> Result<Problem, Failure> {
    let problem = lab.problem("problems/loki_traffic_00.json", &TRAFFIC)?;
    let problem = with_pipeline(&problem, 0, |d| d.slo_ms = 250.0)?;
    Ok(problem.changed(|d| d.hardware[0].count = Some(DEVICES)).map_err(|e| anyhow::anyhow!("{e:?}"))?)
}

/// Loading time of a replica, because the profiles have none: a file of some hundred MiB from a local disk.
pub const LOAD_MS: f64 = 1000.0;

/// The traffic pipeline on 20 devices with replicas that take time to load.
pub fn loading_traffic_problem(lab: &Lab) -> Result<Problem, Failure> {
    with_pipeline(&traffic_problem(lab)?, 0, |d| {
        d.serving.dropping = Some(Dropping::Reroute);
        d.tasks.iter_mut().flat_map(|t| &mut t.variants).for_each(|v| v.load_ms = LOAD_MS);
    })
}

/// A shape of load, with the shares of root requests that the published code lost on it.
pub struct LoadShape {
    /// Its name in tables.
    pub name: &'static str,
    /// Queries per second, for each second.
    pub rates: Vec<f64>,
    /// Shares that the published code missed: two-step, hardware-only, pipeline-agnostic.
    pub published: Option<[f64; 3]>,
}

/// The loads of the comparisons: a ramp, and the traces of the data folder.
pub fn shapes(lab: &Lab) -> Result<Vec<LoadShape>, Failure> {
    let seconds = lab.full_or_quick(300, 24);
    let mut all = vec![LoadShape { name: "ramp 50 to 425", rates: day_ramp(seconds), published: None }];
    let files = [
        ("traces/anchor_ta300.csv", "Twitter day in 300 s", [0.535, 0.579, 0.719]),
        ("traces/anchor_stair120.csv", "stairs 100 to 400", [0.587, 0.911, 0.694]),
    ];
    for (file, name, published) in files.into_iter().take(lab.full_or_quick(2, 0)) {
        if let Some(path) = lab.data_file(file) {
            all.push(LoadShape { name, rates: lab.rates(&path, None, seconds)?, published: Some(published) });
        }
    }
    Ok(all)
}
