//! Which resources does the service make while it runs?

use super::base::{ID, NAME, NAMED, NO_FILE, PIPELINE, PROJECT, STATE, WHO, entry, member, member_or, named, operation};
use crate::resources::kind::{KeyHelp, ListFilter, ResourceKind, ResourceVerb};
use serde_json::Value;

named!(
    /// Names the kind of agents.
    AgentResource,
    AGENTS
);
named!(
    /// Names the kind of machines.
    MachineResource,
    MACHINES
);
named!(
    /// Names the kind of targets.
    TargetResource,
    TARGETS
);
named!(
    /// Names the kind of decisions.
    DecisionResource,
    DECISIONS
);
named!(
    /// Names the kind of events.
    EventResource,
    EVENTS
);
named!(
    /// Names the kind of audited requests.
    AuditResource,
    AUDIT
);
named!(
    /// Names the kind of plans.
    PlanResource,
    PLANS
);
named!(
    /// Names the kind of profile jobs.
    ProfileJobResource,
    PROFILE_JOBS
);
named!(
    /// Names the kind of tokens.
    TokenResource,
    TOKENS
);
named!(
    /// Names the kind of holds.
    HoldResource,
    HOLDS
);

/// Agents.
pub static AGENTS: ResourceKind = ResourceKind {
    noun: "agent",
    list: "/v1/agents",
    rest: None,
    key: "number",
    key_help: KeyHelp { name: "NUMBER", text: "Its number" },
    columns: &[
        member("agent", "/number"),
        member("name", "/name"),
        member("hardware", "/hardware"),
        member("devices", "/devices"),
        member("zone", "/zone"),
        member("state", "/state"),
        member("cordoned", "/cordoned"),
        member("ingress", "/ingress_http"),
    ],
    empty: "there is no agent",
    filters: &[STATE],
    operations: &[
        operation(ResourceVerb::List, "List the agents of the fleet"),
        operation(ResourceVerb::Get, "Print an agent with its devices and its acknowledgement"),
        operation(ResourceVerb::Delete, "Forget an agent that is lost or has left"),
        operation(ResourceVerb::Watch, "List the agents, and then each change of one"),
    ],
    apply: NO_FILE,
    events: &["agent", "machine-came", "machine-lost", "machine-returned"],
};

/// Machines that substrates run for the fleet, and wishes for more.
pub static MACHINES: ResourceKind = ResourceKind {
    noun: "machine",
    list: "/v1/machines",
    rest: None,
    key: "name",
    key_help: NAME,
    columns: &[
        member("machine", "/name"),
        member("hardware", "/hardware"),
        member("substrate", "/substrate"),
        member("devices", "/devices"),
        member("zone", "/zone"),
        member("state", "/state"),
        member("since", "/since"),
        member("reason", "/reason"),
    ],
    empty: "there is no machine",
    filters: &[ListFilter { name: "hardware", help: "Only machines of this hardware type" }, STATE],
    operations: &[operation(
        ResourceVerb::List,
        "List the machines that substrates run for the fleet, and the wishes for more",
    )],
    apply: NO_FILE,
    events: &[],
};

/// Jobs that have agents measure variants.
pub static PROFILE_JOBS: ResourceKind = ResourceKind {
    noun: "profile job",
    list: "/v1/profile-jobs",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("job", "/id"),
        member("pipeline", "/pipeline"),
        member("state", "/state"),
        entry("ready", |job| format!("{} of {}", job["progress"]["ready"], job["progress"]["total"])),
        member("created at", "/created_at"),
        member("reason", "/reason"),
        member("error", "/error"),
    ],
    empty: "there is no profile job",
    filters: &[PIPELINE, STATE],
    operations: &[
        operation(ResourceVerb::List, "List the profile jobs, the newest first"),
        operation(ResourceVerb::Get, "Print a profile job with what it measured"),
        operation(ResourceVerb::CancelKept, "Cancel a profile job. What it has put into the profile stays"),
        operation(ResourceVerb::Delete, "Delete a profile job. What it has put into the profile stays"),
        operation(ResourceVerb::Watch, "List the profile jobs, and then each change of one"),
    ],
    apply: NO_FILE,
    events: &["profile-job"],
};

/// The target in force and the former ones.
pub static TARGETS: ResourceKind = ResourceKind {
    noun: "target",
    list: "/v1/target/history",
    rest: None,
    key: "generation",
    key_help: KeyHelp { name: "GENERATION", text: "Its generation" },
    columns: &[
        member("target", "/generation"),
        member("committed at", "/committed_at"),
        entry("replicas", |target| count(target, "/placement/replicas")),
        entry("plans", |target| count(target, "/plans")),
        member("reason", "/reason"),
    ],
    empty: "nothing was deployed yet",
    filters: &[ListFilter { name: "plan", help: "Only those that had this plan" }],
    operations: &[
        operation(ResourceVerb::List, "List the targets so far, the newest first. It is the same as `history`"),
        operation(ResourceVerb::Get, "Print a former target, or the one in force"),
        operation(ResourceVerb::Watch, "List the targets so far, and then each new one"),
    ],
    apply: NO_FILE,
    events: &["target"],
};

/// Decisions of rounds of replanning.
pub static DECISIONS: ResourceKind = ResourceKind {
    noun: "decision",
    list: "/v1/decisions",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("made at", "/made_at"),
        member("pipeline", "/pipeline"),
        member("decision", "/decision"),
        member("demand q/s", "/demand_qps"),
        member("plan", "/plan"),
        member("reason", "/reason"),
    ],
    empty: "no round of replanning has decided yet",
    filters: &[PIPELINE, ListFilter { name: "decision", help: "Only those of this kind" }],
    operations: &[
        operation(ResourceVerb::List, "List the decisions of the rounds of replanning, the newest first"),
        operation(ResourceVerb::Watch, "List the decisions, and then each new one"),
    ],
    apply: NO_FILE,
    events: &["decision"],
};

