//! Which pipelines and traces does the headline use?

use super::contest::contest_problem;
use crate::reproduce::lab::{Lab, TRAFFIC, bursts};
use apportion_domain::Problem;
use apportion_support::exit::Failure;

/// Stretches of a trace to report on, and an earlier one to prepare on; rates by second.
pub struct Stretches {
    /// The earlier stretch.
    pub seen: Vec<f64>,
    /// The stretches that are reported, by name.
    pub judged: Vec<(&'static str, Vec<f64>)>,
}

/// The stretches: Twitter's first day and windows of other days, with a mean of 64 queries/s over the day.
pub fn read_stretches(lab: &Lab) -> Result<Stretches, Failure> {
    const HOUR: usize = 3600;
    let Some(day) = lab.data_file("traces/ipa_twitter_day1.csv") else {
        let trace = |seconds| bursts(seconds, seconds / 4, seconds / 16, 4.0).iter().map(|r| 64.0 * r).collect();
        let seconds = lab.full_or_quick(1200, 60);
        return Ok(Stretches { seen: trace(seconds), judged: vec![("bursts x4", trace(seconds))] });
    };
    let day = lab.rates(&day, Some("qps"), 24 * HOUR)?;
    let hours = |from: f64, to: f64| day[(from * HOUR as f64) as usize..(to * HOUR as f64) as usize].to_vec();
    let window = |file: &str| -> Result<Vec<f64>, Failure> {
        let path = lab.data_file(file).ok_or_else(|| anyhow::anyhow!("no data folder"))?;
        lab.rates(&path, Some("qps"), HOUR)
    };
    let mut judged = vec![
        ("day 1, 4:00", hours(4.0, 4.5)),
        ("day 16, bursty", window("traces/ipa_window_bursty_1301160_1302360.csv")?),
        ("day 16, steady", window("traces/ipa_window_steady_1299600_1300800.csv")?),
    ];
    let mut seen = hours(1.5, 2.0);
    if lab.quick {
        judged.truncate(1);
        judged[0].1.truncate(30);
        seen.truncate(30);
    }
    Ok(Stretches { seen, judged })
}

/// The pipelines, each with a factor on the trace's rates that makes ten to twenty replicas necessary.
pub fn read_pipelines(lab: &Lab) -> Result<Vec<(String, Problem, f64)>, Failure> {
    if lab.data.is_none() {
        let traffic = TRAFFIC.problem()?;
        return Ok(vec![("traffic".into(), contest_problem(&traffic)?, 0.3)]);
    }
    let files = [
        ("loki_traffic_00", 0.4),
        ("ext_share_00", 2.0),
        ("heterotight_02", 2.0),
        ("hetero_00", 2.0),
        ("ext_dag_00", 2.0),
        ("ext_switch_00", 2.0),
    ];
    let read_input = |(name, factor): (&str, f64)| {
        let problem = lab.problem(&format!("problems/{name}.json"), &TRAFFIC)?;
        Ok((name.to_owned(), contest_problem(&problem)?, factor))
    };
    files.into_iter().take(lab.full_or_quick(files.len(), 1)).map(read_input).collect()
}
