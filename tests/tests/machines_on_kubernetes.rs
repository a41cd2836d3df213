//! Machines are Pods on a real API of Kubernetes: they come when the load rises, go when it falls, and are replaced when
//! they are lost. The nodes are a stand-in that runs real agents.

use apportion_tests::cluster::Cluster;
use apportion_tests::kubelet::{AgentNodes, PodEnd};
use apportion_tests::kubernetes::ControlPlane;
use apportion_tests::machines::{LIGHT_QPS, MachineFleet, MachineType, PATIENCE, stop, traffic};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A cluster, and a service with the rights of the documents whose pipeline is planned for at least a demand.
struct Stage<'a> {
    // It ends first, so that it replaces no Pod that ends with the test.
    fleet: MachineFleet,
    nodes: AgentNodes,
    plane: &'a ControlPlane,
}

/// The documents' file of `--machines` with these settings. Devices are emulated.
fn settings(more: &Value) -> Value {
    let text = std::fs::read_to_string(apportion_tests::root().join("examples/kubernetes/machines.yaml"));
    let mut settings: Value = serde_saphyr::from_str(&text.expect("the documents' file")).expect("YAML");
    let document = settings.as_object_mut().expect("an object");
    // Agents join where the service listens.
    assert!(document.remove("join").is_some() && document.remove("dry_run").is_some(), "{settings}");
    settings["kubernetes"]["arguments"] = json!(["--backend", "emulated"]);
    for (key, value) in more.as_object().into_iter().flatten() {
        settings[key] = value.clone();
    }
    settings
}

#[test]
fn the_page_shows_the_example_file() {
    let read = |path: &str| std::fs::read_to_string(apportion_tests::root().join(path)).expect("a file of the repository");
    let example = read("examples/kubernetes/machines.yaml");
    let (comment, settings) = example.split_once('\n').expect("lines");
    assert!(comment.starts_with('#'), "{comment}");
    assert!(read("docs/how-to/machines-on-kubernetes.md").contains(&format!("```yaml\n{settings}```")), "{settings}");
}

/// Gives the test's user the Role of the documents, which they give a service account.
fn grant(plane: &ControlPlane) {
    plane.apply_file(&apportion_tests::root().join("examples/kubernetes/machines-role.yaml"));
    plane.apply_on_server(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "machines-tester", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "apportion-machines"},
        "subjects": [{"kind": "User", "name": "tester", "apiGroup": "rbac.authorization.k8s.io"}],
    }));
}

