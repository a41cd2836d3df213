//! How do events, and entries of the audit, reach the receivers of webhooks?
//!
//! The process with the lease looks for webhooks with waiting events. Each of them gets a courier, so that a slow receiver
//! delays no other. A courier posts one event after another, and commits each result under the lease before the next one.
//! If the process dies between a post and its commit, the event is sent once more with the same identity.

use super::apply::{ApplyError, fence};
use super::lease::work_while_held;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::audit_entries::AuditEntry;
use crate::decide::webhooks::{
    ATTEMPTS_MAX, BODY_BYTES_MAX, CloudEvent, DeliveryResult, DeliveryStep, SentAuditEntry, SentEvent, next_step,
    retry_after,
};
use crate::store::webhooks::{DeliveryNote, DueWebhook, WaitingEntry};
use crate::store::{self, leases::HeldLease};
use apportion_webhooks::{
    DeliveryFailure, ReceiverAnswer, ReceiverClient, ReceiverUrl, ReceiverUrlError, WebhookMessage, WebhookSecret,
    WebhookSecretError,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The lease of the process that delivers.
const WEBHOOKS: &str = "webhooks";
/// Longest pause between two looks for waiting events.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Most events that a courier takes at a time.
const TAKEN_MAX: i64 = 100;

/// Delivers whenever no other process does, until the service stops.
pub async fn run(app: App) {
    // The certificates of the machine are files.
    let client = match tokio::task::spawn_blocking(ReceiverClient::new).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return app.parts.fail(ServicePart::Webhooks, error.to_string()),
        Err(error) => return app.parts.fail(ServicePart::Webhooks, error.to_string()),
    };
    work_while_held(&app, WEBHOOKS, ServicePart::Webhooks, |lease| deliver(&app, &client, lease)).await;
}

