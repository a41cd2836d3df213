//! A lost connection is shown, and heals without loading the page again.

use crate::stage::{browser_at, click, start_fleet};
use serde_json::json;

/// The boxes of the tasks in the graph of a pipeline.
const NODES: &str = "document.querySelectorAll('.graph .node').length";

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_shown_and_heals() {
    let Some(driver) = apportion_needs::browser() else { return };
    let mut cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    browser.follow("photos").await;
    browser.until(&format!("{NODES} === 3")).await;
    browser.until("document.querySelector('input[name=reason]')").await;
    browser.script("window.isSame = true").await;

    cluster.stop_service().await;
    browser.shows("Connection lost since").await;
    assert_eq!(browser.script(&format!("return {NODES}")).await, json!(3), "the last answers stay");
    browser.until("document.querySelector('main').classList.contains('stale')").await;
    browser.script("document.querySelector('input[name=reason]').value = 'a launch'").await;
    click(&browser, "Hold photos").await;
    browser.shows("The service does not answer").await;

    cluster.start_service().await;
    browser.until("!document.body.innerText.includes('Connection lost')").await;
    browser.until("!document.querySelector('main').classList.contains('stale')").await;
    // What another client does meanwhile is shown again.
    cluster.put("/v1/pipelines/photos/hold", &json!({"reason": "after the restart"})).await;
    browser.shows("after the restart").await;
    assert_eq!(browser.script("return window.isSame").await, json!(true), "the page was loaded again");
}
