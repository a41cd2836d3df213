//! Buttons follow the token's scope: a reader sees none that the service would refuse.

use crate::stage::{
    AGENTS, BASE_QPS, DEVICES, STEP_QPS, WIDE, has_no_barriers, id_of, photos, post_simulation, profile, upload_step,
};
use apportion_tests::browser::Browser;
use apportion_tests::cluster::Cluster;
use serde_json::{Value, json};

/// A token that allows everything.
const ADMIN_TOKEN: &str = "the-admin-token-of-this-test";
/// The scopes of people, each with what the ones before it allow.
const SCOPES: [&str; 4] = ["read", "plan", "apply", "admin"];

/// A button, or a part that only some readers see.
struct Gated {
    /// The view, or the words `PLAN` and `SIMULATION` for those of a plan and a simulation.
    view: &'static str,
    /// Words that every reader sees there.
    everybody: &'static str,
    /// The text of the button, or the heading of the part.
    text: &'static str,
    /// The least scope that sees it.
    scope: &'static str,
}

const GATED: [Gated; 7] = [
    Gated { view: "#/targets", everybody: "Targets so far", text: "Hold the fleet", scope: "apply" },
    Gated {
        view: "#/targets?back=1",
        everybody: "Targets so far",
        text: "Show what going back would change",
        scope: "apply",
    },
    Gated { view: "#/targets", everybody: "Targets so far", text: "Audit", scope: "admin" },
    Gated {
        view: "#/plan/PLAN",
        everybody: "Groups of photos",
        text: "Show what deploying this plan would change",
        scope: "apply",
    },
    Gated { view: "#/pipeline/photos", everybody: "Newest decisions", text: "Hold photos", scope: "apply" },
    Gated { view: "#/what-if/photos", everybody: "Question", text: "Double the demand", scope: "plan" },
    Gated { view: "#/replay/photos?left=SIMULATION", everybody: "Figures of both replays", text: "Replay", scope: "plan" },
];

/// The text of a token of this scope.
async fn token(cluster: &Cluster, scope: &str) -> String {
    if scope == "admin" {
        return ADMIN_TOKEN.to_owned();
    }
    let made = reqwest::Client::new().post(format!("{}/v1/tokens", cluster.service())).bearer_auth(ADMIN_TOKEN);
    let made = made.json(&json!({"name": scope, "scope": scope})).send().await.expect("an answer");
    let made: Value = made.json().await.expect("JSON");
    made["token"].as_str().expect("a token").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_no_button_that_would_be_refused() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = Cluster::start_with_tokens(ADMIN_TOKEN, AGENTS, DEVICES).await;
    cluster.register(&photos("off"), &profile()).await;
    let small = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": BASE_QPS}]})).await;
    cluster.apply(&small).await;
    let large = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": STEP_QPS}]})).await;
    // Another target, so that there is one to go back to.
    cluster.apply(&large).await;
    let trace = upload_step(&cluster, "step", 9, BASE_QPS).await;
    let asked = json!({"plan": id_of(&small), "trace": trace, "series_windows": 9});
    let (status, simulation) = post_simulation(&cluster, &asked).await;
    assert_eq!(status, 202, "{simulation}");
    let is_done = |document: &Value| (document["state"] == "done").then_some(());
    cluster.until(&format!("/v1/simulations/{}", id_of(&simulation)), is_done).await;

    let browser = Browser::start(&driver).await;
    browser.set_look(WIDE).await;
    browser.open(&format!("{}/#/targets", cluster.service())).await;
    browser.shows("This service asks for a token").await;
    has_no_barriers(&browser, "token").await;
    let mut seen = 0;
    for (rank, scope) in SCOPES.into_iter().enumerate() {
        let token = token(&cluster, scope).await;
        browser.script(&format!("sessionStorage.setItem('apportion-token', '{token}')")).await;
        for gated in &GATED {
            let view = gated.view.replace("PLAN", id_of(&small)).replace("SIMULATION", id_of(&simulation));
            browser.script(&format!("window.isOld = true; location.hash = '{view}'; location.reload()")).await;
            // The first drawing has read the client's scope: it is asked for before anything else.
            let content = "!window.isOld && document.querySelector('main')?.textContent";
            browser.until(&format!("({content} || '').includes('{}')", gated.everybody)).await;
            let parts = "[...document.querySelectorAll('main button, main h2')]";
            let is_there = format!("{parts}.some((e) => e.innerText === '{}')", gated.text);
            let needed = SCOPES.iter().position(|known| *known == gated.scope).expect("a scope");
            if rank >= needed {
                browser.until(&is_there).await;
                seen += 1;
            } else {
                let found = browser.script(&format!("return {is_there}")).await;
                assert_eq!(found, json!(false), "{scope} at {view}: {}", gated.text);
            }
        }
    }
    // Two parts for a planning client, six for one that applies, and all for an administrator.
    assert_eq!(seen, 2 + 6 + 7);
}
