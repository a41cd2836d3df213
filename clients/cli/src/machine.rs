//! How does `apportion machine` say which machines the service has asked for?

use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{self, OutputFormat, TextTable};
use clap::{Args, Subcommand};
use serde_json::Value;

/// `apportion machine`.
#[derive(Subcommand, Debug)]
pub enum MachineCommand {
    /// List the machines that substrates run for the fleet, and the wishes for more.
    List(MachineListArgs),
}

/// Arguments of `apportion machine list`.
#[derive(Args, Debug)]
pub struct MachineListArgs {
    /// Only machines of this hardware type.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    /// Only machines in this state [default: all, with those that have ended in the last 30 days].
    #[arg(long, value_parser = ["coming", "alive", "cordoned", "ending", "ended"])]
    state: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(command: &MachineCommand) -> CommandResult {
    match command {
        MachineCommand::List(args) => list(args),
    }
}

fn list(args: &MachineListArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let asked = [("hardware", args.hardware.as_deref()), ("state", args.state.as_deref())];
    let filters: Vec<(&str, &str)> = asked.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let machines = converse(client.list_filtered("/v1/machines", &filters, &args.list))?;
    let text = match args.format {
        OutputFormat::Json => output::json(&machines)?,
        OutputFormat::Table => table(&machines),
    };
    output::print(&text)?;
    Ok(Exit::Done)
}

fn table(machines: &Value) -> String {
    let mut table = TextTable::new(&["machine", "hardware", "substrate", "devices", "state", "since", "reason"]);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for machine in machines.as_array().into_iter().flatten() {
        let keys = ["name", "hardware", "substrate", "devices", "state", "since", "reason"];
        table.row(keys.iter().map(|key| text(&machine[*key])).collect());
    }
    if table.rows().len() == 1 { "there is no machine\n".to_owned() } else { table.text("") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn machines_are_listed_with_their_reasons() {
        let since = "2026-11-25T07:30:00Z";
        let alive = json!({
            "name": "apportion.t4.0c9f", "hardware": "t4", "substrate": "slurm", "devices": 2, "state": "alive",
            "since": since, "reason": "it came after 7.0 s",
        });
        let wish = json!({
            "name": "apportion.a100.17", "hardware": "a100", "substrate": "kubernetes", "devices": 1, "state": "coming",
            "since": since, "reason": "wanted",
        });
        let expected = "\
machine            hardware  substrate   devices  state   since                 reason
apportion.t4.0c9f  t4        slurm             2  alive   2026-11-25T07:30:00Z  it came after 7.0 s
apportion.a100.17  a100      kubernetes        1  coming  2026-11-25T07:30:00Z  wanted
";
        assert_eq!(table(&json!([alive, wish])), expected);
        assert_eq!(table(&json!([])), "there is no machine\n");
    }
}
