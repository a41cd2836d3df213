//! Machines are jobs of a real Slurm: they come when the load rises, go when it falls, and are replaced when they are lost.

use apportion_tests::cluster::Cluster;
use apportion_tests::digits;
use apportion_tests::load::{Ended, Ingresses, Load, Traffic};
use apportion_tests::slurm::SlurmCluster;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(300);
/// A time limit that no test reaches.
const LONG: &str = "01:00:00";
/// A load that one machine serves with ease, in requests per second.
const LIGHT_QPS: f64 = 5.0;
/// A replica serves at most 6.7 requests per second.
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       digit,read,read-s,t4,1,200,0.9\ndigit,read,read-s,t4,2,300,0.9\n";

/// A Slurm, and a service whose pipeline is planned for at least a demand.
struct Stage {
    // It ends first, so that it replaces no job that ends with the test.
    cluster: Cluster,
    slurm: SlurmCluster,
}

impl Stage {
    /// Two nodes have devices `t4`.
    async fn start(settings: &Value, count_max: u32, min_qps: f64) -> Option<Self> {
        let slurm = SlurmCluster::start(3)?;
        let cluster = Cluster::serve_with(&["--machines", &slurm.settings(LONG, settings)]).await;
        Self { cluster, slurm }.register(5, count_max, min_qps).await
    }

    /// Three nodes have devices `t4`. Clients reach the pipeline by an agent that is no job, and so never goes.
    async fn start_with_gateway(time: &str, provision_s: u32, min_qps: f64) -> Option<Self> {
        let slurm = SlurmCluster::start(4)?;
        let settings = slurm.settings(time, &json!({"idle_s": 600, "wish_s": 600}));
        let cluster = Cluster::serve_with_gateway(&["--machines", &settings]).await;
        Self { cluster, slurm }.register(provision_s, 6, min_qps).await
    }

    async fn register(self, provision_s: u32, count_max: u32, min_qps: f64) -> Option<Self> {
        let hardware =
            json!({"price_per_hour": 0.5, "count_max": count_max, "substrate": "slurm", "provision_s": provision_s});
        self.cluster.put("/v1/hardware/t4", &hardware).await;
        self.plan_for(min_qps).await;
        Some(self)
    }

    async fn plan_for(&self, min_qps: f64) {
        let digest = self.cluster.upload(digits::model("read-s.onnx")).await;
        let more = json!({"replan": {"mode": "apply", "period_s": 2, "min_qps": min_qps}});
        let variants = [("read-s", digest.as_str(), 0.9)];
        self.cluster.register(&digits::pipeline("digit", &variants, &more), PROFILE).await;
    }

    /// Waits for an event of this kind that the check accepts, and returns its facts.
    async fn event(&self, kind: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.events(kind, 1, check).await.swap_remove(0)
    }

