//! Stored plans: their explanations, their differences, and new plans from their problems.

use crate::support::agent::fleet;
use crate::support::plans::store_plan;
use crate::support::{Service, problem, service};
use apportion_wire::PlanDiffFile;
use serde_json::{Value, json};
use sqlx::Connection;
use uuid::Uuid;

/// A plan that is over.
async fn planned(s: &Service, request: &Value) -> Value {
    let (status, plan) = s.post("/v1/plans", request).await;
    assert_eq!(status, 200, "{plan:#}");
    plan
}

fn id(plan: &Value) -> Uuid {
    plan["id"].as_str().and_then(|id| id.parse().ok()).expect("an identifier")
}

async fn explanation(s: &Service, id: Uuid, query: &str) -> Value {
    let (status, answer) = s.get(&format!("/v1/plans/{id}/explanation{query}")).await;
    assert_eq!((status, &answer["plan"]), (200, &json!(id)), "{answer:#}");
    answer["explanation"].clone()
}

/// Replaces a stored plan file by one that `edit` has changed.
async fn rewrite(s: &Service, plan: &Value, edit: impl Fn(&mut Value)) {
    let mut file = plan["plan"].clone();
    edit(&mut file);
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let update = sqlx::query("update plans set plan = $2 where id = $1").bind(id(plan)).bind(file);
    assert_eq!(update.execute(&mut db).await.expect("an update").rows_affected(), 1);
}

