//! How is a resource written from a file, so that nobody else's change is lost?
//!
//! Example: `apportion pipeline apply -f photos.yaml` reads the pipeline of the service first. If it equals the file,
//! nothing is written. Otherwise the write has the entity tag that was read as its condition.

use super::kind::{AnswerForm, ApplyRule, FileForms, NamePlace, ResourceKind};
use super::rows::table;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::{Context, anyhow};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat};
use apportion_wire::{BadInput, parse_tree};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;

/// The name of a file that means stdin.
const STDIN: &str = "-";

/// The arguments of `apply` that all kinds have.
#[derive(Args, Debug)]
pub struct ApplyRequest {
    /// The file: JSON or YAML. With `-`, stdin.
    #[arg(short, long, value_name = "FILE")]
    file: String,
    /// How the written resource is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    server: ServerArgs,
}

/// The document of a file.
enum FileContent {
    Tree(Value),
    Csv(Vec<u8>),
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteEffect {
    Created,
    Changed,
    Unchanged,
}

impl WriteEffect {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A resource after a write.
struct WrittenResource {
    effect: WriteEffect,
    answer: Value,
}

/// Writes a resource, says what that did, and prints the resource.
///
/// # Errors
/// If the file cannot be read, if the service refuses it, or if another client wrote the resource meanwhile.
pub fn apply(kind: &ResourceKind, name: Option<&str>, request: &ApplyRequest) -> CommandResult {
    let content = read_content(&kind.apply, &request.file)?;
    let name = resource_name(kind, name, &content, &request.file)?;
    let client = ServiceClient::new(&request.server)?;
    let path = client.path(&kind.segments(&name));
    let written = converse(write_resource(&client, kind, &path, &content, &request.file))?;
    eprintln!("{}: {} {name}", written.effect.name(), kind.noun);
    show_resource(kind, request.format, &written.answer)?;
    Ok(Exit::Done)
}

fn read_content(rule: &ApplyRule, file: &str) -> Result<FileContent, Failure> {
    if file == STDIN {
        let text = std::io::read_to_string(std::io::stdin()).context("reading stdin")?;
        return Ok(FileContent::Tree(parse_tree("stdin", &text)?));
    }
    let is_csv = rule.forms == FileForms::TreeOrCsv && file.to_ascii_lowercase().ends_with(".csv");
    match is_csv {
        true => Ok(FileContent::Csv(input::read_bytes(file)?)),
        false => Ok(FileContent::Tree(parse_tree(file, &input::read_text(file)?)?)),
    }
}

/// The name of the resource: that of the command line, or that of the file.
fn resource_name(kind: &ResourceKind, name: Option<&str>, content: &FileContent, file: &str) -> Result<String, BadInput> {
    let in_file = match content {
        FileContent::Tree(tree) if kind.apply.name == NamePlace::ArgumentOrFile => tree["name"].as_str(),
        _ => None,
    };
    match (name, in_file) {
        (Some(name), Some(other)) if name != other => {
            Err(BadInput::one(file, "/name", other, format!("{name}, as on the command line")))
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => Err(BadInput::one(file, "/name", "nothing", format!("the name of the {}", kind.noun))),
    }
}

async fn write_resource(
    client: &ServiceClient,
    kind: &ResourceKind,
    path: &str,
    content: &FileContent,
    file: &str,
) -> Result<WrittenResource, Failure> {
    let found = client.send(Method::GET, path, &[], None).await?;
    let tag = found.tag.clone();
    let before = match found.status {
        StatusCode::NOT_FOUND => None,
        _ => Some(client.accepted(path, found)?),
    };
    if let (Some(before), FileContent::Tree(tree)) = (&before, content)
        && is_stored(&kind.apply, file, before, tree)
    {
        return Ok(WrittenResource { effect: WriteEffect::Unchanged, answer: before.clone() });
    }
    let condition: Vec<(&str, String)> = match before {
        None => vec![("if-none-match", "*".to_owned())],
        Some(_) => tag.into_iter().map(|tag| ("if-match", tag)).collect(),
    };
    let answer = match content {
        FileContent::Tree(tree) => client.send(Method::PUT, path, &condition, Some(tree)).await?,
        FileContent::Csv(text) => client.send_text(Method::PUT, path, &condition, "text/csv", text.clone()).await?,
    };
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return Err(anyhow!("{path}: another client wrote it at the same time, so nothing is changed: try again").into());
    }
    let answer = client.accepted(path, answer)?;
    let effect = match &before {
        None => WriteEffect::Created,
        Some(before) if is_same_part(&kind.apply, before, &answer) && !has_hidden(&kind.apply, content) => {
            WriteEffect::Unchanged
        }
        Some(_) => WriteEffect::Changed,
    };
    Ok(WrittenResource { effect, answer })
}

/// Whether the service has this document already.
fn is_stored(rule: &ApplyRule, file: &str, before: &Value, tree: &Value) -> bool {
    let stored = (rule.stored)(file, tree);
    stored.is_some_and(|mut stored| {
        // The name of a resource may be left out of its file.
        if rule.part.is_empty()
            && let (Some(object), Some(name)) = (stored.as_object_mut(), before.get("name"))
        {
            object.entry("name").or_insert_with(|| name.clone());
        }
        is_same(&stored, &part_of(rule, before))
    })
}

/// Whether two answers of the service have the same written part.
fn is_same_part(rule: &ApplyRule, before: &Value, after: &Value) -> bool {
    is_same(&part_of(rule, before), &part_of(rule, after))
}

/// Whether a document has a member that the service never shows.
fn has_hidden(rule: &ApplyRule, content: &FileContent) -> bool {
    matches!((content, rule.hidden), (FileContent::Tree(tree), Some(hidden)) if !tree[hidden].is_null())
}

/// The written part of an answer, without the members that only the service writes.
fn part_of(rule: &ApplyRule, answer: &Value) -> Value {
    let mut part = answer.pointer(rule.part).cloned().unwrap_or(Value::Null);
    if let Some(object) = part.as_object_mut() {
        object.retain(|key, _| !rule.own.contains(&key.as_str()));
    }
    part
}

/// Whether two documents mean the same: an absent member is null, and 1 is 1.0.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.as_f64().is_some() && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(first), Value::Object(second)) => {
            let of = |object: &serde_json::Map<String, Value>, key: &str| object.get(key).cloned().unwrap_or_default();
            first.keys().chain(second.keys()).all(|key| is_same(&of(first, key), &of(second, key)))
        }
        _ => a == b,
    }
}

