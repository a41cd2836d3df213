//! Deployments on a real API of Kubernetes follow the plans of a pipeline without agents.

use apportion_tests::cluster::Cluster;
use apportion_tests::kubernetes::{ControlPlane, KubeletStandIn};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(120);
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       photos,find,find-l,t4,4,50,1\nphotos,read,read-m,t4,8,30,1\n";

/// The pipeline of `examples/photos.yaml` with one variant for each task, and these settings of its workloads.
fn pipeline(settings: &Value) -> Value {
    let task = |name: &str, variant: Value| json!({"name": name, "variants": [variant]});
    let workload = |task: &str, variant: &str| json!({"task": task, "variant": variant, "hardware": "t4", "name": variant});
    let mut kubernetes = json!({"workloads": [workload("find", "find-l"), workload("read", "read-m")]});
    for (key, value) in settings.as_object().expect("settings") {
        kubernetes[key] = value.clone();
    }
    json!({
        "name": "photos", "slo_ms": 250,
        "tasks": [task("find", json!({"name": "find-l", "fanout": 2})), task("read", json!({"name": "read-m"}))],
        "edges": [{"from": "find", "to": "read"}],
        "replan": {
            "mode": "advisory", "period_s": 1, "demand": {"pushed": {"age_max_s": 3600}}, "kubernetes": kubernetes
        }
    })
}

/// A plane with the Deployments of the documents, and a service with the rights of the documents.
struct Stage<'a> {
    plane: &'a ControlPlane,
    cluster: Cluster,
}

