//! `/v1/tokens`: tokens of the HTTP interface.

use super::access::Principal;
use super::body::{self, Document};
use super::holds::end;
use super::idempotency::{IdempotencyHeader, IdempotencyKey};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::access::NewToken;
use crate::app::{App, now};
use crate::decide::projects::DEFAULT_PROJECT;
use crate::store::idempotency::KeyedRequest;
use crate::store::tokens::{self as rows, TokenRow};
use crate::store::{PgConnection, projects};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::Scope;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Longest time that a token with an end counts, in seconds: ten years.
const TOKEN_S_MAX: u32 = 3_650 * 86_400;

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenDocument {
    /// Its identifier.
    pub id: Uuid,
    /// Its name, for people.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// The project that it is bound to; null: all.
    pub project: Option<String>,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends; null: never.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked; null: it was not.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A new token. Nobody can read it again.
#[derive(Clone, Serialize, ToSchema)] // without `Debug`: no log has the text
pub struct IssuedToken {
    /// The text for `Authorization: Bearer`.
    pub token: String,
    /// Its entry.
    #[serde(flatten)]
    pub entry: TokenDocument,
}

/// A request for a token.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Its name, for people: 1 to 128 characters without control characters.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// The project that it is bound to; default: that of the client, or all.
    #[serde(default)]
    pub project: Option<String>,
    /// Seconds that it counts, 1 to 315360000; default: until it is revoked.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub for_s: Option<u32>,
}

/// The tokens that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TokensQuery {
    /// Only tokens with this name.
    pub name: Option<String>,
    /// Only tokens that are bound to this project.
    pub project: Option<String>,
}

/// The path of a token.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct TokenPath {
    /// Its identifier.
    pub id: Uuid,
}

impl From<TokenRow> for TokenDocument {
    fn from(row: TokenRow) -> Self {
        let TokenRow { id, name, scope, project, digest: _, created_by, created_at, expires_at, revoked_at } = row;
        Self { id, name, scope, project, created_by, created_at, expires_at, revoked_at }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/tokens").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/tokens/{id}").route(web::get().to(get)).route(web::delete().to(delete)));
}

/// All tokens, the newest first, revoked ones included.
#[utoipa::path(get, path = "/v1/tokens", tag = "access", operation_id = "list_tokens",
    params(TokensQuery, PageQuery),
    responses((status = 200, description = "The tokens.", body = [TokenDocument]), RefusalReply<404>))]
pub async fn list(app: web::Data<App>, client: Principal, page: ListPage<Uuid, TokensQuery>) -> HandlerResult {
    let project = client.listed_project(page.filter.project.clone())?;
    let filter = rows::TokenFilter { name: page.filter.name.clone(), project };
    let rows = rows::list(&mut *app.pool.acquire().await?, &filter, page.after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.id, TokenDocument::from))
}

/// One token, without its secret.
#[utoipa::path(get, path = "/v1/tokens/{id}", tag = "access", operation_id = "get_token", params(TokenPath),
    responses((status = 200, description = "The token.", body = TokenDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, client: Principal, path: web::Path<TokenPath>) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, path.id).await?;
    let own = row.filter(|row| client.project.is_none() || row.project == client.project);
    let own = own.ok_or_else(|| Refusal::not_found(format!("token {}", path.id)))?;
    Ok(HttpResponse::Ok().json(TokenDocument::from(own)))
}

/// Makes a token. The answer is the only place that has its text. So a request that comes again under its
/// `Idempotency-Key` is refused, and the refusal names the token.
#[utoipa::path(post, path = "/v1/tokens", tag = "access", operation_id = "post_token", params(IdempotencyHeader),
    request_body(content = TokenRequest, description = "What the token is for."),
    responses((status = 201, description = "The token.", body = IssuedToken), RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, client: Principal, document: Document) -> HandlerResult {
    let key = IdempotencyKey::read(&request, KeyedRequest::Token, "", &document.bytes)?;
    let asked: TokenRequest = body::value(document.tree)?;
    body::name(&asked.name)?;
    let project = project_for(&client, asked.project)?;
    let at = now();
    let expires_at = asked.for_s.map(|seconds| end("/for_s", at, seconds, TOKEN_S_MAX)).transpose()?;
    let NewToken { id, text, digest } = NewToken::random();
    let row = TokenRow {
        id,
        name: asked.name,
        scope: asked.scope,
        project,
        digest: digest.to_vec(),
        created_by: client.name,
        created_at: at,
        expires_at,
        revoked_at: None,
    };
    let mut tx = app.pool.begin().await?;
    if let Some(key) = &key
        && let Some(id) = key.already_asked(&mut tx).await?
    {
        let detail =
            format!("token {id} was made for this Idempotency-Key: revoke it if its text was lost, and use another key");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    check_project(&mut tx, row.project.as_deref()).await?;
    rows::insert(&mut tx, &row).await?;
    if let Some(key) = key {
        key.remember(&mut tx, row.id, at).await?;
    }
    tx.commit().await?;
    Ok(HttpResponse::Created().json(IssuedToken { token: text, entry: row.into() }))
}

/// The project of a token that a client makes. A client of one project makes tokens for this one alone.
fn project_for(client: &Principal, asked: Option<String>) -> Result<Option<String>, Refusal> {
    match (client.project.clone(), asked) {
        (Some(own), Some(asked)) if own != asked => {
            let detail = format!("{} is bound to project {own}: it makes no token for {asked}", client.name);
            Err(Refusal::new(StatusCode::FORBIDDEN, detail))
        }
        (own, asked) => Ok(own.or(asked)),
    }
}

/// Refuses a project that does not exist. It stays until the token is stored.
async fn check_project(tx: &mut PgConnection, project: Option<&str>) -> Result<(), Refusal> {
    let Some(project) = project.filter(|project| *project != DEFAULT_PROJECT) else { return Ok(()) };
    if body::name(project).is_ok() && projects::share(tx, project).await? {
        return Ok(());
    }
    Err(Refusal::value("/project", format!("{project:?}: expected a project (PUT /v1/projects/NAME makes one)")))
}

/// Revokes a token. It stays in the list for the time of `--keep-tokens`.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "access", operation_id = "revoke_token", params(TokenPath),
    responses((status = 204, description = "It counts no more."), RefusalReply<404>))]
pub async fn delete(app: web::Data<App>, client: Principal, path: web::Path<TokenPath>) -> HandlerResult {
    let project = client.project.as_deref();
    match rows::revoke(&mut *app.pool.acquire().await?, path.id, project, now()).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Refusal::not_found(format!("token {}", path.id))),
    }
}
