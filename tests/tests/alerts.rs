//! The example alerts: Prometheus' own tool takes them, they name metrics that exist, and each fires on its sign only.

use apportion_needs::prometheus;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const RULES: &str = "docs/reference/alerts.yaml";

/// A sign, and the alerts that it sets off.
struct Sign {
    series: &'static str,
    values: &'static str,
    alerts: &'static [&'static str],
}

/// Samples come each 15 s; the alerts are those after 20 minutes.
const SIGNS: [Sign; 12] = [
    Sign {
        series: "apportion_error_budget_fast_burn_rate{pipeline=\"p\"}",
        values: "13x90",
        alerts: &["PromiseBurnsFast"],
    },
    Sign { series: "apportion_error_budget_fast_burn_rate{pipeline=\"p\"}", values: "11x90", alerts: &[] },
    // It has missed for minutes, and the last minute is good.
    Sign { series: "apportion_error_budget_slow_burn_rate{pipeline=\"p\"}", values: "4x90", alerts: &[] },
    Sign { series: "apportion_error_budget_left_ratio{pipeline=\"p\"}", values: "-0.1x90", alerts: &["PromiseBroken"] },
    Sign {
        series: "apportion_profile_drift_ratio{pipeline=\"p\",task=\"t\",variant=\"v\",hardware=\"h\"}",
        values: "1.3x90",
        alerts: &["ProfileIsWrong"],
    },
    Sign { series: "up{job=\"apportion\"}", values: "0x90", alerts: &["ServiceProcessDown"] },
    Sign { series: "apportion_agents{state=\"lost\"}", values: "1x90", alerts: &["AgentLost"] },
    Sign { series: "apportion_control_attended", values: "0x90", alerts: &["AgentUnattended"] },
    Sign { series: "apportion_job_deaths_total", values: "0+1x90", alerts: &["PlansFail"] },
    Sign { series: "apportion_webhook_events_waiting{webhook=\"w\"}", values: "1000x90", alerts: &["WebhookBehind"] },
    Sign { series: "apportion_rows_oldest_age_seconds{kind=\"arrivals\"}", values: "200000x90", alerts: &["OldRowsStay"] },
    Sign { series: "apportion_requests_wrong_token_total", values: "0+20x90", alerts: &["WrongTokens"] },
];

fn promtool(server: &Path, arguments: &[&str]) -> Output {
    let tool = server.with_file_name("promtool");
    Command::new(&tool).args(arguments).output().unwrap_or_else(|error| panic!("{}: {error}", tool.display()))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The words of a text that begin with `apportion_`.
fn metrics(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("apportion_")).collect()
}

fn rules() -> (String, Vec<String>) {
    let text = std::fs::read_to_string(apportion_tests::root().join(RULES)).expect("the rules");
    let tree: Value = serde_saphyr::from_str(&text).expect("YAML");
    let groups = tree["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
    let alerts = rules.map(|rule| rule["alert"].as_str().expect("an alert").to_owned()).collect();
    (text, alerts)
}

#[test]
fn alerts_name_metrics_of_the_reference() {
    let (text, alerts) = rules();
    let page = std::fs::read_to_string(apportion_tests::root().join("docs/reference/metrics.md")).expect("the page");
    let named = metrics(&text);
    assert!(named.len() >= alerts.len(), "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{RULES} names {missing:?}");
}

#[test]
fn each_alert_fires_on_its_sign_only() {
    let Some(server) = prometheus() else { return };
    let file = apportion_tests::root().join(RULES);
    let checked = promtool(&server, &["check", "rules", &file.display().to_string()]);
    assert!(checked.status.success(), "{}", said(&checked));
    let (_, alerts) = rules();
    // Slow burning needs two series, so it has a test of its own below.
    let fired: Vec<&str> = SIGNS.iter().flat_map(|sign| sign.alerts.iter().copied()).collect();
    for alert in alerts.iter().filter(|alert| *alert != "PromiseBurnsSlowly") {
        assert!(fired.contains(&alert.as_str()), "no sign sets {alert} off");
    }
    let mut tests = Vec::new();
    for Sign { series, values, alerts: expected } in &SIGNS {
        let series = json!([{"series": series, "values": values}]);
        tests.push(test_of(&series, &alerts, expected));
    }
    let slow = |name: &str, value: &str| json!({"series": format!("{name}{{pipeline=\"p\"}}"), "values": value});
    let both =
        [slow("apportion_error_budget_slow_burn_rate", "4x90"), slow("apportion_error_budget_fast_burn_rate", "5x90")];
    tests.push(test_of(&json!(both), &alerts, &["PromiseBurnsSlowly"]));
    let folder = tempfile::tempdir().expect("a folder");
    let test = folder.path().join("alerts.test.yaml");
    let document = json!({"rule_files": [file], "evaluation_interval": "15s", "tests": tests});
    std::fs::write(&test, document.to_string()).expect("our own folder");
    let tested = promtool(&server, &["test", "rules", &test.display().to_string()]);
    assert!(tested.status.success(), "{}", said(&tested));
}

/// The test that these series set off the expected ones of all alerts, and no other one.
fn test_of(series: &Value, alerts: &[String], expected: &[&str]) -> Value {
    let counts: Vec<Value> = alerts
        .iter()
        .map(|alert| {
            let expression = format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) or vector(0)");
            let count = u8::from(expected.contains(&alert.as_str()));
            json!({"expr": expression, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": count}]})
        })
        .collect();
    json!({"interval": "15s", "input_series": series, "promql_expr_test": counts})
}
