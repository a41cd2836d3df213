//! How are decisions about the fleet carried out?
//!
//! What belongs here: reading facts, asking `decide`, writing rows and pushing targets. [`sessions`] has the streams of
//! agents, [`apply`] the one way to a new target, and [`leader`] the loop of the leader. What never does: the decisions,
//! calls of a solver (those are `jobs`), HTTP.

pub mod actuate;
pub mod advise;
pub mod agent_facts;
pub mod agent_records;
pub mod announce;
pub mod apply;
pub mod authorities;
pub mod connections;
mod deployment;
mod division;
pub mod drift;
pub mod figures;
pub mod heartbeats;
mod joint;
pub mod leader;
pub mod lease;
mod load_failures;
pub mod machines;
pub mod measuring;
mod messages;
pub mod model_files;
mod offer_facts;
mod on_demand;
mod pipeline_plan;
pub mod preview;
pub mod push;
pub mod replan;
mod replanned;
mod rescale;
pub mod retention;
pub mod round;
mod round_plans;
pub mod scalers;
pub mod sessions;
pub mod slot_backends;
pub mod sources;
mod teams;
pub mod times;
mod wanted;
pub mod webhooks;
