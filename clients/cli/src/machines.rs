//! Which substrates does the service ask for machines, by the arguments of `apportion serve`?

use apportion_api::SubstrateSettings;
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::{BadInput, parse_tree};
use clap::Args;

/// The arguments of the substrates.
#[derive(Args, Debug)]
pub struct MachinesArgs {
    /// File with the substrates that are asked for machines, JSON or YAML: child processes (`local`), Slurm's jobs
    /// (`slurm`) and Pods (`kubernetes`) [default: none is asked].
    #[arg(long, env = "APPORTION_MACHINES", value_name = "FILE")]
    machines: Option<String>,
}

impl MachinesArgs {
    /// The settings, if there is a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a value in it is refused.
    pub fn read(self) -> Result<Option<SubstrateSettings>, Failure> {
        let Some(file) = self.machines else { return Ok(None) };
        let tree = parse_tree(&file, &input::read_text(&file)?)?;
        let settings: SubstrateSettings =
            serde_json::from_value(tree).map_err(|e| BadInput::one(&file, "", e, "settings of substrates"))?;
        settings.check().map_err(|e| BadInput::one(&file, e.pointer, e.found, e.expected))?;
        Ok(Some(settings))
    }
}
