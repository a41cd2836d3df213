//! `apportion`: plans inference pipelines, proves the plans, and carries them out.
//!
//! What belongs here: arguments, reading and writing files, tables for people, exit codes. What never does: planning,
//! estimating, parsing of file formats. The result of a command goes to stdout, everything else to stderr.
//!
//! The commonest addition is a command: one file with its `Args` and its `run`, and one line in [`commands`].

mod agent;
mod args;
mod bench;
mod check;
mod commands;
mod compare;
mod demo;
mod diff;
mod exit;
mod explanation;
mod frontier;
mod frontier_plot;
mod input;
mod output;
mod plan;
mod profile;
mod reference;
mod reproduce;
mod requests;
mod restore;
mod scaling;
mod serve;
mod simulate;
mod trace;

use clap::Parser;
use std::process::ExitCode;

/// Plans inference pipelines (variants, hardware, batch sizes, replicas), proves the plans, and carries them out.
#[derive(Parser, Debug)]
#[command(name = "apportion", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 something broke; 2 bad input; 3 the problem is infeasible; \
                          4 findings (check), or promises not kept (demo); 5 stopped without an answer.";

fn main() -> ExitCode {
    exit::code(Cli::parse().command.run())
}
