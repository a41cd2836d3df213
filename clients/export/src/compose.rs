//! How does Docker Compose start a plan's service, its database and its agents? The Compose Specification has the keys:
//! `deploy.replicas`, and `deploy.resources.reservations.devices` for GPUs.

use crate::agents::{AgentPool, arguments, note_agents, pools};
use crate::groups::ExportGroup;
use crate::request::{Export, ExportRequest};
use crate::text::yaml;
use serde_json::{Map, Value, json};

/// `compose.yaml`.
pub(crate) fn write(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Export {
    let mut export = Export::default();
    let pools = pools(request, groups);
    let mut services = Map::new();
    services.insert("postgres".into(), postgres());
    services.insert("apportion".into(), service(request));
    for pool in &pools {
        services.insert(pool.name.clone(), agents(request, pool));
    }
    let file = json!({
        "name": "apportion",
        "services": services,
        "volumes": {"database": {}, "files": {}},
        "secrets": {"admin-token": {"file": "./admin.token"}},
    });
    export.text("compose.yaml", yaml(&[file]));
    export.text("plan.json", request.plan_text.to_owned());
    note_agents(&mut export, &pools);
    export.note(
        "Before `docker compose up`: `apportion token new > admin.token`, and set APPORTION_TOKEN and POSTGRES_PASSWORD.",
    );
    if pools.iter().any(|pool| pool.is_gpu) {
        export.note("Compose gives each replica of a GPU service any one GPU; two replicas may get the same one.");
    }
    export
}

fn postgres() -> Value {
    let test = ["CMD-SHELL", "pg_isready -U apportion"];
    let password = "${POSTGRES_PASSWORD:?set it}";
    json!({
        "image": "postgres:17",
        "environment": {"POSTGRES_USER": "apportion", "POSTGRES_DB": "apportion", "POSTGRES_PASSWORD": password},
        "volumes": ["database:/var/lib/postgresql/data"],
        "healthcheck": {"test": test, "interval": "2s", "timeout": "5s", "retries": 30},
        "restart": "unless-stopped",
    })
}

fn service(request: &ExportRequest<'_>) -> Value {
    let database = "postgres://apportion:${POSTGRES_PASSWORD:?set it}@postgres/apportion";
    let arguments = ["serve", "--data-dir", "/var/lib/apportion", "--http", "0.0.0.0:7070", "--grpc", "0.0.0.0:7071"];
    json!({
        "image": escaped(request.settings.images.service.as_deref().unwrap_or("apportion")),
        "command": arguments,
        "environment": {
            "APPORTION_DATABASE_URL": database,
            "APPORTION_TOKEN": "${APPORTION_TOKEN:?set it}",
            "APPORTION_ADMIN_TOKEN_FILE": "/run/secrets/admin-token",
        },
        "secrets": ["admin-token"],
        "ports": ["7070:7070"],
        "volumes": ["files:/var/lib/apportion"],
        "depends_on": {"postgres": {"condition": "service_healthy"}},
        "restart": "unless-stopped",
    })
}

fn agents(request: &ExportRequest<'_>, pool: &AgentPool) -> Value {
    let join = request.settings.join.as_deref().unwrap_or("http://apportion:7071");
    let words: Vec<String> = arguments(pool, join).iter().map(|word| escaped(word)).collect();
    let cpus = request.settings.device(&pool.hardware).cpus.unwrap_or(1);
    let mut reserved = json!({"cpus": cpus.to_string()});
    if pool.is_gpu {
        reserved["devices"] = json!([{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]);
    }
    json!({
        "image": escaped(request.settings.agent_image(&pool.hardware)),
        "command": words,
        "environment": {"APPORTION_TOKEN": "${APPORTION_TOKEN:?set it}"},
        "depends_on": {"apportion": {"condition": "service_started"}},
        "deploy": {"replicas": pool.agents, "resources": {"reservations": reserved}},
        "stop_grace_period": "15s",
        "restart": "unless-stopped",
    })
}

/// A text in which Compose puts no variables.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}
