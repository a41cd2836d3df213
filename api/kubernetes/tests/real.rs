//! Against a real API of Kubernetes with its controllers, without nodes.
//!
//! Its start takes nine seconds of a processor, so one test starts it, and its cases follow one another. Each begins
//! without the objects of the case before.

use apportion_kubernetes::{
    KubernetesAccess, KubernetesClient, KubernetesError, PodDeletion, PodIdentity, PodObservation, PodRequest, PodStage,
    Watches, WorkloadKind, WorkloadName, WorkloadState,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The processes; dropping it ends them.
struct Plane {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Plane {
    fn start() -> Option<Self> {
        let plane = Self { program: apportion_needs::kubernetes()?, folder: tempfile::tempdir().expect("a folder") };
        apportion_needs::start_installing("kubernetes", || plane.control(&["start"], &[]));
        Some(plane)
    }

    fn control(&self, before: &[&str], after: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        let output = command.args(before).arg(self.folder.path()).args(after).output().expect("it can be run");
        said(&output)
    }

    fn admin(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    async fn cluster(&self) -> KubernetesClient {
        self.cluster_of(&self.admin()).await
    }

    /// A client by a kubeconfig of the plane. Its certificate is its own authority, which rustls refuses as a server's. So
    /// the client does not check it.
    async fn cluster_of(&self, kubeconfig: &Path) -> KubernetesClient {
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let authority = format!("certificate-authority: \"{}/tls/apiserver.crt\"", self.folder.path().display());
        assert!(text.contains(&authority), "{text}");
        let unchecked = kubeconfig.with_extension("unchecked");
        std::fs::write(&unchecked, text.replace(&authority, "insecure-skip-tls-verify: true")).expect("written");
        KubernetesClient::new(&KubernetesAccess::Kubeconfig(unchecked)).await.expect("a client")
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        said(&Command::new("kubectl").env("KUBECONFIG", self.admin()).args(arguments).output().expect("kubectl"))
    }

    /// Applies manifests on the server's side, as the documents say.
    fn apply(&self, manifests: &str) {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", self.admin()).args(["apply", "--server-side", "-f", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        child.stdin.take().expect("a pipe").write_all(manifests.as_bytes()).expect("written");
        said(&child.wait_with_output().expect("it ends"));
    }

    /// Ends the API server and starts it again on its port, with the arguments that it had.
    fn restart_api(&self, meanwhile: impl FnOnce()) {
        let file = self.folder.path().join("apiserver.pid");
        let process = std::fs::read_to_string(&file).expect("its number").trim().to_owned();
        let line = std::fs::read(format!("/proc/{process}/cmdline")).expect("its arguments");
        let line = String::from_utf8(line).expect("text");
        let arguments: Vec<&str> = line.split_terminator('\0').collect();
        said(&Command::new("kill").arg(&process).output().expect("kill"));
        let begun = Instant::now();
        while std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            assert!(begun.elapsed() < PATIENCE, "the API server does not end");
            std::thread::sleep(Duration::from_millis(100));
        }
        meanwhile();
        let log = std::fs::File::create(self.folder.path().join("apiserver.again.log")).expect("a log");
        let mut command = Command::new(arguments[0]);
        let child = command.args(&arguments[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        std::fs::write(&file, child.expect("it starts").id().to_string()).expect("its number");
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ended = Command::new(&self.program).arg("stop").arg(self.folder.path()).status();
    }
}

/// The case that runs now, for the message of one that fails.
fn begin(plane: &Plane, case: &str) {
    eprintln!("{case}");
    let kinds = "deployments,statefulsets,replicasets,pods,roles,rolebindings";
    plane.kubectl(&["delete", kinds, "--all", "--grace-period=0", "--force"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_answers_as_the_client_expects() {
    let Some(plane) = Plane::start() else { return };
    begin(&plane, "pods are created, listed and deleted with the documented rights");
    create_list_and_delete_pods(&plane).await;
    begin(&plane, "a list of pods has several pages");
    list_pods_by_pages(&plane).await;
    begin(&plane, "replicas are written unless another manager owns them");
    write_replicas(&plane).await;
    begin(&plane, "the role of the documents suffices, and less is named");
    use_documented_role(&plane).await;
    begin(&plane, "a thousand Deployments are listed once");
    list_many_deployments(&plane).await;
}

fn said(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

fn manifest(kind: &str, name: &str, replicas: &str) -> String {
    let service = if kind == "StatefulSet" { "serviceName: none, " } else { "" };
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: default}}\nspec: {{{replicas}{service}\
         selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, \
         spec: {{containers: [{{name: c, image: none}}]}}}}}}\n---\n"
    )
}

/// A Role of the documents. They bind it to a service account. The test's user is no account, so it has a binding of its
/// own.
fn documented_role(file: &str, role: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes").join(file);
    let text = std::fs::read_to_string(&path).expect("the Role of the documents");
    format!(
        "{text}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: tester, namespace: default}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {role}}}\n\
         subjects: [{{kind: User, name: tester, apiGroup: rbac.authorization.k8s.io}}]\n"
    )
}

fn named(kind: WorkloadKind, name: &str) -> WorkloadName {
    WorkloadName { namespace: "default".into(), kind, name: name.into() }
}

/// Waits until the watches show workloads as they should be.
async fn until(
    watches: &Watches,
    names: &[WorkloadName],
    is_right: impl Fn(&BTreeMap<WorkloadName, WorkloadState>) -> bool,
) -> BTreeMap<WorkloadName, WorkloadState> {
    let begun = Instant::now();
    loop {
        let seen = watches.observe(names.iter());
        match seen {
            Ok(seen) if is_right(&seen.workloads) => return seen.workloads,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// They are left alone where another manager owns them.
async fn write_replicas(plane: &Plane) {
    let free = [named(WorkloadKind::Deployment, "free"), named(WorkloadKind::StatefulSet, "free")];
    plane.apply(&(manifest("Deployment", "free", "") + &manifest("StatefulSet", "free", "")));
    plane.kubectl(&["create", "deployment", "owned", "--image=none", "--replicas=2"]);
    let cluster = plane.cluster().await;
    for workload in &free {
        for replicas in [3, 1, 4] {
            let seen = cluster.read(workload).await.expect("it is there");
            assert_eq!(seen.owners, [], "{workload}");
            cluster.scale(workload, &seen, replicas).await.expect("it is free");
            assert_eq!(cluster.read(workload).await.expect("it is there").replicas, replicas);
        }
    }
    let owned = named(WorkloadKind::Deployment, "owned");
    let seen = cluster.read(&owned).await.expect("it is there");
    let refused = cluster.scale(&owned, &seen, 5).await.expect_err("it is owned").to_string();
    assert!(refused.contains("Deployment default/owned") && refused.contains("kubectl-create"), "{refused}");
    assert_eq!(cluster.read(&owned).await.expect("it is there").replicas, 2, "it is left alone");

    let seen = cluster.read(&free[0]).await.expect("it is there");
    plane.kubectl(&["scale", "deployment", "free", "--replicas=7"]);
    let stale = cluster.scale(&free[0], &seen, 5).await;
    assert!(matches!(stale, Err(KubernetesError::Stale(_))), "{stale:?}");
    assert_eq!(cluster.read(&free[0]).await.expect("it is there").replicas, 7);
    let none = named(WorkloadKind::Deployment, "none");
    assert!(matches!(cluster.read(&none).await, Err(KubernetesError::NotFound(_))));
}

async fn use_documented_role(plane: &Plane) {
    plane.apply(&manifest("Deployment", "free", ""));
    let kubeconfig = plane.control(&["token"], &["tester"]).trim().to_owned();
    let cluster = plane.cluster_of(Path::new(&kubeconfig)).await;
    let free = named(WorkloadKind::Deployment, "free");
    let mut watches = Watches::new(cluster.clone());
    watches.follow([&free].into_iter()).expect("one namespace");
    let begun = Instant::now();
    let forbidden = loop {
        match watches.observe([&free].into_iter()) {
            Err(error @ KubernetesError::Forbidden { .. }) => break error.to_string(),
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let expected = "RBAC forbids to list deployments.apps in namespace default: expected a Role that grants it";
    assert_eq!(forbidden, expected);
    let forbidden = cluster.read(&free).await.expect_err("no Role").to_string();
    assert!(forbidden.contains("get deployments.apps in namespace default"), "{forbidden}");
    let seen = plane.cluster().await.read(&free).await.expect("the administrator may");
    let forbidden = cluster.scale(&free, &seen, 2).await.expect_err("no Role").to_string();
    assert!(forbidden.contains("patch deployments.apps/scale in namespace default"), "{forbidden}");

    plane.apply(&documented_role("actuator-role.yaml", "apportion"));
    let seen = until(&watches, std::slice::from_ref(&free), |seen| seen.contains_key(&free)).await;
    assert_eq!(cluster.read(&free).await.expect("the Role").replicas, seen[&free].replicas);
    let seen = cluster.read(&free).await.expect("the Role");
    cluster.scale(&free, &seen, 2).await.expect("the Role");
    until(&watches, std::slice::from_ref(&free), |seen| seen[&free].replicas == 2).await;
}

/// It restarts the API server.
async fn list_many_deployments(plane: &Plane) {
    const COUNT: usize = 1_000;
    let all: Vec<_> = (0..COUNT).map(|n| named(WorkloadKind::Deployment, &format!("d{n:04}"))).collect();
    // They are paused, so that the controllers make no ReplicaSets.
    let paused = |one: &WorkloadName| manifest("Deployment", &one.name, "replicas: 0, paused: true, ");
    let manifests: String = all.iter().map(paused).collect();
    plane.apply(&manifests);

    let mut watches = Watches::new(plane.cluster().await);
    watches.follow(all.iter()).expect("one namespace");
    until(&watches, &all, |seen| seen.len() == COUNT).await;
    assert_eq!(watches.lists(), 2, "Deployments and autoscalers");
    for replicas in [1, 2] {
        plane.kubectl(&["scale", "deployment", "d0000", "d0999", &format!("--replicas={replicas}")]);
        until(&watches, &all, |seen| [0, 999].iter().all(|&n| seen[&all[n]].replicas == replicas)).await;
    }
    assert_eq!(watches.lists(), 2, "changes come by the watches");
    plane.restart_api(|| std::thread::sleep(Duration::from_secs(2)));
    let begun = Instant::now();
    loop {
        let scaled = Command::new("kubectl")
            .env("KUBECONFIG", plane.admin())
            .args(["scale", "deployment", "d0500", "--replicas=3"])
            .output()
            .expect("kubectl");
        if scaled.status.success() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&scaled.stderr));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    until(&watches, &all, |seen| seen[&all[500]].replicas == 3).await;
    // A restarted API server may have forgotten the changes since the last one that a watch has. It answers 410 then.
    assert!(watches.lists() <= 4, "each is listed once more at most: {}", watches.lists());
}

/// The only Pod with the label, once it is in this stage.
async fn until_pod(cluster: &KubernetesClient, stage: PodStage) -> PodObservation {
    let begun = Instant::now();
    loop {
        let mut pods = cluster.list_pods("default", "fleet=app").await.expect("a list");
        assert_eq!(pods.len(), 1, "{pods:?}");
        if pods[0].stage == stage {
            return pods.remove(0);
        }
        assert!(begun.elapsed() < PATIENCE, "{stage:?}: {pods:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create_list_and_delete_pods(plane: &Plane) {
    let kubeconfig = plane.control(&["token"], &["tester"]).trim().to_owned();
    let cluster = plane.cluster_of(Path::new(&kubeconfig)).await;
    let forbidden = cluster.list_pods("default", "fleet=app").await.expect_err("no Role").to_string();
    assert_eq!(forbidden, "RBAC forbids to list pods in namespace default: expected a Role that grants it");
    plane.apply(&documented_role("machines-role.yaml", "apportion-machines"));
    let begun = Instant::now();
    while cluster.list_pods("default", "fleet=app").await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the Role has no effect");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    plane.kubectl(&["run", "other", "--image=none", "--labels=fleet=app-2"]);

    let request = PodRequest {
        namespace: "default".into(),
        name: "app.t4.0c9f".into(),
        labels: BTreeMap::from([("fleet".to_owned(), "app".to_owned())]),
        spec: json!({"containers": [{"name": "agent", "image": "none"}]}),
    };
    let uid = cluster.create_pod(&request).await.expect("the Role");
    let twice = cluster.create_pod(&request).await.expect_err("the name is taken").to_string();
    assert!(twice.contains("409") && twice.contains("already exists"), "{twice}");
    let seen = until_pod(&cluster, PodStage::Unplaced).await;
    assert_eq!((&seen.name, &seen.uid), (&request.name, &uid), "{seen:?}");

    // A node that does not exist does as well: nothing but a kubelet would notice.
    let binding = plane.folder.path().join("binding.json");
    let target = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": request.name, "namespace": "default"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"}
    });
    std::fs::write(&binding, target.to_string()).expect("written");
    let path = format!("/api/v1/namespaces/default/pods/{}/binding", request.name);
    plane.kubectl(&["create", "--raw", &path, "-f", &binding.display().to_string()]);
    until_pod(&cluster, PodStage::Starting).await;

    let pod = PodIdentity { namespace: "default".into(), name: request.name.clone(), uid };
    let other = PodIdentity { uid: "00000000-0000-0000-0000-000000000000".into(), ..pod.clone() };
    cluster.delete_pod(&other, PodDeletion::Immediate).await.expect("that one is gone already");
    until_pod(&cluster, PodStage::Starting).await;
    cluster.delete_pod(&pod, PodDeletion::Graceful).await.expect("the Role");
    until_pod(&cluster, PodStage::Deleted).await;
    cluster.delete_pod(&pod, PodDeletion::Immediate).await.expect("the Role");
    assert_eq!(cluster.list_pods("default", "fleet=app").await.expect("a list"), []);
    cluster.delete_pod(&pod, PodDeletion::Graceful).await.expect("it is gone");
}

async fn list_pods_by_pages(plane: &Plane) {
    const COUNT: usize = 501;
    let pod = |n: usize| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n:04}, namespace: default, labels: {{fleet: app}}}}\n\
             spec: {{containers: [{{name: c, image: none}}]}}\n---\n"
        )
    };
    plane.apply(&(0..COUNT).map(pod).collect::<String>());
    let pods = plane.cluster().await.list_pods("default", "fleet=app").await.expect("a list");
    let names: BTreeSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!((pods.len(), names.len()), (COUNT, COUNT));
}
