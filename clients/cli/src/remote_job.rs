//! How does a command leave a job to a service, and wait for its end?

use crate::service::ServiceClient;
use anyhow::Context;
use apportion_support::exit::Failure;
use reqwest::Method;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Pause between two questions whether the job is over.
const POLL: Duration = Duration::from_millis(200);
/// Longest time without an answer of the service: it may be started again meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// A kind of jobs of a service.
pub struct RemoteJobKind<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// The name of its list below `/v1`.
    pub list: &'a str,
    /// The states of jobs that are not over.
    pub open: &'a [&'a str],
}

impl RemoteJobKind<'_> {
    /// Starts a job, says its identifier, and waits for its end. Returns the job's document; `on_document` sees each one.
    ///
    /// # Errors
    /// If the service refuses, or does not answer for a minute.
    pub async fn run(
        &self,
        client: &ServiceClient,
        request: &Value,
        on_document: &dyn Fn(&Value),
    ) -> Result<Value, Failure> {
        let jobs = client.path(&["v1", self.list]);
        let made = client.accepted(&jobs, client.send(Method::POST, &jobs, &[], Some(request)).await?)?;
        let id = made["id"].as_str().with_context(|| format!("{} without an id", self.name))?.to_owned();
        let path = client.path(&["v1", self.list, &id]);
        eprintln!("{} {id}", self.name);
        let mut answered = Instant::now();
        loop {
            match client.send(Method::GET, &path, &[], None).await {
                Ok(answer) => {
                    let document = client.accepted(&path, answer)?;
                    answered = Instant::now();
                    on_document(&document);
                    if !self.open.iter().any(|open| document["state"] == *open) {
                        return Ok(document);
                    }
                }
                Err(_) if answered.elapsed() < AWAY_MAX => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
