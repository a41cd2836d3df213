//! Plans without a planner.

use super::Service;
use serde_json::{Value, json};
use sqlx::Connection;

/// Stores a succeeded plan: `replicas` of find-s, and one of read-s.
pub async fn store_plan(service: &Service, replicas: u32) -> String {
    let assignment = |task: &str, variant: &str, replicas: u32| json!({"task": task, "variant": variant, "hardware": "demo", "batch": 2, "replicas": replicas});
    let pipeline =
        json!({"name": "digits", "assignments": [assignment("find", "find-s", replicas), assignment("read", "read-s", 1)]});
    store_document(service, &json!({"version": 1, "pipelines": [pipeline]})).await
}

/// Stores this plan as succeeded.
pub async fn store_document(service: &Service, plan: &Value) -> String {
    let mut db = sqlx::PgConnection::connect(&service.url).await.expect("our own database");
    let at = chrono::Utc::now();
    let row = apportion_api::store::plans::PlanRow {
        id: uuid::Uuid::now_v7(),
        state: apportion_wire::PlanState::Succeeded,
        problem: json!({}),
        options: json!({}),
        plan: Some(plan.clone()),
        error: None,
        created_at: at,
        started_at: Some(at),
        finished_at: Some(at),
        progress: None,
        best: None,
    };
    apportion_api::store::plans::insert_finished(&mut db, &row).await.expect("a row");
    row.id.to_string()
}
