//! How does a command show resources and then each change of them, or each event?

use super::event_feed::{EVENTS_PATH, EventFeed};
use super::event_reader::StreamedEvent;
use super::kind::ResourceKind;
use super::rows::{ListChanges, ListExtent, ShownRows, lines, table};
use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output::{self, OutputFormat, StdoutReader};
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Pause between two questions for a list while the service is away.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time without an answer.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// The arguments of `watch` for resources.
#[derive(Args, Debug)]
pub struct WatchRequest {
    /// How changes are printed: as rows, or one document for each change.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// The arguments of `watch` for events and for the audit.
#[derive(Args, Debug)]
pub struct FollowRequest {
    /// Begin after the entry with this number [default: with the next one].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(0..))]
    since: Option<i64>,
    /// End after this many entries [default: never].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// How entries are printed: as rows, or one document for each entry.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    server: ServerArgs,
}

/// Lists resources, and then each change of one, until a signal ends the command.
///
/// # Errors
/// If the service refuses, or stays away.
pub fn watch(kind: &ResourceKind, parameters: &[(&str, &str)], request: &WatchRequest) -> CommandResult {
    let client = ServiceClient::new(&request.server)?;
    let path = client.with_query(kind.list, parameters);
    converse(async {
        // Connected before the list is read: a change between the two is seen.
        let mut feed = EventFeed::open(&client, EVENTS_PATH, &[], None).await?;
        let mut shown = ShownRows::default();
        let mut is_first = true;
        loop {
            let entries = patient_list(&client, &path, &request.list).await?;
            let is_whole = request.list.limit.is_none_or(|limit| (entries.len() as u64) < limit);
            let changes = shown.update(kind, &entries, if is_whole { ListExtent::Whole } else { ListExtent::Cut });
            let text = match request.format {
                OutputFormat::Table if is_first => table(kind, &entries),
                format => changes_text(kind, &entries, &changes, format)?,
            };
            is_first = false;
            if output::print_part(&text)? == StdoutReader::Gone {
                return Ok(Exit::Done);
            }
            while !kind.events.contains(&feed.next().await?.kind.as_str()) {}
        }
    })
}

/// Reads a list. A service that stops or starts is waited for.
async fn patient_list(client: &ServiceClient, path: &str, list: &ListArgs) -> Result<Vec<Value>, Failure> {
    let begun = Instant::now();
    loop {
        match client.list(path, list).await {
            Ok(Value::Array(entries)) => return Ok(entries),
            Ok(_) => return Ok(Vec::new()),
            Err(Failure::Broken(_)) if begun.elapsed() < AWAY_MAX => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error),
        }
    }
}

/// The changes of a list: rows of the table, lines of JSON, or documents of YAML.
fn changes_text(
    kind: &ResourceKind,
    entries: &[Value],
    changes: &ListChanges,
    format: OutputFormat,
) -> Result<String, Failure> {
    if format == OutputFormat::Table {
        let rows: Vec<usize> = changes.rows.iter().map(|row| row.at).collect();
        let gone = changes.gone.iter().map(|key| format!("gone: {} {key}\n", kind.noun));
        return Ok(lines(kind, entries, &rows) + &gone.collect::<String>());
    }
    let there = changes.rows.iter().map(|row| json!({"change": row.change.name(), kind.noun: entries[row.at]}));
    let gone = changes.gone.iter().map(|key| json!({"change": "gone", kind.noun: {kind.key: key}}));
    there.chain(gone).map(|document| document_text(&document, format)).collect()
}

/// One document of several: a line of JSON, or a document of YAML.
fn document_text(document: &Value, format: OutputFormat) -> Result<String, Failure> {
    match format {
        OutputFormat::Yaml => Ok(format!("---\n{}\n", output::yaml(document)?.trim_end())),
        _ => Ok(format!("{document}\n")),
    }
}

/// Prints each event, or each entry of the audit, until a signal ends the command, or until the limit.
///
/// # Errors
/// If the service refuses, or stays away.
pub fn follow(kind: &ResourceKind, parameters: &[(&str, &str)], request: &FollowRequest) -> CommandResult {
    let client = ServiceClient::new(&request.server)?;
    converse(async {
        let mut feed = EventFeed::open(&client, kind.list, parameters, request.since).await?;
        let mut count = 0_u64;
        while request.limit.is_none_or(|limit| count < limit) {
            let StreamedEvent { document, .. } = feed.next().await?;
            let text = match request.format {
                OutputFormat::Table => format!("{}\n", kind.cells(&document).join("  ")),
                format => document_text(&document, format)?,
            };
            count += 1;
            if output::print_part(&text)? == StdoutReader::Gone {
                break;
            }
        }
        Ok(Exit::Done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::kind::ResourceName as _;
    use crate::resources::kinds::HardwareResource;

    #[test]
    fn each_change_is_one_line_or_document() {
        let entries = [json!({"name": "t4", "price_per_hour": 0.53})];
        let kind = HardwareResource::kind();
        let mut shown = ShownRows::default();
        let mut text = |entries: &[Value], format| {
            let changes = shown.update(kind, entries, ListExtent::Whole);
            changes_text(kind, entries, &changes, format).expect("a text")
        };
        let added = "{\"change\":\"added\",\"hardware\":{\"name\":\"t4\",\"price_per_hour\":0.53}}\n";
        assert_eq!(text(&entries, OutputFormat::Json), added);
        assert_eq!(text(&entries, OutputFormat::Json), "", "nothing has changed");
        let dearer = [json!({"name": "t4", "price_per_hour": 0.75})];
        assert!(text(&dearer, OutputFormat::Table).starts_with("t4"));
        let gone = text(&[], OutputFormat::Yaml);
        assert!(gone.starts_with("---\n") && gone.contains("change: gone") && gone.contains("name: t4"), "{gone}");
    }
}
