//! Open-loop load: every query is sent at its own time, whether or not earlier ones were answered.

use super::validation::{InferenceResponse, LabelledRequest};
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A request is given up after this long: the gateway answers well before.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// What is sent where.
pub struct Load {
    /// `host:port` of the ingresses, used in turn.
    pub ingresses: Vec<String>,
    /// The pipeline's name.
    pub pipeline: String,
    /// Requests to choose from, in turn.
    pub requests: Arc<Vec<LabelledRequest>>,
    /// When each query is sent, from the start of the run.
    pub arrivals: Vec<Duration>,
    /// End-to-end objective, as the client sees it.
    pub slo: Duration,
}

/// How far the run is, for whoever shows it.
#[derive(Default)]
pub struct Progress {
    /// Sent so far.
    pub sent: AtomicU64,
    /// Answered within the objective so far.
    pub ok: AtomicU64,
    /// Answered in any way so far.
    pub answered: AtomicU64,
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Answered within the objective.
    Ok,
    /// Answered after it.
    Late,
    /// Refused with a reason.
    Dropped,
    /// Not answered, because it would have been far too late.
    GivenUp,
    /// Anything else.
    Failed,
}

/// One request as its client saw it.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// When it was due, from the start of the run.
    pub at: Duration,
    /// From when it was due to its answer's end.
    pub latency: Duration,
    /// What became of it.
    pub outcome: RequestOutcome,
    /// Labelled objects, and those found and read correctly; zero unless answered.
    pub labels: u32,
    /// Of those, found and read correctly.
    pub correct: u32,
    /// Why it failed.
    pub error: Option<String>,
}

impl Load {
    /// Sends everything and waits for every answer; results are in the order of sending.
    pub async fn run(&self, progress: Arc<Progress>) -> Result<Vec<SentRequest>> {
        let client =
            reqwest::Client::builder().timeout(ANSWER_WAIT_MAX).tcp_nodelay(true).build().context("HTTP client")?;
        let start = Instant::now();
        let mut running = JoinSet::new();
        let mut results: Vec<Option<SentRequest>> = vec![None; self.arrivals.len()];
        for (i, &at) in self.arrivals.iter().enumerate() {
            tokio::time::sleep_until((start + at).into()).await;
            progress.sent.fetch_add(1, Ordering::Relaxed);
            let ingress = &self.ingresses[i % self.ingresses.len()];
            let url = format!("http://{ingress}/v2/models/{}/infer", self.pipeline);
            let (client, requests, progress, slo) = (client.clone(), self.requests.clone(), progress.clone(), self.slo);
            running.spawn(async move {
                let request = &requests[i % requests.len()];
                let answer = send(&client, &url, request).await;
                let sent = judge(at, start.elapsed().saturating_sub(at), slo, request, answer);
                progress.answered.fetch_add(1, Ordering::Relaxed);
                progress.ok.fetch_add(u64::from(sent.outcome == RequestOutcome::Ok), Ordering::Relaxed);
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

async fn send(client: &reqwest::Client, url: &str, request: &LabelledRequest) -> Result<(u16, String)> {
    let request = client.post(url).header("content-type", "application/json").body(request.body.clone());
    let response = request.send().await?;
    let status = response.status().as_u16();
    Ok((status, response.text().await?))
}

/// The status of an answer that will not come, because it would be far too late.
const GIVEN_UP: u16 = 504;

fn judge(
    at: Duration,
    latency: Duration,
    slo: Duration,
    request: &LabelledRequest,
    answer: Result<(u16, String)>,
) -> SentRequest {
    let failed = |error: String| (RequestOutcome::Failed, 0, Some(error));
    let (outcome, correct, error) = match answer {
        Err(error) => failed(format!("{error:#}")),
        Ok((200, body)) => match InferenceResponse::parse(&body) {
            Ok(answer) => {
                let outcome = if latency <= slo { RequestOutcome::Ok } else { RequestOutcome::Late };
                (outcome, request.correct(&answer), None)
            }
            Err(error) => failed(format!("{error:#}")),
        },
        Ok((GIVEN_UP, body)) => (RequestOutcome::GivenUp, 0, Some(format!("{GIVEN_UP}: {body}"))),
        Ok((status @ (429 | 503), body)) => (RequestOutcome::Dropped, 0, Some(format!("{status}: {body}"))),
        Ok((status, body)) => failed(format!("{status}: {body}")),
    };
    let answered = matches!(outcome, RequestOutcome::Ok | RequestOutcome::Late);
    let labels = if answered { request.labels.len() as u32 } else { 0 };
    SentRequest { at, latency, outcome, labels, correct, error }
}
