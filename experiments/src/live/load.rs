//! How is an open-loop load played? Every request is sent at its own time, with or without answers to earlier ones.

use super::validation::{InferenceResponse, LabelledRequest};
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The client gives a request up after this time. The gateway answers well before.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// A connection without a request is closed after this time, well before the gateway does it.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Requests that are due and have not been sent yet. With more of them the clock waits.
const DUE_MAX: usize = 1_024;

/// Tells when each request is due, by its position. It is a thread of its own: tokio's timer ends up to two milliseconds
/// late, and clients would take that for latency.
fn start_clock(start: Instant, arrivals: Vec<Duration>) -> Result<mpsc::Receiver<usize>> {
    let (due, told) = mpsc::channel(DUE_MAX);
    let tick = move || {
        for (i, at) in arrivals.into_iter().enumerate() {
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            if due.blocking_send(i).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("load-clock".to_owned()).spawn(tick).context("a thread for the clock")?;
    Ok(told)
}

/// The requests, their times and their receivers.
pub struct LiveLoad {
    /// `host:port` of the ingresses, used in turn.
    pub ingresses: Vec<String>,
    /// The pipeline's name.
    pub pipeline: String,
    /// The requests that are sent, in turn.
    pub requests: Arc<Vec<LabelledRequest>>,
    /// The moment of each request, from the start of the run.
    pub arrivals: Vec<Duration>,
    /// End-to-end objective, as the client sees it.
    pub slo: Duration,
}

/// The progress of a run.
#[derive(Default)]
pub struct LoadProgress {
    /// Requests that were sent.
    pub sent: AtomicU64,
    /// Requests that were answered within the objective.
    pub ok: AtomicU64,
    /// Requests that were answered in any way.
    pub answered: AtomicU64,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOutcome {
    /// Answered within the objective.
    Ok,
    /// Answered after it.
    Late,
    /// Refused with a reason.
    Dropped,
    /// Given up by the service, because the answer would have been far too late.
    GivenUp,
    /// Anything else.
    Failed,
}

/// One request as its client saw it.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// The moment when it was due, from the start of the run.
    pub at: Duration,
    /// The time between that moment and the end of its answer.
    pub latency: Duration,
    /// Its outcome.
    pub outcome: ClientOutcome,
    /// Labelled objects; zero without an answer.
    pub labels: u32,
    /// The labelled objects that were found and read correctly.
    pub correct: u32,
    /// The reason of a failure.
    pub error: Option<String>,
}

impl LiveLoad {
    /// Sends all requests and waits for all answers. Results are in the order of sending.
    ///
    /// # Errors
    /// If the HTTP client or the clock's thread cannot be made, or a client task ends early.
    pub async fn run(&self, progress: Arc<LoadProgress>) -> Result<Vec<SentRequest>> {
        let client =
            reqwest::Client::builder().timeout(ANSWER_WAIT_MAX).pool_idle_timeout(IDLE_MAX).tcp_nodelay(true).build();
        let client = client.context("HTTP client")?;
        let start = Instant::now();
        let mut running = JoinSet::new();
        let mut results: Vec<Option<SentRequest>> = vec![None; self.arrivals.len()];
        let mut due = start_clock(start, self.arrivals.clone())?;
        while let Some(i) = due.recv().await {
            let at = self.arrivals[i];
            progress.sent.fetch_add(1, Ordering::Relaxed);
            let ingress = &self.ingresses[i % self.ingresses.len()];
            let url = format!("http://{ingress}/v2/models/{}/infer", self.pipeline);
            let (client, requests, progress, slo) = (client.clone(), self.requests.clone(), progress.clone(), self.slo);
            running.spawn(async move {
                let request = &requests[i % requests.len()];
                let answer = send(&client, &url, request).await;
                let sent = judge(at, start.elapsed().saturating_sub(at), slo, request, answer);
                progress.answered.fetch_add(1, Ordering::Relaxed);
                progress.ok.fetch_add(u64::from(sent.outcome == ClientOutcome::Ok), Ordering::Relaxed);
                (i, sent)
            });
            while let Some(done) = running.try_join_next() {
                let (i, sent) = done.context("a client ended")?;
                results[i] = Some(sent);
            }
        }
        while let Some(done) = running.join_next().await {
            let (i, sent) = done.context("a client ended")?;
            results[i] = Some(sent);
        }
        Ok(results.into_iter().flatten().collect())
    }
}

/// The answer to an HTTP request.
struct HttpAnswer {
    status: u16,
    body: String,
}

async fn send(client: &reqwest::Client, url: &str, request: &LabelledRequest) -> Result<HttpAnswer> {
    let request = client.post(url).header("content-type", "application/json").body(request.body.clone());
    let response = request.send().await?;
    let status = response.status().as_u16();
    Ok(HttpAnswer { status, body: response.text().await? })
}

/// The HTTP status of a request that the service gave up.
const GIVEN_UP: u16 = 504;

fn judge(
    at: Duration,
    latency: Duration,
    slo: Duration,
    request: &LabelledRequest,
    answer: Result<HttpAnswer>,
) -> SentRequest {
    let failed = |error: String| (ClientOutcome::Failed, 0, Some(error));
    let (outcome, correct, error) = match answer {
        Err(error) => failed(format!("{error:#}")),
        Ok(HttpAnswer { status: 200, body }) => match InferenceResponse::parse(&body) {
            Ok(answer) => {
                let outcome = if latency <= slo { ClientOutcome::Ok } else { ClientOutcome::Late };
                (outcome, request.correct(&answer), None)
            }
            Err(error) => failed(format!("{error:#}")),
        },
        Ok(HttpAnswer { status: GIVEN_UP, body }) => (ClientOutcome::GivenUp, 0, Some(format!("{GIVEN_UP}: {body}"))),
        Ok(HttpAnswer { status: status @ (429 | 503), body }) => {
            (ClientOutcome::Dropped, 0, Some(format!("{status}: {body}")))
        }
        Ok(HttpAnswer { status, body }) => failed(format!("{status}: {body}")),
    };
    let answered = matches!(outcome, ClientOutcome::Ok | ClientOutcome::Late);
    let labels = if answered { request.labels.len() as u32 } else { 0 };
    SentRequest { at, latency, outcome, labels, correct, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_clock_tells_each_request_once_it_is_due() {
        let arrivals: Vec<Duration> = [0, 0, 2, 5, 9].map(Duration::from_millis).to_vec();
        let start = Instant::now();
        let mut due = start_clock(start, arrivals.clone()).expect("a thread");
        let mut told = Vec::new();
        while let Some(i) = due.recv().await {
            assert!(start.elapsed() >= arrivals[i], "request {i} came too early");
            told.push(i);
        }
        assert_eq!(told, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_load_that_ends_early_stops_its_clock() {
        let due = start_clock(Instant::now(), vec![Duration::ZERO; 2 * DUE_MAX]).expect("a thread");
        drop(due);
    }
}
