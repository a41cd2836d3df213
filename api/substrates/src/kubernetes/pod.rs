//! What is in the manifest of a machine's Pod?

use crate::agent::{AgentAccess, TOKEN_VARIABLE, arguments};
use crate::machine::MachineRequest;
use crate::settings::{KubernetesHardware, KubernetesMachines};
use apportion_kubernetes::PodRequest;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The label of Pods of the service.
const MANAGED_LABEL: &str = "app.kubernetes.io/managed-by";
/// The label with the fleet.
const FLEET_LABEL: &str = "apportion/fleet";
/// The label with the hardware type.
const HARDWARE_LABEL: &str = "apportion/hardware";
/// The label by which Kueue finds the local queue of a Pod (its integration `pod`).
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The label of nodes with their zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Folder of the agent's state in its container.
const STATE_DIR: &str = "/var/lib/apportion-agent";
/// Seconds from SIGTERM until the kubelet ends an agent. An agent drains for 10 s, and then hangs up for 1 s.
const DRAIN_S: u32 = 20;

/// Selects the Pods of a fleet.
pub(super) fn fleet_selector(fleet: &str) -> String {
    format!("{MANAGED_LABEL}=apportion,{FLEET_LABEL}={fleet}")
}

/// The Pod of a machine.
pub(super) fn pod_request(
    fleet: &str,
    settings: &KubernetesMachines,
    hardware: &KubernetesHardware,
    access: &AgentAccess,
    request: &MachineRequest,
) -> PodRequest {
    let labels = [(MANAGED_LABEL, "apportion"), (FLEET_LABEL, fleet), (HARDWARE_LABEL, request.hardware.as_str())];
    let queue = hardware.queue.iter().map(|queue| (QUEUE_LABEL, queue.as_str()));
    let labels = labels.into_iter().chain(queue).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let mut spec = json!({
        // An agent that breaks down starts again in its place. One that has left the fleet does not.
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": settings.pre_stop_s + DRAIN_S,
        "automountServiceAccountToken": false,
        "containers": [container(settings, hardware, access, request)],
        "volumes": [{"name": "state", "emptyDir": {}}],
    });
    let mut selector = hardware.node_selector.clone();
    selector.extend(request.zone.iter().map(|zone| (ZONE_LABEL.to_owned(), zone.clone())));
    let more = [
        ("nodeSelector", (!selector.is_empty()).then(|| json!(selector))),
        ("tolerations", (!hardware.tolerations.is_empty()).then(|| json!(hardware.tolerations))),
        ("priorityClassName", hardware.priority_class.as_ref().map(|name| json!(name))),
        ("imagePullSecrets", settings.pull_secret.as_ref().map(|name| json!([{"name": name}]))),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            spec[key] = value;
        }
    }
    PodRequest { namespace: settings.namespace.clone(), name: request.name.clone(), labels, spec }
}

fn container(
    settings: &KubernetesMachines,
    hardware: &KubernetesHardware,
    access: &AgentAccess,
    request: &MachineRequest,
) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 5});
    let mut container = json!({
        "name": "agent",
        "image": hardware.image.as_ref().unwrap_or(&settings.image),
        "command": [plain(&settings.agent)],
        "args": agent_arguments(settings, hardware, access, request),
        "env": variables(settings),
        "ports": [
            {"name": "http", "containerPort": 8000}, {"name": "grpc", "containerPort": 8001},
            {"name": "data", "containerPort": 8002},
        ],
        "livenessProbe": probe("/v2/health/live"),
        "readinessProbe": probe("/v2/health/ready"),
        "resources": resources(hardware),
        "volumeMounts": [{"name": "state", "mountPath": STATE_DIR}],
    });
    if settings.pre_stop_s > 0 {
        // Endpoints forget the Pod meanwhile, so that its gateway gets no request after SIGTERM.
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", settings.pre_stop_s.to_string()]}}});
    }
    container
}

fn agent_arguments(
    settings: &KubernetesMachines,
    hardware: &KubernetesHardware,
    access: &AgentAccess,
    request: &MachineRequest,
) -> Vec<String> {
    let mut words = arguments(access, request, hardware.devices);
    let listen = [("--http", "0.0.0.0:8000"), ("--ingress-grpc", "0.0.0.0:8001"), ("--data", "0.0.0.0:8002")];
    words.extend(listen.into_iter().flat_map(|(flag, address)| [flag.to_owned(), address.to_owned()]));
    words.extend(["--state-dir".to_owned(), STATE_DIR.to_owned()]);
    words.extend(settings.arguments.iter().chain(&hardware.arguments).cloned());
    words.iter().map(|word| plain(word)).collect()
}

/// The token is not in the manifest, which many may read.
fn variables(settings: &KubernetesMachines) -> Vec<Value> {
    let token = json!({"secretKeyRef": {"name": settings.token_secret, "key": "token"}});
    let address = json!({"fieldRef": {"fieldPath": "status.podIP"}});
    let mut variables = vec![
        json!({"name": TOKEN_VARIABLE, "valueFrom": token}),
        json!({"name": "APPORTION_ADVERTISE", "valueFrom": address}),
    ];
    variables.extend(settings.env.iter().map(|(name, value)| json!({"name": name, "value": plain(value)})));
    variables
}

