//! How does `apportion man` write the manual pages?

use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit};
use clap::{Args, Command};
use std::path::PathBuf;

/// Arguments of `apportion man`.
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// The folder for the pages, `apportion.1` and one for each command. It is made if it is absent.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages.
///
/// # Errors
/// If the folder cannot be made or written.
pub fn run(args: &ManualArgs, program: Command) -> CommandResult {
    let place = || format!("writing {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(place)?;
    clap_mangen::generate_to(program, &args.folder).with_context(place)?;
    eprintln!("written: manual pages in {}", args.folder.display());
    Ok(Exit::Done)
}
