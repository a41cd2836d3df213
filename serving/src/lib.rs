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

pub mod alike;
pub mod batcher;
pub mod dropper;
mod fill;
pub mod frontend;
mod idle;
pub mod ladder;
pub mod mix;
pub mod modules;
pub mod monitor;
mod most_accurate;
pub mod outline;
pub mod progress;
pub mod queue;
mod reconfigure;
pub mod replica;
pub mod router;
pub mod selector;
pub mod staffing;
pub mod steward;
pub mod tables;
pub mod tuner;

pub use dropper::{DropReason, Dropper, Priority, View};
pub use frontend::Frontend;
pub use ladder::Ladder;
pub use modules::StatePlanner;
pub use monitor::Monitor;
pub use most_accurate::{UnknownGroup, graph, group_capacity_qps, most_accurate_first, server};
pub use outline::Outline;
pub use progress::{CREDIT_ROOT, Outcome, Progress, split};
pub use queue::Waiting;
pub use replica::Station;
pub use router::{Late, Picked, Router, Stride};
pub use selector::Selector;
pub use steward::{Steering, Steward};
pub use tuner::{Envelope, TunedTask, Tuner};
