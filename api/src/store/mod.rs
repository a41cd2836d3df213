//! Which rows are in PostgreSQL, and which queries read and write them?
//!
//! What belongs here: private row types, and plain functions on a connection or transaction. What never does: business
//! rules, the clock (moments are arguments), the inner shape of JSON columns.
//!
//! A missing row is `Ok(None)`. A write that must hit a row returns whether it did. A function that is part of a larger
//! change takes `&mut PgConnection`, so that its caller's transaction decides.
//!
//! A list for clients takes the key of a row and begins after it, in the order of an index. Its statement is not kept
//! (`persistent(false)`): PostgreSQL plans it with its values, so that a filter that is absent does not hide the index.

pub mod advice;
pub mod agents;
pub mod analyses;
pub mod arrivals;
pub mod audit;
pub mod authorities;
mod connection;
pub mod decisions;
pub mod device_claims;
pub mod drifts;
pub mod events;
pub mod files;
pub mod hardware;
pub mod holds;
pub mod idempotency;
pub mod jobs;
pub mod leases;
pub mod link_keys;
pub mod link_settings;
pub mod machines;
pub mod owners;
pub mod pipelines;
pub mod plans;
pub mod processes;
pub mod profile_jobs;
pub mod project_storage;
pub mod projects;
pub mod pushed_facts;
pub mod retention;
pub mod schedules;
pub mod target;
pub mod tokens;
pub mod traces;
pub mod wants;
pub mod webhooks;
pub mod workloads;

pub use connection::{
    Condition, Deletion, Error, LIST_MAX, PgConnection, PgPool, Result, Time, WriteStop, is_read_only, is_unavailable,
};
