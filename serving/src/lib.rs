//! The policies that serve requests, as machines without input and output of their own.
//!
//! What belongs here: every decision between a query's arrival and its answer (queueing, batching, dropping, routing,
//! counting what is still out), written once and driven by two drivers: the estimator, whose clock is an agenda, and the
//! agent, whose clock is the machine's. What never does: a runtime, threads, clocks, randomness of its own, hash maps,
//! float time, or any knowledge of who is driving.
//!
//! The contract of every machine: the driver calls `handle(now, input)` and then `poll_output` until it returns `None`, and
//! then arranges a `Tick` at the moment that `poll_timeout` names; `now` never goes backwards. Breaking it trips an assertion.
//! A wakeup at the present moment means *after everything else that happens now*: the driver first delivers what else it
//! has, then ticks. So queries that arrive together share a batch.
//!
//! The commonest addition is a policy. A batching discipline is a variant of [`batcher::Batcher`], a dropping policy one of
//! [`dropper::Dropper`], a routing policy one of [`router::Router`]; [`replica::Station`] only asks them. Then let the
//! estimator construct it and add a script to `tests/`.

pub mod mix;
pub mod request;
pub mod routing;
pub mod scaling;
pub mod station;

pub use request::frontend::Frontend;
pub use request::progress::{CREDIT_ROOT, Outcome, Progress, split};
pub use request::{frontend, progress};
pub use routing::most_accurate_first::{UnknownGroup, graph, group_capacity_qps, most_accurate_first, server};
pub use routing::router::{Late, Picked, Router, Stride};
pub use routing::{router, tables};
pub use scaling::ladder::Ladder;
pub use scaling::outline::Outline;
pub use scaling::selector::Selector;
pub use scaling::state_planner::StatePlanner;
pub use scaling::steward::{Steering, Steward};
pub use scaling::tuner::{Envelope, TunedTask, Tuner};
pub use scaling::{ladder, outline, selector, staffing, state_planner as modules, steward, tuner};
pub use station::dropper::{DropReason, Dropper, Priority, View};
pub use station::monitor::Monitor;
pub use station::queue::Waiting;
pub use station::{self as replica, Station, batcher, dropper, monitor, queue};
