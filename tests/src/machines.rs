//! A service that asks a substrate for machines, and a pipeline of one task that they serve.

use crate::cluster::Cluster;
use crate::digits;
use crate::load::{Ended, Ingresses, Load, Traffic};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// A load that one machine serves with ease, in requests per second.
pub const LIGHT_QPS: f64 = 5.0;
/// A replica serves at most 6.7 requests per second. A machine has two devices.
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       digit,read,read-s,t4,1,200,0.9\ndigit,read,read-s,t4,2,300,0.9\n";

/// The hardware type `t4`, as the service may ask for it.
#[derive(Clone, Copy, Debug)]
pub struct MachineType {
    /// The substrate that has it.
    pub substrate: &'static str,
    /// Most devices.
    pub count_max: u32,
    /// Seconds from a wish to its machine, as expected.
    pub provision_s: u32,
}

/// The service with its pipeline.
pub struct MachineFleet {
    /// The processes.
    pub cluster: Cluster,
}

impl MachineFleet {
    /// Registers the hardware type, and the pipeline for at least this demand.
    pub async fn register(cluster: Cluster, machine: MachineType, min_qps: f64) -> Self {
        Self::register_in(cluster, machine, &[], min_qps).await
    }

    /// As [`Self::register`], with machines in these zones.
    pub async fn register_in(cluster: Cluster, machine: MachineType, zones: &[&str], min_qps: f64) -> Self {
        let MachineType { substrate, count_max, provision_s } = machine;
        let hardware = json!({
            "price_per_hour": 0.5, "count_max": count_max, "substrate": substrate, "provision_s": provision_s, "zones": zones
        });
        cluster.put("/v1/hardware/t4", &hardware).await;
        let fleet = Self { cluster };
        fleet.plan_for(min_qps).await;
        fleet
    }

    /// Registers the pipeline for at least this demand.
    pub async fn plan_for(&self, min_qps: f64) {
        let digest = self.cluster.upload(digits::model("read-s.onnx")).await;
        let more = json!({"replan": {"mode": "apply", "period_s": 2, "min_qps": min_qps}});
        let variants = [("read-s", digest.as_str(), 0.9)];
        self.cluster.register(&digits::pipeline("digit", &variants, &more), PROFILE).await;
    }

    /// Waits for an event of this kind that the check accepts, and returns its facts.
    pub async fn event(&self, kind: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.events(kind, 1, check).await.swap_remove(0)
    }

    /// Waits for this number of such events, and returns their facts, the newest first.
    ///
    /// # Panics
    /// If they do not come.
    pub async fn events(&self, kind: &str, count: usize, check: impl Fn(&Value) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let list = self.cluster.get(&format!("/v1/events?kind={kind}")).await;
            let facts = list.as_array().expect("a list").iter().map(|event| &event["detail"]);
            let found: Vec<Value> = facts.filter(|facts| check(facts)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{kind}: {list:#}\n{}", self.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Asserts that there is no event of this kind.
    ///
    /// # Panics
    /// If there is one.
    pub async fn no_event(&self, kind: &str) {
        assert_eq!(self.cluster.get(&format!("/v1/events?kind={kind}")).await, json!([]), "{kind}");
    }

    /// Waits until the target has replicas on exactly so many agents, and returns their number.
    pub async fn until_agents_used(&self, agents: usize) -> usize {
        let used = |target: &Value| {
            let replicas = target["placement"]["replicas"].as_array()?;
            let mut on: Vec<u64> = replicas.iter().filter_map(|replica| replica["agent"].as_u64()).collect();
            on.sort_unstable();
            on.dedup();
            (on.len() == agents).then_some(replicas.len())
        };
        self.cluster.until("/v1/target", used).await
    }

    /// The address of a live agent, once it serves the pipeline.
    ///
    /// # Panics
    /// If it does not.
    pub async fn ingress(&self) -> String {
        let live = |list: &Value| {
            let agent = list.as_array()?.iter().find(|agent| agent["state"] == "live")?;
            Some(format!("http://{}", agent["ingress_http"].as_str()?))
        };
        let ingress = self.cluster.until("/v1/agents", live).await;
        let begun = Instant::now();
        let url = format!("{ingress}/v2/models/digit/ready");
        while !reqwest::get(&url).await.is_ok_and(|answer| answer.status().is_success()) {
            assert!(begun.elapsed() < PATIENCE, "{url}\n{}", self.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ingress
    }

    /// A light load on the cluster's own agent, once the pipeline is ready there.
    pub async fn light_traffic(&self) -> Traffic {
        self.cluster.ready("digit").await;
        traffic(self.cluster.ingress(0), LIGHT_QPS)
    }
}

/// Requests at a rate, until it is stopped.
#[must_use]
pub fn traffic(ingress: String, rate: f64) -> Traffic {
    let rates = vec![(Duration::ZERO, rate)];
    let load = Load { pipeline: "digit".into(), inputs: digits::inputs(), rates, length: Duration::from_secs(2), seed: 1 };
    Traffic::start(load, Ingresses::new(vec![ingress]))
}

/// Stops it: no accepted request has failed. Returns the part of the requests that was answered.
///
/// # Panics
/// If one has failed.
pub async fn stop(traffic: Traffic) -> f64 {
    let sent = traffic.stop().await;
    for (number, s) in sent.iter().enumerate() {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late | Ended::Shed(..)), "request {number}: {s:?}");
    }
    let answered = sent.iter().filter(|s| matches!(s.ended, Ended::Ok | Ended::Late)).count();
    answered as f64 / sent.len().max(1) as f64
}
