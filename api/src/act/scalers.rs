//! What do autoscalers know of the advice?
//!
//! The board is renewed every second. Autoscalers are answered from it, so a slow database never makes them wait.

use super::replanned::{DemandOrigin, replanned_spec};
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::store::{self, advice::AdviceRow};
use apportion_scalers::{Board, DesiredGroup, PipelineAdvice};
use apportion_tls::ServerTls;
use apportion_wire::PipelineSpec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Pause between two reads of the advice.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Longest time of one read.
const READ_MAX: Duration = Duration::from_secs(5);

/// Serves the autoscalers' port until the service stops.
pub async fn run(app: App, listener: TcpListener, tls: Option<ServerTls>) {
    let (sender, receiver) = watch::channel(None);
    let stopping = app.clone();
    let server = apportion_scalers::serve(listener, tls, receiver, async move { stopping.stopped().await });
    let (served, ()) = tokio::join!(server, renew(&app, sender));
    if let Err(error) = served {
        app.parts.fail(ServicePart::Autoscalers, error.to_string());
    }
}

/// Renews the board until the service stops. Push streams end with the sender.
async fn renew(app: &App, sender: watch::Sender<Option<Arc<Board>>>) {
    while !app.is_stopping() {
        match tokio::time::timeout(READ_MAX, read_board(app)).await {
            Ok(Ok(board)) => drop(sender.send_replace(Some(Arc::new(board)))),
            Ok(Err(error)) => tracing::warn!(%error, "autoscalers see the last advice: the database does not answer"),
            Err(_) => tracing::warn!("autoscalers see the last advice: the database is slow"),
        }
        app.parts.note_alive(ServicePart::Autoscalers);
        tokio::select! {
            () = app.stopped() => return,
            () = tokio::time::sleep(RENEW_EVERY) => {}
        }
    }
}

async fn read_board(app: &App) -> store::Result<Board> {
    let read_at = Instant::now();
    let mut db = app.pool.acquire().await?;
    let pipelines = store::pipelines::with_replan(&mut db).await?;
    let advice = store::advice::list(&mut db).await?;
    let specs = pipelines.iter().filter_map(|row| replanned_spec(row, DemandOrigin::Elsewhere));
    let of = |spec: PipelineSpec| {
        let row = advice.iter().find(|row| row.pipeline == spec.name);
        let told = row.map_or_else(PipelineAdvice::default, |row| advice_of(&spec, row));
        (spec.name, told)
    };
    Ok(Board { read_at, pipelines: specs.map(of).collect() })
}

/// The advice with every profiled group of the pipeline. Without a plan it has no group.
fn advice_of(spec: &PipelineSpec, row: &AdviceRow) -> PipelineAdvice {
    let mut replicas: BTreeMap<[String; 3], u32> = BTreeMap::new();
    for task in spec.tasks.iter().filter(|_| row.document.is_some()) {
        for variant in &task.variants {
            for profiled in variant.profile.iter().flatten() {
                replicas.entry([task.name.clone(), variant.name.clone(), profiled.hardware.clone()]).or_default();
            }
        }
    }
    for group in row.groups() {
        let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
        let more = group["replicas"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
        *replicas.entry([text("task"), text("variant"), text("hardware")]).or_default() += more;
    }
    let groups = replicas.into_iter();
    let groups = groups.map(|([task, variant, hardware], replicas)| DesiredGroup { task, variant, hardware, replicas });
    PipelineAdvice {
        groups: groups.collect(),
        demand_age: (now() - row.seen_at).to_std().unwrap_or_default(),
        seen_at: row.seen_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        held: row.unknown.clone(),
    }
}
