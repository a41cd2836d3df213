//! How does a process log?

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Starts the log on stderr. `RUST_LOG` says the level of each target, for example `info,apportion_executor=debug`.
/// Without it the levels are `levels`, in the same form. The format `json` writes one JSON object a line, and any other
/// format writes text.
///
/// # Panics
/// If `levels` is malformed, or if the log was started before.
pub fn start_log(levels: &str, format: &str) {
    let said = std::env::var("RUST_LOG").ok().and_then(|said| said.parse::<Targets>().ok());
    let targets = said.unwrap_or_else(|| levels.parse().expect("the default levels are well formed"));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    if format == "json" { registry.with(lines.json()).init() } else { registry.with(lines).init() }
}
