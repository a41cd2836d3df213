//! Machines are jobs of a real Slurm: they come when the load rises, go when it falls, and are replaced when they are lost.

use apportion_tests::cluster::Cluster;
use apportion_tests::machines::{LIGHT_QPS, MachineFleet, MachineType, PATIENCE, stop, traffic};
use apportion_tests::slurm::SlurmCluster;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A time limit that no test reaches.
const LONG: &str = "01:00:00";

/// A Slurm, and a service whose pipeline is planned for at least a demand.
struct Stage {
    // It ends first, so that it replaces no job that ends with the test.
    fleet: MachineFleet,
    slurm: SlurmCluster,
}

impl Stage {
    /// Two nodes have devices `t4`.
    async fn start(settings: &Value, count_max: u32, min_qps: f64) -> Option<Self> {
        let slurm = SlurmCluster::start(3)?;
        let cluster = Cluster::serve_with(&["--machines", &slurm.settings(LONG, settings)]).await;
        let machine = MachineType { substrate: "slurm", count_max, provision_s: 5 };
        Some(Self { fleet: MachineFleet::register(cluster, machine, min_qps).await, slurm })
    }

    /// As [`Self::start`], but Slurm is asked by slurmrestd.
    async fn start_by_rest() -> Option<Self> {
        let slurmrestd = apportion_needs::slurmrestd()?;
        let mut slurm = SlurmCluster::start(3)?;
        let socket = slurm.start_rest(&slurmrestd);
        let by_rest = json!({"commands": "/nonexistent", "rest": {"socket": socket}});
        let settings = slurm.settings(LONG, &json!({"idle_s": 5, "wish_s": 60, "slurm": by_rest}));
        let cluster = Cluster::serve_with(&["--machines", &settings]).await;
        let machine = MachineType { substrate: "slurm", count_max: 4, provision_s: 5 };
        Some(Self { fleet: MachineFleet::register(cluster, machine, 7.0).await, slurm })
    }

    /// Three nodes have devices `t4`. Clients reach the pipeline by an agent that is no job, and so never goes.
    async fn start_with_gateway(time: &str, provision_s: u32, min_qps: f64) -> Option<Self> {
        let slurm = SlurmCluster::start(4)?;
        let settings = slurm.settings(time, &json!({"idle_s": 600, "wish_s": 600}));
        let cluster = Cluster::serve_with_gateway(&["--machines", &settings]).await;
        let machine = MachineType { substrate: "slurm", count_max: 6, provision_s };
        Some(Self { fleet: MachineFleet::register(cluster, machine, min_qps).await, slurm })
    }

