//! Which plan do the series of a query for the deployed replicas say?
//!
//! Example: `{model="find-s"} 3` is a group of three replicas, if one task of the problem has the variant `find-s`, and the
//! variant is profiled on one hardware type.

use apportion_domain::{Pipeline, Problem, Share};
use apportion_prometheus::answer::SeriesSample;
use serde_json::{Value, json};

/// Most replicas of one group. A larger number is another metric.
const REPLICAS_MAX: f64 = 1e6;

/// A series that names no group of the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {found}: expected {expected}")]
pub struct UnknownSeries {
    /// Its place in the answer.
    pub at: String,
    /// The wrong name or number.
    pub found: String,
    /// The right form.
    pub expected: String,
}

/// A plan document with the replicas of the series. A series of 0 is no group.
///
/// # Errors
/// If a series names no group, or has no whole number of replicas.
pub fn plan_of(problem: &Problem, samples: &[SeriesSample]) -> Result<Value, UnknownSeries> {
    let mut assignments: Vec<Vec<Value>> = vec![Vec::new(); problem.pipelines.len()];
    for (index, sample) in samples.iter().enumerate() {
        let series = Series { sample, at: format!("/data/result/{index}") };
        let (pipeline, group) = series.group(problem)?;
        if sample.value > 0.0 {
            assignments[pipeline].push(group);
        }
    }
    let part = |(p, groups): (&Pipeline, Vec<Value>)| json!({"name": p.name, "assignments": groups});
    let parts: Vec<Value> = problem.pipelines.iter().zip(assignments).map(part).collect();
    Ok(json!({"version": 1, "pipelines": parts}))
}

/// One series and its place in the answer.
struct Series<'a> {
    sample: &'a SeriesSample,
    at: String,
}

