//! Which resources do people register?

use super::base::{ID, NAME, NAMED, NO_FILE, PIPELINE, PREFIX, PROJECT, entry, member, member_or, named, operation};
use crate::resources::kind::{AnswerForm, ApplyRule, FileForms, KeyHelp, NamePlace, ResourceKind, ResourceVerb};
use apportion_wire::pipeline_spec_from_tree;
use serde_json::Value;

named!(
    /// Names the kind of pipelines.
    PipelineResource,
    PIPELINES
);
named!(
    /// Names the kind of profiles.
    ProfileResource,
    PROFILES
);
named!(
    /// Names the kind of hardware types.
    HardwareResource,
    HARDWARE
);
named!(
    /// Names the kind of projects.
    ProjectResource,
    PROJECTS
);
named!(
    /// Names the kind of schedules.
    ScheduleResource,
    SCHEDULES
);
named!(
    /// Names the kind of webhooks.
    WebhookResource,
    WEBHOOKS
);
named!(
    /// Names the kind of model files.
    FileResource,
    FILES
);
named!(
    /// Names the kind of traces.
    TraceResource,
    TRACES
);

/// Registered pipelines.
pub static PIPELINES: ResourceKind = ResourceKind {
    noun: "pipeline",
    list: "/v1/pipelines",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("pipeline", "/name"),
        member("replan", "/replan"),
        member("profiled", "/profiled"),
        member("version", "/version"),
    ],
    empty: "no pipeline is registered",
    filters: &[PREFIX, PROJECT],
    operations: &[
        operation(ResourceVerb::List, "List the registered pipelines"),
        operation(ResourceVerb::Get, "Print a pipeline as it is registered"),
        operation(ResourceVerb::Apply, "Register a pipeline, or change it. Its profiles stay"),
        operation(ResourceVerb::Delete, "Delete a pipeline and its profiles. One that is deployed or has schedules stays"),
    ],
    apply: ApplyRule {
        name: NamePlace::ArgumentOrFile,
        stored: |file, tree| serde_json::to_value(pipeline_spec_from_tree(file, tree.clone()).ok()?).ok(),
        answer: AnswerForm::Document,
        ..NO_FILE
    },
    events: &[],
};

/// What was measured of pipelines.
pub static PROFILES: ResourceKind = ResourceKind {
    noun: "profile",
    list: "/v1/pipelines",
    rest: Some("profiles"),
    key: "name",
    key_help: KeyHelp { name: "PIPELINE", text: "Its pipeline" },
    columns: &[member("pipeline", "/name")],
    empty: "no pipeline is registered",
    filters: &[],
    operations: &[
        operation(ResourceVerb::Get, "Print what is registered of a pipeline's measurements"),
        operation(
            ResourceVerb::Apply,
            "Register measurements of a pipeline. They replace those of the same variant and hardware",
        ),
        operation(ResourceVerb::Delete, "Delete all measurements of a pipeline"),
    ],
    apply: ApplyRule { forms: FileForms::TreeOrCsv, answer: AnswerForm::Document, ..NO_FILE },
    events: &[],
};

/// Model files.
pub static FILES: ResourceKind = ResourceKind {
    noun: "file",
    list: "/v1/files",
    rest: None,
    key: "sha256",
    key_help: KeyHelp { name: "SHA256", text: "Its SHA-256, as the list shows it" },
    columns: &[
        member("sha256", "/sha256"),
        member("bytes", "/bytes"),
        member("source", "/source"),
        member("stored by", "/stored_by"),
        member("stored at", "/created_at"),
    ],
    empty: "no model file is stored",
    filters: &[PREFIX],
    operations: &[
        operation(ResourceVerb::List, "List the model files of a service, with where they came from"),
        operation(ResourceVerb::Delete, "Delete a model file. It stays while a pipeline or the target has it"),
    ],
    apply: NO_FILE,
    events: &[],
};

