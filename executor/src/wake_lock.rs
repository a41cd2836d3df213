//! When must the machine's processors not sleep?
//!
//! A processor without work halts. Waking it takes longer than all work of an agent for a query. On a virtual machine it
//! takes 30 us and more for each thread, twice on the way to another agent and back.
//!
//! Linux keeps processors awake for a process that asks ([`AwakeProcessors`]), which costs power. So the agent asks only
//! under a load at which processors would hardly sleep anyway.

use apportion_process::AwakeProcessors;
use std::path::{Path, PathBuf};

/// Events of an agent between two looks (20 ms) from which processors are kept awake: 1,000 in a second.
const BUSY_MIN: u64 = 20;
/// Looks with fewer, until they may sleep again: a second.
const PATIENCE: u32 = 50;

/// What is asked of the kernel, and why.
#[derive(Debug)]
pub struct WakeLock {
    /// None once the kernel has refused, or if it is not to be asked.
    path: Option<PathBuf>,
    held: Option<AwakeProcessors>,
    events: u64,
    quiet: u32,
}

impl WakeLock {
    /// Asks the kernel.
    #[must_use]
    pub fn of_kernel() -> Self {
        Self::with_file(AwakeProcessors::KERNEL_FILE.as_ref())
    }

    /// Asks by this file.
    fn with_file(path: &Path) -> Self {
        Self { path: Some(path.into()), held: None, events: 0, quiet: 0 }
    }

    /// Never asks.
    #[must_use]
    pub fn never() -> Self {
        Self { path: None, held: None, events: 0, quiet: 0 }
    }

    /// Something came.
    pub fn count_event(&mut self) {
        self.events += 1;
    }

    /// Whether processors are kept awake now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// To be called every 20 ms.
    pub fn update(&mut self) {
        let is_busy = std::mem::take(&mut self.events) >= BUSY_MIN;
        self.quiet = if is_busy { 0 } else { self.quiet.saturating_add(1) };
        if is_busy && self.held.is_none() {
            self.acquire();
        } else if self.quiet >= PATIENCE {
            self.held = None;
        }
    }

    fn acquire(&mut self) {
        let Some(path) = &self.path else { return };
        match AwakeProcessors::hold(path) {
            Ok(held) => {
                tracing::debug!("processors are kept awake");
                self.held = Some(held);
            }
            Err(error) => {
                let path = path.display();
                tracing::info!(%path, %error, "processors may sleep between requests: hops take longer than they need");
                self.path = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_events(wake_lock: &mut WakeLock, events: u64) {
        (0..events).for_each(|_| wake_lock.count_event());
        wake_lock.update();
    }

    #[test]
    fn processors_stay_awake_under_load_and_a_second_after() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut wake_lock = WakeLock::with_file(file.path());
        count_events(&mut wake_lock, BUSY_MIN - 1);
        assert!(!wake_lock.is_held(), "little has come");
        count_events(&mut wake_lock, BUSY_MIN);
        assert!(wake_lock.is_held());
        for _ in 1..PATIENCE {
            count_events(&mut wake_lock, 0);
        }
        assert!(wake_lock.is_held(), "not yet");
        count_events(&mut wake_lock, 0);
        assert!(!wake_lock.is_held(), "a second without much");
        count_events(&mut wake_lock, BUSY_MIN);
        assert!(wake_lock.is_held(), "again");
    }

    #[test]
    fn a_kernel_that_refuses_is_asked_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut refused = WakeLock::with_file(&folder.path().join("missing"));
        count_events(&mut refused, BUSY_MIN);
        assert!(!refused.is_held() && refused.path.is_none());
        let mut never = WakeLock::never();
        count_events(&mut never, BUSY_MIN);
        assert!(!never.is_held());
    }
}
