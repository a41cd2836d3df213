//! What are the metrics of the service?

use super::refusal::HandlerResult;
use super::webhooks::WEBHOOKS_MAX;
use crate::act::agent_facts::agent_facts;
use crate::act::figures::{MeasuredFigure, measured_latencies};
use crate::act::times::fleet_times;
use crate::app::App;
use crate::app::counts;
use crate::app::retention::DeletionNotes;
use crate::decide::budget::{promise_of, window_s};
use crate::decide::fleet::Fleet;
use crate::decide::machines::MachineStage;
use crate::decide::measured::{MeasuredLoad, ReplicaLoadTime};
use crate::decide::retention::RowKind;
use crate::store::{
    self, advice::AdviceRow, agents::AgentRow, hardware::HardwareRow, jobs::JobQueue, machines::MachineCount,
    webhooks::WebhookRow,
};
use actix_web::{HttpResponse, web};
use apportion_wire::AgentState;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// Seconds over which the offered rate is a mean.
const RATE_WINDOW_S: i64 = 10;

/// The route of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/metrics").route(web::get().to(metrics)));
}

/// Metrics in the OpenMetrics text format, which Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "health", operation_id = "metrics",
    responses((status = 200, description = "The figures.", body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(app: web::Data<App>) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let target = store::target::get(&mut db).await?;
    let agents = store::agents::list(&mut db).await?;
    let open = store::jobs::count_open(&mut db, JobQueue::Plans).await?;
    let analyses = store::jobs::count_open(&mut db, JobQueue::Analyses).await?;
    let now = crate::app::now().timestamp();
    let arrivals = store::arrivals::between(&mut db, None, now - RATE_WINDOW_S, now).await?;
    let advice = store::advice::list(&mut db).await?;
    let budgets = read_budgets(&mut db, now).await?;
    let webhooks = store::webhooks::list(&mut db, None, None, WEBHOOKS_MAX).await?;
    let machines = MachineFigures::read(&mut db).await?;
    let latencies = measured_latencies(&mut db).await?;
    drop(db);
    let mut page = Page::default();
    page.figure("target_generation", "Generation of the target in force.", target.generation);
    page.figure("jobs_open", "Plans that wait or are being solved.", open);
    page.figure("analyses_open", "Simulations, frontiers and comparisons that wait or run.", analyses);
    let devices = Fleet::live(agents.iter().map(agent_facts).collect()).counts().into_iter();
    let devices = devices.map(|(name, count)| (name, f64::from(count)));
    page.labelled_figure("devices_live", "Devices of live agents.", "hardware", devices);
    let count = |state: AgentState| agents.iter().filter(|a| a.state == state).count() as f64;
    let in_state = AgentState::ALL.iter().map(|state| (state.name().to_owned(), count(*state)));
    page.labelled_figure("agents", "Agents by state.", "state", in_state);
    add_times(&mut page, agents);
    add_drift(&mut page, latencies);
    let mut offered: BTreeMap<String, f64> = BTreeMap::new();
    for row in arrivals {
        *offered.entry(row.pipeline).or_default() += row.offered as f64 / RATE_WINDOW_S as f64;
    }
    page.labelled_figure("offered_qps", "Queries offered per second, mean over 10 s.", "pipeline", offered);
    add_advice(&mut page, &advice);
    add_budgets(&mut page, &budgets);
    add_webhooks(&mut page, &webhooks);
    add_machines(&mut page, &machines);
    add_retention(&mut page, &app.retention.notes());
    for count in counts::ALL {
        page.counter(count.name(), count.help(), count.get());
    }
    Ok(HttpResponse::Ok().content_type("application/openmetrics-text; version=1.0.0; charset=utf-8").body(page.text()))
}

/// The times that agents measured.
fn add_times(page: &mut Page, agents: Vec<AgentRow>) {
    let times = fleet_times(agents);
    if let Some(hop) = times.hop() {
        page.real_figure(
            "measured_hop_seconds",
            "Time of a message between agents, median over links.",
            hop.median_ms / 1e3,
        );
        page.real_figure("measured_hop_links", "Links between live agents that were measured.", hop.count as f64);
    }
    let mut loads: BTreeMap<[String; 4], Vec<&ReplicaLoadTime>> = BTreeMap::new();
    for load in times.loads() {
        let key = [&load.pipeline, &load.task, &load.variant, &load.hardware].map(Clone::clone);
        loads.entry(key).or_default().push(load);
    }
    let seconds = loads.into_iter().filter_map(|(key, of)| Some((key, MeasuredLoad::of(of.into_iter())?.median_ms / 1e3)));
    page.group_figure("measured_load_seconds", "Time of a replica's load, median of the last ones.", seconds.collect());
}

/// The measured latencies over those of the profiles.
fn add_drift(page: &mut Page, latencies: Vec<MeasuredFigure>) {
    let ratio = |MeasuredFigure { pipeline, figure, window }: MeasuredFigure| {
        ([pipeline, figure.task, figure.variant, figure.at], window.ratio())
    };
    let help = "Time of batches over their time by the profile, as agents agree on it over the last windows.";
    page.group_figure("profile_drift_ratio", help, latencies.into_iter().map(ratio).collect());
}

/// Misses over permitted misses, by pipeline.
#[derive(Default)]
struct BurnRatesByPipeline {
    fast: BTreeMap<String, f64>,
    slow: BTreeMap<String, f64>,
    whole: BTreeMap<String, f64>,
}

async fn read_budgets(db: &mut store::PgConnection, now: i64) -> store::Result<BurnRatesByPipeline> {
    let mut permitted: BTreeMap<String, f64> = BTreeMap::new();
    for (name, percentile) in store::pipelines::percentiles(db).await? {
        permitted.insert(name, promise_of(percentile).missed_share_max);
    }
    let mut budgets = BurnRatesByPipeline::default();
    for row in store::arrivals::outcomes(db, now, [window_s() / 60, window_s() / 6, window_s()]).await? {
        let Some(share) = permitted.get(&row.pipeline) else { continue };
        let rate = |missed: i64, ended: i64| (ended > 0).then(|| missed as f64 / ended as f64 / share);
        let of =
            |rates: &mut BTreeMap<String, f64>, rate: Option<f64>| rates.extend(rate.map(|r| (row.pipeline.clone(), r)));
        of(&mut budgets.fast, rate(row.missed_fast, row.ended_fast));
        of(&mut budgets.slow, rate(row.missed_slow, row.ended_slow));
        of(&mut budgets.whole, rate(row.missed, row.ended));
    }
    Ok(budgets)
}

/// How much of each promise is left, and how fast it is spent.
fn add_budgets(page: &mut Page, budgets: &BurnRatesByPipeline) {
    let BurnRatesByPipeline { fast, slow, whole } = budgets;
    let left = whole.iter().map(|(name, rate)| (name.clone(), 1.0 - rate));
    page.labelled_figure("error_budget_left_ratio", "Part of the hour's permitted misses that is left.", "pipeline", left);
    let rows = |rates: &BTreeMap<String, f64>| rates.clone().into_iter();
    let help = "Misses of the last minute over the permitted ones.";
    page.labelled_figure("error_budget_fast_burn_rate", help, "pipeline", rows(fast));
    let help = "Misses of the last ten minutes over the permitted ones.";
    page.labelled_figure("error_budget_slow_burn_rate", help, "pipeline", rows(slow));
}

/// What is known of machines.
struct MachineFigures {
    types: Vec<HardwareRow>,
    counts: Vec<MachineCount>,
    wanted: BTreeMap<String, f64>,
}

impl MachineFigures {
    async fn read(db: &mut store::PgConnection) -> store::Result<Self> {
        let mut wanted: BTreeMap<String, f64> = BTreeMap::new();
        for row in store::machines::wants(db).await? {
            *wanted.entry(row.hardware).or_default() += f64::from(row.devices);
        }
        let types = store::hardware::list(db).await?.into_iter().filter(|row| row.substrate.is_some()).collect();
        Ok(Self { types, counts: store::machines::count_open(db).await?, wanted })
    }

    /// Machines in these stages by hardware type; 0 for a type with a substrate that has none.
    fn in_stages(&self, stages: &[MachineStage]) -> BTreeMap<String, f64> {
        let mut counts: BTreeMap<String, f64> = self.types.iter().map(|row| (row.name.clone(), 0.0)).collect();
        for count in &self.counts {
            if stages.iter().any(|stage| stage.name() == count.stage) {
                *counts.entry(count.hardware.clone()).or_default() += count.machines as f64;
            }
        }
        counts
    }
}

/// The machines of substrates, by hardware type.
fn add_machines(page: &mut Page, machines: &MachineFigures) {
    let help = "Devices that pipelines want of what may be had.";
    page.labelled_figure("devices_wanted", help, "hardware", machines.wanted.clone());
    let coming = machines.in_stages(&[MachineStage::Coming]);
    page.labelled_figure("machines_coming", "Machines that were asked for and have not come.", "hardware", coming);
    let alive = machines.in_stages(&[MachineStage::Alive]);
    page.labelled_figure("machines_alive", "Machines whose agents have come.", "hardware", alive);
    let leaving = machines.in_stages(&[MachineStage::Cordoned, MachineStage::Ending]);
    page.labelled_figure("machines_leaving", "Machines that go back.", "hardware", leaving);
    let expired = machines.types.iter().map(|row| (row.name.clone(), row.wishes_expired));
    let help = "Machines that were asked for and never came.";
    page.labelled_counter_figure("machine_wishes_expired_total", help, "hardware", expired);
    let measured = machines.types.iter().filter_map(|row| Some((row.name.clone(), row.provision_measured_s?)));
    let help = "Time from the wish for a machine to its agent, moving mean.";
    page.labelled_figure("machine_provision_seconds", help, "hardware", measured);
}

/// What this process deleted of old rows, and how old the oldest rows are if it leads.
fn add_retention(page: &mut Page, notes: &DeletionNotes) {
    let deleted = |kind: RowKind| notes.deleted.get(&kind).map_or(0, |rows| i64::try_from(*rows).unwrap_or(i64::MAX));
    let rows = RowKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), deleted(kind)));
    page.labelled_counter_figure("rows_deleted_total", "Rows that were deleted since they were old.", "kind", rows);
    let now = crate::app::now();
    let age = |at: &store::Time| (now - *at).num_milliseconds().max(0) as f64 / 1e3;
    let oldest = notes.oldest.iter().map(|(kind, at)| (kind.name().to_owned(), age(at)));
    page.labelled_figure("rows_oldest_age_seconds", "Age of the oldest row, by the process that leads.", "kind", oldest);
}

