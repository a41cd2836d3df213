//! The service over HTTP and gRPC, each test on a database of its own. One program, because linking takes long.

mod access;
mod advice;
mod analyses;
mod bounds;
mod conditions;
mod database;
mod deletion;
mod drift;
mod events;
mod fleet;
mod http;
mod jobs;
mod leases;
mod lists;
mod machines;
mod openapi;
mod page;
mod plans;
mod replan;
mod schedules;
mod stored_plans;
mod support;
mod target_history;
mod time;
mod times;
mod webhooks;
