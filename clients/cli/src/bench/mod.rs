//! `apportion bench`: the speed of a part, printed as figures.

mod estimator;
mod scaling;
pub mod serving;
mod solver;

use crate::exit::{Exit, Outcome};
use crate::output::number;
use apportion_planning::bench::cluster;
use clap::Subcommand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Solving each problem file at 20 demand levels from 10 to 115 % of the largest demand that can be served; the first of
    /// them on clusters of other sizes; many of their pipelines on one cluster; and scaling problems as they stand, beside 20
    /// generated ones of 100 applications with 8 variants.
    Solver {
        /// Problem files of one pipeline, or scaling problems.
        problems: Vec<String>,
        /// Sizes of the cluster that the first problem is also solved on.
        #[arg(long, value_delimiter = ',', default_value = "20,1000")]
        sizes: Vec<u32>,
        /// Pipelines that share one cluster; 0 leaves this out.
        #[arg(long, default_value_t = cluster::PIPELINES)]
        pipelines: usize,
        /// Devices of that cluster.
        #[arg(long, default_value_t = cluster::DEVICES)]
        devices: u32,
        /// Seed of the demands and weights of these pipelines.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The estimator: task visits per second of processor time.
    Estimator {
        /// Simulated seconds.
        #[arg(long, default_value_t = apportion_estimator::bench::SECONDS)]
        seconds: u64,
    },
    /// The decisions of the serving policies: routing tables for 1,000 workers, and choosing a variant among 175, with its regret against
    /// an all-knowing choice.
    Serving,
    /// Real variants on this machine under loads from light to twice what was planned for, beside the interval in which the estimator
    /// expects them.
    Fidelity(crate::demo::fidelity::FidelityArgs),
    /// A new target for a large fleet: how soon every agent has acknowledged it.
    Push(crate::demo::push::PushArgs),
    /// Two agents on this machine with variants that take no time: what a hop adds, large tensors, requests per second at the
    /// ingress, each beside the plainest way to do the same.
    #[command(disable_help_flag = true)]
    Agent(crate::agent::AgentArgs),
}

/// Runs the command.
pub fn run(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Solver { problems, sizes, pipelines, devices, seed } => {
            solver::run(problems, sizes, &solver::Cluster { pipelines: *pipelines, devices: *devices, seed: *seed })?;
        }
        BenchCommand::Estimator { seconds } => estimator::run(*seconds)?,
        BenchCommand::Serving => serving::run()?,
        BenchCommand::Fidelity(args) => return crate::demo::fidelity::run(args),
        BenchCommand::Push(args) => return crate::demo::push::run(args),
        BenchCommand::Agent(args) => return crate::agent::measure(args),
    }
    Ok(Exit::Done)
}

fn clock() -> Arc<dyn Fn() -> Duration + Send + Sync> {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

fn milliseconds(time: Duration) -> String {
    number(time.as_secs_f64() * 1e3)
}
