//! The guided tour of the demo's minute.

use crate::stage::{ENTER, browser_at, click, has_no_barriers, start_fleet, upload_step};
use apportion_experiments::demo::{TOUR_QUERY, load_name};
use apportion_tests::cluster::Cluster;
use serde_json::json;

/// The escape key.
const ESCAPE: &str = "\u{e00c}";

/// Stores the load of a demo that begins now, as `apportion demo` does.
async fn begin_demo(cluster: &Cluster, seconds: u64) -> String {
    upload_step(cluster, &load_name("photos", seconds), 6, 2.0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_follows_the_demo() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    let has_tour = browser.script("return document.body.innerText.includes('tour')").await;
    assert_eq!(has_tour, json!(false), "a page without the word in its address has no tour");
    browser.open(&format!("{}/{TOUR_QUERY}", cluster.service())).await;
    browser.shows("Tour, 1 of 6: The demo prepares").await;
    begin_demo(&cluster, 3_600).await;
    browser.shows("Tour, 2 of 6: A steady load").await;
    browser.shows("Watch now:").await;
    has_no_barriers(&browser, "tour").await;

    browser.follow("Look at the pipeline").await;
    browser.until("document.querySelector('h1').innerText.startsWith('photos')").await;
    click(&browser, "Next step").await;
    browser.shows("Tour, 3 of 6: The load doubles").await;
    assert_eq!(browser.script("return document.body.innerText.includes('Watch now:')").await, json!(false));
    click(&browser, "Follow the demo").await;
    browser.shows("Tour, 2 of 6").await;

    // A demo of one second is over soon, and its load can be replayed.
    let trace = begin_demo(&cluster, 1).await;
    browser.shows("Tour, 6 of 6: Looking back").await;
    browser.follow("Replay the load").await;
    browser.until(&format!("document.querySelector('select[name=load]')?.value === '{trace}'")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_tour_starts_again_by_keyboard() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("off").await;
    let browser = browser_at(&cluster, &driver).await;
    let address = format!("{}/{TOUR_QUERY}", cluster.service());
    browser.open(&address).await;
    browser.shows("Tour, 1 of 6").await;
    let button = "[...document.querySelectorAll('.tour button')].find((b) => b.innerText === 'Next step')";
    browser.script(&format!("{button}.focus()")).await;
    browser.press(ENTER).await;
    browser.shows("Tour, 2 of 6").await;
    assert_eq!(
        browser.script(&format!("return document.activeElement === {button}")).await,
        json!(true),
        "the focus stays"
    );
    browser.press(ESCAPE).await;
    browser.until("!document.querySelector('.tour')").await;
    browser.open(&address).await;
    browser.shows("Start the tour").await;
    assert_eq!(browser.script("return document.querySelector('.tour')").await, json!(null), "it stays closed");
    browser.script("document.querySelector('#tour-again button').focus()").await;
    browser.press(ENTER).await;
    browser.shows("Tour, 1 of 6").await;
    let focus = browser.script("return document.activeElement.id").await;
    assert_eq!(focus, json!("tour-title"), "a reader of the screen hears the step");
}

/// The step at the beginning and shortly before and at the end of each part of a load of 60 s, by the page's own module.
const STEPS: &str = r"
    const done = arguments[arguments.length - 1];
    const at = document.querySelector('script[type=module]').src.replace('app.js', 'lib/tour.js');
    import(at).then(({demoLoad, stepAt, secondsLeft, STEPS}) => {
        const named = (name) => ({id: 'a', name, created_at: '2026-01-01T00:00:00Z'});
        const load = demoLoad([named('other'), named('demo-60s-of-my-pipeline'), named('demo-9s-of-old')]);
        const steps = [-1, 0, 19, 20, 29, 30, 39, 40, 59, 60, 1e6].map((second) => stepAt(load, load.begin + second));
        const left = [secondsLeft(load, 1, load.begin + 5), secondsLeft(load, 5, load.begin), secondsLeft(null, 0, 0)];
        done([load.pipeline, load.seconds, steps, left, stepAt(null, 0), demoLoad([named('demo-s-of-x')]), STEPS.length]);
    }, (error) => done([String(error)]));";

#[tokio::test(flavor = "multi_thread")]
async fn steps_follow_the_parts_of_the_load() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = Cluster::start(0, 0).await;
    let browser = browser_at(&cluster, &driver).await;
    let expected = json!(["my-pipeline", 60, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [15, null, null], 0, null, 6]);
    assert_eq!(browser.script_with_callback(STEPS).await, expected);
}
