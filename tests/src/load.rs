//! Open-loop load on a cluster's ingresses, and what became of every request.

use apportion_serving::mix::SplitMix;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// A client waits no longer than this for its answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// What became of a request, as its client saw it.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Answered, and the answer says that it was in time.
    Ok,
    /// Answered, and the answer says that it was late.
    Late,
    /// Refused or dropped, with the status and the reason.
    Shed(u16, String),
    /// Answered with anything else.
    Failed(u16, String),
    /// The connection broke, or nobody answered.
    Lost(String),
    /// The answer bears the number of another request.
    Foreign(String),
}

/// One request.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it was due, from the start of the load.
    pub at: Duration,
    /// Until its answer was read.
    pub latency: Duration,
    /// The ingress that it was sent to.
    pub ingress: usize,
    /// What became of it.
    pub ended: Ended,
}

/// Which ingresses clients use, as a load balancer with health checks would know.
#[derive(Debug, Default)]
pub struct Ingresses {
    urls: Vec<String>,
    is_used: Vec<AtomicBool>,
    next: AtomicUsize,
    /// What draws the ingress of each request; `None` if they are used in turn.
    draws: Option<Mutex<SplitMix>>,
}

impl Ingresses {
    /// All of them, in use.
    #[must_use]
    pub fn new(urls: Vec<String>) -> Arc<Self> {
        Self::with_draws(urls, None)
    }

    /// All of them, in use. Each request goes to any of them, as those of many clients do that know nothing of each other.
    #[must_use]
    pub fn at_random(urls: Vec<String>, seed: u64) -> Arc<Self> {
        Self::with_draws(urls, Some(Mutex::new(SplitMix(seed))))
    }

    fn with_draws(urls: Vec<String>, draws: Option<Mutex<SplitMix>>) -> Arc<Self> {
        let is_used = urls.iter().map(|_| AtomicBool::new(true)).collect();
        Arc::new(Self { urls, is_used, next: AtomicUsize::new(0), draws })
    }

    /// Whether clients use one from now on.
    pub fn set(&self, at: usize, is_used: bool) {
        self.is_used[at].store(is_used, Ordering::SeqCst);
    }

    fn pick(&self) -> usize {
        let drawn =
            self.draws.as_ref().map(|draws| draws.lock().expect("no draw panics").bits() as usize % self.urls.len());
        for step in 0..self.urls.len() {
            let next = drawn.map_or_else(|| self.next.fetch_add(1, Ordering::SeqCst), |drawn| drawn + step);
            let at = next % self.urls.len();
            if self.is_used[at].load(Ordering::SeqCst) {
                return at;
            }
        }
        0
    }
}

/// A load that is sent again and again, until it is stopped.
pub struct Traffic {
    running: JoinHandle<Vec<Sent>>,
    is_over: Arc<AtomicBool>,
}

impl Traffic {
    /// Begins to send.
    #[must_use]
    pub fn start(load: Load, ingresses: Arc<Ingresses>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let running = tokio::spawn(async move {
            let mut all = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                all.extend(load.run(ingresses.clone(), Instant::now()).await);
            }
            all
        });
        Self { running, is_over }
    }

    /// Stops it after the load that is being sent. Returns all requests.
    ///
    /// # Panics
    /// If sending has panicked.
    pub async fn stop(self) -> Vec<Sent> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.running.await.expect("the load ends");
        eprintln!("{} requests: {}", sent.len(), summary(&sent));
        sent
    }
}

/// A steady load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The pipeline.
    pub pipeline: String,
    /// The request's `inputs`.
    pub inputs: Value,
    /// Requests per second over time: (from, rate), the first from 0.
    pub rates: Vec<(Duration, f64)>,
    /// How long.
    pub length: Duration,
    /// Root of the arrivals.
    pub seed: u64,
}