/// The stored explanation without its searches, as of a plan that took long to find.
fn make_brief(file: &mut Value) {
    let explanation = &mut file["explanation"];
    explanation["prices"] = json!([]);
    explanation["left_out"] = json!(["4 alternatives and prices that take a search each: time was up"]);
    for decision in explanation["decisions"].as_array_mut().expect("decisions") {
        decision["alternatives"].as_array_mut().expect("alternatives").retain(|other| other["kind"] == "batch");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brief_explanation_is_completed_on_demand() {
    let s = service().await;
    let plan = planned(&s, &json!({"problem": problem(60.0)})).await;
    rewrite(&s, &plan, make_brief).await;
    let stored = explanation(&s, id(&plan), "?full=false").await;
    assert_eq!((&stored["prices"], stored["left_out"].as_array().map(Vec::len)), (&json!([]), Some(1)), "{stored:#}");
    let full = explanation(&s, id(&plan), "").await;
    assert!(full["prices"].as_array().is_some_and(|prices| !prices.is_empty()), "{full:#}");
    assert_eq!(full["left_out"], json!([]), "{full:#}");
    let alternatives = |e: &Value| e["decisions"][0]["alternatives"].as_array().map_or(0, Vec::len);
    assert!(alternatives(&full) > alternatives(&stored), "{full:#}");
    let (_, again) = s.get(&format!("/v1/plans/{}", id(&plan))).await;
    assert_eq!(again["plan"]["explanation"]["prices"], json!([]), "the stored plan stays as it is");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plan_is_never_explained_instead() {
    let s = service().await;
    let plan = planned(&s, &json!({"problem": problem(60.0)})).await;
    let other = |file: &mut Value| {
        make_brief(file);
        let replicas = &mut file["pipelines"][0]["assignments"][0]["replicas"];
        *replicas = json!(replicas.as_u64().expect("replicas") + 1);
    };
    rewrite(&s, &plan, other).await;
    let found = explanation(&s, id(&plan), "").await;
    assert_eq!(found["prices"], json!([]), "{found:#}");
    let left_out = found["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|why| why.as_str().is_some_and(|why| why.contains("another plan"))), "{found:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_infeasible_plan_explains_its_shortfalls() {
    let s = service().await;
    let plan = planned(&s, &json!({"problem": problem(1e6)})).await;
    let (status, answer) = s.get(&format!("/v1/plans/{}/explanation", id(&plan))).await;
    assert_eq!((status, &answer["state"]), (200, &json!("infeasible")), "{answer:#}");
    assert_eq!(answer["explanation"]["shortfalls"], plan["plan"]["explanation"]["shortfalls"]);
    assert!(answer["explanation"]["shortfalls"].as_array().is_some_and(|all| !all.is_empty()), "{answer:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_plan_has_nothing_to_explain_or_compare() {
    let s = service().await;
    let (open, done) = (Uuid::now_v7(), store_plan(&s, 1).await);
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    // Without a job no worker begins it.
    apportion_api::store::plans::insert(&mut db, open, &problem(1.0), &json!({}), None, chrono::Utc::now())
        .await
        .expect("a row");
    let (status, refusal) = s.get(&format!("/v1/plans/{open}/explanation")).await;
    assert!(status == 409 && refusal["detail"].as_str().is_some_and(|why| why.contains("queued")), "{refusal:#}");
    assert_eq!(s.get(&format!("/v1/plans/{open}/diff?against={done}")).await.0, 409);
    let (status, refusal) = s.get(&format!("/v1/plans/{done}/diff?against={open}")).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/against")), "{refusal:#}");
    let nothing = Uuid::now_v7();
    assert_eq!(s.get(&format!("/v1/plans/{nothing}/explanation")).await.0, 404);
    assert_eq!(s.get(&format!("/v1/plans/{nothing}/diff?against=target")).await.0, 404);
    for against in ["nothing", "", &nothing.to_string()] {
        let (status, refusal) = s.get(&format!("/v1/plans/{done}/diff?against={against}")).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/against")), "{refusal:#}");
    }
    assert_eq!(s.get(&format!("/v1/plans/{done}/diff")).await.0, 400, "nothing to compare with");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_plans_differ_in_their_groups() {
    let s = service().await;
    let (one, three) = (store_plan(&s, 1).await, store_plan(&s, 3).await);
    let (status, diff) = s.get(&format!("/v1/plans/{three}/diff?against={one}")).await;
    let expected = json!({"changes": [{
        "pipeline": "digits", "task": "find", "variant": "find-s", "hardware": "demo", "share": 1.0,
        "from": {"replicas": 1, "batch": 2}, "to": {"replicas": 3, "batch": 2},
    }]});
    assert_eq!((status, &diff), (200, &expected), "{diff:#}");
    assert_eq!(serde_json::from_value::<PlanDiffFile>(diff).expect("the form of the command").changes.len(), 1);
    let (_, same) = s.get(&format!("/v1/plans/{one}/diff?against={one}")).await;
    assert_eq!(same, json!({"changes": []}));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_compared_with_the_plans_in_force() {
    let (s, _agents) = fleet().await;
    let (one, two) = (store_plan(&s, 1).await, store_plan(&s, 2).await);
    let path = format!("/v1/plans/{two}/diff?against=target");
    let (_, first) = s.get(&path).await;
    let before: Vec<&Value> = first["changes"].as_array().expect("changes").iter().map(|c| &c["from"]).collect();
    assert_eq!(before, [&Value::Null, &Value::Null], "nothing is in force: {first:#}");
    assert_eq!(s.put_target(0, &json!([one])).await.0, 200);
    let (_, change) = s.get(&path).await;
    let sizes = |side: &str| change["changes"][0][side]["replicas"].clone();
    assert_eq!((sizes("from"), sizes("to")), (json!(1), json!(2)), "{change:#}");
    let stranger = planned(&s, &json!({"problem": problem(20.0)})).await;
    let (_, other) = s.get(&format!("/v1/plans/{}/diff?against=target", id(&stranger))).await;
    let pipelines: Vec<&Value> = other["changes"].as_array().expect("changes").iter().map(|c| &c["pipeline"]).collect();
    assert!(!pipelines.is_empty() && pipelines.iter().all(|p| **p == json!("p")), "others stay in force: {other:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_of_a_plan_makes_another_plan() {
    let s = service().await;
    let first = planned(&s, &json!({"problem": problem(60.0), "planner": "greedy", "time_limit_s": 7.0})).await;
    let patch = json!({"objective": {"mode": "min_cost"}, "hardware": [{"name": "h", "price_per_hour": 3.0}]});
    let second = planned(&s, &json!({"from": first["id"], "patch": patch, "time_limit_s": 9.0})).await;
    assert_eq!(second["state"], "succeeded", "{second:#}");
    let mut expected = problem(60.0);
    (expected["objective"]["mode"], expected["hardware"]) = (json!("min_cost"), patch["hardware"].clone());
    assert_eq!(second["problem"], expected);
    let options = &second["options"];
    assert_eq!((&options["planner"], &options["time_limit_s"]), (&json!("greedy"), &json!(9.0)), "{options:#}");
    let again = planned(&s, &json!({"from": first["id"]})).await;
    assert_eq!((&again["problem"], &again["options"]), (&first["problem"], &first["options"]));
    let (_, stored) = s.get(&format!("/v1/plans/{}", id(&first))).await;
    assert_eq!(stored, first, "the first plan stays as it is");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_patches_name_the_place_in_the_patched_problem() {
    let s = service().await;
    let first = planned(&s, &json!({"problem": problem(20.0)})).await;
    let from = &first["id"];
    let mut pipelines = first["problem"]["pipelines"].clone();
    pipelines[0]["slo_ms"] = json!(-4);
    let cases = [
        (json!({"from": from, "patch": {"pipelines": pipelines}}), "/patch/pipelines/0/slo_ms"),
        (json!({"from": from, "patch": {"pipelines": null}}), "/patch/pipelines"),
        (json!({"from": from, "patch": [1]}), "/patch"),
        (json!({"from": from, "patch": {}, "planner": "magic"}), "/planner"),
        (json!({"from": from, "patch": {}, "hardware": []}), "/from"),
        (json!({"from": from, "problem": problem(1.0)}), ""),
        (json!({"from": Uuid::now_v7(), "patch": {}}), "/from"),
        (json!({"problem": problem(1.0), "patch": {}}), "/patch"),
    ];
    for (request, pointer) in cases {
        let (status, refusal) = s.post("/v1/plans", &request).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{refusal:#}");
    }
    assert_eq!(s.get("/v1/plans").await.1.as_array().map(Vec::len), Some(1), "nothing was enqueued");
    s.running.stop().await;
}
