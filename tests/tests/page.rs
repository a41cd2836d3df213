//! The page at `/`, seen by a browser, on a service with agents and load.
//!
//! `APPORTION_WRITE=1` writes the documents' pictures.

use apportion_tests::browser::{Browser, Look};
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::load::{Ingresses, Load, Sent};
use apportion_tests::root;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const AGENTS: usize = 2;
const DEVICES: u32 = 4;
const BASE_QPS: f64 = 8.0;
/// More than the plan for the base load serves.
const STEP_QPS: f64 = 40.0;
/// Longer than any test.
const LENGTH: Duration = Duration::from_secs(600);
const WIDE: Look = Look { scheme: "light", width: 1280, height: 900 };
const DARK: Look = Look { scheme: "dark", ..WIDE };
const NARROW: Look = Look { scheme: "light", width: 390, height: 844 };
/// Most bytes of one picture of the documents.
const PICTURE_BYTES_MAX: u64 = 300_000;
/// One of the three parts of the load before pictures are made.
const PICTURE_PART: Duration = Duration::from_secs(40);
/// A token that allows everything.
const ADMIN_TOKEN: &str = "the-admin-token-of-this-test";
/// Tab and Enter.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// `find -> read` and `find -> classify`, replanned in this mode.
fn photos(mode: &str) -> Value {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let task = |name: &str, input: &str, output: &str, variants: Value| json!({"name": name, "inputs": tensor(input), "outputs": tensor(output), "variants": variants});
    let edge = |to: &str, ratio: f64| json!({"from": "find", "to": to, "ratio": ratio, "map": {"crop": "crops"}});
    let variant = |name: &str, fanout: f64| json!({"name": name, "load_ms": 200.0, "fanout": fanout});
    json!({
        "name": "photos", "slo_ms": 500.0,
        "tasks": [
            task("find", "image", "crops", json!([variant("find-s", 2.0), variant("find-l", 2.0)])),
            task("read", "crop", "text", json!([variant("read-s", 1.0), variant("read-m", 1.0)])),
            task("classify", "crop", "kind", json!([variant("classify-m", 1.0)])),
        ],
        "edges": [edge("read", 0.7), edge("classify", 0.3)],
        "replan": {"mode": mode, "period_s": 3.0, "headroom": 1.2, "min_qps": 5.0},
    })
}

fn profile() -> String {
    let variants = [
        ("find", "find-s", 10.0, 0.85),
        ("find", "find-l", 40.0, 0.95),
        ("read", "read-s", 8.0, 0.9),
        ("read", "read-m", 20.0, 0.97),
        ("classify", "classify-m", 15.0, 0.92),
    ];
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_owned();
    for (task, variant, latency_ms, accuracy) in variants {
        for (batch, factor) in [(1, 1.0), (2, 1.5), (4, 2.5)] {
            csv += &format!("photos,{task},{variant},{HARDWARE},{batch},{},{accuracy}\n", latency_ms * factor);
        }
    }
    csv
}

/// A load that goes on until it is dropped.
struct RunningLoad {
    ends: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<Vec<Sent>>>,
}

impl RunningLoad {
    fn start(cluster: &Cluster, qps: f64) -> Self {
        let inputs = json!([{"name": "image", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}]);
        let rates = vec![(Duration::ZERO, qps)];
        let load = Load { pipeline: "photos".into(), inputs, rates, length: LENGTH, seed: 1 };
        let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
        let (ends, ended) = oneshot::channel();
        let running = tokio::spawn(async move { load.run_until(ingresses, Instant::now(), ended).await });
        Self { ends: Some(ends), running: Some(running) }
    }

    async fn stop(mut self) {
        drop(self.ends.take());
        let sent = self.running.take().expect("it was started").await.expect("clients end");
        assert!(!sent.is_empty(), "the load sent nothing");
    }
}

/// A fleet that serves the pipeline by a plan for the base load, and replans it in this mode.
async fn start_fleet(mode: &str) -> Cluster {
    let cluster = Cluster::start(AGENTS, DEVICES).await;
    cluster.register(&photos(mode), &profile()).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": BASE_QPS}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("photos").await;
    cluster
}