/// Hardware types.
pub static HARDWARE: ResourceKind = ResourceKind {
    noun: "hardware",
    list: "/v1/hardware",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("hardware", "/name"),
        member("price per hour", "/price_per_hour"),
        member("memory MiB", "/memory_mib"),
        member("devices max", "/count_max"),
        member("substrate", "/substrate"),
    ],
    empty: "no hardware type is registered",
    filters: &[PREFIX],
    operations: &[
        operation(ResourceVerb::List, "List the hardware types with their prices"),
        operation(ResourceVerb::Get, "Print a hardware type"),
        operation(ResourceVerb::Apply, "Register a hardware type, or change it"),
        operation(ResourceVerb::Delete, "Delete a hardware type. Its devices run on"),
    ],
    apply: ApplyRule { name: NamePlace::ArgumentOrFile, own: &["provision_measured_s"], ..NO_FILE },
    events: &[],
};

/// Projects.
pub static PROJECTS: ResourceKind = ResourceKind {
    noun: "project",
    list: "/v1/projects",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("project", "/name"),
        member("priority", "/priority"),
        entry("devices max", devices_of_quota),
        member("cost per hour max", "/quota/cost_per_hour"),
    ],
    empty: "no project is registered",
    filters: &[PREFIX],
    operations: &[
        operation(ResourceVerb::List, "List the projects with their priorities and quotas"),
        operation(ResourceVerb::Get, "Print a project"),
        operation(ResourceVerb::Apply, "Write a project, or replace it"),
        operation(ResourceVerb::Delete, "Delete a project. One that a pipeline names stays"),
    ],
    apply: ApplyRule { name: NamePlace::ArgumentOrFile, own: &["stored"], ..NO_FILE },
    events: &[],
};

/// Schedules.
pub static SCHEDULES: ResourceKind = ResourceKind {
    noun: "schedule",
    list: "/v1/schedules",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("schedule", "/name"),
        member_or("pipeline", "/spec/pipeline", "all"),
        entry("effect", |schedule| if schedule["spec"]["hold"].is_object() { "hold" } else { "replan" }.to_owned()),
        entry("when", times_of),
        member_or("next", "/next/0", "never"),
        member("last", "/last/due_at"),
        member("result", "/last/state"),
    ],
    empty: "nothing is scheduled",
    filters: &[PREFIX, PIPELINE, PROJECT],
    operations: &[
        operation(ResourceVerb::List, "List the schedules with their next due times and last firings"),
        operation(ResourceVerb::Get, "Print one schedule"),
        operation(ResourceVerb::Apply, "Write a schedule, or replace it"),
        operation(ResourceVerb::Delete, "Delete a schedule. A hold that it began stays until its end"),
        operation(ResourceVerb::Watch, "List the schedules, and then each firing"),
    ],
    apply: ApplyRule { part: "/spec", ..NO_FILE },
    events: &["schedule"],
};

/// Webhooks.
pub static WEBHOOKS: ResourceKind = ResourceKind {
    noun: "webhook",
    list: "/v1/webhooks",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("webhook", "/name"),
        member("url", "/url"),
        entry("state", delivery_state),
        member("waiting", "/waiting"),
        member("delivered", "/delivered"),
        member("skipped", "/skipped"),
        member("last error", "/last_error"),
    ],
    empty: "there is no webhook",
    filters: &[PREFIX],
    operations: &[
        operation(ResourceVerb::List, "List the webhooks with their deliveries, without their secrets"),
        operation(ResourceVerb::Get, "Print one webhook, without its secret"),
        operation(
            ResourceVerb::Apply,
            "Write a webhook, or replace it. The secret of a new one is printed; nobody can read it again",
        ),
        operation(ResourceVerb::Delete, "Delete a webhook. Events that wait for it are not sent"),
    ],
    apply: ApplyRule {
        own: &[
            "version",
            "made_by",
            "updated_at",
            "sent_until",
            "waiting",
            "attempts",
            "next_at",
            "delivered",
            "failures",
            "skipped",
            "last_error",
            "last_error_at",
        ],
        hidden: Some("secret"),
        ..NO_FILE
    },
    events: &[],
};

