//! How do the settings of a file reach a command, below its flags and its variables?
//!
//! Example: the file `http: 0.0.0.0:7070` is as if the flag `--http` had this default. So the flag and its variable win
//! over the file, and the file wins over the built-in default.

use anyhow::Context;
use apportion_domain::Invalid;
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::bad_input::near_named;
use apportion_wire::{BadInput, parse_tree};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Arguments that say something about the command and are no settings: no file has them.
const NO_SETTINGS: [&str; 2] = ["config", "format"];
/// The text in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// From a flag.
    Flag,
    /// From this variable of the environment.
    Variable(String),
    /// From the file.
    File,
    /// It is built in.
    Default,
    /// It has none.
    Absent,
}

/// A setting of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Its name: the flag without dashes, with `_`.
    pub name: String,
    /// Its values for people. A secret is hidden.
    pub values: Vec<String>,
    /// Where they come from.
    pub source: SettingSource,
}

/// The arguments of a command with the settings of a file.
pub struct SettledArgs<A> {
    /// The arguments.
    pub args: A,
    /// All settings, in the order of the help text.
    pub settings: Vec<EffectiveSetting>,
}

/// Parses the words of a command line again, with the settings of a file as defaults.
///
/// # Errors
/// If the file cannot be read, has an unknown key, or has a value that its flag does not take.
pub fn settle<A: Args>(words: &[OsString], file: Option<&str>) -> Result<SettledArgs<A>, Failure> {
    let mut command = A::augment_args(Command::new("settings").no_binary_name(true));
    let mut keys = BTreeSet::new();
    if let Some(file) = file {
        let tree = parse_tree(file, &input::read_text(file)?)?;
        command = with_defaults(command, file, &tree)?;
        keys.extend(tree.as_object().into_iter().flat_map(|object| object.keys().cloned()));
    }
    let refused = |error: clap::Error| Failure::BadInput(reason(&error));
    let matches = command.clone().try_get_matches_from(words).map_err(refused)?;
    let args = A::from_arg_matches(&matches).context("reading the arguments again")?;
    let shown = command.get_arguments().filter(|arg| is_setting(arg));
    let settings = shown.map(|arg| setting(arg, &matches, &keys)).collect();
    Ok(SettledArgs { args, settings })
}

fn is_setting(arg: &Arg) -> bool {
    !NO_SETTINGS.contains(&arg.get_id().as_str())
}

fn setting(arg: &Arg, matches: &ArgMatches, keys: &BTreeSet<String>) -> EffectiveSetting {
    let name = arg.get_id().as_str();
    let raw = matches.get_raw(name).into_iter().flatten();
    // Values that the help text hides are secrets.
    let shown = |value: &std::ffi::OsStr| match arg.is_hide_env_values_set() {
        true => HIDDEN.to_owned(),
        false => value.to_string_lossy().into_owned(),
    };
    let variable = || arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let source = match matches.value_source(name) {
        None => SettingSource::Absent,
        Some(ValueSource::CommandLine) => SettingSource::Flag,
        Some(ValueSource::EnvVariable) => SettingSource::Variable(variable()),
        Some(_) if keys.contains(name) => SettingSource::File,
        Some(_) => SettingSource::Default,
    };
    EffectiveSetting { name: name.to_owned(), values: raw.map(shown).collect(), source }
}

/// The command with the values of the file as defaults.
fn with_defaults(mut command: Command, file: &str, tree: &Value) -> Result<Command, BadInput> {
    let Some(object) = tree.as_object() else {
        return Err(BadInput::one(file, "", "no object", "settings by name, for example `http: 0.0.0.0:7070`"));
    };
    let plain = command.clone();
    let mut problems = Vec::new();
    for (key, value) in object {
        let arg = plain.get_arguments().find(|arg| arg.get_id().as_str() == key && is_setting(arg));
        match arg.map(|arg| default_texts(&plain, arg, value)) {
            Some(Ok(texts)) => command = command.mut_arg(key, |arg| arg.default_values(texts)),
            Some(Err(SettingRefusal { found, expected })) => {
                problems.push(Invalid::new(format!("/{key}"), found, expected))
            }
            None => {
                let known = plain.get_arguments().filter(|arg| is_setting(arg)).map(|arg| arg.get_id().as_str());
                let known: Vec<&str> = known.collect();
                let expected = near_named("key", key, known.iter().copied());
                problems.push(Invalid::new(format!("/{key}"), format!("unknown key {key:?}"), expected));
            }
        }
    }
    if problems.is_empty() { Ok(command) } else { Err(BadInput { file: file.to_owned(), problems }) }
}

