//! What do the clients of a load see, and how long is a request outside of the gateways?

use super::counts::{AgentSums, CountedSum};
use crate::live::estimate::poisson_arrivals;
use crate::live::figures::{Figures, RequestResult, longest_ms};
use crate::live::load::{ClientOutcome, LiveLoad, LoadProgress, SentRequest};
use crate::live::scrape::scrape_agent;
use crate::live::service::JoinedAgent;
use crate::live::validation::{LabelledRequest, ValidationSet};
use anyhow::{Result, ensure};
use apportion_domain::{ArrivalTrace, Moment};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Fewest and most single requests.
const SINGLE_REQUESTS: RangeInclusive<u64> = 100..=10_000;
/// The time between two of them: each has the machine to itself.
const SINGLE_EVERY: Duration = Duration::from_millis(100);
/// Agents publish their counts within this time.
const COUNTS_WAIT: Duration = Duration::from_millis(300);

/// A run of a load, as its clients saw it.
#[derive(Clone, Debug)]
pub struct PlayedRun {
    /// All requests.
    pub requests: usize,
    /// Its figures.
    pub figures: Figures,
    /// Latencies in ms of requests that were answered or given up.
    pub latencies: CountedSum,
    /// Latencies in ms of answered requests.
    pub answered: CountedSum,
    /// Requests that failed. Their clients have no answer, so they are not in time.
    pub failures: RequestFailures,
}

/// Requests that were neither answered nor refused with a reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFailures {
    /// How many.
    pub count: usize,
    /// What the client of the first one was told.
    pub first: Option<String>,
}

impl RequestFailures {
    fn of(sent: &[SentRequest]) -> Self {
        let failed = || sent.iter().filter(|s| s.outcome == ClientOutcome::Failed);
        Self { count: failed().count(), first: failed().find_map(|s| s.error.clone()) }
    }

    /// Adds those of a later run.
    pub fn add(&mut self, later: Self) {
        self.count += later.count;
        self.first = self.first.take().or(later.first);
    }
}

impl PlayedRun {
    fn of(sent: &[SentRequest], slo_ms: f64) -> Self {
        let longest_ms = longest_ms(slo_ms);
        let seen: Vec<RequestResult> = sent.iter().map(|s| RequestResult::of(s, longest_ms)).collect();
        let is_answered = |s: &&SentRequest| matches!(s.outcome, ClientOutcome::Ok | ClientOutcome::Late);
        let answered = sent.iter().filter(is_answered).map(|s| 1e3 * s.latency.as_secs_f64());
        Self {
            requests: seen.len(),
            figures: Figures::of(&seen, &[]),
            latencies: sum_of(seen.iter().filter_map(|s| s.took_ms)),
            answered: sum_of(answered),
            failures: RequestFailures::of(sent),
        }
    }
}

/// The sum of these numbers.
pub fn sum_of(numbers: impl Iterator<Item = f64>) -> CountedSum {
    let add = |CountedSum { count, sum }: CountedSum, number| CountedSum { count: count + 1.0, sum: sum + number };
    numbers.fold(CountedSum::default(), add)
}

/// The clients of a pipeline. They use the ingresses in turn.
pub struct Player<'a> {
    /// The pipeline.
    pub spec: &'a ValidationSet,
    /// The agents with the ingresses.
    pub agents: &'a [JoinedAgent],
    /// The requests, sent in turn.
    pub requests: Arc<Vec<LabelledRequest>>,
}

impl Player<'_> {
    /// Plays Poisson arrivals at these rates.
    ///
    /// # Errors
    /// If there is no client.
    pub async fn play(&self, rates: Vec<(u64, f64)>, seed: u64) -> Result<PlayedRun> {
        self.send(poisson_arrivals(rates, seed)?).await
    }

    async fn send(&self, arrivals: Vec<Duration>) -> Result<PlayedRun> {
        let load = LiveLoad {
            ingresses: self.agents.iter().map(|agent| agent.ingress_http.clone()).collect(),
            pipeline: self.spec.name.clone(),
            requests: self.requests.clone(),
            arrivals,
            slo: Duration::from_secs_f64(self.spec.slo_ms / 1e3),
        };
        Ok(PlayedRun::of(&load.run(Arc::new(LoadProgress::default())).await?, self.spec.slo_ms))
    }

    /// What the agents have counted up to now.
    ///
    /// # Errors
    /// If an agent does not answer.
    pub async fn agent_sums(&self) -> Result<AgentSums> {
        tokio::time::sleep(COUNTS_WAIT).await;
        let mut sums = AgentSums::default();
        for agent in self.agents {
            sums.add(&AgentSums::of(&scrape_agent(&agent.ingress_http).await?, &self.spec.name), 1.0);
        }
        Ok(sums)
    }

    /// Plays requests one after the other: no query waits for another request.
    ///
    /// # Errors
    /// If a request fails.
    pub async fn play_single_requests(&self, requests: u32) -> Result<SingleRequests> {
        let before = self.agent_sums().await?;
        let run = self.send(single_arrivals(requests).collect()).await?;
        let RequestFailures { count, first } = &run.failures;
        ensure!(*count == 0, "{count} of {requests} single requests failed: {}", first.as_deref().unwrap_or_default());
        let mut sums = self.agent_sums().await?;
        sums.add(&before, -1.0);
        ensure!(sums.served.count > 0.0, "the agents counted no request");
        Ok(SingleRequests { mean_ms: run.latencies.mean(), outside_ms: outside_ms(run.answered, &sums), sums })
    }
}