impl<'a> Stage<'a> {
    /// The nodes have room for this number of machines. Pods of an earlier case are gone.
    async fn start(plane: &'a ControlPlane, more: &Value, places: usize, count_max: u32, min_qps: f64) -> Self {
        let _said = plane.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"]);
        let file = plane.folder().join("machines.json");
        std::fs::write(&file, settings(more).to_string()).expect("a folder of ours");
        let kubeconfig = plane.user_kubeconfig("tester");
        let file = file.display().to_string();
        let cluster = Cluster::serve_with(&["--kubernetes", &kubeconfig, "--machines", &file]).await;
        plane.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "apportion", "namespace": "default"},
            "stringData": {"token": cluster.join_token()},
        }));
        let nodes = AgentNodes::start(plane, places);
        let machine = MachineType { substrate: "kubernetes", count_max, provision_s: 5 };
        Self { fleet: MachineFleet::register(cluster, machine, min_qps).await, nodes, plane }
    }

    fn pods(&self) -> Vec<Value> {
        let list = self.plane.reader().get("/api/v1/namespaces/default/pods").unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until so many Pods are there and run, and returns them.
    async fn until_pods(&self, count: usize) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let pods = self.pods();
            if pods.len() == count && pods.iter().all(|pod| pod["status"]["phase"] == "Running") {
                return pods;
            }
            assert!(begun.elapsed() < PATIENCE, "{pods:?}, not {count}\n{}", self.fleet.cluster.log("service"));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Waits for the end of an agent whose Pod was deleted.
    async fn until_end(&self, name: &Value) -> PodEnd {
        let begun = Instant::now();
        loop {
            if let Some(end) = self.nodes.ends().into_iter().find(|end| *name == end.name) {
                return end;
            }
            assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", self.nodes.ends());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

/// The start of a control plane takes nine seconds of a processor, and the cases take little. So they share one.
#[tokio::test(flavor = "multi_thread")]
async fn machines_are_pods_of_a_real_api() {
    let Some(plane) = ControlPlane::start() else { return };
    eprintln!("a missing right is told, and no Pod is asked for");
    be_granted_late(&plane).await;
    eprintln!("Pods follow the load, and lost ones are replaced");
    follow_the_load(&plane).await;
    eprintln!("a wish without room expires, and the plan stays");
    wish_without_room(&plane).await;
    eprintln!("nothing is concluded while the API is away");
    be_without_the_api(&plane).await;
}

async fn follow_the_load(plane: &ControlPlane) {
    let stage = Stage::start(plane, &json!({"idle_s": 5, "wish_s": 60}), 3, 4, 7.0).await;
    stage.fleet.cluster.live(1).await;
    let pods = stage.until_pods(1).await;
    let pod = &pods[0];
    let (labels, spec) = (&pod["metadata"]["labels"], &pod["spec"]);
    assert_eq!(labels["kueue.x-k8s.io/queue-name"], "inference", "{labels}");
    assert_eq!(
        (&spec["nodeSelector"], &spec["restartPolicy"]),
        (&json!({"apportion/hardware": "t4"}), &json!("OnFailure"))
    );
    let limits = &spec["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"memory": "8Gi", "nvidia.com/gpu": "2"}));
    let came = stage.fleet.event("machine-came", |facts| facts["hardware"] == "t4").await;
    assert_eq!((&came["machine"], &came["devices"]), (&pod["metadata"]["name"], &json!(2)));
    let few = stage.fleet.until_agents_used(1).await;

    let traffic = traffic(stage.fleet.ingress().await, 18.0);
    stage.fleet.cluster.live(2).await;
    stage.until_pods(2).await;
    let many = stage.fleet.until_agents_used(2).await;
    assert!(many > few, "{few} replicas became {many}");
    let _answered = stop(traffic).await;

    // The load has gone, and the least demand needs one machine.
    let returned = stage.fleet.event("machine-returned", |_| true).await;
    assert!(["idle", "spare"].contains(&returned["reason"].as_str().unwrap_or_default()), "{returned}");
    let end = stage.until_end(&returned["machine"]).await;
    assert_eq!(end.status, Some(0), "it has drained: {end:?}");
    stage.fleet.until_agents_used(1).await;
    stage.fleet.cluster.live(1).await;
    stage.fleet.no_event("machine-lost").await;

    let name = stage.until_pods(1).await[0]["metadata"]["name"].clone();
    let _said = stage.plane.kubectl(&["delete", "pod", name.as_str().expect("a name"), "--wait=false"]);
    // A successor is asked for while the agent drains.
    let asked = stage.fleet.event("machine-asked", |facts| facts["reason"] == "renewed").await;
    let has_ended = |list: &Value| list.as_array()?.iter().any(|machine| machine["name"] == name).then_some(());
    stage.fleet.cluster.until("/v1/machines?state=ended", has_ended).await;
    stage.fleet.event("machine-came", |facts| facts["machine"] == asked["machine"]).await;
    stage.fleet.cluster.live(1).await;
    let pods = stage.until_pods(1).await;
    assert_eq!(pods[0]["metadata"]["name"], asked["machine"]);
}

async fn wish_without_room(plane: &ControlPlane) {
    let stage = Stage::start(plane, &json!({"wish_s": 30}), 2, 6, 30.0).await;
    // There is room for two machines, and the plan for what may be had wants three.
    let expired = stage.fleet.event("wish-expired", |_| true).await;
    let reason = expired["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("has not come within") && reason.contains("Insufficient nvidia.com/gpu"), "{expired}");
    let replicas = stage.fleet.until_agents_used(2).await;
    assert_eq!(replicas, 4, "the plan in force has the devices that are there");
    stage.fleet.cluster.live(2).await;
    stage.until_pods(2).await;
}

async fn be_without_the_api(plane: &ControlPlane) {
    let stage = Stage::start(plane, &json!({"idle_s": 5}), 3, 4, 7.0).await;
    stage.fleet.until_agents_used(1).await;
    let before = stage.until_pods(1).await;
    let traffic = traffic(stage.fleet.ingress().await, LIGHT_QPS);
    stage.plane.signal_api("STOP");
    stage.fleet.plan_for(20.0).await;
    let silent = stage.fleet.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "begun").await;
    assert!(silent["reason"].as_str().is_some_and(|why| why.contains("does not answer")), "{silent}");
    for kind in ["machine-lost", "wish-expired"] {
        stage.fleet.no_event(kind).await;
    }
    stage.plane.signal_api("CONT");
    stage.fleet.event("machines", |facts| facts["matter"] == "silent" && facts["state"] == "over").await;
    stage.fleet.cluster.live(2).await;
    let answered = stop(traffic).await;
    assert!(answered >= 0.95, "{answered} of the requests");
    let uids: Vec<Value> = stage.until_pods(2).await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
    assert!(uids.contains(&before[0]["metadata"]["uid"]), "{uids:?}: it runs on");
}

/// It comes first: the others have the rights.
async fn be_granted_late(plane: &ControlPlane) {
    let stage = Stage::start(plane, &json!({}), 1, 2, 7.0).await;
    let silent = stage.fleet.event("machines", |facts| facts["matter"] == "silent").await;
    let expected = "RBAC forbids to list pods in namespace default: expected a Role that grants it";
    assert_eq!((&silent["reason"], &silent["state"]), (&json!(expected), &json!("begun")));
    stage.fleet.no_event("machine-asked").await;
    grant(stage.plane);
    stage.fleet.event("machine-came", |_| true).await;
    stage.until_pods(1).await;
}
