//! What follows an attempt to deliver an event, and what does a receiver get?

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::time::Duration;

/// Attempts after which an event is given up. With the pauses between them they last about three hours.
pub const ATTEMPTS_MAX: i32 = 32;
/// The pause after the first failed attempt. Each further pause is twice as long.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, unless the receiver asks for a longer one.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The longest pause that a receiver gets by `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// Largest body of a request. An event beyond it is given up at once.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// The begin of the type of every CloudEvent.
pub const EVENT_TYPE_PREFIX: &str = "io.apportion.event.";
/// The source of the CloudEvent of an event: the list that has the same events.
pub const EVENT_SOURCE: &str = "/v1/events";
/// The type of the CloudEvent of an entry of the audit.
pub const AUDIT_TYPE: &str = "io.apportion.audit";
/// Its source.
pub const AUDIT_SOURCE: &str = "/v1/audit";

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The receiver answered.
    Answered {
        /// Its status.
        status: u16,
        /// The pause that it asks for.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    Unanswered,
    /// The event is too large to be sent.
    TooLarge,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStep {
    /// The event is delivered: the next one follows.
    Next,
    /// The same event is tried again.
    Again {
        /// After this pause.
        pause: Duration,
    },
    /// The event is given up: the next one follows.
    Skip,
    /// The receiver wants no more events.
    Disable,
}

/// The step after an attempt. `failed_before` counts the failed attempts of this event before it. `jitter` is a random
/// number of 0 to 1: half of a pause is random, so that many webhooks do not come back together.
#[must_use]
pub fn next_step(result: DeliveryResult, failed_before: i32, jitter: f64) -> DeliveryStep {
    let asked = match result {
        DeliveryResult::Answered { status: 200..=299, .. } => return DeliveryStep::Next,
        DeliveryResult::Answered { status: 410, .. } => return DeliveryStep::Disable,
        DeliveryResult::TooLarge => return DeliveryStep::Skip,
        DeliveryResult::Answered { retry_after, .. } => retry_after.unwrap_or_default().min(RETRY_AFTER_MAX),
        DeliveryResult::Unanswered => Duration::ZERO,
    };
    if failed_before + 1 >= ATTEMPTS_MAX {
        return DeliveryStep::Skip;
    }
    // 2^16 s are beyond the longest pause.
    let doubled = PAUSE_MIN * 2_u32.pow(failed_before.clamp(0, 16).unsigned_abs());
    let pause = doubled.min(PAUSE_MAX).mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
    DeliveryStep::Again { pause: pause.max(asked) }
}

/// The pause of a `Retry-After`: seconds, or a date. Anything else is none.
#[must_use]
pub fn retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some((date.with_timezone(&Utc) - now).to_std().unwrap_or_default())
}

/// An event, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct SentEvent<'a> {
    /// The incarnation of the database: numbers of events repeat after a backup is restored, and this number grows.
    pub incarnation: i64,
    /// Its number.
    pub number: i64,
    /// When it was made.
    pub made_at: DateTime<Utc>,
    /// Its kind.
    pub kind: &'a str,
    /// Its pipeline.
    pub pipeline: Option<&'a str>,
    /// Its facts.
    pub detail: &'a Value,
}

impl SentEvent<'_> {
    /// The event as its receiver gets it. Its data are the event as in the list of events.
    #[must_use]
    pub fn cloud_event(&self) -> CloudEvent {
        let SentEvent { incarnation, number, made_at, kind, pipeline, detail } = *self;
        let data = json!({"id": number, "made_at": made_at, "kind": kind, "pipeline": pipeline, "detail": detail});
        let (source, kind) = (EVENT_SOURCE, format!("{EVENT_TYPE_PREFIX}{kind}"));
        Envelope { incarnation, number, made_at, source, kind: &kind, subject: pipeline, data }.to_cloud_event()
    }
}

/// An entry of the audit, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct SentAuditEntry<'a> {
    /// The incarnation of the database.
    pub incarnation: i64,
    /// Its number. No event has it.
    pub number: i64,
    /// When the request was made.
    pub made_at: DateTime<Utc>,
    /// The path of the request.
    pub path: &'a str,
    /// The entry as in the audit's list.
    pub entry: &'a Value,
}

impl SentAuditEntry<'_> {
    /// The entry as its receiver gets it.
    #[must_use]
    pub fn cloud_event(&self) -> CloudEvent {
        let SentAuditEntry { incarnation, number, made_at, path, entry } = *self;
        let (source, data) = (AUDIT_SOURCE, entry.clone());
        Envelope { incarnation, number, made_at, source, kind: AUDIT_TYPE, subject: Some(path), data }.to_cloud_event()
    }
}

/// What a receiver gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvent {
    /// Its identity. All attempts share it, and no other event or entry of the audit has it.
    pub identity: String,
    /// The body of its request: a CloudEvent 1.0 as JSON.
    pub body: String,
}

/// The attributes and the data of a CloudEvent.
struct Envelope<'a> {
    incarnation: i64,
    number: i64,
    made_at: DateTime<Utc>,
    source: &'static str,
    kind: &'a str,
    subject: Option<&'a str>,
    data: Value,
}

