//! `/v1/webhooks`: receivers to which the service posts its events, and entries of the audit.

use super::access::Principal;
use super::body::{self, Document, IfMatch, IfNoneMatch, Name};
use super::events::KINDS;
use super::paging::{ListPage, PageQuery, PrefixQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::access::{digest, random_secret};
use crate::app::{App, now};
use crate::store::webhooks::{self as rows, AUDIT_KIND, NewWebhook, WebhookRow};
use crate::store::{Condition, pipelines};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_webhooks::{ReceiverUrl, WebhookSecret};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most webhooks of a service.
pub const WEBHOOKS_MAX: i64 = 100;

/// A receiver, and the events that it gets. It has no `Debug`, because it may have a secret.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookSpec {
    /// Where events are posted: an `http` or `https` URL without a user and a password. Link-local addresses are refused.
    #[schema(max_length = 2048)]
    pub url: String,
    /// Only events of these kinds, and the entries of the audit if `audit` is among them. Default: events of all kinds,
    /// without the audit.
    #[serde(default)]
    pub kinds: Option<Vec<String>>,
    /// Only events of this pipeline, and none that concern several. Default: all events.
    #[serde(default)]
    pub pipeline: Option<String>,
    /// Whether it gets events. While it is false, events wait. Default: true.
    #[serde(default = "is_enabled_by_default")]
    pub enabled: bool,
    /// The secret of the signatures: `whsec_` and 24 to 64 bytes in base64. Default: the present one stays; a new webhook
    /// gets a random one.
    #[serde(default)]
    pub secret: Option<String>,
}

fn is_enabled_by_default() -> bool {
    true
}

/// A webhook, without its secret.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WebhookDocument {
    /// Its name.
    pub name: String,
    /// Where events are posted.
    pub url: String,
    /// Only events of these kinds, and the audit with `audit`; null: events of all kinds, without the audit.
    pub kinds: Option<Vec<String>>,
    /// Only events of this pipeline; null: all events.
    pub pipeline: Option<String>,
    /// Whether it gets events. The answer 410 of its receiver makes it false.
    pub enabled: bool,
    /// Its version: the number of its replacements. Disabling by the receiver is one.
    pub version: i64,
    /// Who wrote it.
    pub made_by: String,
    /// When it was written.
    pub updated_at: DateTime<Utc>,
    /// No event up to this one waits.
    pub sent_until: i64,
    /// Events that wait; at most 1000 are counted.
    pub waiting: i64,
    /// Failed attempts of the next event.
    pub attempts: i32,
    /// When the next event is tried again; null: at once.
    pub next_at: Option<DateTime<Utc>>,
    /// Events that were delivered.
    pub delivered: i64,
    /// Failed attempts of all events.
    pub failures: i64,
    /// Events that were given up.
    pub skipped: i64,
    /// The last failure, for people; null if there was none.
    pub last_error: Option<String>,
    /// When it was.
    pub last_error_at: Option<DateTime<Utc>>,
}

/// A webhook that was written.
#[derive(Clone, Serialize, ToSchema)]
pub struct WrittenWebhook {
    /// The secret that the service made. Nobody can read it again. Left out if it made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The webhook.
    #[serde(flatten)]
    pub webhook: WebhookDocument,
}

