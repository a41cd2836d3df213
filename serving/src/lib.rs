//! The policies that serve requests, as machines without I/O.
//!
//! What belongs here: every decision between a request's arrival and its answer, that is queueing, batching, dropping,
//! routing, completion and scaling. The crate never contains a runtime, threads, clocks, randomness of its own, hash maps,
//! float time, or any knowledge of the driver. There are two drivers: the estimator with simulated time, and the agent with
//! real time.
//!
//! The contract of every machine: the driver calls `handle(now, input)`, then `poll_output` until it returns `None`. Then
//! it arranges a `Tick` at the moment that `poll_timeout` names. `now` never goes backwards. Assertions check this
//! contract. A wakeup at the present moment means *after all other events of this moment*: the driver delivers these events
//! first, then ticks. So queries that arrive together share a batch.
//!
//! The crate has four rooms: [`station`] (when does which query run?), [`routing`] (where does a query go?), [`request`]
//! (when is a request complete?) and [`scaling`] (what changes between two plans?).
//!
//! The commonest addition is a policy. A batching discipline is a variant of [`batcher::Batcher`], a dropping policy one of
//! [`dropper::Dropper`], a routing policy one of [`router::Router`]. Then let the estimator construct it, and add a script
//! to `tests/`. `docs/glossary.md` says each noun in one line.

pub mod mix;
pub mod request;
pub mod routing;
pub mod scaling;
pub mod station;

pub use request::frontend::Frontend;
pub use request::progress::{CREDIT_ROOT, RequestOutcome, RequestProgress, split};
pub use request::{frontend, patience, progress};
pub use routing::most_accurate_first::{UnknownGroup, graph, group_capacity_qps, most_accurate_first, server};
pub use routing::router::{LateQueries, RouteChoice, Router, Stride};
pub use routing::{router, tables};
pub use scaling::ladder::Ladder;
pub use scaling::outline::Outline;
pub use scaling::selector::Selector;
pub use scaling::state_planner::StatePlanner;
pub use scaling::steward::{Steering, Steward};
pub use scaling::tuner::{TrafficEnvelope, TunedTask, Tuner};
pub use scaling::{
    error_budget, headroom_controller, ladder, leap_reserve, outline, selector, staffing, state_planner as modules,
    steward, tuner,
};
pub use station::dropper::{DropReason, Dropper, Priority, StationView};
pub use station::monitor::Monitor;
pub use station::queue::Waiting;
pub use station::{self as replica, Station, batcher, dropper, monitor, queue};
