//! How does `apportion config check` say what the settings of the service are, and where they come from?

use crate::serve::ServeArgs;
use crate::settings_file::{EffectiveSetting, SettingSource, SettledArgs, settle};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{OutputFormat, TextTable};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::ffi::OsString;

/// Words of the command line before the arguments of `apportion config check`.
const WORDS: usize = 3;

/// `apportion config`.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Check the settings of `apportion serve` without starting it. Say what each setting is, and where it comes from. It
    /// takes the flags and variables of `serve`.
    Check(CheckConfigArgs),
}

/// Arguments of `apportion config check`.
#[derive(Args, Debug)]
pub struct CheckConfigArgs {
    /// How the settings are printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Runs the command.
///
/// # Errors
/// If a setting is refused, or if a file that a setting names cannot be read.
pub fn run(command: ConfigCommand) -> CommandResult {
    let ConfigCommand::Check(given) = command;
    let words: Vec<OsString> = std::env::args_os().skip(WORDS).collect();
    let settled = settle::<CheckConfigArgs>(&words, given.serve.config_file())?;
    let SettledArgs { args: CheckConfigArgs { format, serve }, settings } = settled;
    serve.service_config()?;
    format.print(&documents(&settings), || table(&settings))?;
    Ok(Exit::Done)
}

/// The source of a setting in words.
fn source(setting: &EffectiveSetting) -> String {
    match &setting.source {
        SettingSource::Flag => "flag".to_owned(),
        SettingSource::Variable(name) => name.clone(),
        SettingSource::File => "file".to_owned(),
        SettingSource::Default => "default".to_owned(),
        SettingSource::Absent => "-".to_owned(),
    }
}

fn documents(settings: &[EffectiveSetting]) -> Vec<Value> {
    let document = |s: &EffectiveSetting| json!({"setting": s.name, "values": s.values, "source": source(s)});
    settings.iter().map(document).collect()
}

fn table(settings: &[EffectiveSetting]) -> String {
    let mut table = TextTable::new(&["setting", "value", "from"]);
    for setting in settings {
        let values = if setting.values.is_empty() { "-".to_owned() } else { setting.values.join(", ") };
        table.row(vec![setting.name.clone(), values, source(setting)]);
    }
    table.text("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_listed_with_their_sources() {
        let setting = |name: &str, values: &[&str], source| EffectiveSetting {
            name: name.to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
            source,
        };
        let settings = [
            setting("http", &["127.0.0.1:7070"], SettingSource::Default),
            setting("prometheus", &["http://a", "http://b"], SettingSource::Variable("APPORTION_PROMETHEUS".to_owned())),
            setting("token", &[], SettingSource::Absent),
        ];
        let expected = "\
setting     value               from
http        127.0.0.1:7070      default
prometheus  http://a, http://b  APPORTION_PROMETHEUS
token       -                   -
";
        assert_eq!(table(&settings), expected);
        assert_eq!(documents(&settings)[1]["values"], json!(["http://a", "http://b"]));
    }
}
