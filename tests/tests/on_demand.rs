//! Requests that say what they need, with real agents: a variant that no plan has is loaded for them and goes again.

use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::digits::{Variant, inputs, pipeline};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const AGENTS: usize = 3;
/// Time of a load, as the spec says and an emulated device takes.
const LOAD: Duration = Duration::from_millis(100);
/// Most that a request waits beyond the load, in one of a few loads at least: noticing, deciding, pushing.
const MORE_THAN_LOAD: Duration = Duration::from_secs(1);
const LOADS_MAX: usize = 3;
/// Of files that nobody reads: the devices are emulated.
const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const VARIANTS: [Variant<'static>; 2] = [("small", DIGEST, 0.8), ("large", DIGEST, 0.95)];

/// The profile: the cheapest plan is one device with the small variant.
fn profile() -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_owned();
    for (variant, accuracy, latencies_ms) in [("small", 0.8, [5.0, 8.0]), ("large", 0.95, [60.0, 200.0])] {
        for (batch, latency_ms) in [1, 4].into_iter().zip(latencies_ms) {
            csv += &format!("digit,read,{variant},{HARDWARE},{batch},{latency_ms},{accuracy}\n");
        }
    }
    csv
}

/// Status and body of a request with these parameters.
async fn ask(cluster: &Cluster, at: usize, parameters: &Value) -> (u16, Value) {
    let url = format!("{}/v2/models/digit/infer", cluster.ingress(at));
    let body = json!({"inputs": inputs(), "parameters": parameters});
    let response = cluster.client().post(url).json(&body).send().await.expect("an answer");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

/// How many on-demand events have this change.
fn noted(events: &Value, change: &str) -> usize {
    events.as_array().into_iter().flatten().filter(|event| event["detail"]["change"] == change).count()
}

/// The variants of the replicas that requests have loaded; none before there are offers.
fn loaded(target: &Value) -> Option<Vec<String>> {
    let placement = &target["placement"];
    let offered = placement["offered"].as_array()?;
    let of = |replica: &Value| offered.iter().find(|group| group["id"] == replica["group"]);
    let names = placement["replicas"].as_array()?.iter().filter_map(of).filter_map(|g| g["variant"].as_str());
    Some(names.map(str::to_owned).collect())
}

/// Waits until all agents have done what the target says.
async fn settled(cluster: &Cluster) {
    let generation = cluster.get("/v1/target").await["generation"].as_u64().expect("a generation");
    let is_done = |a: &Value| a["ack"]["applied"] == true && a["ack"]["generation"].as_u64() >= Some(generation);
    cluster.until("/v1/agents", |all| all.as_array()?.iter().all(is_done).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_is_loaded_for_the_requests_that_need_it() {
    let cluster = Cluster::start(AGENTS, 1).await;
    let replan = json!({"replan": {
        "mode": "apply", "period_s": 3600.0, "min_qps": 50.0, "objective": {"mode": "min_cost"},
        "on_demand": {"idle_s": 3.0, "replicas_max": 1},
    }});
    cluster.register(&pipeline("digit", &VARIANTS, &replan), &profile()).await;
    let at_first = cluster.until("/v1/target", loaded).await;
    assert_eq!(at_first, Vec::<String>::new(), "the plan alone is loaded");
    cluster.ready("digit").await;
    let (status, plain) = ask(&cluster, 0, &json!({})).await;
    assert_eq!(status, 200, "{plain:#}");

    // Nothing that is loaded is so accurate. Requests at all agents wait for one replica.
    let need = json!({"accuracy_min": 0.9});
    let (first, second, third) = tokio::join!(ask(&cluster, 0, &need), ask(&cluster, 1, &need), ask(&cluster, 2, &need));
    for (status, answer) in [first, second, third] {
        assert_eq!((status, &answer["parameters"]["variants"]), (200, &json!("read:large")), "{answer:#}");
    }
    // The event follows the target, and an answer may come sooner.
    cluster.until("/v1/events?kind=on-demand", |all| (noted(all, "loaded") == 1).then_some(())).await;
    assert_eq!(loaded(&cluster.get("/v1/target").await), Some(vec!["large".to_owned()]));

    let (status, answer) = ask(&cluster, 1, &json!({"variants": "read:small"})).await;
    assert_eq!((status, &answer["parameters"]["variants"]), (200, &json!("read:small")), "{answer:#}");
    for (parameters, expected) in [
        (json!({"accuracy_min": 0.99}), "the nearest are read:large with 0.9500 within"),
        (json!({"latency_max_us": 1_000}), "the nearest are read:"),
        (json!({"variants": "huge"}), "no variant on offer is called huge: expected one of read:large, read:small"),
    ] {
        let (status, refused) = ask(&cluster, 2, &parameters).await;
        assert_eq!(status, 422, "{refused:#}");
        assert!(refused["error"].as_str().is_some_and(|why| why.contains(expected)), "{refused:#}");
    }

    let metrics = cluster.client().get(format!("{}/metrics", cluster.ingress(0))).send().await.expect("an answer");
    let metrics = metrics.text().await.expect("a text");
    let chosen = metrics.lines().find(|l| l.starts_with("apportion_choices_total") && l.contains("result=\"chosen\""));
    assert!(chosen.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    assert!(metrics.contains("apportion_choice_regret_total{model_name=\"digit\"}"), "{metrics}");

    // Each time that nobody needs it any more, it is unloaded, and the next request has it loaded again.
    let mut waits = Vec::new();
    for times in 1..=LOADS_MAX {
        cluster.until("/v1/events?kind=on-demand", |all| (noted(all, "unloaded") == times).then_some(())).await;
        cluster.until("/v1/target", |target| loaded(target).filter(Vec::is_empty)).await;
        settled(&cluster).await;
        let begun = Instant::now();
        let (status, answer) = ask(&cluster, 1, &need).await;
        waits.push(begun.elapsed());
        assert_eq!(status, 200, "it is loaded again: {answer:#}");
        cluster.until("/v1/events?kind=on-demand", |all| (noted(all, "loaded") == times + 1).then_some(())).await;
        if waits.iter().any(|wait| *wait <= LOAD + MORE_THAN_LOAD) {
            break;
        }
    }
    eprintln!("answers after {waits:?}, of which the load takes {LOAD:?}");
    assert!(waits.iter().any(|wait| *wait <= LOAD + MORE_THAN_LOAD), "answers came after {waits:?}");
}
