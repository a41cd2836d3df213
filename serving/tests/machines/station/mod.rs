//! Scripts of a station.

mod batching;
mod dropping;
mod monitoring;
mod script;
mod servers;
mod settings;
