//! A load is replayed under two plans or settings, side by side.

use crate::stage::{
    BASE_QPS, RunningLoad, browser_at, click, has_no_barriers, id_of, post_simulation, start_fleet, upload_step,
    upload_trace,
};
use apportion_domain::Dropping;
use apportion_tests::browser::Browser;
use apportion_tests::cluster::Cluster;
use serde_json::{Value, json};

/// Ten times the base load: the first plan serves a part of it.
const PEAK_QPS: f64 = 80.0;
/// Requests per second of a load whose simulation takes long enough to be cancelled.
const LONG_QPS: u32 = 3_000;
/// The right arrow.
const RIGHT: &str = "\u{e014}";
/// How many of the two replays are done.
const DONE: &str = "[...document.querySelectorAll('main h3 .badge')].filter((b) => b.innerText === 'done').length";
/// The rows of the table of totals, cell by cell.
const TOTALS: &str = "return [...document.querySelectorAll('[aria-label=\"Figures of both replays\"] tbody tr')]
    .map((row) => [...row.cells].map((cell) => cell.innerText))";

/// A parameter of the page's address.
async fn parameter(browser: &Browser, name: &str) -> String {
    let script = format!("return new URLSearchParams(location.hash.split('?')[1]).get('{name}')");
    browser.script(&script).await.as_str().unwrap_or_default().to_owned()
}

/// The result of the simulation on one side.
async fn result(cluster: &Cluster, browser: &Browser, side: &str) -> Value {
    let id = parameter(browser, side).await;
    cluster.get(&format!("/v1/simulations/{id}")).await["result"].clone()
}

