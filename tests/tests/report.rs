//! Reports of `apportion report`, opened as files by a browser.
//!
//! `APPORTION_WRITE=1` writes the documents' pictures of reports.

use apportion_tests::browser::{Browser, Look};
use apportion_tests::{programs, root};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const WIDE: Look = Look { scheme: "light", width: 1100, height: 900 };
const DARK: Look = Look { scheme: "dark", ..WIDE };
const NARROW: Look = Look { scheme: "light", width: 390, height: 844 };
/// Text that would be markup or a script if anything took it for one.
const HOSTILE: &str = r#"</script> <img src=x onerror="isHurt=1"> '"#;
/// Most bytes of one picture of the documents.
const PICTURE_BYTES_MAX: u64 = 300_000;

/// Runs the program in a folder, and gives what it prints.
fn run(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(programs().join("apportion")).args(args).current_dir(folder).output().expect("it runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A folder with the reports of a plan, a simulation, a comparison and a frontier of the example.
fn write_reports(folder: &Path) {
    let example = root().join("examples/photos.yaml").display().to_string();
    let save = |name: &str, args: &[&str]| {
        std::fs::write(folder.join(name), run(folder, &[args, &["--format", "json"]].concat())).expect("written");
    };
    run(folder, &["plan", &example, "--out", "plan.json"]);
    // For a third of the time more load than the plan serves: some requests are dropped.
    let trace = ["--shape", "step", "--qps", "50", "--peak-qps", "80", "--seconds", "60", "--out", "trace.csv"];
    run(folder, &[["trace", "generate"].as_slice(), &trace].concat());
    let how = ["plan.json", "--trace", "trace.csv", "--policy", "last_task", "--requests", "requests.csv"];
    save("simulation.json", &[["simulate", &example].as_slice(), &how].concat());
    save("comparison.json", &["compare", &example, "--planner", "milp,proteus,cg-peak"]);
    save("frontier.json", &["frontier", &example, "--sweep", "demand", "--points", "6"]);
    for (name, more) in [
        ("plan", vec!["--problem", &example]),
        ("simulation", vec!["--requests", "requests.csv"]),
        ("comparison", vec![]),
        ("frontier", vec![]),
    ] {
        let (from, to) = (format!("{name}.json"), format!("{name}.html"));
        run(folder, &[&["report", &from, "-o", &to], more.as_slice()].concat());
    }
}

fn address(folder: &Path, name: &str) -> String {
    format!("file://{}", folder.join(name).display())
}

/// What a page has loaded besides itself: its modules are `data:` addresses and no requests.
async fn requests(browser: &Browser) -> Vec<String> {
    let script = "return performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith('data:'))";
    serde_json::from_value(browser.script(script).await).expect("a list of addresses")
}

/// A page that shows these words without an error, a request or a barrier, in each look.
async fn shows_whole(browser: &Browser, words: &[&str]) {
    for words in words {
        browser.shows(words).await;
    }
    for look in [WIDE, DARK, NARROW] {
        browser.set_look(look).await;
        assert_eq!(browser.barriers().await, Vec::<String>::new(), "{look:?}");
        let overhang = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.script(overhang).await, json!(0), "{look:?} is wider than the window");
    }
    browser.set_look(WIDE).await;
    assert_eq!(requests(browser).await, Vec::<String>::new());
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_report_opens_as_a_file() {
    let Some(driver) = apportion_needs::browser() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    write_reports(folder.path());
    let browser = Browser::start(&driver).await;
    browser.set_look(WIDE).await;
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.path().join(name)).expect("written")).expect("JSON")
    };

    let plan = read("plan.json");
    browser.open(&address(folder.path(), "plan.html")).await;
    let replicas = format!("{} replicas", plan["replicas"]);
    shows_whole(&browser, &["Plan: plan.json", "Groups of photos", "Why it is so", &replicas]).await;
    let tasks = browser.script("return document.querySelectorAll('.graph .node').length").await;
    assert_eq!(tasks, json!(2), "the graph of the problem");

    let simulation = read("simulation.json");
    browser.open(&address(folder.path(), "simulation.html")).await;
    let counted = format!("{} in time", browser.grouped(&simulation["ok"]).await);
    let dropped = format!("{} dropped", browser.grouped(&simulation["dropped"]).await);
    assert!(simulation["dropped"].as_u64() > Some(0), "{simulation}");
    shows_whole(&browser, &["Tail of the latency", "Times of queries at each task", &counted, &dropped]).await;
    assert_eq!(browser.script("return document.querySelectorAll('.chart canvas').length").await, json!(2));

    browser.open(&address(folder.path(), "comparison.html")).await;
    shows_whole(&browser, &["Comparison of planners", "proteus", "cg-peak", "fresh samples"]).await;
    assert_eq!(browser.script("return document.querySelectorAll('tbody tr').length").await, json!(3));

    browser.open(&address(folder.path(), "frontier.html")).await;
    shows_whole(&browser, &["Frontier: frontier.json", "While demand", "Plan at each value"]).await;
    assert_eq!(browser.script("return document.querySelectorAll('.chart canvas').length").await, json!(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_shown_as_text() {
    let Some(driver) = apportion_needs::browser() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let group = json!({"task": HOSTILE, "variant": HOSTILE, "hardware": HOSTILE, "batch": 1, "replicas": 1});
    let plan = json!({"version": 1, "pipelines": [{"name": HOSTILE, "assignments": [group]}],
        "explanation": {"decisions": [{"what": HOSTILE, "why": HOSTILE}]}});
    std::fs::write(folder.path().join("p.json"), plan.to_string()).expect("written");
    run(folder.path(), &["report", "p.json", "-o", "p.html"]);
    let browser = Browser::start(&driver).await;
    browser.open(&address(folder.path(), "p.html")).await;
    shows_whole(&browser, &[HOSTILE, "Why it is so"]).await;
    let hurt = browser.script("return [window.isHurt ?? null, document.querySelectorAll('img').length]").await;
    assert_eq!(hurt, json!([null, 0]));
}

/// Pictures of the documents: file, report, look, and most pixels downwards.
const PICTURES: [(&str, &str, Look, u32); 3] = [
    ("report-plan.png", "plan.html", WIDE, 1200),
    ("report-simulation.png", "simulation.html", WIDE, 1000),
    ("report-frontier-dark.png", "frontier.html", DARK, 1000),
];

#[tokio::test(flavor = "multi_thread")]
async fn pictures_of_reports_are_there_and_small() {
    let pictures: PathBuf = root().join("docs/pictures");
    if std::env::var_os("APPORTION_WRITE").is_some()
        && let Some(driver) = apportion_needs::browser()
    {
        let folder = tempfile::tempdir().expect("a folder");
        write_reports(folder.path());
        let browser = Browser::start(&driver).await;
        for (file, report, look, height_max) in PICTURES {
            browser.set_look(look).await;
            browser.open(&address(folder.path(), report)).await;
            browser.until("document.querySelector('main h2')").await;
            std::fs::write(pictures.join(file), browser.picture(height_max).await).expect("written");
        }
    }
    let names: BTreeSet<String> = PICTURES.iter().map(|(file, ..)| (*file).to_owned()).collect();
    let files = std::fs::read_dir(&pictures).expect("a folder").flatten();
    let files = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // The others are written by the test of the page.
    let there: BTreeSet<String> = files.filter(|file| file.starts_with("report-")).collect();
    assert_eq!(there, names, "each picture is written by this test: APPORTION_WRITE=1");
    for (file, ..) in PICTURES {
        let bytes = std::fs::metadata(pictures.join(file)).unwrap_or_else(|e| panic!("{file}: {e}")).len();
        assert!((1..PICTURE_BYTES_MAX).contains(&bytes), "{file} has {bytes} bytes");
    }
}