/// Looks at a view for everything that axe-core calls serious, light, dark and narrow.
async fn has_no_barriers(browser: &Browser, view: &str) {
    for look in [WIDE, DARK, NARROW] {
        browser.set_look(look).await;
        let barriers = browser.barriers().await;
        assert!(barriers.is_empty(), "{view}, {look:?}: {barriers:#?}");
        // Only tables and the graph scroll sideways, and not the page.
        let overhang =
            browser.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(overhang, json!(0), "{view}, {look:?} is wider than the window");
    }
    browser.set_look(WIDE).await;
}

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

/// A browser with the fleet's view of a service.
async fn browser_at(cluster: &Cluster, driver: &Path) -> Browser {
    let browser = Browser::start(driver).await;
    browser.set_look(WIDE).await;
    browser.open(&cluster.service()).await;
    browser.shows("Promises kept").await;
    browser
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

/// Clicks the button with these words, once it is there.
async fn click(browser: &Browser, words: &str) {
    let button = format!("[...document.querySelectorAll('button')].find((b) => b.innerText === '{words}')");
    browser.until(&format!("Boolean({button})")).await;
    browser.script(&format!("{button}.click()")).await;
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
async fn a_reader_sees_no_button_that_would_be_refused() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = Cluster::serve_with_tokens(ADMIN_TOKEN).await;
    let made = reqwest::Client::new().post(format!("{}/v1/tokens", cluster.service())).bearer_auth(ADMIN_TOKEN);
    let made = made.json(&json!({"name": "reader", "scope": "read"})).send().await.expect("an answer");
    let made: Value = made.json().await.expect("JSON");
    let reader = made["token"].as_str().expect("a token").to_owned();

    let browser = Browser::start(&driver).await;
    browser.set_look(WIDE).await;
    browser.open(&format!("{}/#/targets", cluster.service())).await;
    browser.shows("This service asks for a token").await;
    has_no_barriers(&browser, "token").await;
    for (token, has_buttons) in [(reader, false), (ADMIN_TOKEN.to_owned(), true)] {
        browser.script(&format!("sessionStorage.setItem('apportion-token', '{token}'); location.reload()")).await;
        browser.shows("Targets so far").await;
        browser.shows("Not held").await;
        let there = browser.script("return document.body.innerText.includes('Hold the fleet')").await;
        assert_eq!(there, json!(has_buttons));
        assert_eq!(browser.script("return document.body.innerText.includes('Audit')").await, json!(has_buttons));
    }
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

/// Lays out graphs by the page's own module. Gives what is wrong with each, and the load of the edges of `find`.
const LAYOUTS: &str = r"
    const done = arguments[arguments.length - 1];
    const at = document.querySelector('script[type=module]').src.replace('app.js', 'lib/');
    const size = {width: 10, height: 4, gapX: 5, gapY: 2};
    const faults = (layered, [names, edges, count]) => {
        const list = edges.map((edge) => ({from: edge[0], to: edge[1]}));
        const plan = layered([...names], list, size);
        const nodes = [...plan.nodes.values()];
        const isOver = (a, b) => a !== b && Math.abs(a.x - b.x) < size.width && Math.abs(a.y - b.y) < size.height;
        const isInside = (p) => p.x > 0 && p.y > 0 && p.x < plan.width && p.y < plan.height;
        const isForward = (edge) => edge.points.every((p, i) => i === 0 || p.x > edge.points[i - 1].x);
        return [
            nodes.length !== names.length && 'a node is missing',
            plan.edges.length !== count && `${plan.edges.length} edges`,
            nodes.some((a) => nodes.some((b) => isOver(a, b))) && 'nodes overlap',
            !plan.edges.every(isForward) && 'an edge goes back',
            ![...nodes, ...plan.edges.flatMap((edge) => edge.points)].every(isInside) && 'a point is outside',
        ].filter(Boolean).map((fault) => `${names}: ${fault}`);
    };
    const graphs = [
        ['a', [], 0], ['abc', ['ab', 'bc'], 2], ['abcd', ['ab', 'ac', 'bd', 'cd'], 4], ['abcd', ['ab', 'bc', 'cd', 'ad'], 4],
        ['dcba', ['ab', 'bc', 'cd'], 3], ['abcdefg', ['ab', 'ac', 'ad', 'be', 'cf', 'dg', 'ag'], 7], ['ab', ['ab', 'ax', 'aa'], 1],
        ['abc', ['ab', 'bc', 'ca'], null],
    ];
    Promise.all([import(at + 'layout.js'), import(at + 'traffic.js')]).then(([{layered}, {traffic}]) => {
        // A graph with a circle is refused by the service. The page must only end.
        const found = graphs.flatMap((graph) => {
            const [names, edges, count] = graph;
            if (count !== null) return faults(layered, graph);
            layered([...names], edges.map((edge) => ({from: edge[0], to: edge[1]})), size);
            return [];
        });
        const spec = {tasks: [{name: 'find', variants: [{name: 's', fanout: 2}, {name: 'l', fanout_to: {read: 3}}]}, {name: 'read', variants: []}],
            edges: [{from: 'find', to: 'read', ratio: 0.5}]};
        const part = {assignments: [{task: 'find', variant: 's', traffic_share: 0.5}, {task: 'find', variant: 'l', traffic_share: 0.5}]};
        done([found, traffic(spec, part, 10).edges[0].qps]);
    }, (error) => done([[String(error)], 0]));";

#[tokio::test(flavor = "multi_thread")]
async fn graphs_are_laid_out_without_overlaps() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = Cluster::start(0, 0).await;
    let browser = browser_at(&cluster, &driver).await;
    // Half of 10/s makes 2 * 0.5 queries each, and half makes 3.
    assert_eq!(browser.script_with_callback(LAYOUTS).await, json!([[], 20]));
}

/// Views of the documents' pictures: file, view, look, and most pixels downwards.
const PICTURES: [(&str, &str, Look, u32); 5] = [
    ("fleet.png", "#/fleet", Look { width: 1100, ..WIDE }, 1000),
    ("fleet-dark.png", "#/fleet", Look { width: 1100, ..DARK }, 1000),
    ("pipeline.png", "#/pipeline/photos?window=300", Look { width: 1100, ..WIDE }, 1250),
    ("pipeline-narrow.png", "#/pipeline/photos?window=300", NARROW, 1300),
    ("profiles.png", "#/profiles/photos", Look { width: 1100, ..WIDE }, 700),
];

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_there_and_small() {
    let folder = root().join("docs/pictures");
    if std::env::var_os("APPORTION_WRITE").is_some() {
        write_pictures(&folder).await;
    }
    for (file, ..) in PICTURES {
        let path = folder.join(file);
        let bytes = std::fs::metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).len();
        assert!((1..PICTURE_BYTES_MAX).contains(&bytes), "{file} has {bytes} bytes");
    }
}

/// A minute of load that doubles and falls again, and then the pictures.
async fn write_pictures(folder: &Path) {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = start_fleet("apply").await;
    let base = RunningLoad::start(&cluster, BASE_QPS);
    tokio::time::sleep(PICTURE_PART).await;
    let more = RunningLoad::start(&cluster, STEP_QPS - BASE_QPS);
    tokio::time::sleep(PICTURE_PART).await;
    more.stop().await;
    tokio::time::sleep(PICTURE_PART).await;
    let browser = browser_at(&cluster, &driver).await;
    std::fs::create_dir_all(folder).expect("the repository can be written");
    for (file, view, look, height_max) in PICTURES {
        browser.set_look(look).await;
        browser.open(&format!("{}/{view}", cluster.service())).await;
        browser.until("document.querySelector('main h2') && !document.body.innerText.includes('Loading')").await;
        // One round more, so that charts have what they need.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let picture = browser.picture(height_max).await;
        std::fs::write(folder.join(file), picture).expect("the repository can be written");
    }
    base.stop().await;
}
