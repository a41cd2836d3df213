//! How does `apportion profile --server URL` have agents measure a pipeline, and what does it print?

use crate::remote_job::RemoteJobKind;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::anyhow;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{OutputFormat, TextTable, number};
use apportion_support::progress::spinner;
use apportion_wire::{MeasuredRow, ProfileJobState};
use serde_json::Value;

/// Starts a profile job, waits for its end, and prints what it measured.
///
/// # Errors
/// If the service cannot be reached or refuses, or if the job failed or was cancelled.
pub fn run_on_agents(server: &ServerArgs, request: &Value, format: OutputFormat) -> CommandResult {
    let client = ServiceClient::new(server)?;
    let bar = spinner("waiting for a device");
    let open = ProfileJobState::OPEN.map(ProfileJobState::name);
    let kind = RemoteJobKind { name: "profile job", list: "profile-jobs", open: &open };
    let ended = converse(kind.run(&client, request, &|job: &Value| bar.set_message(progress(job))));
    bar.finish_and_clear();
    let job = ended?;
    format.print(&job, || points_table(&job))?;
    if job["state"] == ProfileJobState::Done.name() {
        return Ok(Exit::Done);
    }
    let (id, state) = (text(&job["id"]), text(&job["state"]));
    Err(anyhow!("profile job {id} is {state}: {}", text(&job["error"])).into())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// How far a job is, in words.
fn progress(job: &Value) -> String {
    let devices = job["measuring"].as_array().map(Vec::as_slice).unwrap_or_default();
    let at_work = devices.iter().filter(|device| device["variant"].is_string());
    let at_work =
        at_work.map(|of| format!("{} at batch {} on {}", text(&of["variant"]), of["batch"], text(&of["hardware"])));
    let at_work: Vec<String> = at_work.collect();
    let now = if at_work.is_empty() { "waiting for a device without replicas".to_owned() } else { at_work.join(", ") };
    format!("{} of {} variants, {now}", job["progress"]["ready"], job["progress"]["total"])
}

/// What was measured.
fn points_table(job: &Value) -> String {
    let mut table =
        TextTable::new(&["hardware", "task", "variant", "batch", "latency_ms", "p99_ms", "interval", "runs", "noise"]);
    for point in job["points"].as_array().into_iter().flatten() {
        let names = [&point["hardware"], &point["task"], &point["variant"]].map(|name| text(name).to_owned());
        let row: Option<MeasuredRow> = serde_json::from_value(point["measured"].clone()).ok();
        let figures = match row {
            Some(row) => figures(&row),
            None => vec![text(&point["error"]).to_owned()],
        };
        let mut cells: Vec<String> = names.into_iter().chain([point["batch"].to_string()]).chain(figures).collect();
        cells.resize(9, String::new());
        table.row(cells);
    }
    table.text("")
}

fn figures(row: &MeasuredRow) -> Vec<String> {
    let known = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let measured = row.measured.clone().unwrap_or_default();
    let interval = measured.median_low_ms.zip(measured.median_high_ms);
    vec![
        number(row.latency_ms),
        known(row.p99_ms),
        interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", number(low), number(high))),
        measured.runs.map_or_else(|| "-".to_owned(), |runs| runs.to_string()),
        known(measured.noise),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_names_what_is_measured() {
        let device = json!({"hardware": "t4", "variant": "read-s", "batch": 8});
        let job = |measuring: Value| json!({"progress": {"ready": 1, "total": 4}, "measuring": measuring});
        assert_eq!(progress(&job(json!([device]))), "1 of 4 variants, read-s at batch 8 on t4");
        assert_eq!(progress(&job(json!([]))), "1 of 4 variants, waiting for a device without replicas");
    }

    #[test]
    fn a_failed_size_shows_its_reason() {
        let measured = json!({"task": "t", "variant": "v", "hardware": "h", "batch": 1, "latency_ms": 2.0, "p99_ms": 3.0,
            "measured": {"runs": 400, "noise": 0.01, "median_low_ms": 1.9, "median_high_ms": 2.1}});
        let job = json!({"points": [
            {"hardware": "h", "task": "t", "variant": "v", "batch": 1, "measured": measured, "error": null},
            {"hardware": "h", "task": "t", "variant": "v", "batch": 2, "measured": null, "error": "no room"},
        ]});
        let shown = points_table(&job);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][4..], ["2", "3", "1.900", "to", "2.100", "400", "0.01000"], "{shown}");
        assert_eq!(lines[2][3..], ["2", "no", "room"], "{shown}");
    }
}
