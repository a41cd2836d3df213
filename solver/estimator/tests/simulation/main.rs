//! The simulation: scripts by hand, properties, closed forms, and a slow second simulator.

mod accounts;
mod bounds;
mod by_hand;
mod changes;
mod classes;
mod common;
mod dropping;
mod durations;
mod ingresses;
mod load;
mod metamorphic;
mod modules;
mod oracle;
mod plans;
mod policies;
mod queueing;
mod routes;
mod slow;
mod tuning;
