//! Which benchmarks does `apportion dev bench` run?

use crate::agent::{self, PassedArgs};
use crate::args;
use crate::demo::FleetArgs;
use apportion_experiments::bench::fidelity::FidelitySettings;
use apportion_experiments::bench::fleet::FleetBenchSettings;
use apportion_experiments::bench::heuristics::HeuristicsSettings;
use apportion_experiments::bench::promises::PromiseSettings;
use apportion_experiments::bench::push::PushSettings;
use apportion_experiments::bench::selector::SelectorBenchSettings;
use apportion_experiments::bench::store::{self, StoreSettings, StoreSize};
use apportion_experiments::bench::{estimator, fidelity, fleet, heuristics, promises, push, selector, serving, solver};
use apportion_experiments::hpa::load::HpaRunLength;
use apportion_experiments::hpa::{self, HpaBenchSettings};
use apportion_experiments::live::fleet::FleetBackend;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::OutputFormat;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// The measured part.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Times of the exact planner. Each problem file is solved under both latency rules at 20 demand levels, from 10 to
    /// 115 % of the largest demand that can be served. The first file is also solved on clusters of other sizes, and many
    /// pipelines on one cluster. Scaling problems are solved as they stand, beside 20 generated ones of 100 applications
    /// with 8 variants.
    Solver {
        /// Problem files of one pipeline, or scaling problems.
        problems: Vec<String>,
        /// Sizes of the cluster that the first problem is also solved on.
        #[arg(long, value_delimiter = ',', default_value = "20,1000")]
        sizes: Vec<u32>,
        /// Pipelines that share one cluster; 0 leaves this out.
        #[arg(long, default_value_t = solver::PIPELINES)]
        pipelines: usize,
        /// Devices of that cluster.
        #[arg(long, default_value_t = solver::DEVICES)]
        devices: u32,
        /// Seed of the demands and weights of these pipelines.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A whole fleet of four types of device, drawn from a seed, in six questions: time, value and proven gap.
    Fleet {
        /// Pipelines of the fleet.
        #[arg(long, default_value_t = fleet::PIPELINES)]
        pipelines: usize,
        /// Its devices.
        #[arg(long, default_value_t = fleet::DEVICES)]
        devices: u32,
        /// Seed of the first fleet.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Fleets of each kind.
        #[arg(long, default_value_t = 1)]
        fleets: u32,
        /// Limit of each search.
        #[arg(long, default_value = "1s", value_parser = args::duration)]
        limit: Duration,
    },
    /// The heuristic planner beside the exact one on drawn chains, trees and DAGs: how often it is optimal, its worst gap,
    /// its time.
    Heuristics {
        /// Problems to draw.
        #[arg(long, default_value_t = 1_000)]
        problems: u32,
        /// Seed of the first one.
        #[arg(long, default_value_t = 10_000)]
        seed: u64,
    },
    /// The estimator: task visits per second of processor time.
    Estimator {
        /// Simulated seconds.
        #[arg(long, default_value_t = estimator::SECONDS)]
        seconds: u64,
    },
    /// The decisions of the serving policies: routing tables for 1,000 workers, and choosing a variant among 175, with its
    /// regret against an all-knowing choice.
    Serving,
    /// The choice of a variant among 175 on many workers: its time where variants are active, overloaded or not loaded, and
    /// how far it is from the best choice, which looks at every replica's true queue.
    Selector {
        /// Workers with four replicas each.
        #[arg(long, default_value_t = selector::WORKERS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        workers: u32,
        /// Choices of each case.
        #[arg(long, default_value_t = selector::CHOICES, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        choices: u32,
        /// Simulated seconds of the comparison with the best choice.
        #[arg(long, default_value_t = selector::SECONDS, value_parser = clap::value_parser!(u32).range(1..=3_600))]
        seconds: u32,
    },
    /// Kubernetes' real autoscaler beside our service, on the same emulated replicas and load: cost and attainment of both,
    /// and the autoscaler's decisions beside those of our model of it. It takes 17 minutes.
    Hpa(HpaArgs),
    /// Agents on this machine under ten loads from light to twice the planned demand, beside the estimator's interval. They
    /// run real variants, or play their profile back (`--emulated`). Before the first load the times of a hop and of an
    /// ingress are measured. Further tables say of what the differences are made.
    Fidelity(FidelityArgs),
    /// Promises that plans hold, each tested on further fresh samples. Pipelines and loads are drawn.
    Promises {
        /// Promises to make.
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        promises: u32,
        /// Further samples that test each of them.
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        samples: u32,
        /// Seconds of a sample.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=3_600))]
        seconds: u32,
        /// Mean demand of the pipelines in queries per second.
        #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        demand_qps: u32,
        /// Seed of pipelines and loads.
        #[arg(long, default_value_t = 1_000)]
        seed: u64,
    },
    /// A new target for a large fleet: the time until every agent has acknowledged it.
    Push(PushArgs),
    /// Lists and single resources of a service with many rows, which SQL writes into its private database: the time of each
    /// request, beside the aim of 50 ms, and the sizes of tables and indexes.
    Store(StoreArgs),
    /// Two agents on this machine with variants that take no time: the cost of a hop, large tensors, and requests per
    /// second at the ingress. Beside each stands the simplest program that does the same.
    #[command(disable_help_flag = true)]
    Agent(PassedArgs),
}

