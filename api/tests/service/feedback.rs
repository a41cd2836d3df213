//! The headroom of ladders: the misses move it, unless the plan names a constant one.

use crate::support::agent::{attach, register};
use crate::support::{profiles, service, spec};
use apportion_protocol::v1;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_without_a_headroom_follows_the_misses() {
    let s = service().await;
    let mut spec = spec();
    (spec["percentile"], spec["replan"]) = (json!(95.0), json!({"mode": "off"}));
    let (status, answer) = s.put("/v1/pipelines/digits", &spec).await;
    assert_eq!(status, 201, "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let mut agent = attach(&s, v1::Register { devices: 8, ..register(&s, "a") }).await;
    agent.welcome().await;
    let _beat = agent.report();
    let constant = json!({"ladder": 2.0, "ladder_headroom": 1.2});
    // The options, the promised share of misses, and the headroom of a simulation.
    let cases =
        [(json!({"ladder": 2.0}), 0.05, json!("feedback")), (constant, 0.0, Value::Null), (json!({}), 0.0, Value::Null)];
    for (options, promised, simulated) in cases {
        let mut ask = json!({"pipelines": [{"name": "digits", "demand_qps": 20.0}]});
        ask.as_object_mut().expect("an object").extend(options.as_object().expect("an object").clone());
        let (status, plan) = s.post("/v1/plans", &ask).await;
        assert_eq!((status, plan["state"].as_str()), (200, Some("succeeded")), "{plan:#}");
        let (_, simulation) = s.post("/v1/simulations", &json!({"plan": plan["id"]})).await;
        assert_eq!(simulation["request"]["ladder_headroom"], simulated, "{simulation:#}");
        let generation = s.get("/v1/target").await.1["generation"].as_i64().expect("a generation");
        assert_eq!(s.put_target(generation, &json!([plan["id"]])).await.0, 200);
        let target = agent.target(generation as u64 + 1).await;
        assert_eq!(target.pipelines[0].missed_share_max, promised, "{options}");
    }
    let alone = json!({"pipelines": [{"name": "digits", "demand_qps": 20.0}], "ladder_headroom": 1.2});
    let (status, refused) = s.post("/v1/plans", &alone).await;
    assert!(status >= 400 && refused.to_string().contains("/ladder_headroom"), "{refused:#}");
    s.running.stop().await;
}
