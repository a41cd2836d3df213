//! Which commands are there?

use crate::resources::ResourceCommand;
use crate::resources::kinds::{
    AuditResource, DecisionResource, EventResource, FileResource, HardwareResource, MachineResource, PipelineResource,
    ProfileJobResource, ProjectResource, ScheduleResource, WebhookResource,
};
use crate::{
    advise, agent, bench, check, compare, completions, config, context, demo, deploy, dev, diff, export, frontier, hold,
    import, init, manual, plan, profile, report, reproduce, restore, serve, simulate, status, target, token, trace,
    variants,
};
use apportion_support::exit::CommandResult;
use clap::Subcommand;

/// One command line.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Write a pipeline file from ONNX files, and name what will not work.
    Init(init::InitArgs),
    /// Make variants of an ONNX file: other precisions, threads and providers.
    Variants(variants::VariantsArgs),
    /// Find a plan for a problem. Or make, list, explain and compare plans of a running service.
    Plan(plan::PlanArgs),
    /// Say which replicas a fleet should have for its present load, without touching it.
    Advise(advise::AdviseArgs),
    /// Check a plan against its problem and list the findings.
    Check(check::CheckArgs),
    /// Replay a trace through a plan.
    Simulate(simulate::SimulateArgs),
    /// List the changes between two plans.
    Diff(diff::DiffArgs),
    /// Show how cost, accuracy and replicas change with the demand, the SLO, the budget or the number of devices.
    Frontier(frontier::FrontierArgs),
    /// Run planners side by side on a trace.
    Compare(compare::CompareArgs),
    /// Write a plan, a simulation, a comparison or a frontier as one HTML file that needs no network.
    Report(report::ReportArgs),
    /// Make or inspect traces. Or upload, list and delete those of a running service.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Read reports and traces of other tools.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Write a plan as files of Kubernetes, Triton, Slurm, Ray Serve or Docker Compose.
    Export(export::ExportArgs),
    /// Measure a pipeline's variants on this machine, or on the agents of a running service. Or read and write the
    /// measurements of a service.
    Profile(profile::ProfileArgs),
    /// List, watch and cancel the jobs that have agents measure variants.
    #[command(subcommand)]
    ProfileJob(ResourceCommand<ProfileJobResource>),
    /// Measure the peak memory of one variant, for `profile`.
    #[command(name = profile::MEMORY_COMMAND, hide = true)]
    ProfileMemory(profile::MemoryArgs),
    /// Plan a registered pipeline and deploy it beside the others, with a running service.
    Deploy(deploy::DeployArgs),
    /// Say what runs, and whether it keeps its promise.
    Status(status::StatusArgs),
    /// Show, compare, replace or roll back what the fleet serves.
    #[command(subcommand)]
    Target(target::TargetCommand),
    /// Keep rounds of replanning from deploying.
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    /// List the machines that substrates run for the fleet, and the wishes for more.
    #[command(subcommand)]
    Machine(ResourceCommand<MachineResource>),
    /// List, register and delete the pipelines of a running service.
    #[command(subcommand)]
    Pipeline(ResourceCommand<PipelineResource>),
    /// List and delete the model files of a running service.
    #[command(subcommand)]
    File(ResourceCommand<FileResource>),
    /// List, register and delete the hardware types of a running service.
    #[command(subcommand)]
    Hardware(ResourceCommand<HardwareResource>),
    /// List, write and delete the projects of a running service: their quotas, and which of them have devices first.
    #[command(subcommand)]
    Project(ResourceCommand<ProjectResource>),
    /// Plan again, or hold, at given times.
    #[command(subcommand)]
    Schedule(ResourceCommand<ScheduleResource>),
    /// Say why each round of replanning deployed a plan or kept the one in force.
    #[command(subcommand)]
    Decision(ResourceCommand<DecisionResource>),
    /// Show what happens in a running service.
    #[command(subcommand)]
    Event(ResourceCommand<EventResource>),
    /// Show who has changed something in a running service.
    #[command(subcommand)]
    Audit(ResourceCommand<AuditResource>),
    /// Post the events of the service to a chat or another program.
    #[command(subcommand)]
    Webhook(ResourceCommand<WebhookResource>),
    /// Make, list or revoke the tokens of the service.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Name services, so that commands find them.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Run the service.
    Serve(serve::ServeArgs),
    /// Check the settings of the service.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Finish the restore of a database from a backup: agents take targets from it again.
    RestoreFinish(restore::RestoreArgs),
    /// Run an agent: passes its arguments on to `apportion-agent`. Or list the agents of a running service.
    Agent(agent::AgentArgs),
    /// Run the main job on this machine: the service, agents, real variants, and a load that doubles and falls back.
    Demo(demo::DemoArgs),
    /// Measure how fast the parts are, and run the papers' comparisons again.
    #[command(subcommand)]
    Dev(dev::DevCommand),
    /// `dev bench`, by its short name.
    #[command(subcommand, hide = true)]
    Bench(bench::BenchCommand),
    /// `dev reproduce`, by its short name.
    #[command(hide = true)]
    Reproduce(reproduce::ReproduceArgs),
    /// Print the completions of a shell.
    Completions(completions::CompletionsArgs),
    /// Write the manual pages into a folder.
    Man(manual::ManualArgs),
}

impl Command {
    /// Runs the command. `program` describes all commands.
    pub fn run(self, program: fn() -> clap::Command) -> CommandResult {
        match self {
            Self::Init(args) => init::run(&args),
            Self::Variants(args) => variants::run(&args),
            Self::Plan(args) => plan::run(&args),
            Self::Advise(args) => advise::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Simulate(args) => simulate::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Frontier(args) => frontier::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Trace(command) => trace::run(&command),
            Self::Import(command) => import::run(&command),
            Self::Export(args) => export::run(&args),
            Self::Profile(args) => profile::run(&args),
            Self::ProfileJob(command) => command.run(),
            Self::ProfileMemory(args) => profile::run_memory(&args),
            Self::Deploy(args) => deploy::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Target(command) => target::run(&command),
            Self::Hold(command) => hold::run(&command),
            Self::Machine(command) => command.run(),
            Self::Pipeline(command) => command.run(),
            Self::File(command) => command.run(),
            Self::Hardware(command) => command.run(),
            Self::Project(command) => command.run(),
            Self::Schedule(command) => command.run(),
            Self::Decision(command) => command.run(),
            Self::Event(command) => command.run(),
            Self::Audit(command) => command.run(),
            Self::Webhook(command) => command.run(),
            Self::Token(command) => token::run(&command),
            Self::Context(command) => context::run(&command),
            Self::Serve(args) => serve::run(args),
            Self::Config(command) => config::run(command),
            Self::RestoreFinish(args) => restore::run(&args),
            Self::Agent(args) => agent::run(&args),
            Self::Demo(args) => demo::run(args),
            Self::Dev(command) => dev::run(command),
            Self::Bench(command) => bench::run(command),
            Self::Reproduce(args) => reproduce::run(args),
            Self::Completions(args) => completions::run(&args, program()),
            Self::Man(args) => manual::run(&args, program()),
        }
    }
}
