//! Which objects make Kubernetes run a plan?
//!
//! Without images of variants: the agents, a Deployment for each hardware type. With them: for each group a Deployment of
//! the user's own server, a Service, and a ScaledObject of KEDA (`keda.sh/v1alpha1`) that asks Apportion's service for the
//! replicas.

use crate::agents::{AgentPool, arguments, note_agents, note_lost, note_shares, pools};
use crate::groups::ExportGroup;
use crate::names::{NameRule, SafeNames};
use crate::request::{Export, ExportRequest};
use crate::text::{prometheus_string, yaml};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most bytes of a ConfigMap.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;
/// The metric of the advice.
const METRIC: &str = "apportion_desired_replicas";
/// The label of nodes with a hardware type.
const NODE_LABEL: &str = "apportion/hardware";

/// Manifests and their `kustomization.yaml`.
pub(crate) fn write(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Export {
    let mut export = Export::default();
    let mut resources = vec!["plan.yaml".to_owned()];
    let plan = plan_map(request, &mut export.notes);
    export.text("plan.yaml", yaml(&[plan]));
    match request.settings.images.variants.is_empty() {
        true => add_agents(request, groups, &mut export, &mut resources),
        false => add_servers(request, groups, &mut export, &mut resources),
    }
    let kustomization =
        json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources});
    export.text("kustomization.yaml", yaml(&[kustomization]));
    export
}

/// The plan as a ConfigMap, if it is small enough.
fn plan_map(request: &ExportRequest<'_>, notes: &mut Vec<String>) -> Value {
    let data = match request.plan_text.len() < CONFIG_MAP_BYTES_MAX {
        true => json!({"plan.json": request.plan_text}),
        false => {
            notes.push("The plan is too large for a ConfigMap: `plan.yaml` has none of it.".to_owned());
            json!({})
        }
    };
    let metadata = json!({"name": "apportion-plan", "labels": labels("plan")});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

fn labels(name: &str) -> Value {
    json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "apportion"})
}

fn add_agents(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>], export: &mut Export, resources: &mut Vec<String>) {
    let pools = pools(request, groups);
    for pool in &pools {
        let file = format!("{}.yaml", pool.name);
        let deployment = agent_deployment(request, pool, export);
        export.text(&file, yaml(&[deployment]));
        resources.push(file);
    }
    note_agents(export, &pools);
    export.note(
        "The Secret `apportion` must have the agents' token: \
         kubectl create secret generic apportion --from-literal=token=...",
    );
    export.note("There are no ScaledObjects: the service moves the replicas of variants among the agents that run.");
}

fn agent_deployment(request: &ExportRequest<'_>, pool: &AgentPool, export: &mut Export) -> Value {
    let join = request.settings.join.as_deref().unwrap_or("http://apportion:7071");
    let probe = json!({"httpGet": {"path": "/v2/health/live", "port": "http"}, "periodSeconds": 5});
    let token = json!({"secretKeyRef": {"name": "apportion", "key": "token"}});
    let container = json!({
        "name": "agent",
        "image": request.settings.agent_image(&pool.hardware),
        "args": arguments(pool, join).iter().map(|word| plain(word)).collect::<Vec<_>>(),
        "env": [{"name": "APPORTION_TOKEN", "valueFrom": token}],
        "ports": [
            {"name": "http", "containerPort": 8000}, {"name": "grpc", "containerPort": 8001},
            {"name": "data", "containerPort": 8002}
        ],
        "livenessProbe": probe,
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": "http"}, "periodSeconds": 5},
        "resources": devices(request, &pool.hardware, None),
    });
    let place = Place { hardware: &pool.hardware, name: &pool.name, replicas: pool.agents };
    deployment(request, &place, container, json!({"apportion/hardware": pool.hardware}), export)
}

/// What a Deployment is called, where it runs, and how often.
struct Place<'a> {
    hardware: &'a str,
    name: &'a str,
    replicas: u64,
}

fn deployment(
    request: &ExportRequest<'_>,
    place: &Place<'_>,
    container: Value,
    annotations: Value,
    export: &mut Export,
) -> Value {
    let labels = labels(place.name);
    let selector = json!({"matchLabels": {"app.kubernetes.io/name": place.name}});
    let template = json!({
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "nodeSelector": node_selector(request, place.hardware, export),
            "terminationGracePeriodSeconds": 30,
            "containers": [container],
        },
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": place.name, "labels": labels, "annotations": annotations},
        "spec": {"replicas": place.replicas, "selector": selector, "template": template},
    })
}

fn node_selector(request: &ExportRequest<'_>, hardware: &str, export: &mut Export) -> BTreeMap<String, String> {
    if let Some(labels) = request.settings.device(hardware).node_selector {
        return labels;
    }
    let raw = vec![hardware.to_owned()];
    let value = SafeNames::new(NameRule::Dns, [raw.clone()]).of(&raw).to_owned();
    export.note(format!("Label the nodes with {hardware:?}: kubectl label node NODE {NODE_LABEL}={value}"));
    BTreeMap::from([(NODE_LABEL.to_owned(), value)])
}