    /// Waits until so many jobs are there, and returns them.
    async fn until_jobs(&self, count: usize) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let jobs = self.slurm.jobs();
            if jobs.len() == count {
                return jobs;
            }
            assert!(begun.elapsed() < PATIENCE, "{jobs:?}, not {count}\n{}", self.fleet.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// The number of a job in a line of `squeue`.
fn number_of(job: &str) -> String {
    job.split(' ').next().expect("a number").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_the_load_and_lost_ones_are_replaced() {
    let Some(stage) = Stage::start(&json!({"idle_s": 5, "wish_s": 60}), 4, 7.0).await else { return };
    follow_the_load(&stage).await;
}

/// Both zones lead to the same nodes here, because the small Slurm has no others.
#[tokio::test(flavor = "multi_thread")]
async fn machines_come_in_their_zones() {
    let hardware = json!({"t4": {
        "devices": 2, "gres": "gpu:t4:2", "time": LONG, "zones": {"rack1": {"constraint": "t4"}, "rack2": {"partition": "batch"}},
    }});
    let Some(slurm) = SlurmCluster::start(3) else { return };
    let settings = slurm.settings(LONG, &json!({"wish_s": 120, "slurm": {"hardware": hardware}}));
    let cluster = Cluster::serve_with(&["--machines", &settings]).await;
    let machine = MachineType { substrate: "slurm", count_max: 4, provision_s: 5 };
    let stage = Stage { fleet: MachineFleet::register_in(cluster, machine, &["rack1", "rack2"], 18.0).await, slurm };
    stage.fleet.cluster.live(2).await;
    let zones = |list: &Value| {
        let mut zones: Vec<String> =
            list.as_array()?.iter().filter_map(|agent| agent["zone"].as_str().map(str::to_owned)).collect();
        zones.sort_unstable();
        (zones.len() == 2).then_some(zones)
    };
    assert_eq!(stage.fleet.cluster.until("/v1/agents", zones).await, ["rack1", "rack2"]);
    let asked = stage.fleet.events("machine-asked", 2, |facts| facts["zone"].is_string()).await;
    assert_ne!(asked[0]["zone"], asked[1]["zone"], "in turns");
    assert_eq!(stage.slurm.jobs().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn slurmrestd_does_as_well_as_commands() {
    let Some(stage) = Stage::start_by_rest().await else { return };
    follow_the_load(&stage).await;
}

/// The load doubles and falls, and then a job is lost.
async fn follow_the_load(stage: &Stage) {
    stage.fleet.cluster.live(1).await;
    let jobs = stage.until_jobs(1).await;
    assert!(jobs[0].contains("RUNNING") && jobs[0].contains("gpu:t4:2"), "{jobs:?}");
    stage.fleet.event("machine-came", |facts| facts["hardware"] == "t4").await;
    let few = stage.fleet.until_agents_used(1).await;

    let traffic = traffic(stage.fleet.ingress().await, 18.0);
    stage.fleet.cluster.live(2).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("gpu:t4:2")), "{jobs:?}");
    let many = stage.fleet.until_agents_used(2).await;
    assert!(many > few, "{few} replicas became {many}");
    let _answered = stop(traffic).await;

    // The load has gone, and the least demand needs one machine.
    let returned = stage.fleet.event("machine-returned", |_| true).await;
    assert!(["idle", "spare"].contains(&returned["reason"].as_str().unwrap_or_default()), "{returned}");
    stage.until_jobs(1).await;
    stage.fleet.until_agents_used(1).await;
    stage.fleet.cluster.live(1).await;

    let jobs = stage.until_jobs(1).await;
    let number = jobs[0].split(' ').next().expect("a number");
    let _said = stage.slurm.run("scancel", &[number]);
    let lost = stage.fleet.event("machine-lost", |_| true).await;
    assert!(lost["reason"].as_str().is_some_and(|why| why.contains(number)), "{lost}");
    stage
        .fleet
        .event("machine-came", |facts| {
            [&lost["machine"], &returned["machine"]].iter().all(|gone| **gone != facts["machine"])
        })
        .await;
    stage.fleet.cluster.live(1).await;
    let jobs = stage.until_jobs(1).await;
    assert_ne!(jobs[0].split(' ').next(), Some(number), "another job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_without_a_node_expires_and_the_plan_stays() {
    let Some(stage) = Stage::start(&json!({"wish_s": 15}), 6, 30.0).await else { return };
    // There are two nodes of this type, and the plan for what may be had wants three.
    let expired = stage.fleet.event("wish-expired", |_| true).await;
    let reason = expired["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("has not come within") && reason.contains("is PENDING"), "{expired}");
    let replicas = stage.fleet.until_agents_used(2).await;
    assert_eq!(replicas, 4, "the plan in force has the devices that are there");
    stage.fleet.cluster.live(2).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("RUNNING")), "the wish is taken back: {jobs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_concluded_while_slurmctld_is_away() {
    let Some(stage) = Stage::start(&json!({"idle_s": 5}), 4, 7.0).await else { return };
    stage.fleet.until_agents_used(1).await;
    let before = stage.until_jobs(1).await;
    let traffic = traffic(stage.fleet.ingress().await, LIGHT_QPS);
    stage.slurm.signal_controller("STOP");
    stage.fleet.plan_for(20.0).await;
    let silent = stage.fleet.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "begun").await;
    assert!(silent["reason"].as_str().is_some_and(|why| why.contains("squeue")), "{silent}");
    for kind in ["machine-lost", "wish-expired"] {
        stage.fleet.no_event(kind).await;
    }
    let asked = stage.fleet.cluster.get("/v1/events?kind=machine-asked").await;
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "nothing was asked for: {asked:#}");
    stage.slurm.signal_controller("CONT");
    stage.fleet.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "over").await;
    stage.fleet.cluster.live(2).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.95, "{answered} of the requests");
    let after = stage.until_jobs(2).await;
    assert!(after.iter().any(|job| job.split(' ').next() == before[0].split(' ').next()), "{before:?}, {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_node_costs_no_accepted_request() {
    let Some(stage) = Stage::start_with_gateway(LONG, 5, 18.0).await else { return };
    stage.fleet.until_agents_used(2).await;
    let jobs = stage.until_jobs(2).await;
    stage.fleet.events("machine-came", 2, |_| true).await;
    let traffic = stage.fleet.light_traffic().await;
    let job = number_of(&jobs[0]);
    let node = stage.slurm.node_of(&job);
    stage.slurm.fail_node(&node, &job);
    let lost = stage.fleet.event("machine-lost", |_| true).await;
    assert!(lost["reason"].as_str().is_some_and(|why| why.contains(&format!("job {job} "))), "{lost}");
    // The job waits again and starts elsewhere, or another one is asked for.
    stage.fleet.events("machine-came", 3, |_| true).await;
    stage.fleet.until_agents_used(2).await;
    let _answered = stop(traffic).await;
    let jobs = stage.until_jobs(2).await;
    assert!(jobs.iter().all(|job| job.contains("RUNNING")), "{jobs:?}");
    let nodes: Vec<String> = jobs.iter().map(|job| stage.slurm.node_of(&number_of(job))).collect();
    assert!(!nodes.contains(&node), "{nodes:?}, and {node} is down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_job_costs_no_accepted_request() {
    let Some(stage) = Stage::start_with_gateway(LONG, 5, 18.0).await else { return };
    stage.fleet.until_agents_used(2).await;
    let jobs = stage.until_jobs(2).await;
    let came = stage.fleet.events("machine-came", 2, |_| true).await;
    let traffic = stage.fleet.light_traffic().await;
    let job = number_of(&jobs[0]);
    assert_eq!(stage.slurm.run("scontrol", &["requeue", &job]).trim(), "");
    let lost = stage.fleet.event("machine-lost", |_| true).await;
    let why = lost["reason"].as_str().unwrap_or_default();
    assert!(why.contains("it waits again") && why.contains(&format!("job {job} is ")), "{lost}");
    stage.fleet.cluster.until("/v1/machines?state=coming", |list| (list[0]["name"] == lost["machine"]).then_some(())).await;
    let again = stage.fleet.events("machine-came", 3, |_| true).await;
    assert!(came.iter().all(|facts| again.contains(facts)) && again[0]["machine"] == lost["machine"], "{again:?}");
    stage.fleet.until_agents_used(2).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.9, "{answered} of the requests");
    let numbers: Vec<String> = stage.until_jobs(2).await.iter().map(|job| number_of(job)).collect();
    assert!(numbers.contains(&job), "{numbers:?}: it is the same job");
}

/// Slurm may signal the end of a job two minutes before it, and the service asks for a successor at half of the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_is_renewed_before_its_end() {
    let Some(stage) = Stage::start_with_gateway("00:05:00", 30, 7.0).await else { return };
    stage.fleet.until_agents_used(1).await;
    let first = number_of(&stage.until_jobs(1).await[0]);
    let came = stage.fleet.event("machine-came", |_| true).await;
    let traffic = stage.fleet.light_traffic().await;
    let asked = stage.fleet.event("machine-asked", |facts| facts["reason"] == "renewed").await;
    assert_ne!(stage.slurm.node_of(&first), "", "the first job runs until its successor is there");
    stage.fleet.event("machine-came", |facts| facts["machine"] == asked["machine"]).await;
    let returned = stage.fleet.event("machine-returned", |_| true).await;
    assert_eq!((&returned["machine"], &returned["reason"]), (&came["machine"], &json!("ends_soon")));
    let second = number_of(&stage.until_jobs(1).await[0]);
    assert_ne!(second, first, "the successor");
    stage.fleet.until_agents_used(1).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.95, "{answered} of the requests");
    // No job came to the end of its time.
    stage.fleet.no_event("machine-lost").await;
}