/// What single requests measured.
pub struct SingleRequests {
    /// Mean latency in ms, as clients saw it.
    pub mean_ms: f64,
    /// The part outside of the gateways: HTTP and JSON.
    pub outside_ms: f64,
    /// What the agents counted.
    pub sums: AgentSums,
}

/// How many single requests measure what the estimator does not know: as many as this time has room for.
///
/// Times of batches are drawn, and requests differ in their queries. So the mean of a hundred latencies of the digits
/// pipeline is off by nearly a millisecond, which is as long as what it should measure.
pub fn single_requests_within(time: Duration) -> u32 {
    let requests = u64::try_from(time.as_millis() / SINGLE_EVERY.as_millis()).unwrap_or(u64::MAX);
    requests.clamp(*SINGLE_REQUESTS.start(), *SINGLE_REQUESTS.end()) as u32
}

/// When single requests are sent.
fn single_arrivals(requests: u32) -> impl Iterator<Item = Duration> {
    (0..requests).map(|at| at * SINGLE_EVERY)
}

/// Single requests, as the estimator plays them.
///
/// # Errors
/// None: they are in order.
pub fn single_requests(requests: u32) -> Result<ArrivalTrace> {
    let moment = |at: Duration| Moment::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
    Ok(ArrivalTrace::arrivals(single_arrivals(requests).map(moment).collect())?)
}

/// Mean milliseconds of requests outside of the gateways: the clients' latency minus the gateways'.
pub fn outside_ms(answered: CountedSum, sums: &AgentSums) -> f64 {
    (answered.mean() - 1e3 * sums.served.mean()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::scrape::read_samples;

    #[test]
    fn single_requests_take_the_time_of_the_runs_of_a_load() {
        assert_eq!(single_requests_within(Duration::from_secs(150)), 1_500);
        assert_eq!(single_requests_within(Duration::from_secs(2)), 100);
        assert_eq!(single_requests_within(Duration::MAX), 10_000);
    }

    #[test]
    fn time_outside_of_gateways_is_what_clients_saw_beyond() {
        let page = "apportion_request_duration_seconds_sum{model_name=\"digits\"} 0.5\n\
                    apportion_request_duration_seconds_count{model_name=\"digits\"} 10\n";
        let sums = AgentSums::of(&read_samples(page).expect("a page"), "digits");
        assert!((outside_ms(CountedSum { count: 10.0, sum: 512.0 }, &sums) - 1.2).abs() < 1e-9);
        assert_eq!(outside_ms(CountedSum::default(), &sums), 0.0);
    }

    fn sent(latency_ms: u64, outcome: ClientOutcome) -> SentRequest {
        let error = (outcome == ClientOutcome::Failed).then(|| format!("after {latency_ms} ms"));
        SentRequest {
            at: Duration::ZERO,
            latency: Duration::from_millis(latency_ms),
            outcome,
            labels: 0,
            correct: 0,
            error,
        }
    }

    #[test]
    fn requests_that_were_given_up_have_no_answer() {
        let all = [sent(50, ClientOutcome::Ok), sent(450, ClientOutcome::Late), sent(4_100, ClientOutcome::GivenUp)];
        let run = PlayedRun::of(&all, 400.0);
        assert_eq!((run.requests, run.answered), (3, CountedSum { count: 2.0, sum: 500.0 }));
        assert_eq!(run.latencies, CountedSum { count: 3.0, sum: 4_500.0 });
    }

    #[test]
    fn failed_requests_are_counted_as_not_in_time() {
        let all = [ClientOutcome::Ok, ClientOutcome::Failed, ClientOutcome::Failed, ClientOutcome::Ok];
        let mut run = PlayedRun::of(&[1, 2, 3, 4].map(|ms| sent(ms, all[ms as usize - 1])), 400.0);
        assert!((run.figures.attainment - 0.5).abs() < 1e-9, "{run:?}");
        assert_eq!((run.answered.count, run.failures.first.as_deref()), (2.0, Some("after 2 ms")));
        run.failures.add(RequestFailures::of(&[sent(9, ClientOutcome::Failed)]));
        assert_eq!(run.failures, RequestFailures { count: 3, first: Some("after 2 ms".to_owned()) });
    }
}
