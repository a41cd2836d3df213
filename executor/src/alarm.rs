//! How is the loop woken at an exact moment?
//!
//! The runtime's timers count milliseconds, which is as long as many batches take. A thread that waits for a condition
//! wakes within some tens of microseconds.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

#[derive(Debug, Default)]
struct State {
    at: Option<Instant>,
    is_over: bool,
}

/// What the alarm and its thread share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread's handle; it ends when this is dropped.
#[derive(Debug)]
pub struct Alarm {
    shared: Arc<Shared>,
    set: Option<Instant>,
}

impl Alarm {
    /// Starts the thread; `ring` is called from it, once for each moment that was set and not taken back before.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(ring: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        std::thread::Builder::new().name("alarm".into()).spawn(move || wait(&of_thread, &ring))?;
        Ok(Self { shared, set: None })
    }

    /// Rings at this moment, or not at all.
    pub fn set(&mut self, at: Option<Instant>) {
        if self.set != at {
            self.set = at;
            self.change(|state| state.at = at);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.changed.notify_one();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.change(|state| state.is_over = true);
    }
}

fn wait(Shared { state, changed }: &Shared, ring: &impl Fn()) {
    let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !now.is_over {
        now = match now.at {
            None => changed.wait(now).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    now.at = None;
                    drop(now);
                    ring();
                    state.lock().unwrap_or_else(PoisonError::into_inner)
                } else {
                    changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn it_rings_once_for_each_moment_and_not_before() {
        let (rings, rung) = mpsc::channel();
        let mut alarm = Alarm::start(move || rings.send(Instant::now()).expect("it is heard")).expect("a thread");
        let far = Instant::now() + Duration::from_secs(3_600);
        alarm.set(Some(far));
        let soon = Instant::now() + Duration::from_millis(20);
        alarm.set(Some(soon));
        assert!(rung.recv().expect("it rings") >= soon);
        assert!(rung.try_recv().is_err(), "once");
        alarm.set(Some(Instant::now()));
        rung.recv().expect("what is over is now");
        alarm.set(Some(far));
        alarm.set(None);
        drop(alarm);
        assert!(rung.recv().is_err(), "its thread has ended");
    }
}
