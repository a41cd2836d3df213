//! How soon does the page show a large fleet, and which share of a core does it take while it stays open?
//!
//! It prints the figures and asserts none of them. Run it so:
//!
//! ```text
//! APPORTION_PAGE_FULL=1 cargo nextest run --release -p apportion-tests --test page large_fleet --success-output immediate
//! ```
//!
//! Without the variable the fleet is small, so that the test only says whether all of it is shown.

use crate::stage::WIDE;
use apportion_experiments::bench::stand_ins::StandIns;
use apportion_tests::browser::Browser;
use apportion_tests::cluster::{Cluster, HARDWARE};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::time::Duration;

/// The size of what is measured.
struct FleetSize {
    pipelines: usize,
    agents: usize,
    /// Seconds of recorded arrivals of the pipeline whose charts are open.
    recorded_s: i64,
    /// How long the page stays open in each view.
    open: Duration,
}

const FULL: FleetSize = FleetSize { pipelines: 200, agents: 1_000, recorded_s: 86_400, open: Duration::from_secs(60) };
const SMALL: FleetSize = FleetSize { pipelines: 12, agents: 60, recorded_s: 3_600, open: Duration::from_secs(3) };
/// Rows of a table that the page shows at first.
const ROWS_MAX: usize = 100;
/// Requests per second of each pipeline.
const DEMAND_QPS: f64 = 2.0;
/// Seconds of arrivals of every pipeline that come while the page is open.
const COMING_S: i64 = 600;
/// Pages that are opened for the first paint; the figure is their median.
const OPENINGS: usize = 5;
/// Notes when the table of pipelines has its first row, in milliseconds from the beginning of the navigation.
const NOTE_ROWS: &str = "new MutationObserver(() => {
    const isThere = document.querySelector('[aria-label=Pipelines] tbody tr');
    if (window.rowsAt === undefined && isThere) window.rowsAt = performance.now();
}).observe(document, {childList: true, subtree: true});";

/// A pipeline of one task; one replica serves a request in a second.
fn pipeline(name: &str) -> Value {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let task = json!({"name": "a", "inputs": tensor("x"), "outputs": tensor("y"), "variants": [{"name": "v"}]});
    json!({"name": name, "slo_ms": 10_000.0, "tasks": [task]})
}

/// A fleet of stand-ins with one device each, on which a plan for all pipelines is in force.
async fn large_fleet(cluster: &Cluster, size: &FleetSize) -> StandIns {
    let address = format!("http://{}", cluster.join_address());
    let joined = StandIns::connect(&address, cluster.join_token(), size.agents, HARDWARE).await;
    let mut agents = joined.expect("the service takes them");
    cluster.live(size.agents).await;
    let names: Vec<String> = (0..size.pipelines).map(|at| format!("pipeline-{at:03}")).collect();
    for name in &names {
        let header = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy";
        cluster.register(&pipeline(name), &format!("{header}\n{name},a,v,{HARDWARE},1,1000,1\n")).await;
    }
    let demands: Vec<Value> = names.iter().map(|name| json!({"name": name, "demand_qps": DEMAND_QPS})).collect();
    let plan = cluster.plan(&json!({"pipelines": demands, "time_limit_s": 20.0})).await;
    cluster.apply(&plan).await;
    agents.acknowledged(1).await.expect("all stand-ins take the target");
    agents
}

/// Arrivals as agents would have reported them: a day of the first pipeline, and the coming minutes of all.
async fn record_arrivals(cluster: &Cluster, size: &FleetSize) {
    let mut db = PgConnection::connect(&cluster.database_url()).await.expect("the service's own database");
    let rows = "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed)
        select name, second, 3, 3, 0, 0, 0 from pipelines,
        generate_series(extract(epoch from now())::bigint - $1, extract(epoch from now())::bigint + $2) as second
        where $3::text is null or name = $3 on conflict do nothing";
    for (before, only) in [(size.recorded_s, Some("pipeline-000")), (60, None)] {
        let write = sqlx::query(rows).bind(before).bind(COMING_S).bind(only);
        write.execute(&mut db).await.expect("rows of arrivals");
    }
}

/// The median of some figures, in ascending order afterwards.
fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Opens the fleet's view several times, and prints when its first pixels and its first rows came.
async fn measure_first_paint(browser: &Browser, address: &str) {
    let (mut painted, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..OPENINGS {
        browser.open(address).await;
        browser.until("window.rowsAt !== undefined").await;
        let paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null";
        browser.until(&format!("({paint}) !== null")).await;
        let figures = browser.script(&format!("return [{paint}, window.rowsAt]")).await;
        painted.push(figures[0].as_f64().expect("a time"));
        shown.push(figures[1].as_f64().expect("a time"));
    }
    eprintln!(
        "page: first paint after {:.0} ms, first row of the fleet after {:.0} ms (medians of {OPENINGS})",
        median(&mut painted),
        median(&mut shown)
    );
}

/// Leaves a view open, and prints the share of a core that the browser takes.
async fn measure_share(browser: &Browser, view: &str, open: Duration) {
    let Some(before) = browser.processor_times() else {
        eprintln!("page: this machine does not say the processor time of the browser");
        return;
    };
    tokio::time::sleep(open).await;
    let used = browser.processor_times().expect("as before").seconds_since(&before);
    eprintln!("page: {view}: {:.1} % of a core over {:.0} s", 100.0 * used / open.as_secs_f64(), open.as_secs_f64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_fleet_is_shown_whole() {
    let Some(driver) = apportion_needs::browser() else { return };
    let size = if std::env::var_os("APPORTION_PAGE_FULL").is_some() { FULL } else { SMALL };
    let cluster = Cluster::serve_with(&[]).await;
    let _agents = large_fleet(&cluster, &size).await;
    record_arrivals(&cluster, &size).await;
    let browser = Browser::start(&driver).await;
    browser.set_look(WIDE).await;
    browser.run_before_pages(NOTE_ROWS).await;
    eprintln!("page: {} pipelines, {} agents, {} s of points", size.pipelines, size.agents, size.recorded_s);
    measure_first_paint(&browser, &cluster.service()).await;
    browser.shows(&format!("{} live", size.agents)).await;
    browser.shows(&format!(" of {}", size.pipelines)).await;
    let rows = "document.querySelectorAll('[aria-label=Pipelines] tbody tr').length";
    assert_eq!(browser.script(&format!("return {rows}")).await, json!(size.pipelines.min(ROWS_MAX)));
    measure_share(&browser, "fleet", size.open).await;

    browser.open(&format!("{}/#/pipeline/pipeline-000?window=86400", cluster.service())).await;
    browser.until("document.querySelectorAll('.chart canvas').length === 4").await;
    measure_share(&browser, "pipeline with 24 hours", size.open).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
