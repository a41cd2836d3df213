//! Is the service alive, is it ready, and what are its metrics?

use super::refusal::{Answer, Refusal};
use crate::act::apply::agent_facts;
use crate::app::App;
use crate::decide::fleet::Fleet;
use crate::store;
use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::{HttpResponse, web};
use apportion_wire::AgentState;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A database that takes longer to read one row is not ready.
const DATABASE_MAX: Duration = Duration::from_secs(2);

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/livez").route(web::get().to(livez)))
        .service(web::resource("/readyz").route(web::get().to(readyz)))
        .service(web::resource("/metrics").route(web::get().to(metrics)));
}

/// Answers while the process runs.
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez",
    responses((status = 200, description = "It lives.", body = String, content_type = "text/plain")))]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body("live\n")
}

/// Answers 200 while every part of the service works and the database answers; else 503 with the parts that do not.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    responses((status = 200, description = "It can work.", body = String, content_type = "text/plain")))]
pub async fn readyz(app: web::Data<App>) -> Answer {
    let mut wrong: Vec<String> = app.parts.failure().map(|broken| broken.to_string()).into_iter().collect();
    let silent = app.parts.silent(Instant::now());
    wrong.extend(
        silent.iter().map(|(part, since)| format!("part {} was last alive {} s ago", part.name(), since.as_secs())),
    );
    let read = async { store::target::get(&mut *app.pool.acquire().await?).await };
    match tokio::time::timeout(DATABASE_MAX, read).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            wrong.push("the database does not answer; the service's log says why".into());
        }
        Err(_) => wrong.push(format!("the database has not answered for {} s", DATABASE_MAX.as_secs())),
    }
    if wrong.is_empty() {
        return Ok(HttpResponse::Ok().content_type(ContentType::plaintext()).body("ready\n"));
    }
    Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, wrong.join("; ")))
}

/// Metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "health", operation_id = "metrics",
    responses((status = 200, description = "The figures.", body = String, content_type = "text/plain")))]
pub async fn metrics(app: web::Data<App>) -> Answer {
    let mut db = app.pool.acquire().await?;
    let target = store::target::get(&mut db).await?;
    let agents = store::agents::list(&mut db).await?;
    let open = store::jobs::count_open(&mut db).await?;
    let now = crate::app::now().timestamp();
    let arrivals = store::arrivals::between(&mut db, None, now - 10, now).await?;
    drop(db);
    let mut text = String::new();
    let mut figure = |name: &str, help: &str, rows: Vec<(String, f64)>| {
        let _infallible = writeln!(text, "# HELP apportion_{name} {help}\n# TYPE apportion_{name} gauge");
        for (labels, value) in rows {
            let _infallible = writeln!(text, "apportion_{name}{labels} {value}");
        }
    };
    figure("target_generation", "Generation of the target in force.", vec![(String::new(), target.generation as f64)]);
    figure("jobs_open", "Plans that wait or are being solved.", vec![(String::new(), open as f64)]);
    let devices = Fleet::live(agents.iter().map(agent_facts).collect()).counts().into_iter();
    figure(
        "devices_live",
        "Devices of live agents.",
        devices.map(|(name, count)| (format!("{{hardware={name:?}}}"), f64::from(count))).collect(),
    );
    let count = |state: AgentState| agents.iter().filter(|a| a.state == state).count() as f64;
    let in_state = |state: AgentState| (format!("{{state={:?}}}", state.name()), count(state));
    figure("agents", "Agents by state.", AgentState::ALL.iter().copied().map(in_state).collect());
    let mut names: Vec<&str> = arrivals.iter().map(|r| r.pipeline.as_str()).collect();
    names.dedup();
    let rate = |name: &str| arrivals.iter().filter(|r| r.pipeline == name).map(|r| r.offered as f64).sum::<f64>() / 10.0;
    let rates = names.iter().map(|name| (format!("{{pipeline={name:?}}}"), rate(name))).collect();
    figure("offered_qps", "Queries offered per second, mean over 10 s.", rates);
    for count in crate::jobs::counts::ALL {
        let (name, help, value) = (count.name(), count.help(), count.get());
        let _infallible =
            writeln!(text, "# HELP apportion_{name} {help}\n# TYPE apportion_{name} counter\napportion_{name} {value}");
    }
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text))
}