impl<'a> Stage<'a> {
    /// What an earlier case made of the Deployments is gone.
    async fn start(plane: &'a ControlPlane) -> Self {
        let kinds = "deployments,replicasets,pods,horizontalpodautoscalers";
        let _said = plane.kubectl(&["delete", kinds, "--all", "--grace-period=0", "--force"]);
        let examples = apportion_tests::root().join("examples/kubernetes");
        for file in ["actuated-deployments.yaml", "actuator-role.yaml"] {
            plane.apply_file(&examples.join(file));
        }
        plane.apply_on_server(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "tester", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "apportion"},
            "subjects": [{"kind": "User", "name": "tester", "apiGroup": "rbac.authorization.k8s.io"}]
        }));
        let cluster = Cluster::serve_with(&["--kubernetes", &plane.user_kubeconfig("tester")]).await;
        cluster.put("/v1/hardware/t4", &json!({"price_per_hour": 0.53, "count_max": 6})).await;
        Self { plane, cluster }
    }

    async fn post_demand(&self, qps: f64) {
        let url = format!("{}/v1/pipelines/photos/demand", self.cluster.service());
        let answer = reqwest::Client::new().post(url).json(&json!({"qps": qps})).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.text().await.expect("text"));
    }

    fn replicas(&self, deployment: &str) -> Option<u64> {
        let path = format!("/apis/apps/v1/namespaces/default/deployments/{deployment}");
        self.plane.reader().get(&path)?["spec"]["replicas"].as_u64()
    }

    async fn until_replicas(&self, deployment: &str, expected: u32) {
        let begun = Instant::now();
        loop {
            let found = self.replicas(deployment);
            if found == Some(expected.into()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{deployment}: {found:?}, not {expected}\n{}", self.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until the advice has such replicas of a variant, and returns them.
    async fn advised(&self, variant: &str, is_meant: impl Fn(u32) -> bool) -> u32 {
        let begun = Instant::now();
        loop {
            let page = reqwest::get(format!("{}/metrics", self.cluster.service())).await.expect("an answer");
            let page = page.text().await.expect("text");
            let is_group = |line: &&str| line.starts_with("apportion_desired_replicas{") && line.contains(variant);
            let replicas = page.lines().find(is_group).and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            if let Some(replicas) = replicas.map(|replicas| replicas as u32).filter(|replicas| is_meant(*replicas)) {
                return replicas;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", self.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits for a newest decision about workloads with these words, and returns its reason.
    async fn told(&self, words: &'static str) -> String {
        let newest = |list: &Value| {
            let mut reasons = list.as_array()?.iter().filter_map(|decision| decision["reason"].as_str());
            let newest = reasons.find(|reason| reason.contains("workloads") || reason.contains("dry run"))?;
            newest.contains(words).then(|| newest.to_owned())
        };
        self.cluster.until("/v1/decisions", newest).await
    }
}

/// The start of a control plane takes nine seconds of a processor, and the cases take little. So they share one.
#[tokio::test(flavor = "multi_thread")]
async fn deployments_follow_the_plans_of_a_pipeline() {
    let Some(plane) = ControlPlane::start() else { return };
    eprintln!("dry runs and holds change nothing, and say so");
    run_dry_and_hold(&plane).await;
    eprintln!("a rollout that is never ready is rolled back");
    roll_back(&plane).await;
    eprintln!("Deployments follow two plans, and stop at a conflict");
    follow_two_plans(&plane).await;
}

async fn follow_two_plans(plane: &ControlPlane) {
    let stage = Stage::start(plane).await;
    let kubelet = KubeletStandIn::start(plane);
    stage.cluster.register(&pipeline(&json!({})), PROFILE).await;
    stage.post_demand(120.0).await;
    let many = stage.advised("find-l", |replicas| replicas > 1).await;
    stage.until_replicas("find-l", many).await;
    stage.told("the workloads follow the plan").await;
    stage.post_demand(20.0).await;
    let few = stage.advised("find-l", |replicas| replicas < many).await;
    let read = stage.advised("read-m", |_| true).await;
    stage.until_replicas("find-l", few).await;
    stage.until_replicas("read-m", read).await;

    let _said = stage.plane.kubectl(&["scale", "deployment", "read-m", "--replicas=5"]);
    let said = stage.told("Deployment default/read-m is left alone").await;
    assert!(said.contains(&format!("something else changed its replicas from {read} to 5")), "{said}");
    stage.post_demand(120.0).await;
    stage.advised("find-l", |replicas| replicas == many).await;
    // It would be followed within a second.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((stage.replicas("read-m"), stage.replicas("find-l")), (Some(5), Some(few.into())), "nothing moves");
    let events = stage.cluster.get("/v1/events?kind=workload&pipeline=photos").await;
    let text = events.to_string();
    for expected in ["Deployment default/find-l", "\"why\":\"grow\"", "\"why\":\"shrink\"", "to 5"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let _said = stage.plane.kubectl(&["scale", "deployment", "read-m", &format!("--replicas={read}")]);
    stage.until_replicas("find-l", many).await;
    stage.told("the workloads follow the plan").await;

    stage.plane.apply_on_server(&json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "find-l"}}
    }));
    stage.told("HorizontalPodAutoscaler web targets it too").await;
    drop(kubelet);
}

async fn roll_back(plane: &ControlPlane) {
    let stage = Stage::start(plane).await;
    stage.cluster.register(&pipeline(&json!({"ready_within_s": 4})), PROFILE).await;
    stage.post_demand(120.0).await;
    let many = stage.advised("find-l", |replicas| replicas > 1).await;
    let said = stage.told("did not become ready").await;
    let tried = format!("Deployment default/find-l: {many} replicas");
    assert!(said.contains(&tried) && said.contains("so it keeps 1"), "{said}");
    stage.until_replicas("find-l", 1).await;
    let events = stage.cluster.get("/v1/events?kind=workload&pipeline=photos").await.to_string();
    assert!(events.contains("\"why\":\"roll_back\""), "{events}");
}

async fn run_dry_and_hold(plane: &ControlPlane) {
    let stage = Stage::start(plane).await;
    stage.cluster.register(&pipeline(&json!({"dry_run": true})), PROFILE).await;
    stage.post_demand(120.0).await;
    let many = stage.advised("find-l", |replicas| replicas > 1).await;
    let said = stage.told("dry run").await;
    assert!(said.contains(&format!("Deployment default/find-l from 1 to {many}")), "{said}");
    assert_eq!(stage.replicas("find-l"), Some(1));
    stage.cluster.put("/v1/pipelines/photos/hold", &json!({"reason": "a test"})).await;
    stage.cluster.put("/v1/pipelines/photos", &pipeline(&json!({}))).await;
    stage.told("a hold is in force").await;
    assert_eq!(stage.replicas("find-l"), Some(1));
    let other_batch = json!({"workloads": [
        {"task": "find", "variant": "find-l", "hardware": "t4", "batch": 8, "name": "find-l"},
        {"task": "read", "variant": "read-m", "hardware": "t4", "name": "read-m"}
    ]});
    stage.cluster.put("/v1/pipelines/photos", &pipeline(&other_batch)).await;
    let said = stage.told("the plan has batch 4").await;
    assert!(said.contains("Deployment default/find-l runs batch 8"), "{said}");
}