fn resources(hardware: &KubernetesHardware) -> Value {
    let mut requests: BTreeMap<&str, String> = BTreeMap::new();
    let mut limits = Map::new();
    requests.insert("cpu", hardware.cpu.clone().unwrap_or_else(|| hardware.devices.to_string()));
    if let Some(memory) = &hardware.memory {
        requests.insert("memory", memory.clone());
        limits.insert("memory".to_owned(), json!(memory));
    }
    if let Some(resource) = &hardware.resource {
        limits.insert(resource.clone(), json!(hardware.devices.to_string()));
    }
    json!({"requests": requests, "limits": limits})
}

/// A text in which Kubernetes puts no variables.
fn plain(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> MachineRequest {
        MachineRequest { name: "app.t4.0c9f".into(), hardware: "t4".into(), zone: None }
    }

    fn pod(settings: &KubernetesMachines, hardware: &KubernetesHardware) -> PodRequest {
        let access = AgentAccess { join: "http://apportion:7071".into(), token: "secret".into() };
        pod_request("app", settings, hardware, &access, &request())
    }

    #[test]
    fn a_pod_has_the_devices_of_its_hardware_type() {
        let settings = KubernetesMachines { image: "agent:1".into(), namespace: "ml".into(), ..Default::default() };
        let hardware = KubernetesHardware {
            devices: 2,
            resource: Some("nvidia.com/gpu".into()),
            memory: Some("8Gi".into()),
            node_selector: BTreeMap::from([("gpu".to_owned(), "t4".to_owned())]),
            tolerations: vec![json!({"key": "gpu", "operator": "Exists"})],
            queue: Some("inference".into()),
            priority_class: Some("serving".into()),
            image: Some("agent-cuda:1".into()),
            arguments: vec!["--provider".into(), "cuda".into()],
            ..Default::default()
        };
        let PodRequest { namespace, name, labels, spec } = pod(&settings, &hardware);
        assert_eq!((namespace.as_str(), name.as_str()), ("ml", "app.t4.0c9f"));
        assert_eq!((labels[QUEUE_LABEL].as_str(), labels[HARDWARE_LABEL].as_str()), ("inference", "t4"));
        assert_eq!(spec["nodeSelector"], json!({"gpu": "t4"}));
        assert_eq!((&spec["tolerations"][0]["key"], &spec["priorityClassName"]), (&json!("gpu"), &json!("serving")));
        let agent = &spec["containers"][0];
        assert_eq!(agent["image"], "agent-cuda:1");
        let expected = json!({
            "requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
        });
        assert_eq!(agent["resources"], expected);
        let arguments: Vec<&str> = agent["args"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
        let arguments = arguments.join(" ");
        assert!(arguments.starts_with("--join http://apportion:7071 --name app.t4.0c9f --hardware t4 --devices 2 --http"));
        assert!(arguments.ends_with("--provider cuda"), "{arguments}");
    }

    #[test]
    fn a_pod_of_a_zone_goes_to_its_nodes() {
        let hardware = KubernetesHardware {
            node_selector: BTreeMap::from([("gpu".to_owned(), "t4".to_owned())]),
            zones: vec!["eu-1a".into()],
            ..Default::default()
        };
        let request = MachineRequest { zone: Some("eu-1a".into()), ..request() };
        let access = AgentAccess { join: "http://apportion:7071".into(), token: "secret".into() };
        let PodRequest { spec, .. } = pod_request("app", &KubernetesMachines::default(), &hardware, &access, &request);
        assert_eq!(spec["nodeSelector"], json!({"gpu": "t4", ZONE_LABEL: "eu-1a"}));
        let arguments = spec["containers"][0]["args"].to_string();
        assert!(arguments.contains("\"--zone\",\"eu-1a\""), "{arguments}");
    }

    #[test]
    fn an_agent_has_its_token_from_a_secret_and_time_to_drain() {
        let settings = KubernetesMachines {
            image: "agent:1".into(),
            token_secret: "fleet".into(),
            env: BTreeMap::from([("PRICE".to_owned(), "$5".to_owned())]),
            ..Default::default()
        };
        let request = pod(&settings, &KubernetesHardware::default());
        let spec = request.spec;
        assert!(!spec.to_string().contains("\"secret\""), "{spec}");
        let agent = &spec["containers"][0];
        assert_eq!(agent["env"][0]["valueFrom"]["secretKeyRef"], json!({"name": "fleet", "key": "token"}));
        assert_eq!(agent["env"][2], json!({"name": "PRICE", "value": "$$5"}));
        assert_eq!(agent["lifecycle"]["preStop"]["exec"]["command"], json!(["sleep", "5"]));
        assert_eq!(spec["terminationGracePeriodSeconds"], 25);
        assert_eq!(spec["nodeSelector"], Value::Null);
        assert!(!request.labels.contains_key(QUEUE_LABEL));
        let at_once = pod(&KubernetesMachines { pre_stop_s: 0, ..settings }, &KubernetesHardware::default());
        assert_eq!(at_once.spec["containers"][0]["lifecycle"], Value::Null);
    }
}
