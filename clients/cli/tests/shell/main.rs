//! What does a shell see of the commands? Exit codes, stdout and stderr.

mod advise;
mod autoscaler;
mod client;
mod commands;
mod frontier;
mod import;
mod init;
mod profile;
mod program;
mod reference;
mod report;
mod reproduce;
mod scaling;
mod variants;
