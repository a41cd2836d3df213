//! Missing databases, newer ones, and private ones.

use crate::support::{new_database, open_dir, service_on};
use apportion_api::database::DatabaseError;
use apportion_api::{ServeError, ServiceConfig, serve};
use sqlx::Connection;

async fn refusal(url: &str) -> ServeError {
    let dir = open_dir();
    let mut config = ServiceConfig::new(dir.path());
    config.database_url = Some(url.into());
    config.http.set_port(0);
    config.grpc.set_port(0);
    match serve(config).await {
        Ok(running) => {
            running.stop().await;
            panic!("it started");
        }
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_is_one_clear_error() {
    let error = refusal("postgres://user:secret@127.0.0.1:1/none").await;
    assert!(matches!(error, ServeError::Database(DatabaseError::Unreachable { .. })), "{error}");
    assert_eq!(error.to_string(), "the database at 127.0.0.1:1 is not reachable");
    let error = refusal("not a url").await;
    assert!(matches!(error, ServeError::Database(DatabaseError::Url(_))), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_at_most_one_version_newer() {
    let url = new_database().await;
    let service = service_on(url.clone(), open_dir()).await;
    service.running.stop().await;
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("our own database");
    let add = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
               select coalesce($1, max(version) + 1), 'later', true, '', 0 from _sqlx_migrations";
    let next = sqlx::query(add).bind(None::<i64>).execute(&mut connection).await.expect("the table of migrations");
    assert_eq!(next.rows_affected(), 1);
    let service = service_on(url.clone(), open_dir()).await;
    assert_eq!(service.get("/v1/target").await.0, 200, "the next release's schema has all that this release reads");
    service.running.stop().await;
    sqlx::query("delete from _sqlx_migrations where description = 'later'").execute(&mut connection).await.expect("ours");
    sqlx::query(add).bind(9999_i64).execute(&mut connection).await.expect("the table of migrations");
    let error = refusal(&url).await;
    let newest = sqlx::query_scalar::<_, i64>("select max(version) from _sqlx_migrations where version < 9999");
    let newest = newest.fetch_one(&mut connection).await.expect("ours");
    let told = matches!(error, ServeError::Database(DatabaseError::Newer { found: 9999, known }) if known == newest);
    assert!(told, "{error}");
    assert!(error.to_string().contains("newer release"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_private_database_ends_with_the_service() {
    let dir = open_dir();
    let mut config = ServiceConfig::new(dir.path().join("data"));
    config.http.set_port(0);
    config.grpc.set_port(0);
    let client = reqwest::Client::new();
    let first = serve(config.clone()).await.expect("it starts");
    let token = first.token().to_string();
    let put = client.put(format!("http://{}/v1/hardware/t4", first.http())).json(&serde_json::json!({"price_per_hour": 2}));
    assert_eq!(put.send().await.expect("an answer").status(), 201);
    first.stop().await;
    assert!(!dir.path().join("data/postgres/postmaster.pid").exists(), "the server has ended");
    let second = serve(config).await.expect("it starts again");
    assert_eq!(second.token(), token);
    let get = client.get(format!("http://{}/v1/hardware/t4", second.http())).send().await.expect("an answer");
    assert_eq!(get.status(), 200);
    second.stop().await;
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(dir.path().join("data/token")).expect("the token").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut config = ServiceConfig::new(open_dir().path());
    config.http = taken.local_addr().expect("its address");
    let error = serve(config).await.err().expect("the address is taken");
    assert!(error.to_string().contains("cannot listen on 127.0.0.1:"), "{error}");
}

/// In the child process: a service that runs until it is killed.
async fn run_until_killed(dir: &str) {
    let mut config = ServiceConfig::new(dir);
    config.http.set_port(0);
    config.grpc.set_port(0);
    let running = serve(config).await.expect("it starts");
    let put = reqwest::Client::new().put(format!("http://{}/v1/hardware/t4", running.http()));
    let status = put.json(&serde_json::json!({"price_per_hour": 3})).send().await.expect("an answer").status();
    assert_eq!(status, 201);
    std::fs::write(format!("{dir}/ready"), "").expect("our own folder");
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_loses_no_data() {
    const CHILD: &str = "APPORTION_TEST_CHILD";
    if let Ok(dir) = std::env::var(CHILD) {
        return run_until_killed(&dir).await;
    }
    let dir = open_dir();
    let data = dir.path().join("data");
    let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "database::a_killed_service_loses_no_data"]).env(CHILD, &data);
    let mut child = command.spawn().expect("a process");
    let begin = std::time::Instant::now();
    while !data.join("ready").exists() {
        assert!(
            begin.elapsed() < crate::support::PATIENCE && child.try_wait().expect("our child").is_none(),
            "it never got ready"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
    let mut config = ServiceConfig::new(&data);
    config.http.set_port(0);
    config.grpc.set_port(0);
    let next = serve(config).await.expect("it takes over");
    let get = reqwest::get(format!("http://{}/v1/hardware/t4", next.http())).await.expect("an answer");
    assert_eq!(get.status(), 200);
    next.stop().await;
}