/// Prints the written resource. A new secret is the only text on stdout, so that a shell can keep it.
fn show_resource(kind: &ResourceKind, format: OutputFormat, answer: &Value) -> Result<(), Failure> {
    let rows = || match kind.apply.answer {
        AnswerForm::Entry => table(kind, std::slice::from_ref(answer)),
        AnswerForm::Document => String::new(),
    };
    let secret = kind.apply.hidden.and_then(|hidden| answer[hidden].as_str());
    match secret {
        Some(secret) if format == OutputFormat::Table => {
            eprint!("{}", rows());
            output::print(secret)
        }
        None if format == OutputFormat::Table && kind.apply.hidden.is_some() => {
            eprint!("{}", rows());
            Ok(())
        }
        _ => format.print(answer, rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::kind::ResourceName as _;
    use crate::resources::kinds::{HardwareResource, PipelineResource, ScheduleResource, WebhookResource};
    use serde_json::json;

    #[test]
    fn documents_with_the_same_meaning_are_the_same() {
        assert!(is_same(&json!({"a": 1, "b": null}), &json!({"a": 1.0})));
        assert!(is_same(&json!([{"a": []}]), &json!([{"a": [], "c": null}])));
        assert!(!is_same(&json!({"a": 1}), &json!({"a": 2})));
        assert!(!is_same(&json!({"a": 1, "b": 0}), &json!({"a": 1})));
        assert!(!is_same(&json!([1, 2]), &json!([1])));
    }

    #[test]
    fn a_stored_document_is_recognised() {
        let stored = |kind: &ResourceKind, before: &Value, tree: &Value| is_stored(&kind.apply, "file", before, tree);
        let t4 = json!({"name": "t4", "price_per_hour": 0.5, "memory_mib": null, "provision_measured_s": 80.0});
        assert!(stored(HardwareResource::kind(), &t4, &json!({"price_per_hour": 0.5})));
        assert!(!stored(HardwareResource::kind(), &t4, &json!({"price_per_hour": 0.5, "memory_mib": 16})));
        let daily = json!({"name": "daily", "version": 3, "spec": {"cron": "0 8 * * *", "replan": {"hold_s": 0}}});
        assert!(stored(ScheduleResource::kind(), &daily, &json!({"cron": "0 8 * * *", "replan": {"hold_s": 0}})));
        assert!(!stored(ScheduleResource::kind(), &daily, &json!({"cron": "0 9 * * *", "replan": {"hold_s": 0}})));
        let chat = json!({"name": "chat", "url": "http://x", "kinds": null, "enabled": true, "version": 2, "waiting": 4});
        assert!(stored(WebhookResource::kind(), &chat, &json!({"url": "http://x", "enabled": true})));
        assert!(!stored(WebhookResource::kind(), &chat, &json!({"url": "http://x", "enabled": true, "secret": "whsec_"})));
    }

    #[test]
    fn a_pipeline_is_compared_as_the_service_stores_it() {
        let kind = PipelineResource::kind();
        let tree = json!({"name": "p", "slo_ms": 250, "tasks": [{"name": "t", "variants": [{"name": "v"}]}]});
        let before = (kind.apply.stored)("file", &tree).expect("a pipeline");
        assert!(is_stored(&kind.apply, "file", &before, &tree), "{before}");
        assert!(!is_stored(&kind.apply, "file", &before, &json!({"name": "p", "slo_ms": 200, "tasks": tree["tasks"]})));
    }

    #[test]
    fn a_name_comes_from_argument_or_file() {
        let tree = FileContent::Tree(json!({"name": "photos"}));
        let name = |kind: &ResourceKind, given| resource_name(kind, given, &tree, "p.yaml").map_err(|e| e.to_string());
        assert_eq!(name(PipelineResource::kind(), None), Ok("photos".to_owned()));
        assert_eq!(name(PipelineResource::kind(), Some("photos")), Ok("photos".to_owned()));
        let refused = "p.yaml: /name: photos: expected videos, as on the command line".to_owned();
        assert_eq!(name(PipelineResource::kind(), Some("videos")), Err(refused));
        let refused = "p.yaml: /name: nothing: expected the name of the schedule".to_owned();
        assert_eq!(name(ScheduleResource::kind(), None), Err(refused));
    }
}
