//! How does `apportion context` name services, so that commands find them?

use crate::args;
use crate::contexts::{ServiceContext, read_contexts, write_contexts};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output::{OutputFormat, TextTable};
use apportion_wire::BadInput;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Longest name of a context.
const NAME_CHARS_MAX: usize = 64;

/// `apportion context`.
#[derive(Subcommand, Debug)]
pub enum ContextCommand {
    /// List the contexts.
    List(ContextListArgs),
    /// Use a context from now on, where neither `--server` nor `--context` names another one.
    Use(ContextNameArgs),
    /// Make a context, or change it. Values that are left out stay.
    Set(ContextSetArgs),
    /// Delete a context. Files with tokens stay.
    Delete(ContextNameArgs),
}

/// Arguments of `apportion context list`.
#[derive(Args, Debug)]
pub struct ContextListArgs {
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of commands about one context.
#[derive(Args, Debug)]
pub struct ContextNameArgs {
    /// The context.
    name: String,
}

/// Arguments of `apportion context set`.
#[derive(Args, Debug)]
pub struct ContextSetArgs {
    /// The context: letters, digits, `-`, `_` and `.`.
    name: String,
    /// The service. A new context needs it.
    #[arg(long, value_name = "URL", value_parser = args::service_url)]
    server: Option<String>,
    /// File with the token that the service asks for.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// File with the authorities of the service's certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    cacert: Option<String>,
}

/// Runs the command.
pub fn run(command: &ContextCommand) -> CommandResult {
    match command {
        ContextCommand::List(args) => list(args)?,
        ContextCommand::Use(args) => use_context(&args.name)?,
        ContextCommand::Set(args) => set(args)?,
        ContextCommand::Delete(args) => delete(&args.name)?,
    }
    Ok(Exit::Done)
}

fn list(args: &ContextListArgs) -> Result<(), Failure> {
    let file = read_contexts()?;
    let entry = |(name, context): (&String, &ServiceContext)| {
        let is_in_use = file.current.as_ref() == Some(name);
        json!({"name": name, "server": context.server, "token_file": context.token_file, "cacert": context.cacert, "in_use": is_in_use})
    };
    let contexts: Vec<Value> = file.contexts.iter().map(entry).collect();
    args.format.print(&contexts, || table(&contexts))
}

fn table(contexts: &[Value]) -> String {
    let mut table = TextTable::new(&["context", "server", "token file", "in use"]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    for context in contexts {
        let in_use = if context["in_use"] == true { "yes" } else { "no" };
        table.row(vec![text(&context["name"]), text(&context["server"]), text(&context["token_file"]), in_use.to_owned()]);
    }
    if contexts.is_empty() { "there is no context\n".to_owned() } else { table.text("") }
}

fn use_context(name: &str) -> Result<(), Failure> {
    let mut file = read_contexts()?;
    let server = file.named("apportion context use", name)?.server.clone();
    file.current = Some(name.to_owned());
    write_contexts(&file)?;
    eprintln!("in use: context {name}, {server}");
    Ok(())
}

fn set(args: &ContextSetArgs) -> Result<(), Failure> {
    check_name(&args.name)?;
    let mut file = read_contexts()?;
    let before = file.contexts.get(&args.name);
    let server = args.server.clone().or_else(|| before.map(|context| context.server.clone()));
    let missing = || BadInput::one("--server", "", "nothing", "the URL of the service: the context is new");
    let server = server.ok_or_else(missing)?;
    let token_file = match &args.token_file {
        Some(token_file) => Some(absolute(token_file)?),
        None => before.and_then(|context| context.token_file.clone()),
    };
    let cacert = match &args.cacert {
        Some(cacert) => Some(absolute(cacert)?),
        None => before.and_then(|context| context.cacert.clone()),
    };
    let what = if before.is_some() { "changed" } else { "created" };
    file.contexts.insert(args.name.clone(), ServiceContext { server, token_file, cacert });
    write_contexts(&file)?;
    eprintln!("{what}: context {}", args.name);
    Ok(())
}

fn delete(name: &str) -> Result<(), Failure> {
    let mut file = read_contexts()?;
    file.named("apportion context delete", name)?;
    file.contexts.remove(name);
    if file.current.as_deref() == Some(name) {
        file.current = None;
    }
    write_contexts(&file)?;
    eprintln!("deleted: context {name}");
    Ok(())
}

fn check_name(name: &str) -> Result<(), BadInput> {
    let is_right = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(is_right) {
        true => Ok(()),
        false => {
            let expected = format!("1 to {NAME_CHARS_MAX} letters, digits, `-`, `_` or `.`");
            Err(BadInput::one("apportion context set", "", format!("the name {name:?}"), expected))
        }
    }
}

/// The path of a file that is there, so that the context holds in every folder.
fn absolute(file: &str) -> Result<String, Failure> {
    let found = |e: std::io::Error| BadInput::one("--token-file", file, format!("cannot be read ({e})"), "a file");
    Ok(std::fs::canonicalize(file).map_err(found)?.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_contexts_have_few_characters() {
        for name in ["production", "gpu-2.berlin_a"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "a/b", "a b", "é", &"a".repeat(NAME_CHARS_MAX + 1)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn contexts_are_listed_with_the_one_in_use() {
        let contexts = [json!({"name": "a", "server": "http://x", "token_file": null, "in_use": true})];
        assert_eq!(table(&contexts), "context  server    token file  in use\na        http://x           -  yes\n");
        assert_eq!(table(&[]), "there is no context\n");
    }
}
