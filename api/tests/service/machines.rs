//! Machines: a service with a local substrate, whose agents are a program of bash and clients of the agents' protocol.

use crate::support::{Service, config_on, new_database, open_dir, service};
use apportion_api::{SubstrateSettings, serve};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// A service with these settings of machines.
async fn service_with(settings: &Value) -> Service {
    let (url, dir) = (new_database().await, open_dir());
    let mut config = config_on(&url, &dir);
    config.machines = Some(serde_json::from_value::<SubstrateSettings>(settings.clone()).expect("settings"));
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    Service { running, base, client: reqwest::Client::new(), dir, url }
}

/// Settings with machines of two `demo` devices each, whose agents only sleep.
fn sleepers(folder: &tempfile::TempDir) -> Value {
    let agent = folder.path().join("agent");
    std::fs::write(&agent, "#!/bin/bash\nexec sleep 600\n").expect("written");
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("set");
    json!({"idle_s": 1.0, "local": {"agent": agent, "hardware": {"demo": {"devices": 2}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hardware_type_names_a_substrate_that_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let s = service_with(&sleepers(&folder)).await;
    let with = |substrate: &str, provision_s: f64| json!({"price_per_hour": 1.0, "count_max": 4, "substrate": substrate, "provision_s": provision_s});
    assert_eq!(s.put("/v1/hardware/demo", &with("local", 20.0)).await.0, 201);
    let (_, document) = s.get("/v1/hardware/demo").await;
    assert_eq!((&document["substrate"], &document["provision_s"]), (&json!("local"), &json!(20.0)));
    assert_eq!(document["provision_measured_s"], Value::Null, "no machine has come");
    assert_eq!(s.put("/v1/hardware/demo", &document).await.0, 200, "what was read can be written");
    let refused = [
        ("demo", with("slurm", 1.0), "\"slurm\": expected one of the file of --machines: local"),
        ("t4", with("local", 1.0), "\"local\": expected /local/hardware/t4 in the file of --machines"),
        ("demo", with("local", -1.0), "-1: expected a number of at least 0, at most 604800"),
    ];
    for (name, document, expected) in refused {
        let (status, refusal) = s.put(&format!("/v1/hardware/{name}"), &document).await;
        let detail = refusal["errors"][0]["detail"].as_str().unwrap_or_default();
        assert_eq!((status, detail), (422, expected), "{refusal}");
    }
    s.running.stop().await;
    let without = service().await;
    let (status, refusal) = without.put("/v1/hardware/demo", &with("local", 1.0)).await;
    assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/substrate")));
    without.running.stop().await;
}