/// Events.
pub static EVENTS: ResourceKind = ResourceKind {
    noun: "event",
    list: "/v1/events",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("event", "/id"),
        member("made at", "/made_at"),
        member("kind", "/kind"),
        member("pipeline", "/pipeline"),
        entry("detail", |event| shortened(&event["detail"].to_string())),
    ],
    empty: "nothing has happened yet",
    filters: &[ListFilter { name: "kind", help: "Only those of this kind" }, PIPELINE],
    operations: &[
        operation(ResourceVerb::List, "List what has happened, the newest first"),
        operation(ResourceVerb::Get, "Print an event"),
        operation(
            ResourceVerb::Follow,
            "Print each event when it happens. Lost connections are made again, and nothing is missed",
        ),
    ],
    apply: NO_FILE,
    events: &[],
};

/// Requests for changes.
pub static AUDIT: ResourceKind = ResourceKind {
    noun: "audited request",
    list: "/v1/audit",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("number", "/number"),
        member("made at", "/made_at"),
        member("who", "/who"),
        member("method", "/method"),
        member("path", "/path"),
        member("status", "/status"),
        member("why", "/why"),
    ],
    empty: "nobody has asked for a change yet",
    filters: &[WHO],
    operations: &[
        operation(ResourceVerb::List, "List the requests for changes: who, when, which, the status of the answer, and why"),
        operation(
            ResourceVerb::Follow,
            "Print each request for a change when it is answered. Lost connections are made again, and nothing is missed",
        ),
    ],
    apply: NO_FILE,
    events: &[],
};

/// Plans.
pub static PLANS: ResourceKind = ResourceKind {
    noun: "plan",
    list: "/v1/plans",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("plan", "/id"),
        member("state", "/state"),
        member("pipelines", "/pipelines"),
        member("asked at", "/created_at"),
        member("finished at", "/finished_at"),
        member("error", "/error"),
    ],
    empty: "the service has no plan",
    filters: &[PIPELINE, STATE, PROJECT],
    operations: &[
        operation(ResourceVerb::List, "List the plans of a service, the newest first"),
        operation(ResourceVerb::Get, "Print a plan of a service with its problem"),
        operation(ResourceVerb::Cancel, "Cancel a plan of a service that is not done yet"),
        operation(ResourceVerb::Stop, "Stop the search for a plan of a service, and keep the best plan so far"),
        operation(ResourceVerb::Watch, "List the plans of a service, and then each that is over"),
    ],
    apply: NO_FILE,
    events: &["plan"],
};

/// Tokens. `apportion token` has commands of its own.
pub static TOKENS: ResourceKind = ResourceKind {
    noun: "token",
    list: "/v1/tokens",
    rest: None,
    key: "id",
    key_help: ID,
    columns: &[
        member("token", "/id"),
        member("name", "/name"),
        member("scope", "/scope"),
        member_or("project", "/project", "all"),
        member("made by", "/created_by"),
        member("made at", "/created_at"),
        member("ends", "/expires_at"),
        member("revoked", "/revoked_at"),
    ],
    empty: "there is no token",
    filters: &[NAMED, PROJECT],
    operations: &[
        operation(ResourceVerb::List, "List the tokens, without their secrets"),
        operation(ResourceVerb::Get, "Print a token, without its secret"),
    ],
    apply: NO_FILE,
    events: &[],
};

/// Holds in force. `apportion hold` has commands of its own.
pub static HOLDS: ResourceKind = ResourceKind {
    noun: "hold",
    list: "/v1/holds",
    rest: None,
    key: "pipeline",
    key_help: NAME,
    columns: &[
        member_or("held", "/pipeline", "the fleet"),
        member_or("until", "/until", "it is released"),
        member("by", "/made_by"),
        member("reason", "/reason"),
    ],
    empty: "nothing is held",
    filters: &[ListFilter { name: "pipeline", help: "Only its own and that of the fleet" }, WHO],
    operations: &[
        operation(ResourceVerb::List, "List the holds in force"),
        operation(ResourceVerb::Watch, "List the holds in force, and then each change of them"),
    ],
    apply: NO_FILE,
    events: &["hold", "release"],
};

/// Longest text of a cell with free text, in characters.
const CELL_CHARS_MAX: usize = 120;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn count(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::rows::table;
    use serde_json::json;

    #[test]
    fn holds_are_listed_with_their_ends() {
        let hold = json!({"pipeline": null, "until": null, "made_by": "anna", "reason": "a launch"});
        let expected = "held       until           by    reason\nthe fleet  it is released  anna  a launch\n";
        assert_eq!(table(&HOLDS, &[hold]), expected);
    }

    #[test]
    fn targets_are_listed_with_their_counts() {
        let target = json!({
            "generation": 3, "committed_at": "2026-11-25T08:00:00Z", "reason": "applied", "plans": ["a", "b"],
            "placement": {"groups": [], "replicas": [{"id": 1}, {"id": 2}, {"id": 3}]},
        });
        assert_eq!(TARGETS.cells(&target), ["3", "2026-11-25T08:00:00Z", "3", "2", "applied"]);
    }

    #[test]
    fn a_long_cell_is_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(CELL_CHARS_MAX + 1)), format!("{}...", "é".repeat(CELL_CHARS_MAX)));
    }
}