impl Load {
    /// A Poisson process of these rates.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Duration> {
        let mut stream = SplitMix(self.seed);
        let mut at = Duration::ZERO;
        let mut arrivals = Vec::new();
        loop {
            let rate = self.rates.iter().rev().find(|r| r.0 <= at).map_or(1.0, |r| r.1);
            at += Duration::from_secs_f64(-(1.0 - stream.unit()).ln() / rate);
            if at >= self.length {
                return arrivals;
            }
            arrivals.push(at);
        }
    }

    /// Sends each request at its time and waits for every answer. Answers are in the order of sending. `start` is the
    /// load's second 0.
    ///
    /// # Panics
    /// If a client cannot be made.
    pub async fn run(&self, ingresses: Arc<Ingresses>, start: Instant) -> Vec<Sent> {
        // Kept, so that it says nothing.
        let (_never, ends) = oneshot::channel();
        self.run_until(ingresses, start, ends).await
    }

    /// The same, but nothing is sent any more as soon as `ends` says so.
    ///
    /// # Panics
    /// If a client cannot be made.
    pub async fn run_until(&self, ingresses: Arc<Ingresses>, start: Instant, mut ends: oneshot::Receiver<()>) -> Vec<Sent> {
        let client = reqwest::Client::builder().timeout(ANSWER_WAIT_MAX).tcp_nodelay(true).build().expect("a client");
        let results = Arc::new(Mutex::new(Vec::new()));
        let mut running = JoinSet::new();
        for (number, at) in self.arrivals().into_iter().enumerate() {
            tokio::select! {
                biased;
                _ends = &mut ends => break,
                () = tokio::time::sleep_until((start + at).into()) => {}
            }
            let (client, ingresses, results) = (client.clone(), ingresses.clone(), results.clone());
            let body = json!({"id": format!("request-{number}"), "inputs": self.inputs}).to_string();
            let path = format!("/v2/models/{}/infer", self.pipeline);
            running.spawn(async move {
                let ingress = ingresses.pick();
                let url = format!("{}{path}", ingresses.urls[ingress]);
                let ended = send(&client, &url, body, number).await;
                let latency = start.elapsed().saturating_sub(at);
                results.lock().expect("no holder panics").push((number, Sent { at, latency, ingress, ended }));
            });
            while running.try_join_next().is_some() {}
        }
        while let Some(done) = running.join_next().await {
            done.expect("a client ends");
        }
        let mut results = std::mem::take(&mut *results.lock().expect("no holder panics"));
        results.sort_by_key(|r| r.0);
        results.into_iter().map(|r| r.1).collect()
    }
}

async fn send(client: &reqwest::Client, url: &str, body: String, number: usize) -> Ended {
    let request = client.post(url).header("content-type", "application/json").body(body);
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Ended::Lost(format!("{error:?}")),
    };
    let status = response.status().as_u16();
    let text = match response.text().await {
        Ok(text) => text,
        Err(error) => return Ended::Lost(format!("{error:?}")),
    };
    let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if status == 200 && answer["id"] != format!("request-{number}") {
        return Ended::Foreign(text);
    }
    match (status, answer["parameters"]["outcome"].as_str()) {
        (200, Some("ok")) => Ended::Ok,
        (200, _) => Ended::Late,
        (429 | 503 | 504, _) => Ended::Shed(status, text),
        _ => Ended::Failed(status, text),
    }
}

/// Part of these requests that was answered in time; 1 without any.
#[must_use]
pub fn attainment<'a>(sent: impl IntoIterator<Item = &'a Sent>) -> f64 {
    let (mut ok, mut all) = (0_u32, 0_u32);
    for s in sent {
        all += 1;
        ok += u32::from(s.ended == Ended::Ok);
    }
    if all == 0 { 1.0 } else { f64::from(ok) / f64::from(all) }
}

/// How many ended in which way, in words.
#[must_use]
pub fn summary(sent: &[Sent]) -> String {
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for s in sent {
        let what = match &s.ended {
            Ended::Ok => "ok".to_owned(),
            Ended::Late => "late".to_owned(),
            Ended::Shed(status, text) => format!("shed {status} {}", reason(text)),
            Ended::Failed(status, text) => format!("failed {status} {}", reason(text)),
            Ended::Lost(_) => "lost".to_owned(),
            Ended::Foreign(_) => "foreign".to_owned(),
        };
        *counts.entry(what).or_default() += 1;
    }
    counts.iter().map(|(what, n)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
}

fn reason(text: &str) -> String {
    let answer: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    answer["reason"].as_str().or(answer["error"].as_str()).unwrap_or(text).chars().take(60).collect()
}