/// Sends a courier for each webhook with waiting events, one at a time for each. They end when this work is dropped.
async fn deliver(app: &App, client: &ReceiverClient, lease: HeldLease) -> Result<(), ApplyError> {
    let mut newest = app.newest_event.subscribe();
    let mut newest_audit_entry = app.newest_audit_entry.subscribe();
    let mut served: BTreeSet<String> = BTreeSet::new();
    let mut couriers = JoinSet::new();
    loop {
        let due = store::webhooks::due(&mut *app.pool.acquire().await?, now()).await?;
        for webhook in due {
            if served.insert(webhook.name.clone()) {
                let courier = Courier { app: app.clone(), client: client.clone(), lease, webhook };
                let app = app.clone();
                couriers.spawn(async move { app.parts.watch(ServicePart::Webhooks, courier.deliver_waiting()).await });
            }
        }
        app.parts.note_alive(ServicePart::Webhooks);
        tokio::select! {
            Some(ended) = couriers.join_next() => {
                // A courier that panicked has ended the service already.
                if let Ok(Some(result)) = ended {
                    served.remove(&result?);
                }
            }
            _changed = newest.changed() => {}
            _changed = newest_audit_entry.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("the event has {0} bytes: at most {BODY_BYTES_MAX} are sent")]
    TooLarge(usize),
    #[error("the receiver answered {}", .0.status)]
    Refused(ReceiverAnswer),
    #[error(transparent)]
    Url(#[from] ReceiverUrlError),
    #[error(transparent)]
    Secret(#[from] WebhookSecretError),
    #[error(transparent)]
    Unanswered(#[from] DeliveryFailure),
}

/// Delivers the events that wait for one webhook.
struct Courier {
    app: App,
    client: ReceiverClient,
    lease: HeldLease,
    webhook: DueWebhook,
}

impl Courier {
    /// Delivers events until none waits, or one must wait for its next attempt. Returns the name of the webhook.
    async fn deliver_waiting(mut self) -> Result<String, ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let newest = store::webhooks::newest(&mut db, &self.webhook).await?;
        let incarnation = store::target::get(&mut db).await?.incarnation;
        let events = store::webhooks::waiting(&mut db, &self.webhook, newest, TAKEN_MAX).await?;
        drop(db);
        for event in &events {
            if self.app.is_stopping() || !self.deliver(event, incarnation).await? {
                return Ok(self.webhook.name);
            }
        }
        if (events.len() as i64) < TAKEN_MAX && self.webhook.sent_until < newest {
            // The webhook does not ask for the others.
            self.note(DeliveryNote { sent_until: newest, ..DeliveryNote::default() }).await?;
        }
        Ok(self.webhook.name)
    }

    /// Tries one event. Returns whether the next one may follow at once.
    async fn deliver(&mut self, event: &WaitingEntry, incarnation: i64) -> Result<bool, ApplyError> {
        let failed_before = self.webhook.attempts;
        let tried = self.attempt(event, incarnation).await;
        let step = next_step(result_of(&tried), failed_before, jitter());
        let failure = tried.err().map(|error| (error.to_string(), now()));
        let why = failure.as_ref().map_or("", |(why, _)| why.as_str());
        let (webhook, id) = (&self.webhook.name, event.number());
        let note = match step {
            DeliveryStep::Next => DeliveryNote { sent_until: id, is_delivered: true, ..DeliveryNote::default() },
            DeliveryStep::Again { pause } => {
                tracing::info!(webhook, event = id, attempts = failed_before + 1, why, "an event is tried again later");
                let pause = chrono::Duration::milliseconds(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
                DeliveryNote {
                    sent_until: self.webhook.sent_until,
                    attempts: failed_before + 1,
                    next_at: Some(now() + pause),
                    ..DeliveryNote::default()
                }
            }
            DeliveryStep::Skip => {
                tracing::warn!(webhook, event = id, attempts_max = ATTEMPTS_MAX, why, "an event is given up");
                DeliveryNote { sent_until: id, is_skipped: true, ..DeliveryNote::default() }
            }
            DeliveryStep::Disable => {
                tracing::warn!(webhook, event = id, why, "the receiver wants no more events: its webhook is disabled");
                DeliveryNote { sent_until: self.webhook.sent_until, is_disabled: true, ..DeliveryNote::default() }
            }
        };
        let is_noted = self.note(DeliveryNote { failure, ..note }).await?;
        Ok(is_noted && matches!(step, DeliveryStep::Next | DeliveryStep::Skip))
    }

    /// Posts one event once.
    async fn attempt(&self, event: &WaitingEntry, incarnation: i64) -> Result<(), AttemptError> {
        let CloudEvent { identity, body } = cloud_event(event, incarnation);
        if body.len() > BODY_BYTES_MAX {
            return Err(AttemptError::TooLarge(body.len()));
        }
        let receiver = ReceiverUrl::parse(&self.webhook.url)?;
        let secret = WebhookSecret::from_bytes(self.webhook.secret.clone())?;
        let message = WebhookMessage { id: &identity, timestamp_s: now().timestamp(), body: &body };
        let answer = self.client.post(&receiver, &secret, message).await?;
        if (200..300).contains(&answer.status) { Ok(()) } else { Err(AttemptError::Refused(answer)) }
    }

    /// Commits a result under the lease. Returns whether the webhook is still the same.
    async fn note(&mut self, note: DeliveryNote) -> Result<bool, ApplyError> {
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        let is_same = store::webhooks::note(&mut tx, &self.webhook, &note).await?;
        tx.commit().await?;
        (self.webhook.sent_until, self.webhook.attempts) = (note.sent_until, note.attempts);
        Ok(is_same)
    }
}

/// What a receiver gets.
fn cloud_event(waiting: &WaitingEntry, incarnation: i64) -> CloudEvent {
    let number = waiting.number();
    match waiting {
        WaitingEntry::Event(event) => {
            let (kind, pipeline) = (event.kind.as_str(), event.pipeline.as_deref());
            SentEvent { incarnation, number, made_at: event.made_at, kind, pipeline, detail: &event.detail }.cloud_event()
        }
        WaitingEntry::Audit(row) => {
            let entry = serde_json::to_value(AuditEntry::from(row.clone())).expect("an entry is JSON");
            SentAuditEntry { incarnation, number, made_at: row.made_at, path: &row.path, entry: &entry }.cloud_event()
        }
    }
}

/// The result of an attempt, for the decision.
fn result_of(tried: &Result<(), AttemptError>) -> DeliveryResult {
    match tried {
        Ok(()) => DeliveryResult::Answered { status: 200, retry_after: None },
        Err(AttemptError::TooLarge(_)) => DeliveryResult::TooLarge,
        Err(AttemptError::Refused(answer)) => {
            let pause = answer.retry_after.as_deref().and_then(|text| retry_after(text, now()));
            DeliveryResult::Answered { status: answer.status, retry_after: pause }
        }
        Err(AttemptError::Url(_) | AttemptError::Secret(_) | AttemptError::Unanswered(_)) => DeliveryResult::Unanswered,
    }
}

/// A random number of 0 to 1. The low bits of a UUID of version 4 are random.
fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX)
}
