//! The views: a pipeline under load, lists, deploying and going back, what is wrong, and the keyboard.

use crate::stage::{AGENTS, BASE_QPS, ENTER, RunningLoad, STEP_QPS, TAB, browser_at, click, has_no_barriers, start_fleet};
use apportion_tests::browser::Browser;
use serde_json::{Value, json};

/// Doubles the demand in the view of questions, and waits for the answer beside the plan in force.
async fn double_the_demand(browser: &Browser) {
    browser.follow("What if").await;
    browser.shows("Double the demand").await;
    let before = browser.script("return Number(document.querySelector('input[name=demand]').value)").await;
    assert_eq!(before.as_f64(), Some(BASE_QPS));
    browser
        .script("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Double the demand').click()")
        .await;
    browser.until("document.querySelector('main .badge')?.innerText === 'succeeded'").await;
    browser.shows(&format!("{}/s", 2.0 * BASE_QPS)).await;
    browser.until(&format!("location.hash.includes('demand={}')", 2.0 * BASE_QPS)).await;
    has_no_barriers(browser, "What if").await;
}

/// The address of the first link to a plan in the page's heading of facts.
const PLAN_IN_FORCE: &str = "document.querySelector('.facts a.id')?.title";

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_followed_under_load() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("apply").await;
    let browser = browser_at(&cluster, &driver).await;
    browser.shows("Nothing is wrong.").await;
    browser.shows(&format!("{AGENTS} live")).await;
    let load = RunningLoad::start(&cluster, BASE_QPS);
    browser.until("document.querySelector('[aria-label=Pipelines] tbody tr .badge').innerText === 'kept'").await;
    has_no_barriers(&browser, "fleet").await;

    browser.follow("photos").await;
    browser.until("document.querySelectorAll('.graph .node').length === 3").await;
    browser.until("document.querySelectorAll('.chart canvas').length === 4").await;
    has_no_barriers(&browser, "pipeline").await;
    let before = browser.script(&format!("return {PLAN_IN_FORCE}")).await;
    assert!(before.is_string(), "{}", browser.text().await);

    // More load than the plan serves: another plan comes, and the page shows it without being loaded again.
    browser.script("window.isSame = true").await;
    let more = RunningLoad::start(&cluster, STEP_QPS);
    browser.until(&format!("{PLAN_IN_FORCE} !== {before}")).await;
    browser.until("/Changes of the plan \\([2-9]/.test(document.body.innerText)").await;
    browser.shows("applied").await;
    assert_eq!(browser.script("return window.isSame").await, json!(true), "the page was loaded again");
    more.stop().await;
    load.stop().await;

    let plan = browser.script(&format!("return {PLAN_IN_FORCE}")).await;
    browser.script("document.querySelector('.facts a.id').click()").await;
    browser.until(&format!("document.querySelector('h1').innerText.includes({plan})")).await;
    browser.shows("Why it is so").await;
    has_no_barriers(&browser, "plan").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_can_be_searched_and_linked_to() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    for (view, words) in [
        ("Plans", "in force"),
        ("Events", "Target 1"),
        ("Decisions", "Rounds of replanning"),
        ("Profiles", "Accuracy over cost"),
    ] {
        browser.follow(view).await;
        browser.shows(words).await;
        has_no_barriers(&browser, view).await;
    }

    double_the_demand(&browser).await;
    assert_eq!(cluster.get("/v1/target").await["generation"], json!(1), "a question deploys nothing");

    browser.follow("Events").await;
    browser.shows("Target 1").await;
    let search = "const box = document.querySelector('input[type=search]'); box.value = 'agent-1 registered';
                  box.dispatchEvent(new Event('input', {bubbles: true}))";
    browser.script(search).await;
    browser.until("document.querySelectorAll('tbody tr').length === 1 && location.hash.includes('agent-1')").await;
    let address = format!("{}/{}", cluster.service(), "#/events?id=target-1");
    browser.open(&address).await;
    browser.until("document.querySelector('tr.marked')?.innerText.includes('Target 1')").await;
    browser.open(&format!("{}/#/plan/00000000-0000-0000-0000-000000000000", cluster.service())).await;
    browser.shows("there is no plan").await;
    // A plan that is not there is an answer like any other, and the browser notes it.
    let others = browser.complaints().await.into_iter().filter(|said| !said.contains("00000000-0000"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_deploys_a_plan_and_goes_back() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    let larger = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": STEP_QPS}]})).await;
    let id = larger["id"].as_str().expect("an identifier");
    browser.open(&format!("{}/#/plan/{id}", cluster.service())).await;
    click(&browser, "Show what deploying this plan would change").await;
    browser.shows("Change of each task").await;
    assert_eq!(cluster.get("/v1/target").await["generation"], json!(1), "nothing is deployed before the yes");
    has_no_barriers(&browser, "plan with its change").await;
    click(&browser, "Yes, do this").await;
    browser.until("document.querySelector('h1 .badge')?.innerText === 'in force'").await;
    let target = cluster.get("/v1/target").await;
    assert_eq!((&target["generation"], &target["plans"]), (&json!(2), &json!([id])));

    browser.follow("Targets").await;
    browser.follow("Go back to 1").await;
    click(&browser, "Show what going back would change").await;
    browser.shows("Change of each task").await;
    has_no_barriers(&browser, "targets").await;
    click(&browser, "Yes, do this").await;
    browser.shows("Done: target 3 is in force.").await;
    browser.shows("loopback went back to the plans of target 1").await;
    assert_eq!(cluster.get("/v1/holds").await[0]["pipeline"], Value::Null, "the way back holds the fleet");
    click(&browser, "Release the hold").await;
    browser.shows("Not held").await;
    browser.script("document.querySelector('input[name=reason]').value = 'a launch'").await;
    click(&browser, "Hold the fleet").await;
    browser.shows("by loopback: a launch").await;
    browser.shows("POST /v1/target/rollback").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_shown_first_and_heals() {
    let Some(driver) = apportion_needs::browser() else { return };
    let mut cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    browser.shows("Nothing is wrong.").await;
    cluster.kill_agent(1);
    browser.shows("Agent agent-1 is lost").await;
    let first = browser.script("return document.querySelector('main section h2').innerText").await;
    assert!(first.as_str().is_some_and(|text| text.ends_with("to look at")), "{first}");
    cluster.start_agent(1);
    browser.shows("Nothing is wrong.").await;

    cluster.kill_service();
    browser.shows("Connection lost since").await;
    cluster.start_service().await;
    browser.until("!document.body.innerText.includes('Connection lost')").await;
    browser.shows("Nothing is wrong.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_is_enough() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    let focus = "return document.activeElement.innerText || document.activeElement.id";
    browser.press(TAB).await;
    assert_eq!(browser.script(focus).await, json!("Skip to the content"));
    browser.press(ENTER).await;
    assert_eq!(browser.script("return document.activeElement.id").await, json!("main"));
    // From there to the first link of the content: the pipeline, past the table that can be scrolled.
    for _ in 0..4 {
        browser.press(TAB).await;
        if browser.script(focus).await == json!("photos") {
            break;
        }
    }
    assert_eq!(browser.script(focus).await, json!("photos"), "the link is within reach");
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1').innerText.startsWith('photos')").await;
    assert_eq!(browser.script("return document.activeElement.id").await, json!("main"), "the new view has the focus");
}
