//! Exports load in the real systems, or in their own readers: a Kubernetes API, Slurm, Triton's protocol buffers, Ray.

use apportion_needs::{Need, counted};
use apportion_tests::kubernetes::ControlPlane;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a plan for `examples/photos.yaml`.
struct Exported(tempfile::TempDir);

impl Exported {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let output = folder.apportion(&["plan", &folder.problem(), "--out", &folder.file("plan.json")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    }

    fn problem(&self) -> String {
        apportion_tests::root().join("examples/photos.yaml").display().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn apportion(&self, arguments: &[&str]) -> Output {
        Command::new(apportion_tests::programs().join("apportion")).args(arguments).output().expect("it runs")
    }

    /// The folder of an export.
    fn to(&self, target: &str, more: &[&str]) -> PathBuf {
        let (plan, problem, out) = (self.file("plan.json"), self.problem(), self.file(target));
        let arguments = ["export", &plan, "--problem", &problem, "--to", target, "--out", &out];
        let output = self.apportion(&[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(out)
    }
}

/// Runs the validator; the files that it accepted.
fn validated(python: &Path, kind: &str, folder: &Path) -> Vec<String> {
    let script = apportion_tests::root().join("tests/tests/exports/validate.py");
    let output = Command::new(python).arg(script).arg(kind).arg(folder).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn triton_reads_the_configurations_and_compose_fits_its_schema() {
    let Some(python) = apportion_needs::clients() else { return };
    let exported = Exported::new();
    let files = counted(Need::Clients, validated(&python, "triton", &exported.to("triton", &[])));
    assert!(files.len() >= 2, "a variant for each task: {files:?}");
    assert_eq!(validated(&python, "compose", &exported.to("compose", &[])).len(), 1);
}

#[test]
fn ray_accepts_the_configuration_and_the_application() {
    let Some(python) = apportion_needs::ray() else { return };
    assert_eq!(validated(&python, "ray", &Exported::new().to("ray-serve", &[])).len(), 1);
}

#[test]
fn slurm_accepts_the_scripts() {
    let Some(program) = apportion_needs::slurm() else { return };
    let exported = Exported::new();
    let folder = exported.to("slurm", &[]);
    let cluster = exported.file("cluster");
    let started = Command::new(&program).args(["start", &cluster]).output().expect("it runs");
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let conf = String::from_utf8_lossy(&started.stdout).trim().lines().last().unwrap_or_default().to_owned();
    let mut sbatch = Command::new("sbatch");
    sbatch.env("SLURM_CONF", conf).env("APPORTION_TOKEN", "token").arg("--test-only").arg(folder.join("agent-t4.sbatch"));
    let output = sbatch.output();
    let _stopped = Command::new(&program).args(["stop", &cluster]).status();
    let output = output.expect("sbatch");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_kubernetes_api_accepts_both_flavours() {
    let (Some(plane), Some(python)) = (ControlPlane::start(), apportion_needs::clients()) else { return };
    let exported = Exported::new();
    let plan: Value = serde_json::from_slice(&std::fs::read(exported.file("plan.json")).expect("a plan")).expect("JSON");
    let groups = plan["pipelines"][0]["assignments"].as_array().expect("groups");
    let images: serde_json::Map<String, Value> =
        groups.iter().map(|g| (g["variant"].as_str().expect("a name").to_owned(), json!("server"))).collect();
    let settings = exported.file("settings.json");
    std::fs::write(&settings, json!({"images": {"variants": images}}).to_string()).expect("written");
    let agents = exported.to("kubernetes", &[]);
    let applied = plane.kubectl(&["apply", "-k", &agents.display().to_string()]);
    assert!(applied.contains("deployment.apps/agent-t4 created"), "{applied}");
    let servers = exported.to("kubernetes", &["--force", "--settings", &settings]);
    // This API server has no custom resources, so ScaledObjects are compared with their schema.
    assert_eq!(validated(&python, "scaled-objects", &servers).len(), groups.len());
    let applied = plane.kubectl(&["apply", "-k", &servers.display().to_string()]);
    for kind in ["deployment.apps", "service"] {
        let lines =
            applied.lines().filter(|line| line.starts_with(&format!("{kind}/photos-")) && line.ends_with(" created"));
        assert_eq!(lines.count(), groups.len(), "{kind}: {applied}");
    }
    assert!(applied.contains("no matches for kind \"ScaledObject\""), "{applied}");
}

#[test]
fn a_folder_with_files_is_not_written_over() {
    let exported = Exported::new();
    exported.to("slurm", &[]);
    let (plan, problem, out) = (exported.file("plan.json"), exported.problem(), exported.file("slurm"));
    let arguments = ["export", &plan, "--problem", &problem, "--to", "slurm", "--out", &out];
    let output = exported.apportion(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"));
}
