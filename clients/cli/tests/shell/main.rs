//! What does a shell see of the commands? Exit codes, stdout and stderr.

mod autoscaler;
mod commands;
mod frontier;
mod import;
mod init;
mod program;
mod reference;
mod reproduce;
mod scaling;