/// Uploaded traces.
pub static TRACES: ResourceKind = ResourceKind {
    noun: "trace",
    list: "/v1/traces",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("trace", "/id"),
        member("name", "/name"),
        member("kind", "/kind"),
        member("rows", "/rows"),
        member("project", "/project"),
        member("uploaded at", "/created_at"),
    ],
    empty: "no trace is uploaded",
    filters: &[NAMED, PROJECT],
    operations: &[
        operation(ResourceVerb::List, "List the traces of a service, the newest first"),
        operation(ResourceVerb::Get, "Print a trace of a service, without its rows"),
        operation(ResourceVerb::Delete, "Delete a trace of a service. It stays while a plan needs it"),
    ],
    apply: NO_FILE,
    events: &[],
};

/// The devices that a project may have: those of each type, and of all.
fn devices_of_quota(project: &Value) -> String {
    let quota = &project["quota"];
    let of_type = quota["hardware"].as_object().into_iter().flatten().map(|(name, most)| format!("{most} {name}"));
    let all = quota["devices"].as_u64().map(|most| format!("{most} in all"));
    let parts: Vec<String> = of_type.chain(all).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// The times of a schedule.
fn times_of(schedule: &Value) -> String {
    let spec = &schedule["spec"];
    match spec["cron"].as_str() {
        Some(cron) => format!("{cron} {}", spec["time_zone"].as_str().unwrap_or("UTC")),
        None => format!("every {} s", spec["every_s"]),
    }
}

/// Whether a webhook gets its events.
fn delivery_state(webhook: &Value) -> String {
    let state = match (webhook["enabled"] == true, webhook["attempts"] == 0) {
        (false, _) => "disabled",
        (true, true) => "enabled",
        (true, false) => "retrying",
    };
    state.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::rows::table;
    use serde_json::json;

    #[test]
    fn schedules_are_listed_with_their_times() {
        let morning = json!({
            "name": "morning", "next": ["2026-11-25T08:50:00+01:00"], "last": {"due_at": "2026-11-24T07:50:00Z", "state": "done"},
            "spec": {"pipeline": "photos", "cron": "50 8 * * 1-5", "time_zone": "Europe/Berlin", "replan": {"demand_qps": 200}},
        });
        let hourly = json!({"name": "hourly", "next": [], "last": null, "spec": {"every_s": 3600, "hold": {"for_s": 60}}});
        let expected = "\
schedule  pipeline  effect  when                        next                       last                  result
morning   photos    replan  50 8 * * 1-5 Europe/Berlin  2026-11-25T08:50:00+01:00  2026-11-24T07:50:00Z  done
hourly    all       hold    every 3600 s                never                      -                     -
";
        assert_eq!(table(&SCHEDULES, &[morning, hourly]), expected);
        assert_eq!(table(&SCHEDULES, &[]), "nothing is scheduled\n");
    }

    #[test]
    fn projects_are_listed_with_their_quotas() {
        let team = json!({
            "name": "team-a", "priority": 10, "quota": {"hardware": {"a100": 2, "t4": 4}, "devices": 5, "cost_per_hour": 12.5},
        });
        let other = json!({"name": "team-b", "priority": 0, "quota": {"cost_per_hour": 3}});
        let expected = "\
project  priority  devices max             cost per hour max
team-a         10  2 a100, 4 t4, 5 in all              12.50
team-b          0  -                                       3
";
        assert_eq!(table(&PROJECTS, &[team, other]), expected);
    }

    #[test]
    fn webhooks_are_listed_with_their_deliveries() {
        let chat = json!({
            "name": "chat", "url": "http://127.0.0.1:9000/events", "enabled": true, "attempts": 3, "waiting": 12,
            "delivered": 40, "skipped": 1, "last_error": "the receiver answered 503",
        });
        let log = json!({
            "name": "log", "url": "https://log.example/", "enabled": false, "attempts": 0, "waiting": 0, "delivered": 0,
            "skipped": 0, "last_error": null,
        });
        let expected = "\
webhook  url                           state     waiting  delivered  skipped  last error
chat     http://127.0.0.1:9000/events  retrying       12         40        1  the receiver answered 503
log      https://log.example/          disabled        0          0        0  -
";
        assert_eq!(table(&WEBHOOKS, &[chat, log]), expected);
    }
}