impl Series<'_> {
    /// The position of the pipeline, and the assignment of the group.
    fn group(&self, problem: &Problem) -> Result<(usize, Value), UnknownSeries> {
        let replicas = self.sample.value;
        if replicas.fract() != 0.0 || replicas > REPLICAS_MAX {
            return Err(self.wrong("value", replicas.to_string(), "a whole number of replicas"));
        }
        let pipelines: Vec<&str> = problem.pipelines.iter().map(|p| p.name.as_str()).collect();
        let pipeline = self.choose(&["pipeline"], &pipelines)?;
        let (tasks, label) = (&problem.pipelines[pipeline].tasks, self.label(&["variant", "model"]));
        // The variant's name alone may tell the task.
        let has = |task: &apportion_domain::Task| label.is_some_and(|l| task.variants.iter().any(|v| v.name == l));
        let of_variant = tasks.iter().filter(|task| has(task)).count();
        let possible: Vec<usize> = (0..tasks.len()).filter(|&t| of_variant != 1 || has(&tasks[t])).collect();
        let names: Vec<&str> = possible.iter().map(|&t| tasks[t].name.as_str()).collect();
        let task = &tasks[possible[self.choose(&["task"], &names)?]];
        let variants: Vec<&str> = task.variants.iter().map(|v| v.name.as_str()).collect();
        let variant = &task.variants[self.choose(&["variant", "model"], &variants)?];
        let rows = variant.profile.rows();
        let mut hardware: Vec<_> = rows.iter().map(|r| r.hardware).collect();
        hardware.dedup();
        let names: Vec<&str> = hardware.iter().map(|h| problem.hardware_at(*h).name.as_str()).collect();
        let hardware = hardware[self.choose(&["hardware"], &names)?];
        let batches: Vec<String> = variant.profile.on(hardware, Share::WHOLE).iter().map(|r| r.batch.to_string()).collect();
        let largest = batches.len().checked_sub(1);
        let batch = match (self.label(&["batch"]), largest) {
            (None, Some(largest)) => largest,
            _ => self.choose(&["batch"], &batches.iter().map(String::as_str).collect::<Vec<_>>())?,
        };
        let batch: u32 = batches[batch].parse().unwrap_or(1);
        let name = &problem.hardware_at(hardware).name;
        let (task, variant) = (&task.name, &variant.name);
        let assignment =
            json!({"task": task, "variant": variant, "hardware": name, "batch": batch, "replicas": replicas as u32});
        Ok((pipeline, assignment))
    }

    /// The first of these labels that the series has.
    fn label(&self, labels: &[&str]) -> Option<&str> {
        labels.iter().find_map(|label| self.sample.labels.get(*label)).map(String::as_str)
    }

    /// The position of the name that the label has, or of the only one.
    fn choose(&self, labels: &[&str], names: &[&str]) -> Result<usize, UnknownSeries> {
        let at = format!("metric/{}", labels[0]);
        match self.label(labels) {
            Some(label) => names
                .iter()
                .position(|name| *name == label)
                .ok_or_else(|| self.wrong(&at, format!("{label:?}"), &format!("one of {}", names.join(", ")))),
            None if names.len() == 1 => Ok(0),
            None => Err(self.wrong(&at, "absent".to_owned(), &format!("one of {}", names.join(", ")))),
        }
    }

    fn wrong(&self, at: &str, found: String, expected: &str) -> UnknownSeries {
        UnknownSeries { at: format!("{}/{at}", self.at), found, expected: expected.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_wire::{ProblemFile, read_problem};
    use std::collections::BTreeMap;

    fn photos() -> Problem {
        let text = include_str!("../../../examples/photos.yaml");
        match read_problem("photos.yaml", text).expect("the example") {
            ProblemFile::Allocation(problem) => problem,
            ProblemFile::Scaling(_) => panic!("a problem with pipelines"),
        }
    }

    fn series(labels: &[(&str, &str)], value: f64) -> SeriesSample {
        let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        SeriesSample { labels, evaluated_at_s: 1.0, value }
    }

    #[test]
    fn a_variant_tells_task_and_batch() {
        let samples = [series(&[("model", "find-s")], 3.0), series(&[("variant", "read-m"), ("batch", "8")], 2.0)];
        let Ok(document) = plan_of(&photos(), &samples) else { panic!("groups of the problem") };
        let groups = document["pipelines"][0]["assignments"].as_array().expect("a list");
        assert_eq!(groups[0], json!({"task": "find", "variant": "find-s", "hardware": "t4", "batch": 4, "replicas": 3}));
        assert_eq!(groups[1], json!({"task": "read", "variant": "read-m", "hardware": "t4", "batch": 8, "replicas": 2}));
    }

    #[test]
    fn series_that_name_no_group_are_refused_at_their_place() {
        let cases = [
            (series(&[("model", "resnet")], 1.0), "metric/task", "absent"),
            (series(&[("task", "find"), ("model", "resnet")], 1.0), "metric/variant", "\"resnet\""),
            (series(&[("model", "find-s"), ("hardware", "a100")], 1.0), "metric/hardware", "\"a100\""),
            (series(&[("model", "find-s"), ("batch", "5")], 1.0), "metric/batch", "\"5\""),
            (series(&[("model", "find-s"), ("pipeline", "x")], 1.0), "metric/pipeline", "\"x\""),
            (series(&[("model", "find-s")], 1.5), "value", "1.5"),
            (series(&[("model", "find-s")], 1e9), "value", "1000000000"),
        ];
        for (sample, at, found) in cases {
            let Err(error) = plan_of(&photos(), &[sample]) else { panic!("{at}") };
            assert_eq!((error.at, error.found.as_str()), (format!("/data/result/0/{at}"), found), "{}", error.expected);
        }
    }

    #[test]
    fn a_series_of_zero_is_no_group() {
        let Ok(document) = plan_of(&photos(), &[series(&[("model", "find-s")], 0.0)]) else { panic!("a group") };
        assert_eq!(document["pipelines"][0]["assignments"], json!([]));
    }
}