/// How far the deliveries of events are. The counts are those of the database, so they outlive a process.
fn add_webhooks(page: &mut Page, webhooks: &[WebhookRow]) {
    let of = |count: fn(&WebhookRow) -> i64| webhooks.iter().map(move |row| (row.name.clone(), count(row)));
    let waiting = of(|row| row.waiting).map(|(name, count)| (name, count as f64));
    let help = "Events that wait for their delivery, at most 1000 are counted.";
    page.labelled_figure("webhook_events_waiting", help, "webhook", waiting);
    let help = "Events that were delivered.";
    page.labelled_counter_figure("webhook_events_delivered_total", help, "webhook", of(|row| row.delivered));
    let help = "Attempts to deliver an event that failed.";
    page.labelled_counter_figure("webhook_failures_total", help, "webhook", of(|row| row.failures));
    let help = "Events that were given up.";
    page.labelled_counter_figure("webhook_events_skipped_total", help, "webhook", of(|row| row.skipped));
}

/// What is advised for pipelines without agents. A pipeline without advice has no replicas here, which is not zero.
fn add_advice(page: &mut Page, advice: &[AdviceRow]) {
    let mut replicas: BTreeMap<[String; 4], f64> = BTreeMap::new();
    for (row, group) in advice.iter().flat_map(|row| row.groups().map(move |group| (row, group))) {
        let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
        let key = [row.pipeline.clone(), text("task"), text("variant"), text("hardware")];
        *replicas.entry(key).or_default() += group["replicas"].as_f64().unwrap_or_default();
    }
    page.group_figure("desired_replicas", "Replicas that are advised.", replicas);
    let of = |value: fn(&Value) -> &Value| {
        let known = move |row: &AdviceRow| Some((row.pipeline.clone(), value(row.document.as_ref()?).as_f64()?));
        advice.iter().filter_map(known).collect::<Vec<_>>()
    };
    let price = of(|plan| &plan["cost_per_hour"]);
    page.labelled_figure("advised_cost_per_hour", "Price of the advised devices.", "pipeline", price);
    let accuracy = of(|plan| &plan["estimate"]["accuracy"]);
    page.labelled_figure("advised_accuracy", "Accuracy that the estimator expects.", "pipeline", accuracy);
    let attainment = of(|plan| &plan["estimate"]["attainment"]);
    page.labelled_figure("advised_attainment", "Attainment that the estimator expects.", "pipeline", attainment);
    let seen = advice.iter().map(|row| (row.pipeline.clone(), row.demand_qps));
    page.labelled_figure("seen_demand_qps", "Demand as it was seen last.", "pipeline", seen);
    let age = |row: &AdviceRow| (crate::app::now() - row.seen_at).num_milliseconds().max(0) as f64 / 1e3;
    let age = advice.iter().map(|row| (row.pipeline.clone(), age(row)));
    page.labelled_figure("seen_demand_age_seconds", "Age of that demand.", "pipeline", age);
    let known = advice.iter().map(|row| (row.pipeline.clone(), f64::from(u8::from(row.unknown.is_none()))));
    page.labelled_figure(
        "seen_demand_known",
        "1 while the demand is known; 0 while the advice is held.",
        "pipeline",
        known,
    );
    add_deployment(page, advice);
}