/// Chooses a value of a list of the form.
async fn choose(browser: &Browser, name: &str, value: &str) {
    let list = format!("document.querySelector('select[name={name}]')");
    browser.until(&format!("[...{list}?.options ?? []].some((o) => o.value === '{value}')")).await;
    let change = format!("const list = {list}; list.value = '{value}'; list.dispatchEvent(new Event('change'))");
    browser.script(&change).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_plans_replay_the_same_load() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let larger = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": 1.2 * PEAK_QPS}]})).await;
    upload_step(&cluster, "peak", 60, PEAK_QPS).await;
    let browser = browser_at(&cluster, &driver).await;
    browser.follow("Replay").await;
    browser.shows("Both replays stand here side by side.").await;
    has_no_barriers(&browser, "question of a replay").await;
    // The plan in force is on the left, and the newest other one on the right.
    browser.until(&format!("document.querySelector('select[name=right_plan]').value === '{}'", id_of(&larger))).await;
    click(&browser, "Replay").await;
    browser.until(&format!("{DONE} === 2")).await;
    browser.until("document.querySelectorAll('.chart canvas').length === 2").await;
    has_no_barriers(&browser, "replay").await;

    let (left, right) = (result(&cluster, &browser, "left").await, result(&cluster, &browser, "right").await);
    assert_eq!(left["requests"], right["requests"], "the same requests");
    assert!(left["ok"].as_u64() < right["ok"].as_u64(), "the larger plan serves more: {left:#} {right:#}");
    let rows: Vec<Vec<String>> = serde_json::from_value(browser.script(TOTALS).await).expect("rows of texts");
    for (row, key) in [("Requests", "requests"), ("Late", "late"), ("Dropped", "dropped"), ("Failed", "failed")] {
        let cells = rows.iter().find(|cells| cells[0] == row).unwrap_or_else(|| panic!("{row} in {rows:?}"));
        let expected = (browser.grouped(&left[key]).await, browser.grouped(&right[key]).await);
        assert_eq!((cells[1].clone(), cells[2].clone()), expected, "{row}");
    }
    let in_time = rows.iter().find(|cells| cells[0] == "In time").expect("a row");
    assert!(in_time[3].ends_with("(better)"), "{in_time:?}");
    let label = browser.script("return document.querySelector('.chart').getAttribute('aria-label')").await;
    let label = label.as_str().expect("a label").to_owned();
    assert!(["in time", "on a fallback", "late", "dropped"].iter().all(|class| label.contains(class)), "{label}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_through_the_events() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    upload_step(&cluster, "peak", 60, PEAK_QPS).await;
    let browser = browser_at(&cluster, &driver).await;
    let view = "#/replay/photos?left_scaler=none&right_scaler=none";
    browser.open(&format!("{}/{view}", cluster.service())).await;
    click(&browser, "Replay").await;
    browser.until(&format!("{DONE} === 2")).await;
    browser.shows("At second 0").await;
    click(&browser, "Next event").await;
    browser.shows("At second 20").await;
    click(&browser, "Next event").await;
    browser.shows("At second 40").await;
    click(&browser, "Event before").await;
    browser.shows("At second 20").await;
    browser.script("document.querySelector('input[name=at]').focus()").await;
    browser.press(RIGHT).await;
    browser.shows("At second 21").await;
    browser.until("new URLSearchParams(location.hash.split('?')[1]).get('at') === '21'").await;

    // The address has it all: nobody asks again.
    let address = browser.script("return location.href").await;
    browser.open(address.as_str().expect("an address")).await;
    browser.until(&format!("{DONE} === 2")).await;
    browser.shows("At second 21").await;
    assert_eq!(cluster.get("/v1/simulations").await.as_array().map(Vec::len), Some(2));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorded_load_is_replayed() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let load = RunningLoad::start(&cluster, BASE_QPS);
    let has_rows = |rows: &Value| rows.as_array().filter(|rows| rows.len() > 5).map(|_| ());
    cluster.until("/v1/pipelines/photos/arrivals?seconds=60", has_rows).await;
    let browser = browser_at(&cluster, &driver).await;
    browser.follow("Replay").await;
    choose(&browser, "load", "recorded-300").await;
    choose(&browser, "right_scaler", "hpa").await;
    click(&browser, "Replay").await;
    browser.until(&format!("{DONE} === 2")).await;
    load.stop().await;
    let traces = cluster.get("/v1/traces").await;
    assert_eq!(traces.as_array().map(Vec::len), Some(1), "both sides replay one trace");
    assert!(traces[0]["name"].as_str().is_some_and(|name| name.starts_with("photos recorded")), "{traces}");
    assert_eq!(traces[0]["rows"], json!(300));
    let (left, right) = (result(&cluster, &browser, "left").await, result(&cluster, &browser, "right").await);
    assert!(left["requests"].as_u64() > Some(0) && left["requests"] == right["requests"], "{left:#}");
    assert_eq!((left.get("replay"), right["replay"].is_object()), (None, true), "only the right side scales");
    assert!(parameter(&browser, "from").await.parse::<u64>().is_ok(), "the address says when it was recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_shows_refusals_and_can_be_cancelled() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    let replay = format!("{}/#/replay/photos", cluster.service());
    browser.open(&format!("{replay}?load=nothing")).await;
    click(&browser, "Replay").await;
    browser.shows("expected the identifier or the name of an uploaded trace").await;

    // PARD drops at once, so the queues of the overload stay short.
    let rows: String = (0..86_400).map(|second| format!("{second},{LONG_QPS}\n")).collect();
    let trace = upload_trace(&cluster, "long", format!("second,qps\n{rows}")).await;
    browser.open(&format!("{replay}?load={trace}&left_policy=pard&right_policy=pard")).await;
    click(&browser, "Replay").await;
    for side in ["left", "right"] {
        let button = format!("document.querySelector('[aria-label=\"Cancel {side}\"]')");
        browser.until(&button).await;
        browser.script(&format!("{button}.click()")).await;
    }
    browser.shows("It was cancelled and has no result.").await;
    browser.until("document.querySelectorAll('[aria-label^=Cancel]').length === 0").await;
    has_no_barriers(&browser, "cancelled replay").await;
    let states: Vec<Value> = cluster.get("/v1/simulations").await.as_array().expect("a list").clone();
    assert!(states.iter().all(|one| one["state"] == "cancelled"), "{states:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_choice_is_one_that_the_service_knows() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    browser.follow("Replay").await;
    browser.until("document.querySelector('select[name=left_policy]')").await;
    let plan = cluster.get("/v1/target").await["plans"][0].clone();
    let mut tried = 0;
    for (list, key) in [("left_policy", "policy"), ("left_scaler", "autoscaler")] {
        let values = format!("return [...document.querySelector('select[name={list}]').options].map((o) => o.value)");
        let values: Vec<String> = serde_json::from_value(browser.script(&values).await).expect("texts");
        for value in values.into_iter().filter(|value| !value.is_empty()) {
            assert!(key != "policy" || Dropping::NAMES.contains(&value.as_str()), "{value}");
            let mut request = json!({"plan": plan});
            request[key] = json!(value);
            let (status, answer) = post_simulation(&cluster, &request).await;
            assert_eq!(status, 202, "{value}: {answer}");
            tried += 1;
        }
    }
    assert_eq!(tried, 5 + 6, "five policies and six scalers");
}
