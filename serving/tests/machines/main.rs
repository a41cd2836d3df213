//! The machines, one module each: scripts by hand, properties, and slow versions beside them.

mod error_budget;
mod frontend;
mod headroom_controller;
mod kinds;
mod ladder;
mod leap_reserve;
mod queue;
mod routing;
mod selector;
mod staffing;
mod state_planner;
mod station;
mod steward;
mod tuner;