/// What is deployed of pipelines without agents, and what following the advice would change.
fn add_deployment(page: &mut Page, advice: &[AdviceRow]) {
    let mut replicas: BTreeMap<[String; 4], f64> = BTreeMap::new();
    let seen = advice.iter().filter_map(|row| Some((row.pipeline.as_str(), row.deployment.as_ref()?)));
    let seen: Vec<(&str, &Value)> = seen.collect();
    for (pipeline, group) in
        seen.iter().flat_map(|(name, all)| all["groups"].as_array().into_iter().flatten().map(move |g| (*name, g)))
    {
        let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
        *replicas.entry([pipeline.to_owned(), text("task"), text("variant"), text("hardware")]).or_default() +=
            group["replicas"].as_f64().unwrap_or_default();
    }
    page.group_figure("deployed_replicas", "Replicas that run, as they were seen last.", replicas);
    let of = |value: fn(&Value) -> Option<f64>| {
        seen.iter().filter_map(move |(name, all)| Some(((*name).to_owned(), value(all)?))).collect::<Vec<_>>()
    };
    let price = of(|all| all["deployed"]["cost_per_hour"].as_f64());
    page.labelled_figure("deployed_cost_per_hour", "Price of the deployed devices.", "pipeline", price);
    let accuracy = of(|all| all["deployed"]["accuracy"].as_f64());
    page.labelled_figure("deployed_accuracy", "Accuracy of the deployment at the seen demand.", "pipeline", accuracy);
    let attainment = of(|all| all["deployed"]["attainment"].as_f64());
    page.labelled_figure("deployed_attainment", "Attainment of the deployment at the seen demand.", "pipeline", attainment);
    let change = |key: &str, all: &Value| Some(all["advised"][key].as_f64()? - all["deployed"][key].as_f64()?);
    let difference = |key: &str| {
        let rows = seen.iter().filter_map(|(name, all)| Some(((*name).to_owned(), change(key, all)?)));
        rows.collect::<Vec<_>>()
    };
    let saved = difference("cost_per_hour").into_iter().map(|(name, more)| (name, -more));
    page.labelled_figure("following_saves_per_hour", "Price that following the advice saves.", "pipeline", saved);
    let gained = difference("attainment");
    page.labelled_figure("following_gains_attainment", "Attainment that following the advice adds.", "pipeline", gained);
    let age = seen.iter().filter_map(|(name, all)| {
        let at: chrono::DateTime<chrono::Utc> = all["seen_at"].as_str()?.parse().ok()?;
        Some(((*name).to_owned(), (crate::app::now() - at).num_milliseconds().max(0) as f64 / 1e3))
    });
    page.labelled_figure("deployed_age_seconds", "Age of the seen deployment.", "pipeline", age);
}