impl Envelope<'_> {
    fn to_cloud_event(&self) -> CloudEvent {
        let identity = format!("{}-{}", self.incarnation, self.number);
        let mut event = json!({
            "specversion": "1.0",
            "id": identity,
            "source": self.source,
            "type": self.kind,
            "time": self.made_at,
            "datacontenttype": "application/json",
            "data": self.data,
        });
        if let Some(subject) = self.subject {
            event["subject"] = json!(subject);
        }
        CloudEvent { identity, body: event.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16) -> DeliveryResult {
        DeliveryResult::Answered { status, retry_after: None }
    }

    fn asking(status: u16, seconds: u64) -> DeliveryResult {
        DeliveryResult::Answered { status, retry_after: Some(Duration::from_secs(seconds)) }
    }

    fn again(seconds: f64) -> DeliveryStep {
        DeliveryStep::Again { pause: Duration::from_secs_f64(seconds) }
    }

    #[test]
    fn each_result_has_its_step() {
        use DeliveryResult::{TooLarge, Unanswered};
        let last = ATTEMPTS_MAX - 1;
        let cases = [
            (answered(200), 0, 0.0, DeliveryStep::Next),
            (answered(204), last, 1.0, DeliveryStep::Next),
            (answered(299), 3, 1.0, DeliveryStep::Next),
            (answered(410), 0, 1.0, DeliveryStep::Disable),
            (answered(410), last, 1.0, DeliveryStep::Disable),
            (TooLarge, 0, 1.0, DeliveryStep::Skip),
            // every other status is tried again
            (answered(500), 0, 1.0, again(1.0)),
            (answered(404), 0, 1.0, again(1.0)),
            (answered(307), 0, 1.0, again(1.0)),
            (answered(199), 0, 1.0, again(1.0)),
            (Unanswered, 0, 1.0, again(1.0)),
            // pauses double up to the longest, and half of each is random
            (Unanswered, 1, 1.0, again(2.0)),
            (Unanswered, 1, 0.0, again(1.0)),
            (Unanswered, 1, 0.5, again(1.5)),
            (answered(503), 9, 1.0, again(512.0)),
            (answered(503), 10, 1.0, again(600.0)),
            (answered(503), 10, 0.0, again(300.0)),
            (answered(503), last - 1, 1.0, again(600.0)),
            // the receiver may ask for a longer pause, within a limit
            (asking(429, 30), 0, 1.0, again(30.0)),
            (asking(503, 30), 9, 1.0, again(512.0)),
            (asking(429, 1_000_000), 0, 1.0, again(3600.0)),
            // the last attempt
            (answered(500), last, 1.0, DeliveryStep::Skip),
            (answered(400), last, 1.0, DeliveryStep::Skip),
            (asking(429, 30), last, 1.0, DeliveryStep::Skip),
            (Unanswered, last + 7, 1.0, DeliveryStep::Skip),
        ];
        for (result, failed_before, jitter, expected) in cases {
            let step = next_step(result, failed_before, jitter);
            assert_eq!(step, expected, "{result:?} after {failed_before} failures, jitter {jitter}");
        }
    }

    #[test]
    fn attempts_last_some_hours() {
        let pause = |failed_before| match next_step(DeliveryResult::Unanswered, failed_before, 0.5) {
            DeliveryStep::Again { pause } => pause.as_secs_f64(),
            other => panic!("{failed_before}: {other:?}"),
        };
        let hours = (0..ATTEMPTS_MAX - 1).map(pause).sum::<f64>() / 3_600.0;
        assert!((2.5..=4.0).contains(&hours), "{hours}");
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        let now = "2015-10-21T07:27:00Z".parse().expect("a time");
        let seconds = |text| retry_after(text, now).map(|pause| pause.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:20:00 GMT"), Some(0), "it has passed");
        for wrong in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_event_is_a_cloud_event() {
        let detail = json!({"reason": "a launch"});
        let made_at = "2026-11-23T22:00:00Z".parse().expect("a time");
        let event =
            SentEvent { incarnation: 1, number: 18, made_at, kind: "hold", pipeline: Some("mine"), detail: &detail };
        let body: Value = serde_json::from_str(&event.cloud_event().body).expect("JSON");
        let expected = json!({
            "specversion": "1.0", "id": "1-18", "source": "/v1/events", "type": "io.apportion.event.hold",
            "time": "2026-11-23T22:00:00Z", "subject": "mine", "datacontenttype": "application/json",
            "data": {"id": 18, "made_at": "2026-11-23T22:00:00Z", "kind": "hold", "pipeline": "mine", "detail": detail},
        });
        assert_eq!(body, expected);
        let of_fleet: Value =
            serde_json::from_str(&SentEvent { pipeline: None, ..event }.cloud_event().body).expect("JSON");
        assert_eq!((of_fleet.get("subject"), &of_fleet["data"]["pipeline"]), (None, &Value::Null));
    }

    #[test]
    fn an_audit_entry_is_a_cloud_event() {
        let made_at = DateTime::parse_from_rfc3339("2026-11-23T22:00:00Z").expect("a time").with_timezone(&Utc);
        let entry = json!({"number": 19, "who": "anna"});
        let sent = SentAuditEntry { incarnation: 7, number: 19, made_at, path: "/v1/hold", entry: &entry };
        let CloudEvent { identity, body } = sent.cloud_event();
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let expected = json!({
            "specversion": "1.0",
            "id": "7-19",
            "source": "/v1/audit",
            "type": "io.apportion.audit",
            "time": "2026-11-23T22:00:00Z",
            "subject": "/v1/hold",
            "datacontenttype": "application/json",
            "data": entry,
        });
        assert_eq!((identity.as_str(), body), ("7-19", expected));
    }
}
