//! Which commands does a kind of resource have, and what do they run?

use super::apply::{ApplyRequest, apply};
use super::kind::{ListFilter, NamePlace, ResourceKind, ResourceName, ResourceOperation, ResourceVerb};
use super::rows::table;
use super::watch::{FollowRequest, WatchRequest, follow, watch};
use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output::OutputFormat;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use reqwest::Method;
use serde_json::Value;
use std::marker::PhantomData;

/// The identifier of the argument with a key.
const KEY: &str = "key";

/// The commands of the kind that `N` names.
#[derive(Debug)]
pub struct ResourceCommand<N> {
    request: ResourceRequest,
    kind: PhantomData<N>,
}

/// The request of a command line.
#[derive(Debug)]
struct ResourceRequest {
    /// The key of a resource, if the command is about one.
    key: Option<String>,
    /// The filters of a list.
    filters: Vec<FilterValue>,
    /// The rest, by operation.
    arguments: RequestArguments,
}

/// The value of a filter.
#[derive(Debug)]
struct FilterValue {
    name: &'static str,
    value: String,
}

/// The arguments that all kinds have, by operation.
#[derive(Debug)]
enum RequestArguments {
    List(ListRequest),
    Get(GetRequest),
    Apply(ApplyRequest),
    Delete(ServerArgs),
    Cancel(ServerArgs),
    CancelKept(ServerArgs),
    Stop(ServerArgs),
    Watch(WatchRequest),
    Follow(FollowRequest),
}

/// The arguments of `list`.
#[derive(Args, Debug)]
pub struct ListRequest {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The arguments of `get`.
#[derive(Args, Debug)]
struct GetRequest {
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value = "json")]
    format: OutputFormat,
}