/// The metrics of one scrape.
struct Page(Registry);

impl Default for Page {
    fn default() -> Self {
        Self(Registry::with_prefix("apportion"))
    }
}

impl Page {
    /// A gauge without labels.
    fn figure(&mut self, name: &str, help: &str, value: i64) {
        self.0.register(name, without_period(help), ConstGauge::new(value));
    }

    /// A gauge without labels that is no whole number.
    fn real_figure(&mut self, name: &str, help: &str, value: f64) {
        self.0.register(name, without_period(help), ConstGauge::new(value));
    }

    /// A gauge with one label, and a value for each value of the label.
    fn labelled_figure(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = (String, f64)>,
    ) {
        let family = Family::<[(&'static str, String); 1], Gauge<f64, AtomicU64>>::default();
        for (of, value) in rows {
            family.get_or_create(&[(label, of)]).set(value);
        }
        self.0.register(name, without_period(help), family);
    }

    /// A gauge for each group of each pipeline.
    fn group_figure(&mut self, name: &str, help: &str, rows: BTreeMap<[String; 4], f64>) {
        let family = Family::<[(&'static str, String); 4], Gauge<f64, AtomicU64>>::default();
        for ([pipeline, task, variant, hardware], value) in rows {
            let labels = [("pipeline", pipeline), ("task", task), ("variant", variant), ("hardware", hardware)];
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, without_period(help), family);
    }

    /// A counter with one label, and a value for each value of the label. Its name ends in `_total`.
    fn labelled_counter_figure(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = (String, i64)>,
    ) {
        let family = Family::<[(&'static str, String); 1], Counter>::default();
        for (of, value) in rows {
            family.get_or_create(&[(label, of)]).inc_by(value.unsigned_abs());
        }
        self.0.register(family_name(name), without_period(help), family);
    }

    /// A counter without labels. Its name ends in `_total`.
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(family_name(name), without_period(help), ConstCounter::new(value));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("a string takes all");
        text
    }
}

/// The encoder ends the name of each counter with `_total`.
fn family_name(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// The encoder ends each help text with a period of its own.
fn without_period(help: &str) -> &str {
    help.strip_suffix('.').unwrap_or(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_have_only_the_escapes_of_prometheus() {
        let mut page = Page::default();
        page.labelled_figure("agents", "Agents.", "state", [("a\\b\"c\nd\te\u{301}".to_owned(), 2.0)]);
        let sample = "apportion_agents{state=\"a\\\\b\\\"c\\nd\te\u{301}\"} 2.0\n";
        let expected = format!("# HELP apportion_agents Agents.\n# TYPE apportion_agents gauge\n{sample}# EOF\n");
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn counters_end_in_total_once() {
        let mut page = Page::default();
        page.counter("job_deaths_total", "Jobs.", 3);
        page.labelled_counter_figure("webhook_failures_total", "Attempts.", "webhook", [("chat".to_owned(), 2)]);
        assert!(page.text().contains("\napportion_job_deaths_total 3\n"), "{}", page.text());
        assert!(page.text().contains("\napportion_webhook_failures_total{webhook=\"chat\"} 2\n"), "{}", page.text());
    }
}
