//! How is a simulation written as JSON? As an estimate, with one estimate for each pipeline, with the changes of replicas
//! if there were any, and with its requests over time if they were asked for.

use crate::bad_input::BadInput;
use crate::plan::EstimateFile;
use crate::result_file::{SimulatedChangesFile, SimulatedSeriesFile, check_simulation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A simulation: the JSON of `apportion simulate`, and the result of a simulation of the service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationFile {
    /// All pipelines together.
    #[serde(flatten)]
    pub total: EstimateFile,
    /// Each pipeline, in the order of the problem.
    pub pipelines: Vec<SimulatedPipelineFile>,
    /// The figures of a run in which replicas could change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<SimulatedChangesFile>,
    /// The requests over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SimulatedSeriesFile>,
}

/// The estimate of one pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulatedPipelineFile {
    /// Its name.
    pub name: String,
    /// Its estimate.
    #[serde(flatten)]
    pub estimate: EstimateFile,
}

impl SimulationFile {
    /// Reads a simulation.
    ///
    /// # Errors
    /// Every refused value.
    pub fn from_tree(file: &str, tree: Value) -> Result<Self, BadInput> {
        check_simulation(file, &tree)?;
        let mut total = tree.as_object().cloned().unwrap_or_default();
        let replay = total.remove("replay").map(|changes| typed(file, "/replay", changes)).transpose()?;
        let series = total.remove("series").map(|series| typed(file, "/series", series)).transpose()?;
        let listed = total.remove("pipelines").and_then(|list| list.as_array().cloned()).unwrap_or_default();
        let mut pipelines = Vec::with_capacity(listed.len());
        for (at, pipeline) in listed.into_iter().enumerate() {
            let mut entry = pipeline.as_object().cloned().unwrap_or_default();
            let name = entry.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
            let estimate = typed(file, &format!("/pipelines/{at}"), Value::Object(entry))?;
            pipelines.push(SimulatedPipelineFile { name, estimate });
        }
        Ok(Self { total: typed(file, "", Value::Object(total))?, pipelines, replay, series })
    }
}

/// A checked value as its type. A key that the check allows to be absent may be missing here.
fn typed<T: DeserializeOwned>(file: &str, pointer: &str, tree: Value) -> Result<T, BadInput> {
    serde_json::from_value(tree).map_err(|error| BadInput::one(file, pointer, error, "all keys of a simulation"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result_file::SimulatedClassesFile;
    use apportion_domain::Estimate;
    use serde_json::json;

    fn simulation() -> SimulationFile {
        let estimate = EstimateFile::from(&Estimate { requests: 4, ok: 3, late: 1, ..Estimate::default() });
        let pipelines = vec![SimulatedPipelineFile { name: "photos".into(), estimate: estimate.clone() }];
        let replay = Some(SimulatedChangesFile {
            cost: 1.5,
            cost_per_hour: 3.0,
            utilisation: 0.5,
            invalid_rate: 0.0,
            changes: 2,
            plans: 0,
            steerings: 1,
        });
        let classes = SimulatedClassesFile {
            name: "photos".into(),
            arrived: vec![2, 2],
            ok: vec![2, 1],
            fallback: vec![0, 1],
            late: vec![0, 1],
            dropped: vec![0, 0],
            failed: vec![0, 0],
        };
        let series = Some(SimulatedSeriesFile { window_s: 5, pipelines: vec![classes], replicas: vec![1.0, 1.5] });
        SimulationFile { total: estimate, pipelines, replay, series }
    }

    #[test]
    fn a_simulation_is_read_as_it_was_written() {
        for written in [simulation(), SimulationFile { replay: None, series: None, ..simulation() }] {
            let tree = serde_json::to_value(&written).expect("JSON");
            assert_eq!((&tree["ok"], &tree["pipelines"][0]["name"]), (&json!(3), &json!("photos")));
            assert_eq!(tree.get("replay").is_some(), written.replay.is_some());
            assert_eq!(tree.get("series").is_some(), written.series.is_some());
            assert_eq!(SimulationFile::from_tree("s.json", tree), Ok(written.clone()));
        }
    }

    #[test]
    fn a_wrong_simulation_is_refused_at_its_place() {
        let mut tree = serde_json::to_value(simulation()).expect("JSON");
        tree["pipelines"][0]["ok"] = json!(-1);
        let refused = SimulationFile::from_tree("s.json", tree).expect_err("a negative count").to_string();
        assert!(refused.contains("/pipelines/0/ok: -1"), "{refused}");
    }
}
