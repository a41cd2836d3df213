//! `apportion`: plans inference pipelines, checks the plans, and runs them.
//!
//! What belongs here: arguments, calls, tables for people, exit codes. What never does: planning, estimating, parsing of
//! file formats. The result of a command goes to stdout, everything else to stderr.
//!
//! The commonest addition is a command: one file with its `Args` and its `run`, and one line in [`commands`]. A resource of
//! the service is a row in [`resources::kinds`] instead.

mod access_args;
mod advise;
mod agent;
mod agent_security_args;
mod analysis;
mod args;
mod bench;
mod certificate_args;
mod changes;
mod check;
mod commands;
mod compare;
mod completions;
mod config;
mod context;
mod contexts;
mod demo;
mod deploy;
mod dev;
mod diff;
mod digest;
mod export;
mod frontier;
mod hold;
mod http_client;
mod import;
mod init;
mod judged;
mod live_agents;
mod machines;
mod manual;
mod plan;
mod profile;
mod prometheus_list;
mod refusal;
mod remote_job;
mod report;
mod reproduce;
mod resources;
mod restore;
mod retention_args;
mod scalers;
mod serve;
mod service;
mod settings_file;
mod simulate;
mod status;
mod target;
mod token;
mod trace;
mod traces_args;
mod variants;
mod workload;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Plans inference pipelines (variants, hardware, batch sizes, replicas), proves the plans, and carries them out.
#[derive(Parser, Debug)]
#[command(name = "apportion", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 something broke; 2 bad input; 3 the problem is infeasible; \
                          4 findings (check, init), or promises not kept (demo, status); 5 stopped without an answer.";

fn main() -> ExitCode {
    apportion_support::exit::exit_code(Cli::parse().command.run(Cli::command))
}