/// Requests and limits of one replica.
fn devices(request: &ExportRequest<'_>, hardware: &str, memory_mib: Option<f64>) -> Value {
    let device = request.settings.device(hardware);
    let mut requests = Map::from_iter([("cpu".to_owned(), json!(device.cpus.unwrap_or(1).to_string()))]);
    let mut limits = Map::new();
    if request.settings.is_gpu(hardware) {
        limits.insert(device.resource.unwrap_or_else(|| "nvidia.com/gpu".to_owned()), json!("1"));
    } else if let Some(mib) = memory_mib {
        requests.insert("memory".to_owned(), json!(format!("{}Mi", mib.ceil())));
    }
    json!({"requests": requests, "limits": limits})
}

fn add_servers(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>], export: &mut Export, resources: &mut Vec<String>) {
    let names = SafeNames::new(NameRule::Dns, groups.iter().map(ExportGroup::raw_name));
    for group in groups {
        let variant = &group.assignment.group.variant;
        let raw = group.raw_name();
        let name = names.of(&raw);
        let Some(image) = request.settings.images.variants.get(variant) else {
            export.note(format!("{}: no image is given for {variant:?}, so it is left out.", group.assignment.group));
            continue;
        };
        let documents =
            [server(request, group, name, image, export), service(request, name), scaled_object(request, group, name)];
        export.text(format!("{name}.yaml"), yaml(&documents));
        resources.push(format!("{name}.yaml"));
    }
    if request.settings.scaler.is_none() && request.settings.prometheus.is_none() {
        export.note("KEDA asks apportion:7072: the keys `scaler` or `prometheus` of the settings give another address.");
    }
    export.note("KEDA scales only with a service that advises these pipelines: `apportion serve --scalers 0.0.0.0:7072`.");
    note_lost(export, groups);
    note_shares(
        export,
        groups,
        "Kubernetes gives it a whole device, unless `resource` of the settings names a shared one.",
    );
}

fn server(request: &ExportRequest<'_>, group: &ExportGroup<'_>, name: &str, image: &str, export: &mut Export) -> Value {
    let assignment = group.assignment;
    let images = &request.settings.images;
    let ready = images.ready_path.as_deref().unwrap_or("/v2/health/ready");
    let facts = [
        ("pipeline", group.pipeline.name.clone()),
        ("task", assignment.group.task.clone()),
        ("variant", assignment.group.variant.clone()),
        ("hardware", assignment.group.hardware.clone()),
        ("batch", assignment.batch.to_string()),
        ("max-wait-us", ((group.wait_ms * 1_000.0).floor() as u64).to_string()),
    ];
    let variable = |(key, value): &(&str, String)| {
        let name = format!("APPORTION_{}", key.replace('-', "_").to_uppercase());
        json!({"name": name, "value": plain(value)})
    };
    let annotations: Map<String, Value> =
        facts.iter().map(|(key, value)| (format!("apportion/{key}"), json!(value))).collect();
    let container = json!({
        "name": "server",
        "image": image,
        "env": facts.iter().map(variable).collect::<Vec<_>>(),
        "ports": [{"name": "http", "containerPort": images.port.unwrap_or(8000)}],
        "readinessProbe": {"httpGet": {"path": ready, "port": "http"}, "periodSeconds": 2},
        // Endpoints forget the Pod meanwhile, so that the server gets no request after SIGTERM.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        "resources": devices(request, &assignment.group.hardware, group.memory_mib),
    });
    let place = Place { hardware: &assignment.group.hardware, name, replicas: u64::from(assignment.replicas) };
    deployment(request, &place, container, annotations.into(), export)
}

fn service(request: &ExportRequest<'_>, name: &str) -> Value {
    let port = request.settings.images.port.unwrap_or(8000);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "selector": {"app.kubernetes.io/name": name},
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    })
}

fn scaled_object(request: &ExportRequest<'_>, group: &ExportGroup<'_>, name: &str) -> Value {
    let assignment = group.assignment;
    let keys = [
        ("pipeline", &group.pipeline.name),
        ("task", &assignment.group.task),
        ("variant", &assignment.group.variant),
        ("hardware", &assignment.group.hardware),
    ];
    let (kind, metadata) = match &request.settings.prometheus {
        Some(server) => {
            let labels: Vec<String> =
                keys.iter().map(|(key, value)| format!("{key}={}", prometheus_string(value))).collect();
            let query = format!("sum({METRIC}{{{}}})", labels.join(","));
            let metadata = json!({"serverAddress": server, "query": query, "threshold": "1", "activationThreshold": "0",
                "ignoreNullValues": "false"});
            ("prometheus", metadata)
        }
        None => {
            let address = request.settings.scaler.as_deref().unwrap_or("apportion:7072");
            let own = [("scalerAddress".to_owned(), json!(address))];
            let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
            ("external-push", Value::Object(own.into_iter().chain(keys).collect()))
        }
    };
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "scaleTargetRef": {"name": name},
            "pollingInterval": 5,
            "minReplicaCount": group.replicas_min(),
            "maxReplicaCount": group.replicas_max,
            "fallback": {"failureThreshold": 3, "replicas": assignment.replicas},
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": kind, "metricType": "AverageValue", "metadata": metadata}],
        },
    })
}

/// A text in which Kubernetes puts no variables.
fn plain(text: &str) -> String {
    text.replace('$', "$$")
}