    /// Waits for this number of such events, and returns their facts, the newest first.
    async fn events(&self, kind: &str, count: usize, check: impl Fn(&Value) -> bool) -> Vec<Value> {
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

    /// A light load on the gateway, once the pipeline is ready there.
    async fn light_traffic(&self) -> Traffic {
        self.cluster.ready("digit").await;
        traffic(self.cluster.ingress(0), LIGHT_QPS)
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

/// Stops it: no accepted request has failed. Returns the part of the requests that was answered.
async fn stop(traffic: Traffic) -> f64 {
    let sent = traffic.stop().await;
    for (number, s) in sent.iter().enumerate() {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late | Ended::Shed(..)), "request {number}: {s:?}");
    }
    let answered = sent.iter().filter(|s| matches!(s.ended, Ended::Ok | Ended::Late)).count();
    answered as f64 / sent.len().max(1) as f64
}

/// The number of a job in a line of `squeue`.
fn number_of(job: &str) -> String {
    job.split(' ').next().expect("a number").to_owned()
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
    let _answered = stop(traffic).await;

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
    let traffic = traffic(stage.ingress().await, LIGHT_QPS);
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
    let answered = stop(traffic).await;
    assert!(answered >= 0.95, "{answered} of the requests");
    let after = stage.until_jobs(2).await;
    assert!(after.iter().any(|job| job.split(' ').next() == before[0].split(' ').next()), "{before:?}, {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_node_costs_no_accepted_request() {
    let Some(stage) = Stage::start_with_gateway(LONG, 5, 18.0).await else { return };
    stage.until_agents_used(2).await;
    let jobs = stage.until_jobs(2).await;
    stage.events("machine-came", 2, |_| true).await;
    let traffic = stage.light_traffic().await;
    let job = number_of(&jobs[0]);
    let node = stage.slurm.node_of(&job);
    stage.slurm.fail_node(&node, &job);
    let lost = stage.event("machine-lost", |_| true).await;
    assert!(lost["reason"].as_str().is_some_and(|why| why.contains(&format!("job {job} "))), "{lost}");
    // The job waits again and starts elsewhere, or another one is asked for.
    stage.events("machine-came", 3, |_| true).await;
    stage.until_agents_used(2).await;
    let _answered = stop(traffic).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("RUNNING")), "{jobs:?}");
    let nodes: Vec<String> = jobs.iter().map(|job| stage.slurm.node_of(&number_of(job))).collect();
    assert!(!nodes.contains(&node), "{nodes:?}, and {node} is down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_job_costs_no_accepted_request() {
    let Some(stage) = Stage::start_with_gateway(LONG, 5, 18.0).await else { return };
    stage.until_agents_used(2).await;
    let jobs = stage.until_jobs(2).await;
    let came = stage.events("machine-came", 2, |_| true).await;
    let traffic = stage.light_traffic().await;
    let job = number_of(&jobs[0]);
    assert_eq!(stage.slurm.run("scontrol", &["requeue", &job]).trim(), "");
    let lost = stage.event("machine-lost", |_| true).await;
    let why = lost["reason"].as_str().unwrap_or_default();
    assert!(why.contains("it waits again") && why.contains(&format!("job {job} is ")), "{lost}");
    stage.cluster.until("/v1/machines?state=coming", |list| (list[0]["name"] == lost["machine"]).then_some(())).await;
    let again = stage.events("machine-came", 3, |_| true).await;
    assert!(came.iter().all(|facts| again.contains(facts)) && again[0]["machine"] == lost["machine"], "{again:?}");
    stage.until_agents_used(2).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.9, "{answered} of the requests");
    let numbers: Vec<String> = stage.until_jobs(2).await.iter().map(|job| number_of(job)).collect();
    assert!(numbers.contains(&job), "{numbers:?}: it is the same job");
}

/// Slurm may signal the end of a job two minutes before it, and the service asks for a successor at half of the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_is_renewed_before_its_end() {
    let Some(stage) = Stage::start_with_gateway("00:05:00", 30, 7.0).await else { return };
    stage.until_agents_used(1).await;
    let first = number_of(&stage.until_jobs(1).await[0]);
    let came = stage.event("machine-came", |_| true).await;
    let traffic = stage.light_traffic().await;
    let asked = stage.event("machine-asked", |facts| facts["reason"] == "renewed").await;
    assert_ne!(stage.slurm.node_of(&first), "", "the first job runs until its successor is there");
    stage.event("machine-came", |facts| facts["machine"] == asked["machine"]).await;
    let returned = stage.event("machine-returned", |_| true).await;
    assert_eq!((&returned["machine"], &returned["reason"]), (&came["machine"], &json!("ends_soon")));
    let second = number_of(&stage.until_jobs(1).await[0]);
    assert_ne!(second, first, "the successor");
    stage.until_agents_used(1).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.95, "{answered} of the requests");
    let lost = stage.cluster.get("/v1/events?kind=machine-lost").await;
    assert_eq!(lost, json!([]), "no job came to the end of its time");
}
