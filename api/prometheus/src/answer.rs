//! What does an answer of `/api/v1/query` say?
//!
//! Example: `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000.1,"61.3"]}]}}`.
//! The answer comes from the network: each part is checked, and an error has the pointer of its place.

use crate::failure::{QueryFailure, quoted};
use crate::limits::SERIES_MAX;
use serde_json::Value;
use std::collections::BTreeMap;

/// One series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSample {
    /// Its labels; none for a scalar.
    pub labels: BTreeMap<String, String>,
    /// The moment of the evaluation by Prometheus' clock, in unix seconds.
    pub evaluated_at_s: f64,
    /// The value: finite and at least 0.
    pub value: f64,
}

/// The form of a usable number.
const NUMBER: &str = "a finite number of at least 0";

/// Reads a successful answer with a number for each series.
///
/// # Errors
/// [`QueryFailure::Answer`] if a part is absent, of another kind, or no number of at least 0.
pub fn read_samples(body: &[u8]) -> Result<Vec<SeriesSample>, QueryFailure> {
    let answer: Value = serde_json::from_slice(body).map_err(|e| {
        let said = String::from_utf8_lossy(&body[..body.len().min(4 * crate::limits::QUOTED_CHARACTERS_MAX)]);
        QueryFailure::at(format!("line {} column {}", e.line(), e.column()), said, "the JSON of Prometheus' HTTP API")
    })?;
    if answer["status"] != "success" {
        return Err(QueryFailure::at("/status", answer["status"].to_string(), "\"success\""));
    }
    if let Some(warning) = answer["warnings"].as_array().and_then(|all| all.first()) {
        return Err(QueryFailure::at("/warnings/0", warning.to_string(), "no warning: the number may be incomplete"));
    }
    let (kind, result) = (&answer["data"]["resultType"], &answer["data"]["result"]);
    match kind.as_str() {
        Some("scalar") => Ok(vec![sample(BTreeMap::new(), result, "/data/result")?]),
        Some("vector") => vector(result),
        _ => {
            Err(QueryFailure::at("/data/resultType", kind.to_string(), "\"vector\" or \"scalar\": one number for a series"))
        }
    }
}

/// The only series of an answer.
///
/// # Errors
/// [`QueryFailure::Answer`] if there is no series, or if there are several.
pub fn only_sample(mut samples: Vec<SeriesSample>) -> Result<SeriesSample, QueryFailure> {
    match (samples.pop(), samples.first()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(QueryFailure::at(
            "/data/result",
            "no series",
            "one series: is its name right, and is its exporter scraped?",
        )),
        (Some(last), Some(first)) => {
            let found = format!("{} series, such as {} and {}", samples.len() + 1, shown(first), shown(&last));
            Err(QueryFailure::at("/data/result", found, "one series, for example by sum(...)"))
        }
    }
}

/// The reason in an answer without success: Prometheus' own, or the beginning of the text.
#[must_use]
pub fn read_refusal(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    match (answer["errorType"].as_str(), answer["error"].as_str()) {
        (Some(kind), Some(error)) => quoted(&format!("{kind}: {error}")),
        _ => quoted(&String::from_utf8_lossy(&body[..body.len().min(4 * crate::limits::QUOTED_CHARACTERS_MAX)])),
    }
}

/// The labels of a series, as PromQL writes them.
fn shown(sample: &SeriesSample) -> String {
    let labels: Vec<_> = sample.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", labels.join(", "))
}

fn vector(result: &Value) -> Result<Vec<SeriesSample>, QueryFailure> {
    let series = result.as_array().ok_or_else(|| QueryFailure::at("/data/result", result.to_string(), "a list"))?;
    if series.len() > SERIES_MAX {
        let found = format!("{} series", series.len());
        return Err(QueryFailure::at("/data/result", found, format!("at most {SERIES_MAX} series")));
    }
    let read = |(index, one): (usize, &Value)| {
        let at = format!("/data/result/{index}");
        let metric = one["metric"].as_object();
        let metric = metric
            .ok_or_else(|| QueryFailure::at(format!("{at}/metric"), one["metric"].to_string(), "an object of labels"))?;
        let label = |(name, value): (&String, &Value)| match value.as_str() {
            Some(text) => Ok((name.clone(), text.to_owned())),
            None => Err(QueryFailure::at(format!("{at}/metric/{name}"), value.to_string(), "a text")),
        };
        let labels = metric.iter().map(label).collect::<Result<_, _>>()?;
        if one.get("value").is_none() && one.get("histogram").is_some() {
            return Err(QueryFailure::at(format!("{at}/histogram"), "a histogram", NUMBER));
        }
        sample(labels, &one["value"], &format!("{at}/value"))
    };
    series.iter().enumerate().map(read).collect()
}

/// The pair of a moment and a number in a text: `[1700000000.1, "61.3"]`.
fn sample(labels: BTreeMap<String, String>, pair: &Value, at: &str) -> Result<SeriesSample, QueryFailure> {
    let (moment, value) = match pair.as_array().map(Vec::as_slice) {
        Some([moment, value]) => (moment, value),
        _ => return Err(QueryFailure::at(at, pair.to_string(), "a moment and a number: [1700000000.1, \"61.3\"]")),
    };
    let evaluated_at_s = moment.as_f64().filter(|s| s.is_finite() && *s >= 0.0);
    let evaluated_at_s =
        evaluated_at_s.ok_or_else(|| QueryFailure::at(format!("{at}/0"), moment.to_string(), "unix seconds"))?;
    let number = value.as_str().and_then(|text| text.parse::<f64>().ok()).filter(|n| n.is_finite() && *n >= 0.0);
    let value = number.ok_or_else(|| QueryFailure::at(format!("{at}/1"), value.to_string(), NUMBER))?;
    Ok(SeriesSample { labels, evaluated_at_s, value })
}

#[cfg(test)]
mod tests;
