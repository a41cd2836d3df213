//! How fast are lists and single resources while the service has many rows?
//!
//! The service is a process of its own with a private PostgreSQL. SQL fills its tables; the requests go over HTTP, one
//! after the other, as those of a client on the same machine.

mod rows;

use super::push::{chain_pipeline, chain_profiles};
use crate::live::console::print_progress;
use crate::live::fleet::{FleetSettings, LocalFleet};
use anyhow::{Context, Result};
use apportion_domain::nearest_rank;
use apportion_support::exit::Failure;
use apportion_support::output::{OutputFormat, TextTable, number};
use apportion_support::pages::next_page;
pub use rows::StoreSize;
use rows::StoredTable;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The aim: no request takes longer.
pub const ANSWER_MS_MAX: f64 = 50.0;
/// Entries of a page while the benchmark walks to the middle of a list.
const WALK_LIMIT: u32 = 1_000;
/// Most plans: one is made each second, and plans are kept for 30 days.
pub const PLANS_MAX: u32 = 2_000_000;

/// The settings of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    /// The rows of its tables.
    pub size: StoreSize,
    /// Entries of a page.
    pub page: u32,
    /// Requests of each kind.
    pub requests: u32,
    /// How the result is printed.
    pub format: OutputFormat,
}

/// The times of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct StoreRequest {
    /// The path with its filter, without a cursor.
    pub path: String,
    /// Which part of the list, or that it is a single resource.
    pub what: &'static str,
    /// Entries of the answer.
    pub entries: usize,
    /// Median time in milliseconds.
    pub median_ms: f64,
    /// Its 99th percentile.
    pub p99_ms: f64,
    /// The longest time.
    pub worst_ms: f64,
}

#[derive(Serialize)]
struct StoreReport {
    aim_ms: f64,
    requests: Vec<StoreRequest>,
    tables: Vec<StoredTable>,
}

/// A list: its path, and the rows that it has.
struct StoredList {
    path: &'static str,
    rows: fn(&StoreSize) -> u32,
}

/// The lists, with filters that few rows pass.
const LISTS: [StoredList; 12] = [
    StoredList { path: "/v1/pipelines", rows: |size| size.pipelines },
    StoredList { path: "/v1/pipelines?prefix=p0000", rows: |size| size.pipelines.min(999) },
    StoredList { path: "/v1/plans", rows: |size| size.plans },
    StoredList { path: "/v1/plans?state=failed", rows: |size| size.plans / 1_000 },
    StoredList { path: "/v1/plans?pipeline=p7", rows: |size| size.plans / 1_000 },
    StoredList { path: "/v1/decisions", rows: |size| size.plans / 10 },
    StoredList { path: "/v1/decisions?decision=failed", rows: |size| size.plans / 10_000 },
    StoredList { path: "/v1/events", rows: |size| size.plans / 10 },
    StoredList { path: "/v1/audit", rows: |size| size.plans / 10 },
    StoredList { path: "/v1/simulations", rows: |size| size.plans / 100 },
    StoredList { path: "/v1/target/history", rows: |size| size.plans / 100 },
    StoredList { path: "/v1/agents", rows: |size| size.agents },
];

/// Runs the benchmark.
///
/// # Errors
/// If the service does not come up, its database cannot be filled, or a request fails.
pub fn run(settings: &StoreSettings) -> Result<(), Failure> {
    let report = tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(measure(settings))?;
    settings.format.print(&report, || tables(&report))
}

async fn measure(settings: &StoreSettings) -> Result<StoreReport> {
    let fleet = FleetSettings { agents: 0, devices: 1, multiple: None, pipeline: None, data_dir: None };
    let fleet = LocalFleet::start(&fleet).await?;
    fleet.service.put("/v1/pipelines/chain", &chain_pipeline()).await?;
    fleet.service.put("/v1/pipelines/chain/profiles", &chain_profiles()).await?;
    let mut db = rows::connect(&fleet.data_dir).await?;
    fleet.service.make_plan("chain", 4.0).await?;
    rows::fill(&mut db, &settings.size, print_progress).await?;
    let reader = ListReader { base: fleet.api.clone(), http: reqwest::Client::new(), requests: settings.requests };
    let mut requests = Vec::new();
    for list in &LISTS {
        print_progress(&format!("reading {}", list.path));
        requests.extend(reader.read_list(list, settings).await?);
    }
    let plan = format!("/v1/plans/{}", rows::whole_plan(&mut db).await?);
    for path in ["/v1/pipelines/p0000001", "/v1/pipelines/p0000001/profiles", plan.as_str(), "/metrics"] {
        requests.push(reader.repeat(path, "one").await?);
    }
    let tables = rows::sizes(&mut db).await?;
    Ok(StoreReport { aim_ms: ANSWER_MS_MAX, requests, tables })
}

