//! When is a request complete, and which answer does its client get?
//!
//! [`progress`] counts the queries of one request that are still in flight; [`frontend`] holds all open requests of a
//! gateway. [`patience`] says how long it waits.

pub mod frontend;
pub mod patience;
pub mod progress;
