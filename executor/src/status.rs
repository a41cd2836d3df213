//! Do the agent's parts run, and what does the control plane say to it?

use crate::parts::part;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The loop ticks 50 times a second; one that has not for so long hangs.
pub const LOOP_SILENCE_MAX: Duration = Duration::from_secs(3);

/// What the agent knows of its control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Whether the control stream is up and the agent was welcome.
    pub is_attended: bool,
    /// Refusals since the agent's start, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Streams that were lost or not to be had since the agent's start.
    pub losses: u64,
    /// Why the last attempt ended; none while the stream is up.
    pub reason: Option<String>,
}

/// The state, shared by all parts.
#[derive(Debug)]
pub struct Status {
    started: Instant,
    /// When the loop ticked last, in milliseconds from `started`.
    ticked_ms: AtomicU64,
    /// The parts that have begun.
    parts: Mutex<BTreeMap<&'static str, PartState>>,
    control: Mutex<Control>,
}

impl Default for Status {
    fn default() -> Self {
        Self { started: Instant::now(), ticked_ms: AtomicU64::new(0), parts: Mutex::default(), control: Mutex::default() }
    }
}

/// The state of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Running,
    Ended,
}

/// Says at its own end that a part has ended, in whichever way.
struct Ended<'a> {
    status: &'a Status,
    part: &'static str,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.status.set_part(self.part, PartState::Ended);
    }
}

impl Status {
    /// Runs a future as a part that must run as long as the agent does.
    pub async fn run<F: Future>(&self, name: &'static str, future: F) -> F::Output {
        self.set_part(name, PartState::Running);
        let _ended = Ended { status: self, part: name };
        part(name, future).await
    }

    fn set_part(&self, name: &'static str, state: PartState) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(name, state);
    }

    /// The loop has come round.
    pub fn tick(&self) {
        self.ticked_ms.store(self.started.elapsed().as_millis() as u64, Relaxed);
    }

    /// What keeps the agent from working, in words; none if all of its parts do.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, _)) = parts.iter().find(|(_, state)| **state == PartState::Ended) {
            return Some(format!("its part {name} has ended"));
        }
        let silence = self.started.elapsed().saturating_sub(Duration::from_millis(self.ticked_ms.load(Relaxed)));
        (silence > LOOP_SILENCE_MAX).then(|| format!("its loop has not moved for {:.1} s", silence.as_secs_f64()))
    }

    /// What the agent knows of its control plane.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The control plane has welcomed the agent.
    pub fn attended(&self) {
        self.change(|control| (control.is_attended, control.reason) = (true, None));
    }

    /// The stream has ended, or was not to be had.
    pub fn lost(&self, reason: &str) {
        self.change(|control| {
            (control.is_attended, control.reason) = (false, Some(reason.to_owned()));
            control.losses += 1;
        });
    }

    /// The control plane has refused the agent.
    pub fn refused(&self, reason: &'static str, detail: &str) {
        self.change(|control| {
            (control.is_attended, control.reason) = (false, Some(detail.to_owned()));
            *control.refusals.entry(reason).or_default() += 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_has_ended_is_trouble() {
        let status = Status::default();
        let mut running = Box::pin(status.run("gateway", std::future::pending::<()>()));
        assert!(futures::poll!(&mut running).is_pending());
        assert_eq!(status.trouble(), None);
        drop(running);
        assert_eq!(status.trouble(), Some("its part gateway has ended".into()));
    }

    #[test]
    fn a_loop_that_does_not_tick_is_trouble() {
        let started = Instant::now().checked_sub(2 * LOOP_SILENCE_MAX).expect("the machine runs for longer");
        let status = Status { started, ..Status::default() };
        assert!(status.trouble().is_some_and(|t| t.contains("has not moved for 6.")));
        status.tick();
        assert_eq!(status.trouble(), None);
    }

    #[test]
    fn refusals_are_counted_by_reason_until_the_agent_is_welcome() {
        let status = Status::default();
        ["token", "token", "version"].into_iter().for_each(|reason| status.refused(reason, "no"));
        status.lost("the port is closed");
        let said = status.control();
        assert_eq!((said.refusals["token"], said.refusals["version"], said.losses), (2, 1, 1));
        assert_eq!((said.is_attended, said.reason.as_deref()), (false, Some("the port is closed")));
        status.attended();
        assert_eq!((status.control().is_attended, status.control().reason), (true, None));
    }
}