/// A client that reads lists.
struct ListReader {
    base: String,
    http: reqwest::Client,
    requests: u32,
}

/// An answer.
struct StoreAnswer {
    took: Duration,
    /// Entries of a list; 1 of anything else.
    entries: usize,
    /// The path of the next page.
    next: Option<String>,
}

impl ListReader {
    /// Reads the first page of a list, and one in its middle if it has more than one page.
    async fn read_list(&self, list: &StoredList, settings: &StoreSettings) -> Result<Vec<StoreRequest>> {
        let and = if list.path.contains('?') { '&' } else { '?' };
        let first = format!("{}{and}limit={}", list.path, settings.page);
        let mut requests = vec![self.repeat(&first, "first page").await?];
        if let Some(middle) = self.middle(list, settings).await? {
            requests.push(self.repeat(&middle, "page in the middle").await?);
        }
        Ok(requests)
    }

    /// The path of a page in the middle of a list: about half of its rows are before it.
    async fn middle(&self, list: &StoredList, settings: &StoreSettings) -> Result<Option<String>> {
        let half = (list.rows)(&settings.size) / 2;
        if half == 0 {
            return Ok(None);
        }
        let step = WALK_LIMIT.min(half);
        let and = if list.path.contains('?') { '&' } else { '?' };
        let mut next = Some(format!("{}{and}limit={step}", list.path));
        for _ in 0..half / step {
            let Some(path) = next else { return Ok(None) };
            next = self.read(&path).await?.next;
        }
        Ok(next.map(|path| path.replace(&format!("limit={step}"), &format!("limit={}", settings.page))))
    }

    /// Sends a request again and again. The first answer does not count: it fills caches.
    async fn repeat(&self, path: &str, what: &'static str) -> Result<StoreRequest> {
        let entries = self.read(path).await?.entries;
        let mut times = Vec::new();
        for _ in 0..self.requests.max(1) {
            times.push(self.read(path).await?.took.as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| nearest_rank(&times, share).expect("at least one request was sent");
        let bare = path.split("&cursor=").next().unwrap_or(path);
        Ok(StoreRequest { path: bare.to_owned(), what, entries, median_ms: at(0.5), p99_ms: at(0.99), worst_ms: at(1.0) })
    }

    async fn read(&self, path: &str) -> Result<StoreAnswer> {
        let begun = Instant::now();
        let response = self.http.get(format!("{}{path}", self.base)).send().await?.error_for_status()?;
        let next = next_page(path, response.headers().get("link").and_then(|link| link.to_str().ok()));
        let bytes = response.bytes().await?;
        let took = begun.elapsed();
        let entries = serde_json::from_slice::<Vec<serde_json::Value>>(&bytes).map_or(1, |list| list.len());
        Ok(StoreAnswer { took, entries, next })
    }
}

fn tables(report: &StoreReport) -> String {
    let mut times = TextTable::new(&["path", "what", "entries", "median ms", "p99 ms", "worst ms", "in time"]);
    for r in &report.requests {
        times.row(vec![
            r.path.clone(),
            r.what.into(),
            r.entries.to_string(),
            number(r.median_ms),
            number(r.p99_ms),
            number(r.worst_ms),
            if r.worst_ms <= report.aim_ms { "yes" } else { "no" }.into(),
        ]);
    }
    let mut sizes = TextTable::new(&["table", "rows", "MiB", "index MiB"]);
    let mib = |bytes: i64| number(bytes as f64 / f64::from(1 << 20));
    for size in &report.tables {
        sizes.row(vec![size.table.clone(), size.rows.to_string(), mib(size.bytes), mib(size.index_bytes)]);
    }
    format!("{}\n{}", times.text(""), sizes.text(""))
}
