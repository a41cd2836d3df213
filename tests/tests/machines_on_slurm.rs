//! Machines are jobs of a real Slurm: they come when the load rises, go when it falls, and are replaced when they are lost.

use apportion_tests::cluster::Cluster;
use apportion_tests::digits;
use apportion_tests::load::{Ended, Ingresses, Load, Traffic};
use apportion_tests::slurm::SlurmCluster;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(120);
/// A replica serves at most 6.7 requests per second.
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       digit,read,read-s,t4,1,200,0.9\ndigit,read,read-s,t4,2,300,0.9\n";

/// A Slurm with two nodes of `t4`, and a service whose pipeline is planned for at least this demand.
struct Stage {
    // It ends first, so that it replaces no job that ends with the test.
    cluster: Cluster,
    slurm: SlurmCluster,
}

impl Stage {
    async fn start(settings: &Value, count_max: u32, min_qps: f64) -> Option<Self> {
        let slurm = SlurmCluster::start(3)?;
        let cluster = Cluster::serve_with(&["--machines", &slurm.settings(settings)]).await;
        let hardware = json!({"price_per_hour": 0.5, "count_max": count_max, "substrate": "slurm", "provision_s": 5});
        cluster.put("/v1/hardware/t4", &hardware).await;
        let stage = Self { cluster, slurm };
        stage.plan_for(min_qps).await;
        Some(stage)
    }

    async fn plan_for(&self, min_qps: f64) {
        let digest = self.cluster.upload(digits::model("read-s.onnx")).await;
        let more = json!({"replan": {"mode": "apply", "period_s": 2, "min_qps": min_qps}});
        let variants = [("read-s", digest.as_str(), 0.9)];
        self.cluster.register(&digits::pipeline("digit", &variants, &more), PROFILE).await;
    }

    /// Waits for an event of this kind that the check accepts, and returns its facts.
    async fn event(&self, kind: &str, check: impl Fn(&Value) -> bool) -> Value {
        let found = |list: &Value| {
            let mut facts = list.as_array()?.iter().map(|event| &event["detail"]);
            facts.find(|facts| check(facts)).cloned()
        };
        self.cluster.until(&format!("/v1/events?kind={kind}"), found).await
    }

    /// Waits until the target has replicas on exactly so many agents, and returns their number.
    async fn until_agents_used(&self, agents: usize) -> usize {
        let used = |target: &Value| {
            let replicas = target["placement"]["replicas"].as_array()?;
            let mut on: Vec<u64> = replicas.iter().filter_map(|replica| replica["agent"].as_u64()).collect();
            on.sort_unstable();
            on.dedup();
            (on.len() == agents).then_some(replicas.len())
        };
        self.cluster.until("/v1/target", used).await
    }

    /// Waits until so many jobs are there, and returns them.
    async fn until_jobs(&self, count: usize) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let jobs = self.slurm.jobs();
            if jobs.len() == count {
                return jobs;
            }
            assert!(begun.elapsed() < PATIENCE, "{jobs:?}, not {count}\n{}", self.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The address of the only live agent, once it serves the pipeline.
    async fn ingress(&self) -> String {
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
}

/// Requests at a rate, until it is stopped.
fn traffic(ingress: String, rate: f64) -> Traffic {
    let rates = vec![(Duration::ZERO, rate)];
    let load = Load { pipeline: "digit".into(), inputs: digits::inputs(), rates, length: Duration::from_secs(2), seed: 1 };
    Traffic::start(load, Ingresses::new(vec![ingress]))
}

/// Stops it: no accepted request has failed.
async fn stop(traffic: Traffic) {
    for (number, s) in traffic.stop().await.iter().enumerate() {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late | Ended::Shed(..)), "request {number}: {s:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_the_load_and_lost_ones_are_replaced() {
    let Some(stage) = Stage::start(&json!({"idle_s": 5, "wish_s": 60}), 4, 7.0).await else { return };
    stage.cluster.live(1).await;
    let jobs = stage.until_jobs(1).await;
    assert!(jobs[0].contains("RUNNING") && jobs[0].contains("gpu:t4:2"), "{jobs:?}");
    stage.event("machine-came", |facts| facts["hardware"] == "t4").await;
    let few = stage.until_agents_used(1).await;

    let traffic = traffic(stage.ingress().await, 18.0);
    stage.cluster.live(2).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("gpu:t4:2")), "{jobs:?}");
    let many = stage.until_agents_used(2).await;
    assert!(many > few, "{few} replicas became {many}");
    stop(traffic).await;

    // The load has gone, and the least demand needs one machine.
    let returned = stage.event("machine-returned", |_| true).await;
    assert!(["idle", "spare"].contains(&returned["reason"].as_str().unwrap_or_default()), "{returned}");
    stage.until_jobs(1).await;
    stage.until_agents_used(1).await;
    stage.cluster.live(1).await;

    let jobs = stage.until_jobs(1).await;
    let number = jobs[0].split(' ').next().expect("a number");
    let _said = stage.slurm.run("scancel", &[number]);
    let lost = stage.event("machine-lost", |_| true).await;
    assert!(lost["reason"].as_str().is_some_and(|why| why.contains(number)), "{lost}");
    stage
        .event("machine-came", |facts| {
            [&lost["machine"], &returned["machine"]].iter().all(|gone| **gone != facts["machine"])
        })
        .await;
    stage.cluster.live(1).await;
    let jobs = stage.until_jobs(1).await;
    assert_ne!(jobs[0].split(' ').next(), Some(number), "another job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_without_a_node_expires_and_the_plan_stays() {
    let Some(stage) = Stage::start(&json!({"wish_s": 15}), 6, 30.0).await else { return };
    // There are two nodes of this type, and the plan for what may be had wants three.
    let expired = stage.event("wish-expired", |_| true).await;
    let reason = expired["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("has not come within") && reason.contains("is PENDING"), "{expired}");
    let replicas = stage.until_agents_used(2).await;
    assert_eq!(replicas, 4, "the plan in force has the devices that are there");
    stage.cluster.live(2).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("RUNNING")), "the wish is taken back: {jobs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_concluded_while_slurmctld_is_away() {
    let Some(stage) = Stage::start(&json!({"idle_s": 5}), 4, 7.0).await else { return };
    stage.until_agents_used(1).await;
    let before = stage.until_jobs(1).await;
    stage.slurm.signal_controller("STOP");
    stage.plan_for(20.0).await;
    let silent = stage.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "begun").await;
    assert!(silent["reason"].as_str().is_some_and(|why| why.contains("squeue")), "{silent}");
    for kind in ["machine-lost", "wish-expired"] {
        assert_eq!(stage.cluster.get(&format!("/v1/events?kind={kind}")).await, json!([]), "{kind}");
    }
    let asked = stage.cluster.get("/v1/events?kind=machine-asked").await;
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "nothing was asked for: {asked:#}");
    stage.slurm.signal_controller("CONT");
    stage.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "over").await;
    stage.cluster.live(2).await;
    let after = stage.until_jobs(2).await;
    assert!(after.iter().any(|job| job.split(' ').next() == before[0].split(' ').next()), "{before:?}, {after:?}");
}
