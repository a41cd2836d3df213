//! How does `apportion restore-finish` end the restore of a database from a backup?

use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `apportion restore-finish`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// PostgreSQL that was restored; without it, the private one in the data directory, whose service must be stopped.
    #[arg(long, env = "APPORTION_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The service's data directory.
    #[arg(long, default_value = ".data")]
    data_dir: PathBuf,
}

/// Gives the database a new incarnation.
#[allow(clippy::print_stdout)] // the command's result
pub fn run(args: &RestoreArgs) -> CommandResult {
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let finish = apportion_api::finish_restore(args.database_url.as_deref(), &args.data_dir);
    let restored = runtime.block_on(finish).context("the restored database was not made ready")?;
    println!(
        "incarnation {} becomes {}, generation {}: agents take targets from this database again",
        restored.before, restored.incarnation, restored.generation
    );
    Ok(Exit::Done)
}
