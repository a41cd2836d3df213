//! A real Prometheus scrapes a stand-in for a fleet of Triton servers, and `apportion advise` reads it.

use apportion_tests::prometheus::{Exporter, PrometheusProcess};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
/// The page with the commands.
const PAGE: &str = "docs/how-to/advise-an-existing-fleet.md";
/// The query of that page for the requests at the pipeline's root, over seconds instead of a minute.
const RATE: &str = "sum(rate(nv_inference_request_success{model=~\"find-.*\"}[4s]))";
/// The query of that page for the replicas that run.
const REPLICAS: &str =
    "label_replace(kube_deployment_status_replicas, \"variant\", \"$1\", \"deployment\", \"triton-(.*)\")";

/// The exit code, stdout and stderr of `apportion advise examples/photos.yaml` with these arguments.
fn advise(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.arg("advise").arg(apportion_tests::root().join("examples/photos.yaml")).args(arguments);
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

/// Repeats a call until it gives something.
fn until<T>(server: &PrometheusProcess, what: &str, call: impl Fn() -> Result<T, (i32, String, String)>) -> T {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(found) => return found,
            Err(last) => {
                assert!(begun.elapsed() < PATIENCE, "{what}: {last:?}\n{}", server.log());
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// The advice once Prometheus sees this rate.
fn advice_at(server: &PrometheusProcess, arguments: &[&str], per_second: f64) -> Value {
    until(server, &format!("{per_second} requests per second"), || {
        let (code, stdout, stderr) = advise(arguments);
        let advice: Option<Value> = serde_json::from_str(&stdout).ok().filter(|_| code == 0);
        let is_seen = |advice: &Value| {
            let seen = advice["demand"][0]["seen_qps"].as_f64().expect("a rate");
            (seen / per_second - 1.0).abs() < 0.05
        };
        advice.filter(is_seen).ok_or((code, stdout, stderr))
    })
}

fn desired(advice: &Value) -> u64 {
    advice["groups"].as_array().expect("groups").iter().filter_map(|g| g["desired"].as_u64()).sum()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_advice_follows_a_rate_that_doubles_and_falls_back() {
    let Some(program) = apportion_needs::prometheus() else { return };
    let exporter = Exporter::start(60.0);
    let server = PrometheusProcess::start(&program, &exporter.scrape(), |_| {}, &[]);
    let (url, query) = (format!("http://{}", server.address()), format!("photos={RATE}"));
    let all = ["--prometheus", &url, "--query", &query, "--deployed-query", REPLICAS, "--format", "json"];

    let quiet = advice_at(&server, &all, 60.0);
    assert!(number(&quiet["demand"][0]["age_s"]) < 60.0, "{quiet}");
    assert_eq!(quiet["deployed"]["replicas"], 2, "{quiet}");
    assert!(number(&quiet["deployed"]["cost_per_hour"]) > 1.0, "{quiet}");

    exporter.set_rate(120.0);
    let busy = advice_at(&server, &all, 120.0);
    assert!(desired(&busy) > desired(&quiet), "{quiet}\n{busy}");
    let attainment = |plan: &str| number(&busy[plan]["attainment"]);
    assert!(attainment("advised") > 0.98 && attainment("deployed") < 0.5, "{busy}");
    let findings = busy["deployed"]["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|f| f.as_str().is_some_and(|f| f.contains("find"))), "{busy}");
    let differences = busy["groups"].as_array().expect("groups").iter().filter_map(|g| g["difference"].as_i64());
    assert_eq!(differences.sum::<i64>(), desired(&busy) as i64 - 2, "{busy}");

    exporter.set_rate(60.0);
    let again = advice_at(&server, &all, 60.0);
    assert_eq!(desired(&again), desired(&quiet), "{quiet}\n{again}");
    page_runs(&url);
}

/// Runs the commands of the page with this server.
fn page_runs(url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(apportion_tests::root().join("examples"), folder.path().join("examples")).expect("a link");
    let page = std::fs::read_to_string(apportion_tests::root().join(PAGE)).expect("the page");
    let blocks: Vec<&str> =
        page.split("```sh needs-prometheus\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "{PAGE} has no block for a Prometheus");
    for block in blocks {
        assert!(block.contains("http://127.0.0.1:9090"), "{block}");
        let block = block.replace("http://127.0.0.1:9090", url).replace("[1m]", "[4s]");
        let path = format!("{}:{}", apportion_tests::programs().display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).args(["bash", "-euo", "pipefail", "-c", &block]);
        command.current_dir(folder.path()).env("PATH", path);
        let Output { status, stdout, stderr } = command.output().expect("bash");
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success() && stdout.contains("advised"), "{block}\n{stdout}\n{stderr}");
    }
}

#[test]
fn doubtful_answers_are_errors_and_never_advice() {
    let Some(program) = apportion_needs::prometheus() else { return };
    let exporter = Exporter::start(60.0);
    let mut server = PrometheusProcess::start(&program, &exporter.scrape(), |_| {}, &[]);
    let url = format!("http://{}", server.address());
    let asked = |promql: &str| advise(&["--prometheus", &url, "--query", &format!("photos={promql}")]);
    until(&server, "a first number", || {
        Some(asked(RATE)).filter(|(code, ..)| *code == 0).ok_or((0, String::new(), String::new()))
    });

    let wrong = [
        ("sum(rate(x[1m])", "status 400: bad_data: "),
        ("rate(nv_inference_request_success[4s])", "2 series, such as {"),
        ("nv_inference_request_success[4s]", "/data/resultType: \"matrix\""),
        ("sum(nv_inference_request_succes)", "/data/result: no series"),
        ("vector(0) / 0", "/data/result/0/value/1: \"NaN\""),
        ("-sum(nv_inference_request_success)", "/data/result/0/value/1: \"-"),
        ("1 / 0", "/data/result/1: \"+Inf\""),
        ("1e10", "at most 1e9 queries per second"),
    ];
    for (promql, expected) in wrong {
        let (code, stdout, stderr) = asked(promql);
        assert_eq!((code, stdout.as_str()), (2, ""), "{promql}: {stderr}");
        assert!(stderr.starts_with("--query photos: ") && stderr.contains(promql), "{stderr}");
        assert!(stderr.contains(expected), "{promql}: {stderr} has no {expected}");
    }
    let old = advise(&["--prometheus", &url, "--query", &format!("photos={RATE}"), "--age-max", "1ms"]);
    assert!(old.0 == 1 && old.1.is_empty() && old.2.contains(" s old: expected at most"), "{old:?}");

    exporter.stop();
    let gone = until(&server, "the exporter is gone", || {
        let answer = asked(RATE);
        if answer.0 == 0 { Err(answer) } else { Ok(answer) }
    });
    assert!(gone.0 == 1 && gone.1.is_empty() && gone.2.contains("has no current sample"), "{gone:?}");

    server.kill();
    let (code, stdout, stderr) = asked(RATE);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("--query photos: ") && stderr.contains(&format!("{url}: cannot be reached")), "{stderr}");
}

/// An authority and a certificate for 127.0.0.1 that it signed, by openssl.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let script = format!(
        "openssl req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 30
         openssl req {key} -keyout leaf.key -out leaf.csr -subj /CN=prometheus -addext subjectAltName=IP:127.0.0.1
         openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy -days 30 -out leaf.pem"
    );
    let made = Command::new("bash").args(["-euc", &script]).current_dir(folder).output().expect("bash");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let web = "tls_server_config: {cert_file: leaf.pem, key_file: leaf.key}\n";
    std::fs::write(folder.join("web.yml"), web).expect("written");
}

#[test]
fn an_https_server_is_known_by_its_authority() {
    let Some(program) = apportion_needs::prometheus() else { return };
    let arguments = ["--web.config.file={folder}/web.yml"];
    let server = PrometheusProcess::start(&program, "global: {}\n", certificates, &arguments);
    let (url, file) = (format!("https://{}", server.address()), |name: &str| server.folder().join(name));
    let (ca, leaf, token) = (file("ca.pem"), file("leaf.key"), file("token"));
    std::fs::write(&token, "secret\n").expect("written");
    let path = |file: &Path| file.display().to_string();
    let with = |more: &[&str]| advise(&[&["--prometheus", &url, "--query", "photos=vector(60)"], more].concat());
    let (_, stdout, _) = until(&server, "an answer over TLS", || {
        let answer = with(&["--ca", &path(&ca), "--token-file", &path(&token)]);
        if answer.0 == 0 { Ok(answer) } else { Err(answer) }
    });
    assert!(stdout.contains("nothing is known of the deployment"), "{stdout}");
    let (code, stdout, stderr) = with(&[]);
    assert!(code != 0 && stdout.is_empty(), "this machine's authorities do not know the server: {stderr}");
    let (code, _, stderr) = with(&["--ca", &path(&leaf)]);
    assert!(code == 2 && stderr.contains("no certificate: expected PEM certificates"), "{stderr}");
}
