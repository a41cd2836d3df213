//! Which pipelines and traces does the headline use?

use super::contest::contest_problem;
use crate::reproduce::lab::{Lab, TRAFFIC, bursts};
use apportion_domain::Problem;
use apportion_support::exit::Failure;

/// A stretch of a trace.
pub struct Stretch {
    /// Its name.
    pub name: &'static str,
    /// Rates by second.
    pub rates: Vec<f64>,
}

/// Stretches of a trace to report on, and an earlier one to prepare on.
pub struct TraceStretches {
    /// The rates of the earlier stretch, by second.
    pub seen: Vec<f64>,
    /// The stretches that are reported.
    pub judged: Vec<Stretch>,
}

/// The stretches: Twitter's first day and windows of other days, with a mean of 64 queries/s over the day.
pub fn read_stretches(lab: &Lab) -> Result<TraceStretches, Failure> {
    const HOUR: usize = 3600;
    let Some(day) = lab.data_file("traces/ipa_twitter_day1.csv") else {
        let trace = |seconds| bursts(seconds, seconds / 4, seconds / 16, 4.0).iter().map(|r| 64.0 * r).collect();
        let seconds = lab.full_or_quick(1200, 60);
        let judged = vec![Stretch { name: "bursts x4", rates: trace(seconds) }];
        return Ok(TraceStretches { seen: trace(seconds), judged });
    };
    let day = lab.rates(&day, Some("qps"), 24 * HOUR)?;
    let hours = |from: f64, to: f64| day[(from * HOUR as f64) as usize..(to * HOUR as f64) as usize].to_vec();
    let window = |file: &str| -> Result<Vec<f64>, Failure> {
        let path = lab.data_file(file).ok_or_else(|| anyhow::anyhow!("no data folder"))?;
        lab.rates(&path, Some("qps"), HOUR)
    };
    let mut judged = vec![
        Stretch { name: "day 1, 4:00", rates: hours(4.0, 4.5) },
        Stretch { name: "day 16, bursty", rates: window("traces/ipa_window_bursty_1301160_1302360.csv")? },
        Stretch { name: "day 16, steady", rates: window("traces/ipa_window_steady_1299600_1300800.csv")? },
    ];
    let mut seen = hours(1.5, 2.0);
    if lab.quick {
        judged.truncate(1);
        judged[0].rates.truncate(30);
        seen.truncate(30);
    }
    Ok(TraceStretches { seen, judged })
}

/// A pipeline of the headline.
pub struct HeadlinePipeline {
    /// Its name.
    pub name: String,
    /// Its contest problem.
    pub problem: Problem,
    /// A factor on the trace's rates that makes ten to twenty replicas necessary.
    pub factor: f64,
}

/// The pipelines of the headline.
pub fn read_pipelines(lab: &Lab) -> Result<Vec<HeadlinePipeline>, Failure> {
    if lab.data.is_none() {
        let traffic = TRAFFIC.problem()?;
        return Ok(vec![HeadlinePipeline { name: "traffic".into(), problem: contest_problem(&traffic)?, factor: 0.3 }]);
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
        Ok(HeadlinePipeline { name: name.to_owned(), problem: contest_problem(&problem)?, factor })
    };
    files.into_iter().take(lab.full_or_quick(files.len(), 1)).map(read_input).collect()
}