impl From<WebhookRow> for WebhookDocument {
    fn from(row: WebhookRow) -> Self {
        Self {
            name: row.name,
            url: row.url,
            kinds: row.kinds,
            pipeline: row.pipeline,
            enabled: row.enabled,
            version: row.version,
            made_by: row.made_by,
            updated_at: row.updated_at,
            sent_until: row.sent_until,
            waiting: row.waiting,
            attempts: row.attempts,
            next_at: row.next_at,
            delivered: row.delivered,
            failures: row.failures,
            skipped: row.skipped,
            last_error: row.last_error,
            last_error_at: row.last_error_at,
        }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    let one = web::resource("/v1/webhooks/{name}");
    let one = one.route(web::get().to(get)).route(web::put().to(put)).route(web::delete().to(delete));
    config.service(web::resource("/v1/webhooks").route(web::get().to(list))).service(one);
}

/// All webhooks by name, with their deliveries and without their secrets.
#[utoipa::path(get, path = "/v1/webhooks", tag = "fleet", operation_id = "list_webhooks",
    params(PrefixQuery, PageQuery),
    responses((status = 200, description = "The webhooks.", body = [WebhookDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, PrefixQuery>) -> HandlerResult {
    let (prefix, after) = (page.filter.prefix.as_deref(), page.after.as_deref());
    let rows = rows::list(&mut *app.pool.acquire().await?, prefix, after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.name.clone(), WebhookDocument::from))
}

/// One webhook with its deliveries, without its secret.
#[utoipa::path(get, path = "/v1/webhooks/{name}", tag = "fleet", operation_id = "get_webhook", params(Name),
    responses((status = 200, description = "The webhook.", body = WebhookDocument,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let webhook = WebhookDocument::from(row.ok_or_else(|| missing(&name))?);
    Ok(HttpResponse::Ok().insert_header(body::version_tag(webhook.version)).json(webhook))
}

fn missing(name: &str) -> Refusal {
    Refusal::not_found(format!("webhook {name}"))
}

/// Writes a webhook, or replaces it. A new one gets the events after this moment; a replaced one goes on.
#[utoipa::path(put, path = "/v1/webhooks/{name}", tag = "fleet", operation_id = "put_webhook",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content = WebhookSpec, description = "The receiver, and the events that it gets."),
    responses(
        (status = 200, description = "It was replaced.", body = WrittenWebhook,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = WrittenWebhook,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<409>, RefusalReply<412>))]
pub async fn put(
    app: web::Data<App>,
    Name { name }: Name,
    condition: Condition,
    client: Principal,
    document: Document,
) -> HandlerResult {
    let spec: WebhookSpec = body::value(document.tree)?;
    let given = check(&spec)?;
    let mut tx = app.pool.begin().await?;
    if let Some(pipeline) = spec.pipeline.as_deref()
        && pipelines::get(&mut tx, pipeline).await?.is_none()
    {
        return Err(Refusal::value("/pipeline", format!("{pipeline}: expected a registered pipeline")));
    }
    let count = rows::lock_and_count(&mut tx).await?;
    let is_new = rows::get(&mut tx, &name).await?.is_none();
    if is_new && count >= WEBHOOKS_MAX {
        let detail = format!("there are {WEBHOOKS_MAX} webhooks already: delete one first");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let made = (is_new && given.is_none()).then(new_secret);
    let new = NewWebhook {
        name: &name,
        url: &spec.url,
        kinds: spec.kinds.as_deref(),
        pipeline: spec.pipeline.as_deref(),
        enabled: spec.enabled,
        secret: given.as_ref().or(made.as_ref()).map(WebhookSecret::bytes),
        made_by: &client.name,
        at: now(),
    };
    let version = rows::put(&mut tx, &new, &condition).await?;
    let mut response = body::written(version, &format!("webhook {name}"))?;
    let webhook = WebhookDocument::from(rows::get(&mut tx, &name).await?.ok_or_else(|| missing(&name))?);
    tx.commit().await?;
    let written = WrittenWebhook { secret: made.map(|secret| secret.text()), webhook };
    Ok(response.json(written))
}

/// Checks everything but the pipeline. Returns the secret of the document.
fn check(spec: &WebhookSpec) -> Result<Option<WebhookSecret>, Refusal> {
    ReceiverUrl::parse(&spec.url).map_err(|error| Refusal::value("/url", error.to_string()))?;
    if let Some(kinds) = &spec.kinds {
        let (known, most) = (format!("{}, {AUDIT_KIND}", KINDS.join(", ")), KINDS.len() + 1);
        if kinds.is_empty() || kinds.len() > most {
            let detail = format!("{} kinds: expected 1 to {most} of {known}, or no key", kinds.len());
            return Err(Refusal::value("/kinds", detail));
        }
        let is_known = |kind: &str| kind == AUDIT_KIND || KINDS.contains(&kind);
        if let Some((at, kind)) = kinds.iter().enumerate().find(|(_, kind)| !is_known(kind.as_str())) {
            return Err(Refusal::value(format!("/kinds/{at}"), format!("{kind:?}: expected one of {known}")));
        }
        let audit = kinds.iter().position(|kind| kind == AUDIT_KIND);
        if let (Some(at), Some(_)) = (audit, &spec.pipeline) {
            let detail = format!("{AUDIT_KIND:?}: expected no `pipeline` beside it: the audit is of the whole service");
            return Err(Refusal::value(format!("/kinds/{at}"), detail));
        }
    }
    let secret = spec.secret.as_deref().map(WebhookSecret::parse).transpose();
    secret.map_err(|error| Refusal::value("/secret", error.to_string()))
}

/// A random secret of 32 bytes, with 244 random bits.
fn new_secret() -> WebhookSecret {
    WebhookSecret::from_bytes(digest(&random_secret()).to_vec()).expect("32 bytes are enough, and not too many")
}

/// Deletes a webhook. Events that wait for it are not sent.
#[utoipa::path(delete, path = "/v1/webhooks/{name}", tag = "fleet", operation_id = "delete_webhook", params(Name, IfMatch),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let deletion = rows::delete(&mut *app.pool.acquire().await?, &name, &condition).await?;
    body::deleted(deletion, &format!("webhook {name}"))
}
