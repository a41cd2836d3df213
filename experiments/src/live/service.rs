//! Which published calls of the service do experiments use?

use anyhow::{Context, Result, bail};
use apportion_support::pages::next_page;
use apportion_wire::{AgentState, PlanState};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The longest time until the service is ready. It may have to create its database first.
const READY_WAIT_MAX: Duration = Duration::from_secs(90);
/// The longest time until agents have joined, or have loaded the first plan.
const AGENTS_WAIT_MAX: Duration = Duration::from_secs(60);

/// The longest time until agents have measured their hops.
const HOPS_WAIT_MAX: Duration = Duration::from_secs(180);
/// Samples of each link between agents that a measured hop needs.
const HOP_SAMPLES_MIN: u64 = 30;

/// An agent that has joined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JoinedAgent {
    /// Its name.
    pub name: String,
    /// `host:port` of its HTTP ingress.
    pub ingress_http: String,
}

/// The state in a plan document of the service.
fn plan_state(plan: &Value) -> Option<PlanState> {
    PlanState::try_from(plan["state"].as_str()?.to_owned()).ok()
}

/// A connection to one service.
#[derive(Clone)]
pub struct Service {
    base: String,
    http: reqwest::Client,
}

impl Service {
    /// A client of the service at this URL. It connects with the first call.
    pub fn new(base: String) -> Result<Self> {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(60)).build()?;
        Ok(Self { base, http })
    }

    /// Waits until the service is ready.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn wait_until_ready(&self) -> Result<()> {
        self.wait_for("the service to be ready", READY_WAIT_MAX, || async {
            Ok(self.http.get(format!("{}/readyz", self.base)).send().await.is_ok_and(|r| r.status().is_success()))
        })
        .await
    }

    /// Reads a resource.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Replaces a resource.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(self.http.put(format!("{}{path}", self.base)).json(body)).await
    }

    /// Posts a fact about a resource.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(self.http.post(format!("{}{path}", self.base)).json(body)).await
    }

    /// Registers a profile in CSV.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn put_profile_csv(&self, pipeline: &str, profile: &str) -> Result<Value> {
        let request = self.http.put(format!("{}/v1/pipelines/{pipeline}/profiles", self.base));
        self.send(request.header("content-type", "text/csv").body(profile.to_owned())).await
    }

    /// Uploads a trace in CSV. Its name needs no encoding in a URL.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn post_trace(&self, name: &str, csv: Vec<u8>) -> Result<Value> {
        let request = self.http.post(format!("{}/v1/traces?name={name}", self.base));
        self.send(request.header("content-type", "text/csv").body(csv)).await
    }

    /// All agents that have registered, page by page.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn agents(&self) -> Result<Vec<Value>> {
        let mut agents = Vec::new();
        let mut next = Some("/v1/agents".to_owned());
        while let Some(page) = next {
            let response = self.http.get(format!("{}{page}", self.base)).send().await.context("talking to the service")?;
            next = next_page(&page, response.headers().get("link").and_then(|link| link.to_str().ok()));
            match Self::read(response).await? {
                Value::Array(more) => agents.extend(more),
                other => bail!("{page}: expected a list, found {other}"),
            }
        }
        Ok(agents)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value> {
        Self::read(request.send().await.context("talking to the service")?).await
    }

    async fn read(response: reqwest::Response) -> Result<Value> {
        let (url, status) = (response.url().clone(), response.status());
        let text = response.text().await?;
        if !status.is_success() {
            bail!("{url}: {status}: {text}");
        }
        Ok(if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).with_context(|| format!("{url}: {text}"))?
        })
    }

    /// Requests a plan of one pipeline at one demand and waits for it.
    ///
    /// # Errors
    /// If there is no plan.
    pub async fn make_plan(&self, pipeline: &str, demand_qps: f64) -> Result<Value> {
        let plan = self.request_plan(pipeline, demand_qps).await?;
        anyhow::ensure!(plan_state(&plan) == Some(PlanState::Succeeded), "there is no plan: {plan}");
        Ok(plan)
    }

    /// Requests a plan and waits until the job has ended, with or without a plan.
    ///
    /// # Errors
    /// If the service cannot be reached, or the job takes too long.
    pub async fn request_plan(&self, pipeline: &str, demand_qps: f64) -> Result<Value> {
        let body = json!({"pipelines": [{"name": pipeline, "demand_qps": demand_qps}]});
        let request = self.http.post(format!("{}/v1/plans", self.base)).header("prefer", "wait=30").json(&body);
        let mut plan = self.send(request).await?;
        let start = Instant::now();
        while plan_state(&plan).is_some_and(PlanState::is_open) {
            anyhow::ensure!(start.elapsed() < AGENTS_WAIT_MAX, "the plan is not ready: {plan}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let id = plan["id"].as_str().context("a plan without an id")?.to_owned();
            plan = self.get(&format!("/v1/plans/{id}")).await?;
        }
        Ok(plan)
    }

    /// Makes a plan the fleet's target in place of the present one. Returns the new generation.
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn set_target(&self, plan: &str) -> Result<u64> {
        let current = self.get("/v1/target").await?["generation"].as_u64().unwrap_or(0);
        let request = self.http.put(format!("{}/v1/target", self.base)).header("if-match", format!("\"{current}\""));
        let target = self.send(request.json(&json!({"plans": [plan]}))).await?;
        target["generation"].as_u64().context("a target without a generation")
    }

    /// Waits until this many agents have joined, as long as `still_run` has no error. Returns them by name.
    ///
    /// # Errors
    /// That of `still_run`, or if they take too long.
    pub async fn wait_for_agents(
        &self,
        count: usize,
        mut still_run: impl FnMut() -> Result<()>,
    ) -> Result<Vec<JoinedAgent>> {
        let mut found = Vec::new();
        let start = Instant::now();
        while found.len() < count {
            still_run()?;
            anyhow::ensure!(
                start.elapsed() < AGENTS_WAIT_MAX,
                "only {} of {count} agents joined: see their logs",
                found.len()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
            let agents = self.agents().await?;
            let live = agents.iter().filter(|a| a["state"] == AgentState::Live.name());
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let joined = |a: &Value| JoinedAgent { name: text(&a["name"]), ingress_http: text(&a["ingress_http"]) };
            found = live.map(joined).collect();
        }
        found.sort();
        Ok(found)
    }

    /// The gRPC address of the agent with this ingress; `None` without one.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub async fn ingress_grpc(&self, ingress: &str) -> Result<Option<String>> {
        let agents = self.agents().await?;
        let agent = agents.iter().find(|a| a["ingress_http"] == ingress);
        Ok(agent.and_then(|a| a["ingress_grpc"].as_str()).map(str::to_owned))
    }

    /// Waits until an ingress reports that the pipeline is ready.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn wait_until_pipeline_is_ready(&self, ingress: &str, pipeline: &str) -> Result<()> {
        let url = format!("http://{ingress}/v2/models/{pipeline}/ready");
        self.wait_for("the pipeline to be ready", AGENTS_WAIT_MAX, || async {
            Ok(self.http.get(&url).send().await.is_ok_and(|r| r.status().is_success()))
        })
        .await
    }

    /// Waits until each of these live agents has measured the hop to each other one often enough. Returns the median over
    /// all links in milliseconds, as the service has it; `None` for a single agent, which has no hop.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn measured_hop_ms(&self, pipeline: &str, agents: usize) -> Result<Option<f64>> {
        if agents < 2 {
            return Ok(None);
        }
        self.wait_for("agents to measure their hops", HOPS_WAIT_MAX, || async {
            let all = self.agents().await?;
            let live = all.iter().filter(|a| a["state"] == AgentState::Live.name());
            let links = live.flat_map(|a| a["hops"].as_array().into_iter().flatten());
            Ok(links.filter(|hop| hop["samples"].as_u64() >= Some(HOP_SAMPLES_MIN)).count() >= agents * (agents - 1))
        })
        .await?;
        let times = self.get(&format!("/v1/pipelines/{pipeline}/times")).await?;
        let median = times["network_ms"]["measured"]["median_ms"].as_f64();
        median.context("the service has no measured hop").map(Some)
    }

    async fn wait_for<F: Future<Output = Result<bool>>>(
        &self,
        what: &str,
        max: Duration,
        mut done: impl FnMut() -> F,
    ) -> Result<()> {
        let start = Instant::now();
        while !done().await? {
            anyhow::ensure!(start.elapsed() < max, "waited {} s for {what}", max.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}
