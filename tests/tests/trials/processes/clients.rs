//! Clients that ask for plans again and again, each time another process, under an idempotency key until one accepts.

use super::plane::ANSWER_MAX;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Pause between two requests for a plan.
const ASK_EVERY: Duration = Duration::from_millis(400);
/// Pause before another process is asked.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A client that runs until it is stopped.
pub struct PlanClient {
    running: JoinHandle<BTreeMap<String, Uuid>>,
    is_over: Arc<AtomicBool>,
}

impl PlanClient {
    /// Begins to ask the processes at these URLs. The demands go up and down.
    pub fn start(bases: Vec<String>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let running = tokio::spawn(async move {
            let client = reqwest::Client::builder().timeout(ANSWER_MAX).build().expect("a client");
            let mut accepted = BTreeMap::new();
            for number in 0_usize.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("plan-{number}");
                let demand_qps = 40.0 + (number % 7) as f64;
                let body = json!({"pipelines": [{"name": "chain", "demand_qps": demand_qps}]});
                let id = ask(&client, &bases, number, &key, &body).await;
                accepted.insert(key, id);
                tokio::time::sleep(ASK_EVERY).await;
            }
            accepted
        });
        Self { running, is_over }
    }

    /// Stops it after its present request. Returns the plan of each key.
    pub async fn stop(self) -> BTreeMap<String, Uuid> {
        self.is_over.store(true, Ordering::Relaxed);
        self.running.await.expect("the client does not panic")
    }
}

/// Asks one process after the other, until one accepts.
async fn ask(client: &reqwest::Client, bases: &[String], first: usize, key: &str, body: &Value) -> Uuid {
    for at in first.. {
        let url = format!("{}/v1/plans", bases[at % bases.len()]);
        let answer = client.post(url).header("idempotency-key", key).json(body).send().await;
        if let Ok(answer) = answer {
            let status = answer.status().as_u16();
            // Anything but a service that is away or busy is a defect.
            assert!([200, 202, 429, 503].contains(&status), "{key}: {status}: {:?}", answer.text().await);
            if status < 300
                && let Ok(plan) = answer.json::<Value>().await
            {
                return plan["id"].as_str().and_then(|id| id.parse().ok()).expect("an identifier");
            }
        }
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
    unreachable!("it asks until it has an answer")
}
