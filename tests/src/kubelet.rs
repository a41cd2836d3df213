//! A stand-in for the nodes of a cluster: it gives Pods of agents their places, runs them as processes of this machine, and
//! ends them as a kubelet does.

use crate::kubectl_proxy::KubernetesReader;
use crate::kubernetes::{ControlPlane, run_kubectl};
use crate::machine::programs;
use crate::process::{started, tell};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The Pods of the service.
const PODS: &str = "/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dapportion";

/// The end of an agent whose Pod was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// Its Pod.
    pub name: String,
    /// The exit status of its process; `None`: a signal has killed it.
    pub status: Option<i32>,
}

/// The nodes. Dropping it kills the agents.
pub struct AgentNodes {
    stop: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<PodEnd>>>,
    work: Option<JoinHandle<()>>,
}

impl AgentNodes {
    /// Nodes with room for this number of Pods.
    #[must_use]
    pub fn start(plane: &ControlPlane, places: usize) -> Self {
        let (stop, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let mut nodes = Nodes {
            kubeconfig: plane.kubeconfig().to_owned(),
            reader: plane.reader().clone(),
            folder: plane.folder().join("pods"),
            places,
            running: BTreeMap::new(),
            ends: Arc::clone(&ends),
        };
        std::fs::create_dir_all(&nodes.folder).expect("a folder of ours");
        let asked = Arc::clone(&stop);
        let work = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                nodes.look();
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Self { stop, ends, work: Some(work) }
    }

    /// The agents that have ended after their Pods were deleted, in order.
    ///
    /// # Panics
    /// If the stand-in has panicked.
    #[must_use]
    pub fn ends(&self) -> Vec<PodEnd> {
        self.ends.lock().expect("no holder panics").clone()
    }
}

impl Drop for AgentNodes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.work.take().map(JoinHandle::join);
    }
}

/// The process of a Pod.
struct PodProcess {
    name: String,
    child: Child,
    /// The pause before SIGTERM, and SIGTERM, once the Pod was deleted.
    stopping: Option<Child>,
}

struct Nodes {
    kubeconfig: String,
    reader: KubernetesReader,
    folder: PathBuf,
    places: usize,
    /// By the Pods' `metadata.uid`.
    running: BTreeMap<String, PodProcess>,
    ends: Arc<Mutex<Vec<PodEnd>>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in self.running.values_mut() {
            crate::process::end(&mut process.child);
        }
    }
}

impl Nodes {
    /// One look at the Pods. An API that does not answer changes nothing.
    fn look(&mut self) {
        let Some(list) = self.reader.get(PODS) else { return };
        let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        for pod in &pods {
            let uid = text(&pod["metadata"]["uid"]);
            let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
            match (self.running.contains_key(&uid), is_deleted) {
                (true, true) => self.stop(&uid, pod),
                (false, false) if pod["status"]["phase"] == "Pending" => self.place(&uid, pod),
                _ => {}
            }
        }
        let uids: Vec<String> = pods.iter().map(|pod| text(&pod["metadata"]["uid"])).collect();
        self.note_ends(&uids);
    }

    /// Gives a Pod its place and starts its agent. Without a place, the Pod's status says so.
    fn place(&mut self, uid: &str, pod: &Value) {
        let name = text(&pod["metadata"]["name"]);
        if self.running.len() >= self.places {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            self.write_status(&name, &json!({"phase": "Pending", "conditions": [condition]}));
            return;
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": "default"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"},
        });
        let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
        // It may have been deleted meanwhile.
        if self.kubectl(&["create", "--raw", &path, "-f", "-"], &binding.to_string()).is_none() {
            return;
        }
        let child = self.start_agent(&name, &pod["spec"]["containers"][0]);
        self.running.insert(uid.to_owned(), PodProcess { name: name.clone(), child, stopping: None });
        let status = json!({"name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        self.write_status(&name, &json!({"phase": "Running", "containerStatuses": [status]}));
    }

    fn start_agent(&self, name: &str, container: &Value) -> Child {
        let mut command = Command::new(programs().join(text(&container["command"][0])));
        let words = container["args"].as_array().into_iter().flatten();
        command.args(words.map(|word| self.local(&text(word), name)));
        command.envs(container["env"].as_array().into_iter().flatten().map(|variable| self.variable(variable)));
        started(&mut command, &self.folder, name)
    }

    /// A word of a Pod as it is right on this machine: any free port on loopback, and a folder for each Pod.
    fn local(&self, word: &str, name: &str) -> String {
        let state = self.folder.join(name).display().to_string();
        match word {
            "0.0.0.0:8000" | "0.0.0.0:8001" | "0.0.0.0:8002" => "127.0.0.1:0".to_owned(),
            "/var/lib/apportion-agent" => state,
            other => other.replace("$$", "$"),
        }
    }

    /// Name and value of a variable.
    fn variable(&self, variable: &Value) -> (String, String) {
        let (secret, field) = (&variable["valueFrom"]["secretKeyRef"], &variable["valueFrom"]["fieldRef"]["fieldPath"]);
        let value = match (secret["name"].as_str(), field.as_str()) {
            (Some(name), _) => {
                let template = format!("go-template={{{{index .data {:?} | base64decode}}}}", text(&secret["key"]));
                self.kubectl(&["get", "secret", name, "-o", &template], "").unwrap_or_default()
            }
            (None, Some("status.podIP")) => "127.0.0.1".to_owned(),
            _ => text(&variable["value"]),
        };
        (text(&variable["name"]), value)
    }

    /// Runs what a Pod wants before its end, and then tells its agent. Once is enough.
    fn stop(&mut self, uid: &str, pod: &Value) {
        let Some(process) = self.running.get_mut(uid).filter(|process| process.stopping.is_none()) else { return };
        let before = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"].as_array();
        let mut shell = Command::new("bash");
        shell.args(["-c", "\"${@:2}\"; kill -TERM \"$1\"", "pre-stop", &process.child.id().to_string()]);
        shell.args(before.into_iter().flatten().filter_map(Value::as_str)).stdin(Stdio::null());
        process.stopping = Some(shell.spawn().expect("bash"));
    }

    /// Says of agents that have ended that they are gone. A Pod that was forgotten has no agent.
    fn note_ends(&mut self, uids: &[String]) {
        let all: Vec<String> = self.running.keys().cloned().collect();
        for uid in all {
            let Some(process) = self.running.get_mut(&uid) else { continue };
            if !uids.contains(&uid) {
                tell(process.child.id(), "KILL");
            }
            let Some(status) = process.child.try_wait().expect("it can be waited for") else { continue };
            let Some(mut process) = self.running.remove(&uid) else { continue };
            if let Some(stopping) = &mut process.stopping {
                let _ended = stopping.wait();
                let end = PodEnd { name: process.name.clone(), status: status.code() };
                self.ends.lock().expect("no holder panics").push(end);
                let _gone = self.kubectl(&["delete", "pod", &process.name, "--grace-period=0", "--force"], "");
            } else {
                let ended = json!({"exitCode": status.code().unwrap_or(137), "reason": "Error"});
                let status = json!({"name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"terminated": ended}});
                self.write_status(&process.name, &json!({"phase": "Failed", "containerStatuses": [status]}));
            }
        }
    }

    fn write_status(&self, name: &str, status: &Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "status": status,
        });
        let arguments =
            ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--field-manager=kubelet", "-f", "-"];
        let _written = self.kubectl(&arguments, &pod.to_string());
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> Option<String> {
        run_kubectl(&self.kubeconfig, arguments, input)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
