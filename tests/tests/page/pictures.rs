//! The documents' pictures of the page. `APPORTION_WRITE=1` writes them.

use crate::stage::{
    BASE_QPS, DARK, NARROW, RunningLoad, STEP_QPS, WIDE, browser_at, id_of, post_simulation, start_fleet, upload_step,
};
use apportion_tests::browser::Look;
use apportion_tests::cluster::Cluster;
use apportion_tests::root;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Most bytes of one picture of the documents.
const PICTURE_BYTES_MAX: u64 = 300_000;
/// One of the three parts of the load before pictures are made.
const PICTURE_PART: Duration = Duration::from_secs(40);
/// The view of replays. Its picture has plans and simulations besides.
const REPLAY: &str = "#/replay/photos";

/// Views of the documents' pictures: file, view, look, and most pixels downwards.
const PICTURES: [(&str, &str, Look, u32); 6] = [
    ("fleet.png", "#/fleet", Look { width: 1100, ..WIDE }, 1000),
    ("fleet-dark.png", "#/fleet", Look { width: 1100, ..DARK }, 1000),
    ("pipeline.png", "#/pipeline/photos?window=300", Look { width: 1100, ..WIDE }, 1250),
    ("pipeline-narrow.png", "#/pipeline/photos?window=300", NARROW, 1300),
    ("profiles.png", "#/profiles/photos", Look { width: 1100, ..WIDE }, 700),
    ("replay.png", REPLAY, Look { width: 1100, ..WIDE }, 1100),
];

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_there_and_small() {
    let folder = root().join("docs/pictures");
    if std::env::var_os("APPORTION_WRITE").is_some() {
        write_pictures(&folder).await;
    }
    let names: BTreeSet<String> = PICTURES.iter().map(|(file, ..)| (*file).to_owned()).collect();
    let files = std::fs::read_dir(&folder).expect("a folder").flatten();
    let files = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // The others are written by the test of reports.
    let there: BTreeSet<String> = files.filter(|file| !file.starts_with("report-")).collect();
    assert_eq!(there, names, "each picture is written by this test: APPORTION_WRITE=1");
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
    let replay = replay_view(&cluster).await;
    for (file, view, look, height_max) in PICTURES {
        let view = if view == REPLAY { replay.as_str() } else { view };
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

/// The address of a replay of a step of the load under a plan for the base load and one for the step.
async fn replay_view(cluster: &Cluster) -> String {
    let trace = upload_step(cluster, "step", 180, STEP_QPS).await;
    let mut view = format!("{REPLAY}?load={trace}&at=60");
    for (side, qps) in [("left", BASE_QPS), ("right", STEP_QPS)] {
        let plan = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": qps}]})).await;
        let request = json!({"plan": id_of(&plan), "trace": trace, "series_windows": 240});
        let (status, simulation) = post_simulation(cluster, &request).await;
        assert_eq!(status, 202, "{simulation}");
        let is_done = |document: &Value| (document["state"] == "done").then_some(());
        cluster.until(&format!("/v1/simulations/{}", id_of(&simulation)), is_done).await;
        view += &format!("&{side}={}&{side}_plan={}", id_of(&simulation), id_of(&plan));
    }
    view
}
