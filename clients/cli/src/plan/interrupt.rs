//! How does Ctrl-C end the search for a plan?

use anyhow::Context;
use apportion_planning::StopSignal;
use apportion_support::exit::Failure;
use indicatif::ProgressBar;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code after a second Ctrl-C: that of a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

/// From now on, the first Ctrl-C ends the search and keeps the best plan so far. A second one ends the program.
///
/// # Errors
/// If the signal cannot be waited for.
pub fn stop_on_interrupt(stop: Arc<StopSignal>, progress: &ProgressBar) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_io().build().context("starting the runtime")?;
    let interrupts = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt()).context("waiting for SIGINT")?
    };
    let progress = progress.clone();
    let wait = move || wait_for_interrupts(&runtime, interrupts, &stop, &progress);
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait).context("starting a thread for SIGINT")?;
    Ok(())
}

fn wait_for_interrupts(runtime: &Runtime, mut interrupts: Signal, stop: &StopSignal, progress: &ProgressBar) {
    runtime.block_on(async {
        interrupts.recv().await;
        stop.ask();
        progress.suspend(|| eprintln!("stopping with the best plan so far; Ctrl-C again ends at once"));
        interrupts.recv().await;
    });
    std::process::exit(INTERRUPTED);
}