/// Why a value of a file is refused.
struct SettingRefusal {
    found: String,
    expected: String,
}

/// The values of a key as texts that its flag takes.
fn default_texts(command: &Command, arg: &Arg, value: &Value) -> Result<Vec<String>, SettingRefusal> {
    let flag = format!("--{}", arg.get_long().unwrap_or_default());
    let refused = |expected: String| {
        let found = if arg.is_hide_env_values_set() { HIDDEN.to_owned() } else { value.to_string() };
        SettingRefusal { found, expected }
    };
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is = value.as_bool().ok_or_else(|| refused(format!("true or false, as {flag} has no value")))?;
        return Ok(vec![is.to_string()]);
    }
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    let texts = match value {
        Value::Array(items) if is_list => items.iter().map(scalar).collect(),
        one => scalar(one).map(|text| vec![text]),
    };
    let form = if is_list { "a text, or a list of texts" } else { "a text or a number" };
    let texts: Vec<String> = texts.ok_or_else(|| refused(form.to_owned()))?;
    for text in &texts {
        let tried = command.clone().try_get_matches_from([format!("{flag}={text}")]);
        tried.map_err(|error| refused(format!("a value that {flag} takes: {}", reason(&error))))?;
    }
    Ok(texts)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The reason in an error of the command line, on one line.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Arguments of each form that `apportion serve` has.
    #[derive(Args, Debug)]
    struct ExampleArgs {
        #[arg(long)]
        config: Option<String>,
        #[arg(long, default_value = "127.0.0.1:7070")]
        http: std::net::SocketAddr,
        #[arg(long)]
        server: Vec<String>,
        #[arg(long)]
        require_token: bool,
        #[arg(long, hide_env_values = true)]
        token: Option<String>,
        #[arg(long, default_value_t = 10)]
        burst: u32,
    }

    fn settled(words: &[&str], text: &str) -> Result<SettledArgs<ExampleArgs>, Failure> {
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("room");
        let path = file.path().display().to_string();
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        settle(&words, Some(&path))
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_defaults() {
        let text = "http: 0.0.0.0:80\nserver: [a, b]\nrequire_token: true\nburst: 5\n";
        let SettledArgs { args, settings } = settled(&["--burst", "7"], text).expect("right settings");
        assert_eq!((args.http.to_string().as_str(), args.burst, args.require_token), ("0.0.0.0:80", 7, true));
        assert_eq!((args.server, args.token, args.config), (vec!["a".to_owned(), "b".to_owned()], None, None));
        let source = |name: &str| settings.iter().find(|s| s.name == name).map(|s| s.source.clone());
        assert_eq!(source("http"), Some(SettingSource::File));
        assert_eq!(source("burst"), Some(SettingSource::Flag));
        assert_eq!(source("token"), Some(SettingSource::Absent));
        assert_eq!(source("config"), None, "it is no setting");
        let again = settled(&["--server", "c"], text).expect("right settings");
        assert_eq!(again.args.server, ["c"], "a list is replaced as a whole");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let settings = settled(&[], "token: very-secret").expect("right settings").settings;
        let token = settings.iter().find(|s| s.name == "token").expect("the setting");
        assert_eq!((&token.values[..], &token.source), (&["(hidden)".to_owned()][..], &SettingSource::File));
    }

    #[test]
    fn wrong_settings_are_refused_at_their_places() {
        let refused = |text: &str| settled(&[], text).err().expect("it is wrong").to_string();
        assert!(refused("htp: x").contains(".yaml: /htp: unknown key \"htp\": expected the key \"http\""));
        let http = refused("http: nowhere");
        assert!(http.contains(".yaml: /http: \"nowhere\": expected a value that --http takes: invalid value"), "{http}");
        assert!(refused("require_token: 1").contains("/require_token: 1: expected true or false"));
        assert!(refused("burst: [1]").contains("/burst: [1]: expected a text or a number"));
        assert!(refused("config: other.yaml").contains("/config: unknown key"));
        assert!(refused("[]").contains("expected settings by name"));
        let two = refused("burst: x\nhttp: y");
        assert_eq!(two.lines().count(), 2, "all at once: {two}");
    }
}