/// Arguments of `apportion dev bench fidelity`.
#[derive(Args, Debug)]
pub struct FidelityArgs {
    #[command(flatten)]
    fleet: FleetArgs,
    /// Agents play the profile back and compute nothing, so that no load contends for processors. The profile is measured
    /// on this machine all the same.
    #[arg(long)]
    emulated: bool,
    /// Seconds of each run.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Seconds without load before each run. The estimator has the same. After ten of them a steward has forgotten the run
    /// before.
    #[arg(long, default_value_t = fidelity::IDLE_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    idle: u64,
    /// Runs of each load. A figure is inside the estimate if it is so in more than half of them.
    #[arg(
        long,
        default_value_t = fidelity::LOAD_RUNS,
        value_parser = clap::value_parser!(u64).range(1..=fidelity::LOAD_RUNS_MAX)
    )]
    runs: u64,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `table` for people, `json` for programs.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion dev bench hpa`.
#[derive(Args, Debug)]
pub struct HpaArgs {
    /// A program that starts a control plane of Kubernetes (`start DIR` prints a kubeconfig, `stop DIR` ends it), or the
    /// folder with such a program called `control-plane`. `kubectl` and `openssl` must be on the PATH.
    #[arg(long)]
    control_plane: PathBuf,
    /// A load of 3 minutes, and an autoscaler with shorter periods than Kubernetes' defaults: for tests.
    #[arg(long)]
    quick: bool,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `table` for people, `json` for programs.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion dev bench push`.
#[derive(Args, Debug)]
pub struct PushArgs {
    /// Agents, with one device each.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    agents: u32,
    /// Targets to push.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pushes: u32,
}

/// Arguments of `apportion dev bench store`.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Pipelines, each with a profile.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pipelines: u32,
    /// Plans. There are a tenth as many decisions, events and entries of the audit, and a hundredth as many simulations and
    /// former targets.
    #[arg(
        long,
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1_000..=i64::from(store::PLANS_MAX))
    )]
    plans: u32,
    /// Agents that have left.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    agents: u32,
    /// Entries of a page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    page: u32,
    /// Requests of each kind.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// `table` for people, `json` for programs.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(command: BenchCommand) -> CommandResult {
    match command {
        BenchCommand::Solver { problems, sizes, pipelines, devices, seed } => {
            solver::run(&problems, &sizes, &solver::Cluster { pipelines, devices, seed })?;
        }
        BenchCommand::Fleet { pipelines, devices, seed, fleets, limit } => {
            fleet::run(&FleetBenchSettings { pipelines, devices, seed, fleets, limit })?;
        }
        BenchCommand::Heuristics { problems, seed } => heuristics::run(&HeuristicsSettings { problems, seed })?,
        BenchCommand::Estimator { seconds } => estimator::run(seconds)?,
        BenchCommand::Serving => serving::run()?,
        BenchCommand::Selector { workers, choices, seconds } => {
            selector::run(&SelectorBenchSettings { workers, choices, seconds })?;
        }
        BenchCommand::Promises { promises: count, samples, seconds, demand_qps, seed } => {
            promises::run(&PromiseSettings {
                promises: count as usize,
                samples: samples.into(),
                seconds: seconds.into(),
                demand_qps: demand_qps.into(),
                seed,
            })?
        }
        BenchCommand::Fidelity(FidelityArgs { fleet, emulated, seconds, idle, runs, seed, format }) => {
            let backend = if emulated { FleetBackend::Emulated } else { FleetBackend::Onnx };
            let (fleet, idle) = (fleet.settings()?, Duration::from_secs(idle));
            fidelity::run(&FidelitySettings { fleet, backend, seconds, idle, runs, seed, format })?;
        }
        BenchCommand::Hpa(HpaArgs { control_plane, quick, seed, format }) => {
            let length = if quick { HpaRunLength::Quick } else { HpaRunLength::Full };
            hpa::run(&HpaBenchSettings { control_plane, length, seed, format })?;
        }
        BenchCommand::Push(PushArgs { agents, pushes }) => push::run(&PushSettings { agents, pushes })?,
        BenchCommand::Store(StoreArgs { pipelines, plans, agents, page, requests, format }) => {
            let size = StoreSize { pipelines, plans, agents };
            store::run(&StoreSettings { size, page, requests, format })?;
        }
        BenchCommand::Agent(args) => return agent::measure(&args),
    }
    Ok(Exit::Done)
}
