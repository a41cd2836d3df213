//! The keys that agents get for their connections to each other.

use crate::support::agent::{Agent, fleet};
use crate::support::plans::store_plan;
use crate::support::{PATIENCE, Service};
use serde_json::json;
use sqlx::Connection;
use std::time::Instant;

/// The keys of the other agent in the next target of the first generation.
async fn keys(agent: &mut Agent, own: u64) -> Vec<Vec<u8>> {
    let target = agent.target(1).await;
    assert_eq!(target.agents.len(), 2);
    let of = |is_own: bool| target.agents.iter().find(|peer| (peer.agent == own) == is_own).expect("both are there");
    assert!(of(true).link_keys.is_empty(), "no key for itself");
    of(false).link_keys.clone()
}

async fn numbers(service: &Service) -> [u64; 2] {
    let agents = service.get("/v1/agents").await.1;
    let number = |name: &str| {
        let all = agents.as_array().expect("agents");
        all.iter().find(|a| a["name"] == name).and_then(|a| a["number"].as_u64()).expect("a number")
    };
    [number("a"), number("b")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_of_agents_shares_a_key_that_is_renewed() {
    let (s, mut agents) = fleet().await;
    let [a, b] = numbers(&s).await;
    let plan = store_plan(&s, 2).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let first = keys(&mut agents[0], a).await;
    assert_eq!(keys(&mut agents[1], b).await, first);
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [32]);

    // The key is two days old: the leader makes another one, and the same target comes again with both.
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let age = "update link_keys set made_at = made_at - interval '2 days'";
    assert_eq!(sqlx::query(age).execute(&mut db).await.expect("a row").rows_affected(), 1);
    let second = keys(&mut agents[0], a).await;
    assert_eq!(keys(&mut agents[1], b).await, second);
    assert_eq!((second.len(), &second[1]), (2, &first[0]), "the key before the newest");
    assert_ne!(second[0], first[0]);
    // Once more: two keys are kept.
    sqlx::query(age).execute(&mut db).await.expect("rows");
    assert_eq!(keys(&mut agents[0], a).await[1], second[0]);
    let count: i64 = sqlx::query_scalar("select count(*) from link_keys").fetch_one(&mut db).await.expect("a count");
    assert_eq!(count, 2);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_over_http_has_a_key() {
    let (s, mut agents) = fleet().await;
    let [a, _] = numbers(&s).await;
    let plan = store_plan(&s, 2).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let key = keys(&mut agents[0], a).await.remove(0);
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = serde_json::to_string(&key).expect("JSON");
    for path in ["/v1/target", "/v1/target/history", "/v1/agents", "/v1/events", "/metrics"] {
        let text = s.get(path).await.1.to_string();
        assert!(!text.contains(&hex) && !text.contains(&list), "{path}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_gets_a_new_key() {
    let (s, agents) = fleet().await;
    let before = stored(&s.url).await;
    drop(agents);
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    apportion_api::finish_restore(Some(&url), dir.path()).await.expect("it is restored");
    let after = stored(&url).await;
    assert_eq!((after.len(), &after[1]), (2, &before[0]), "agents with the last key are still admitted");
}

async fn stored(url: &str) -> Vec<Vec<u8>> {
    let begun = Instant::now();
    // The pool of a service that has stopped may hold the last connections for a moment.
    loop {
        match sqlx::PgConnection::connect(url).await {
            Ok(mut db) => {
                let keys = "select key from link_keys order by number desc";
                return sqlx::query_scalar(keys).fetch_all(&mut db).await.expect("keys");
            }
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}
