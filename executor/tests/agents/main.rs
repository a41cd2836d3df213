//! Agents with real sockets, beside a control plane that says what a test wants. One program, because linking takes long.

mod backends;
mod bombs;
mod certified;
mod clients;
mod control;
mod fleet;
mod forged;
mod measured;
mod neighbours;
mod outlive;
mod policies;
mod secure;
mod stop;
mod support;
mod traces;
