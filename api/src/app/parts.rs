//! Do all parts of the service still work?
//!
//! If a part panics or ends early, the service fails: [`Parts::broken`] returns the part, and the process ends with an
//! error. A part that loops gives a sign of life in each turn. `/readyz` names the parts without one.

use futures::FutureExt;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A part without a sign of life for this long does not work.
pub const SIGN_MAX: Duration = Duration::from_secs(10);
/// With debug assertions, the part that this variable names panics. Tests use it.
#[cfg(debug_assertions)]
const FAULT_VARIABLE: &str = "APPORTION_TEST_PANIC_IN";

/// A part of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServicePart {
    /// Answers HTTP.
    Http,
    /// Takes agents' connections.
    AgentsServer,
    /// One agent's stream.
    Session,
    /// Sends targets to agents.
    Push,
    /// Writes heartbeats and finds silent agents.
    Heartbeats,
    /// Stores the messages of agents.
    Records,
    /// Solves plans.
    Jobs,
    /// Has agents measure variants.
    Measuring,
    /// Watches fleet and load.
    Leader,
    /// A round of replanning.
    Round,
    /// Advises pipelines without agents.
    Advisor,
    /// Tells readers of new events.
    Events,
    /// Answers autoscalers.
    Autoscalers,
    /// Scales workloads on Kubernetes.
    Actuator,
    /// Asks for machines and gives them back.
    Machines,
    /// Delivers events to webhooks.
    Webhooks,
    /// Reads certificates again when their files change.
    Certificates,
    /// The private PostgreSQL.
    Database,
}

impl ServicePart {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Http,
        Self::AgentsServer,
        Self::Session,
        Self::Push,
        Self::Heartbeats,
        Self::Records,
        Self::Jobs,
        Self::Measuring,
        Self::Leader,
        Self::Round,
        Self::Advisor,
        Self::Events,
        Self::Autoscalers,
        Self::Actuator,
        Self::Machines,
        Self::Webhooks,
        Self::Certificates,
        Self::Database,
    ];

    /// Its name in logs and in `/readyz`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::AgentsServer => "agents-server",
            Self::Session => "session",
            Self::Push => "push",
            Self::Heartbeats => "heard",
            Self::Records => "records",
            Self::Jobs => "jobs",
            Self::Measuring => "measuring",
            Self::Leader => "leader",
            Self::Round => "round",
            Self::Advisor => "advisor",
            Self::Events => "events",
            Self::Autoscalers => "autoscalers",
            Self::Actuator => "actuator",
            Self::Machines => "machines",
            Self::Webhooks => "webhooks",
            Self::Certificates => "certificates",
            Self::Database => "database",
        }
    }
}

/// A part that failed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFailure {
    /// The part.
    pub part: ServicePart,
    /// The reason.
    pub why: String,
}

impl fmt::Display for PartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} broke down: {}", self.part.name(), self.why)
    }
}

/// The parts of one service process.
#[derive(Debug)]
pub struct Parts {
    signs: Mutex<BTreeMap<ServicePart, Instant>>,
    broken: watch::Sender<Option<PartFailure>>,
}

impl Default for Parts {
    fn default() -> Self {
        Self { signs: Mutex::default(), broken: watch::Sender::new(None) }
    }
}

impl Parts {
    /// Notes a sign of life of a part.
    pub fn note_alive(&self, part: ServicePart) {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner).insert(part, Instant::now());
    }

    /// The parts without a sign of life for [`SIGN_MAX`], each with the time since its last one.
    #[must_use]
    pub fn silent(&self, at: Instant) -> BTreeMap<ServicePart, Duration> {
        let signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        let since = signs.iter().map(|(part, sign)| (*part, at.saturating_duration_since(*sign)));
        since.filter(|(_, since)| *since > SIGN_MAX).collect()
    }

    /// Reports that a part failed. [`Parts::broken`] returns the first report.
    pub fn fail(&self, part: ServicePart, why: impl Into<String>) {
        let broken = PartFailure { part, why: why.into() };
        tracing::error!(part = part.name(), why = broken.why, "a part of the service broke down; the service ends");
        self.broken.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(broken);
            is_first
        });
    }

    /// The part that failed, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<PartFailure> {
        self.broken.borrow().clone()
    }

    /// Waits until a part fails.
    pub async fn broken(&self) -> PartFailure {
        let mut broken = self.broken.subscribe();
        let found = broken.wait_for(Option::is_some).await.map(|found| found.clone());
        match found {
            Ok(Some(found)) => found,
            // The sender is a field of `self`, so it cannot be gone.
            _ => std::future::pending().await,
        }
    }

    /// Runs work that may end at any time, and reports its part as failed if it panics.
    pub async fn watch<T>(&self, part: ServicePart, work: impl Future<Output = T>) -> Option<T> {
        let work = async {
            #[cfg(debug_assertions)]
            panic_if_named(part);
            work.await
        };
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(value) => Some(value),
            Err(panic) => {
                self.fail(part, panic_message(&*panic));
                None
            }
        }
    }
}

/// The message of a panic.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = apportion_process::panic_message(panic);
    text.map_or_else(|| "it panicked".into(), |text| format!("it panicked: {text}"))
}

#[cfg(debug_assertions)]
fn panic_if_named(part: ServicePart) {
    if std::env::var(FAULT_VARIABLE).is_ok_and(|named| named == part.name()) {
        panic!("{FAULT_VARIABLE} names this part");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_with_its_part_and_message() {
        let parts = Parts::default();
        assert_eq!(parts.watch(ServicePart::Push, async { 7 }).await, Some(7));
        assert_eq!(parts.failure(), None);
        let came: Option<()> = parts.watch(ServicePart::Leader, async { panic!("no {}", "way") }).await;
        assert_eq!(came, None);
        parts.fail(ServicePart::Push, "later");
        let broken = parts.broken().await;
        assert_eq!(broken.to_string(), "part leader broke down: it panicked: no way", "the first counts");
    }

    #[test]
    fn a_part_without_a_sign_of_life_is_named() {
        let parts = Parts::default();
        parts.note_alive(ServicePart::Push);
        let now = Instant::now();
        assert_eq!(parts.silent(now), BTreeMap::new());
        let later = parts.silent(now + 2 * SIGN_MAX);
        assert_eq!(later.keys().copied().collect::<Vec<_>>(), [ServicePart::Push]);
    }

    #[test]
    fn part_names_are_unique() {
        let names: std::collections::BTreeSet<_> = ServicePart::ALL.iter().map(|part| part.name()).collect();
        assert_eq!(names.len(), ServicePart::ALL.len());
    }
}