impl<N: ResourceName> FromArgMatches for ResourceCommand<N> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing =
            || -> clap::Error { clap::Error::raw(ErrorKind::MissingSubcommand, "expected a command for the resource\n") };
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let kind = N::kind();
        let operation = kind.operations.iter().find(|operation| operation.verb.name() == name).ok_or_else(missing)?;
        Ok(Self { request: parse_request(kind, operation.verb, matches)?, kind: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<N: ResourceName> Subcommand for ResourceCommand<N> {
    fn augment_subcommands(command: Command) -> Command {
        let kind = N::kind();
        kind.operations.iter().fold(command, |command, operation| command.subcommand(subcommand(kind, operation)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        N::kind().operations.iter().any(|operation| operation.verb.name() == name)
    }
}

/// The command of one operation.
fn subcommand(kind: &'static ResourceKind, operation: &ResourceOperation) -> Command {
    let command = Command::new(operation.verb.name());
    let command = match operation.verb {
        ResourceVerb::List => with_filters(kind, ListRequest::augment_args(command)),
        ResourceVerb::Get => GetRequest::augment_args(with_key(kind, command)),
        ResourceVerb::Apply => ApplyRequest::augment_args(with_key(kind, command)),
        ResourceVerb::Delete | ResourceVerb::Cancel | ResourceVerb::CancelKept | ResourceVerb::Stop => {
            ServerArgs::augment_args(with_key(kind, command))
        }
        ResourceVerb::Watch => with_filters(kind, WatchRequest::augment_args(command)),
        ResourceVerb::Follow => with_filters(kind, FollowRequest::augment_args(command)),
    };
    command.about(operation.about)
}

fn with_key(kind: &'static ResourceKind, command: Command) -> Command {
    let may_be_in_file = command.get_name() == ResourceVerb::Apply.name() && kind.apply.name == NamePlace::ArgumentOrFile;
    let key = Arg::new(KEY).value_name(kind.key_help.name).required(!may_be_in_file);
    let help = if may_be_in_file {
        format!("{} [default: `name` of the file]", kind.key_help.text)
    } else {
        kind.key_help.text.to_owned()
    };
    command.arg(key.help(help))
}

fn with_filters(kind: &'static ResourceKind, command: Command) -> Command {
    let flag = |filter: &'static ListFilter| {
        Arg::new(filter.name).long(filter.name).value_name(filter.name.to_uppercase()).help(filter.help)
    };
    kind.filters.iter().fold(command, |command, filter| command.arg(flag(filter)))
}

fn parse_request(
    kind: &'static ResourceKind,
    verb: ResourceVerb,
    matches: &ArgMatches,
) -> Result<ResourceRequest, clap::Error> {
    let arguments = match verb {
        ResourceVerb::List => RequestArguments::List(ListRequest::from_arg_matches(matches)?),
        ResourceVerb::Get => RequestArguments::Get(GetRequest::from_arg_matches(matches)?),
        ResourceVerb::Apply => RequestArguments::Apply(ApplyRequest::from_arg_matches(matches)?),
        ResourceVerb::Delete => RequestArguments::Delete(ServerArgs::from_arg_matches(matches)?),
        ResourceVerb::Cancel => RequestArguments::Cancel(ServerArgs::from_arg_matches(matches)?),
        ResourceVerb::CancelKept => RequestArguments::CancelKept(ServerArgs::from_arg_matches(matches)?),
        ResourceVerb::Stop => RequestArguments::Stop(ServerArgs::from_arg_matches(matches)?),
        ResourceVerb::Watch => RequestArguments::Watch(WatchRequest::from_arg_matches(matches)?),
        ResourceVerb::Follow => RequestArguments::Follow(FollowRequest::from_arg_matches(matches)?),
    };
    // A command has a key or filters, never both; the other ones are unknown to it.
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let filters =
        kind.filters.iter().filter_map(|filter| Some(FilterValue { name: filter.name, value: text(filter.name)? }));
    Ok(ResourceRequest { key: text(KEY), filters: filters.collect(), arguments })
}

impl<N: ResourceName> ResourceCommand<N> {
    /// Runs the command.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub fn run(&self) -> CommandResult {
        let (kind, request) = (N::kind(), &self.request);
        let key = request.key.as_deref().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = request.filters.iter().map(|f| (f.name, f.value.as_str())).collect();
        match &request.arguments {
            RequestArguments::List(list) => list.run(kind, &parameters),
            RequestArguments::Get(get) => print_one(kind, key, get),
            RequestArguments::Apply(args) => apply(kind, request.key.as_deref(), args),
            RequestArguments::Delete(server) => end(kind, key, server, "deleted"),
            RequestArguments::Cancel(server) => end(kind, key, server, "cancelled"),
            RequestArguments::CancelKept(server) => post(kind, key, server, &CANCEL),
            RequestArguments::Stop(server) => post(kind, key, server, &STOP),
            RequestArguments::Watch(args) => watch(kind, &parameters, args),
            RequestArguments::Follow(args) => follow(kind, &parameters, args),
        }
    }
}

impl ListRequest {
    /// Prints the list of a kind with these parameters.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub fn run(&self, kind: &ResourceKind, parameters: &[(&str, &str)]) -> CommandResult {
        let client = ServiceClient::new(&self.server)?;
        let entries = converse(client.list(&client.with_query(kind.list, parameters), &self.list))?;
        self.format.print(&entries, || table(kind, entries.as_array().map_or(&[][..], Vec::as_slice)))?;
        Ok(Exit::Done)
    }
}

fn print_one(kind: &ResourceKind, key: &str, request: &GetRequest) -> CommandResult {
    let client = ServiceClient::new(&request.server)?;
    let found: Value = converse(client.get(&client.path(&kind.segments(key))))?;
    request.format.print(&found, || table(kind, std::slice::from_ref(&found)))?;
    Ok(Exit::Done)
}

/// Deletes or cancels a resource.
fn end(kind: &ResourceKind, key: &str, server: &ServerArgs, done: &str) -> CommandResult {
    let client = ServiceClient::new(server)?;
    let path = client.path(&kind.segments(key));
    converse(async {
        let answer = client.send(Method::DELETE, &path, &[], None).await?;
        client.accepted(&path, answer).map(drop)
    })?;
    eprintln!("{done}: {} {key}", kind.noun);
    Ok::<_, Failure>(Exit::Done)
}

/// An action on a resource that stays readable.
struct PostedAction {
    /// The last segment of its path.
    segment: &'static str,
    /// What the command says when it is done.
    done: &'static str,
}

const CANCEL: PostedAction = PostedAction { segment: "cancel", done: "cancelled" };
const STOP: PostedAction = PostedAction { segment: "stop", done: "stopped, with the best so far" };

/// Posts an action on a resource.
fn post(kind: &ResourceKind, key: &str, server: &ServerArgs, action: &PostedAction) -> CommandResult {
    let client = ServiceClient::new(server)?;
    let path = client.path(&kind.segments(key).into_iter().chain([action.segment]).collect::<Vec<_>>());
    converse(async {
        let answer = client.send(Method::POST, &path, &[], None).await?;
        client.accepted(&path, answer).map(drop)
    })?;
    eprintln!("{}: {} {key}", action.done, kind.noun);
    Ok::<_, Failure>(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::kinds::{
        AuditResource, EventResource, HoldResource, PipelineResource, PlanResource, ScheduleResource, TargetResource,
        TokenResource,
    };

    fn parsed<N: ResourceName>(words: &[&str]) -> Result<ResourceRequest, clap::Error> {
        let command = ResourceCommand::<N>::augment_subcommands(Command::new("resource"));
        let matches = command.try_get_matches_from([&["resource"][..], words].concat())?;
        Ok(ResourceCommand::<N>::from_arg_matches(&matches)?.request)
    }

    #[test]
    fn each_kind_has_its_own_operations() {
        assert!(ResourceCommand::<PipelineResource>::has_subcommand("apply"));
        assert!(!ResourceCommand::<EventResource>::has_subcommand("apply"));
        assert!(parsed::<EventResource>(&["delete", "1"]).is_err());
        assert!(parsed::<PlanResource>(&["cancel", "1"]).is_ok());
        let stop = parsed::<PlanResource>(&["stop", "1"]).expect("a plan has it");
        assert!(matches!(stop.arguments, RequestArguments::Stop(_)) && stop.key.as_deref() == Some("1"));
        assert!(parsed::<PipelineResource>(&["stop", "1"]).is_err());
        let watch = parsed::<AuditResource>(&["watch", "--who", "anna", "--since", "3"]).expect("the audit has it");
        assert!(matches!(watch.arguments, RequestArguments::Follow(_)) && watch.filters.len() == 1);
        ResourceCommand::<PlanResource>::augment_subcommands(Command::new("plan")).debug_assert();
        ResourceCommand::<EventResource>::augment_subcommands(Command::new("event")).debug_assert();
    }

    #[test]
    fn filters_are_flags_of_lists() {
        let request = parsed::<PlanResource>(&["list", "--pipeline", "photos", "--state", "solving"]).expect("a list");
        let filters: Vec<_> = request.filters.iter().map(|f| (f.name, f.value.as_str())).collect();
        assert_eq!(filters, [("pipeline", "photos"), ("state", "solving")]);
        assert!(parsed::<PlanResource>(&["get", "1", "--state", "solving"]).is_err());
    }

    #[test]
    fn lists_of_holds_tokens_and_targets_have_filters() {
        let filters = |request: ResourceRequest| -> Vec<(&'static str, String)> {
            request.filters.into_iter().map(|filter| (filter.name, filter.value)).collect()
        };
        let holds = parsed::<HoldResource>(&["list", "--who", "anna", "--pipeline", "photos"]).expect("a list");
        assert_eq!(filters(holds), [("pipeline", "photos".to_owned()), ("who", "anna".to_owned())]);
        let tokens = parsed::<TokenResource>(&["list", "--project", "shop"]).expect("a list");
        assert_eq!(filters(tokens), [("project", "shop".to_owned())]);
        let targets = parsed::<TargetResource>(&["list", "--plan", "1"]).expect("a list");
        assert_eq!(filters(targets), [("plan", "1".to_owned())]);
        ResourceCommand::<TokenResource>::augment_subcommands(Command::new("token")).debug_assert();
        ResourceCommand::<ScheduleResource>::augment_subcommands(Command::new("schedule")).debug_assert();
    }

    #[test]
    fn only_some_files_name_their_resource() {
        assert!(parsed::<PipelineResource>(&["apply", "-f", "p.yaml"]).expect("a file").key.is_none());
        assert_eq!(parsed::<PipelineResource>(&["apply", "p", "-f", "p.yaml"]).expect("a file").key.as_deref(), Some("p"));
        assert!(parsed::<ScheduleResource>(&["apply", "-f", "s.yaml"]).is_err());
    }
}
