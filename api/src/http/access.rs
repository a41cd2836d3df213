//! May this client call this operation?
//!
//! Every request passes [`check_access`]. A client shows a token (`Authorization: Bearer TOKEN`). The token's scope must
//! allow the operation. A service on loopback serves requests without a token as well. A browser must not send those for
//! another site. A client that sends too many requests is refused for a while.

use super::audited::{self, AuditedResource};
use super::project_access::{self, BoundClient};
use super::refusal::{HandlerResult, Refusal};
use crate::app::access::{RateClient, ShownToken};
use crate::app::rate_limit::RateDecision;
use crate::app::{App, access, counts, now};
use crate::store::{self, audit::AuditRow};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, web};
use apportion_wire::Scope;
use serde::Serialize;
use serde_json::Value;
use std::future::{Ready, ready};
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// The client of a request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Principal {
    /// Its name: that of its token, `admin-token`, `agents`, or `loopback` without a token.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// The only project that it may use; null if it may use all.
    pub project: Option<String>,
    /// Its token; null if it is none of the table.
    pub token: Option<Uuid>,
}

impl Principal {
    /// The project whose resources a list shows: the one of the client, or else the one that it asks for.
    ///
    /// # Errors
    /// 404 if the client asks for another project than its own.
    pub(super) fn listed_project(&self, asked: Option<String>) -> Result<Option<String>, Refusal> {
        match (self.project.clone(), asked) {
            (Some(own), Some(asked)) if own != asked => Err(Refusal::not_found(format!("project {asked}"))),
            (own, asked) => Ok(own.or(asked)),
        }
    }

    /// Keeps the project of a bound client until the transaction ends: what the client makes is of this project.
    ///
    /// # Errors
    /// 409 if the project was deleted after the client was admitted.
    pub(super) async fn keep_project(&self, db: &mut store::PgConnection) -> Result<(), Refusal> {
        match &self.project {
            Some(project) if !store::projects::keep(db, project).await? => {
                Err(Refusal::new(StatusCode::CONFLICT, format!("project {project} was deleted")))
            }
            _ => Ok(()),
        }
    }
}

impl FromRequest for Principal {
    type Error = Refusal;
    type Future = Ready<Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let found = request.extensions().get::<Self>().cloned();
        ready(found.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "the request has no client")))
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/access").route(web::get().to(get)));
}

/// The client of this request, and what it may do.
#[utoipa::path(get, path = "/v1/access", tag = "access", operation_id = "get_access",
    responses((status = 200, description = "The client.", body = Principal)))]
pub async fn get(client: Principal) -> HandlerResult {
    Ok(HttpResponse::Ok().json(client))
}

/// The scope that an operation needs; `None`: it is open to everybody. `pattern` is the path of its resource.
///
/// A path without a resource needs any token, so that strangers learn nothing from the answer. A write there needs `admin`.
#[must_use]
pub fn needed_scope(method: &Method, pattern: Option<&str>) -> Option<Scope> {
    let is_read = method.is_safe();
    let Some(pattern) = pattern else { return Some(if is_read { Scope::Agent } else { Scope::Admin }) };
    Some(match pattern {
        "/" | "/livez" | "/readyz" | "/openapi.json" => return None,
        _ if pattern.starts_with("/page/") || pattern.starts_with("/docs") => return None,
        "/v1/access" => Scope::Agent,
        "/v1/files/{sha256}" if is_read => Scope::Agent,
        _ if ADMINISTRATION.iter().any(|resource| pattern.starts_with(resource)) => Scope::Admin,
        _ if is_read => Scope::Read,
        "/v1/agents/{number}" => Scope::Admin,
        _ if pattern.starts_with("/v1/hardware") || pattern.starts_with("/v1/projects") => Scope::Admin,
        // A planning client stores files, and other clients' pipelines may need them soon.
        "/v1/files/{sha256}" if *method == Method::DELETE => Scope::Apply,
        _ if PLANNING.contains(&pattern) => Scope::Plan,
        _ => Scope::Apply,
    })
}

/// Resources that only an administrator reads and writes.
const ADMINISTRATION: [&str; 3] = ["/v1/tokens", "/v1/audit", "/v1/webhooks"];

/// Resources that a planning client writes.
const PLANNING: [&str; 17] = [
    "/v1/comparisons",
    "/v1/comparisons/{id}",
    "/v1/comparisons/{id}/cancel",
    "/v1/files/{sha256}",
    "/v1/frontiers",
    "/v1/frontiers/{id}",
    "/v1/frontiers/{id}/cancel",
    "/v1/pipelines/{name}/demand",
    "/v1/pipelines/{name}/deployment",
    "/v1/plans",
    "/v1/plans/{id}",
    "/v1/plans/{id}/stop",
    "/v1/simulations",
    "/v1/simulations/{id}",
    "/v1/simulations/{id}/cancel",
    "/v1/traces",
    "/v1/traces/{id}",
];

/// Measurements that clients send all the time. The audit leaves them out.
const MEASUREMENTS: [&str; 2] = ["/v1/pipelines/{name}/demand", "/v1/pipelines/{name}/deployment"];

/// Lets a request through if its client may call the operation, and writes changes to the audit.
pub async fn check_access(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let app = request.app_data::<web::Data<App>>().expect("the server gives every request its app").clone();
    // The router's own text: it decodes `%74arget`, and the request's path does not.
    let pattern = request.resource_map().match_pattern(request.match_info().as_str());
    let needed = needed_scope(request.method(), pattern.as_deref());
    let client = match admit(&app, request.headers(), needed).await {
        Ok(client) => client,
        Err(refusal) => {
            let peer = request.peer_addr().map_or_else(String::new, |peer| peer.to_string());
            tracing::warn!(peer, status = refusal.status, path = request.path(), why = refusal.detail, "request refused");
            return Ok(request.into_response(refused(&refusal)));
        }
    };
    if has_rate_limit(request.method(), pattern.as_deref())
        && let Some(counted) = rate_client(&client)
        && let RateDecision::Refused { retry_after } = app.access.rates.take(counted)
    {
        counts::OVER_RATE.increment();
        tracing::debug!(client = client.name, path = request.path(), "too many requests");
        return Ok(request.into_response(over_rate(&client, retry_after)));
    }
    let entry = audit_entry(&request, &client, pattern.as_deref());
    let mut pending = entry.map(|entry| {
        let resource = AuditedResource::of(request.match_info().as_str(), pattern.as_deref().unwrap_or_default());
        PendingEntry { app: (**app).clone(), entry: Some(entry), resource }
    });
    let response = match check_client(&app, &client, &request, needed, pattern.as_deref()).await {
        Ok(()) => {
            if let Some(pending) = &mut pending {
                pending.look_before().await;
            }
            request.extensions_mut().insert(client);
            next.call(request).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(refusal) => {
            let Refusal { status, detail: why, .. } = &refusal;
            tracing::warn!(client = client.name, path = request.path(), status, why, "request of a client refused");
            Ok(request.into_response(refused(&refusal)))
        }
    };
    if let Some(pending) = pending {
        let status = match &response {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        pending.note(status).await;
    }
    response
}

/// Refuses an operation that the scope of the client, or the project of its token, does not allow.
async fn check_client(
    app: &App,
    client: &Principal,
    request: &ServiceRequest,
    needed: Option<Scope>,
    pattern: Option<&str>,
) -> Result<(), Refusal> {
    let Some(needed) = needed else { return Ok(()) };
    if !client.scope.allows(needed) {
        counts::OUT_OF_SCOPE.increment();
        let detail = format!("{} has scope {}: expected {needed}", client.name, client.scope);
        return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
    }
    match &client.project {
        Some(project) => {
            let client = BoundClient { name: &client.name, project };
            project_access::check(app, client, request, pattern).await
        }
        None => Ok(()),
    }
}

/// The status in the audit of a request whose client left before the answer.
const CLIENT_LEFT: i32 = 499;

/// The entry of a request that is not answered yet. If it is dropped before, the client has left: its request is dropped,
/// too, and may have made its change already.
struct PendingEntry {
    app: App,
    entry: Option<AuditRow>,
    /// The resource that is changed.
    resource: Option<AuditedResource>,
}

impl PendingEntry {
    /// Reads the form of the resource before the change.
    async fn look_before(&mut self) {
        let before = self.form().await;
        if let Some(entry) = &mut self.entry {
            entry.before = before;
        }
    }

    /// The present form of the resource. If the database does not answer, the entry has no forms: one alone would say that
    /// the resource was made or deleted.
    async fn form(&mut self) -> Option<Value> {
        let read = self.resource.as_ref()?.form(&self.app).await;
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "the audit has a change without the forms of its resource");
            self.resource = None;
            None
        })
    }

    /// Writes the entry of a request with this answer. Where nothing has changed, it has no forms.
    async fn note(mut self, status: StatusCode) {
        if let Some(entry) = &mut self.entry {
            entry.status = i32::from(status.as_u16());
        }
        let after = if status.is_success() { self.form().await } else { None };
        let is_known = status.is_success() && self.resource.is_some();
        if let Some(entry) = &mut self.entry {
            let before = entry.before.take();
            if is_known && before != after {
                (entry.before, entry.after) = (before, after);
            }
            note(&self.app, entry).await;
        }
        self.entry = None;
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        // Without a runtime the whole service ends.
        if let Some(mut entry) = self.entry.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Whether anything has changed is not known.
            (entry.before, entry.after) = (None, None);
            let app = self.app.clone();
            runtime.spawn(async move { note(&app, &entry).await });
        }
    }
}

/// The entry of a request in the audit, as if its client left; `None`: it changes nothing, or it is a measurement.
fn audit_entry(request: &ServiceRequest, client: &Principal, pattern: Option<&str>) -> Option<AuditRow> {
    let is_audited = !request.method().is_safe()
        && pattern.is_some_and(|pattern| pattern.starts_with("/v1/") && !MEASUREMENTS.contains(&pattern));
    is_audited.then(|| AuditRow {
        id: Uuid::now_v7(),
        number: None,
        made_at: now(),
        who: client.name.clone(),
        token: client.token,
        method: request.method().to_string(),
        path: request.path().to_owned(),
        status: CLIENT_LEFT,
        why: audited::why(request.headers()),
        before: None,
        after: None,
    })
}

/// Whether the requests of an operation count for the limit of their client. Probes and scrapes are always answered, and so
/// is an operation that is open to everybody: it has no client.
#[must_use]
pub fn has_rate_limit(method: &Method, pattern: Option<&str>) -> bool {
    pattern != Some("/metrics") && needed_scope(method, pattern).is_some()
}

/// The client that a request counts for; `None` for agents: they fetch the files that they must load.
fn rate_client(client: &Principal) -> Option<RateClient> {
    match client.token {
        Some(token) => Some(RateClient::Token(token)),
        None if client.scope == Scope::Agent => None,
        None => Some(RateClient::Named(client.name.clone())),
    }
}

/// The refusal of a client that has sent too many requests.
fn over_rate(client: &Principal, retry_after: Duration) -> HttpResponse {
    let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
    let detail = format!("{} has sent too many requests: try again in {seconds} s", client.name);
    let mut response = Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail).error_response();
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    response
}

fn refused(refusal: &Refusal) -> HttpResponse {
    let mut response = refusal.error_response();
    if refusal.status == StatusCode::UNAUTHORIZED.as_u16() {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    response
}

async fn note(app: &App, entry: &AuditRow) {
    let noted = async { store::audit::insert(&mut *app.pool.acquire().await?, entry).await };
    if let Err(error) = noted.await {
        let AuditRow { who, method, path, status, .. } = entry;
        tracing::error!(%error, who, method, path, status, "the audit could not be written");
    }
}

/// The client of a request, or why it has none.
async fn admit(app: &App, headers: &HeaderMap, needed: Option<Scope>) -> Result<Principal, Refusal> {
    let Some(credential) = headers.get(header::AUTHORIZATION) else {
        return without_token(app, headers, needed);
    };
    let token = credential.to_str().ok().and_then(bearer).unwrap_or_default();
    let found = identify(app, token).await?;
    found.ok_or_else(|| {
        counts::WRONG_TOKEN.increment();
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "the token is unknown, expired or revoked: expected Authorization: Bearer TOKEN with one of GET /v1/tokens",
        )
    })
}

/// The token of `Bearer TOKEN`.
fn bearer(credential: &str) -> Option<&str> {
    let (scheme, token) = credential.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn without_token(app: &App, headers: &HeaderMap, needed: Option<Scope>) -> Result<Principal, Refusal> {
    if needed.is_none() {
        // An open operation has no client who could do more. Probes may name the service as they like.
        return Ok(unbound("anonymous", Scope::Agent));
    }
    if app.access.is_token_required {
        counts::WITHOUT_TOKEN.increment();
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "expected a token: Authorization: Bearer TOKEN"));
    }
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    if !app.access.is_own_host(host) {
        counts::OTHER_SITE.increment();
        let detail = format!(
            "Host: {host:?} is no name of this service: expected localhost, a loopback address, or a name of --allow-host"
        );
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
        if !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
            counts::OTHER_SITE.increment();
            let detail = format!("Origin: {origin:?} is another site than {host}: expected the service's own page");
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
    }
    Ok(unbound("loopback", Scope::Admin))
}

/// A client without a token of the table.
fn unbound(name: &str, scope: Scope) -> Principal {
    Principal { name: name.to_owned(), scope, project: None, token: None }
}

/// The client with this token; `None` if the token does not count.
async fn identify(app: &App, token: &str) -> Result<Option<Principal>, Refusal> {
    let digest = access::digest(token);
    if app.access.admin == Some(digest) {
        return Ok(Some(unbound("admin-token", Scope::Admin)));
    }
    if app.access.agent == digest {
        return Ok(Some(unbound("agents", Scope::Agent)));
    }
    let Some(shown) = ShownToken::read(token) else { return Ok(None) };
    let place = app.access.lookups.acquire().await.expect("nobody closes it");
    let row = store::tokens::get(&mut *app.pool.acquire().await?, shown.id).await?;
    drop(place);
    let is_valid = |row: &store::tokens::TokenRow| {
        row.digest == shown.digest && row.revoked_at.is_none() && row.expires_at.is_none_or(|end| end > now())
    };
    let client = |row: store::tokens::TokenRow| Principal {
        name: row.name,
        scope: row.scope,
        project: row.project,
        token: Some(row.id),
    };
    Ok(row.filter(is_valid).map(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_operation_needs_its_scope() {
        let needed = |method: Method, pattern: &str| needed_scope(&method, Some(pattern));
        assert_eq!(needed(Method::GET, "/livez"), None);
        assert_eq!(needed(Method::GET, "/page/{version}/{name:.*}"), None);
        assert_eq!(needed(Method::GET, "/v1/target"), Some(Scope::Read));
        assert_eq!(needed(Method::HEAD, "/v1/files/{sha256}"), Some(Scope::Agent));
        assert_eq!(needed(Method::PUT, "/v1/files/{sha256}"), Some(Scope::Plan));
        assert_eq!(needed(Method::DELETE, "/v1/files/{sha256}"), Some(Scope::Apply));
        assert_eq!(needed(Method::DELETE, "/v1/traces/{id}"), Some(Scope::Plan));
        assert_eq!(needed(Method::DELETE, "/v1/agents/{number}"), Some(Scope::Admin));
        assert_eq!(needed(Method::GET, "/v1/agents"), Some(Scope::Read));
        assert_eq!(needed(Method::GET, "/v1/plans/{id}/explanation"), Some(Scope::Read));
        assert_eq!(needed(Method::GET, "/v1/plans/{id}/diff"), Some(Scope::Read));
        assert_eq!(needed(Method::POST, "/v1/plans"), Some(Scope::Plan));
        assert_eq!(needed(Method::POST, "/v1/plans/{id}/stop"), Some(Scope::Plan));
        assert_eq!(needed(Method::POST, "/v1/frontiers"), Some(Scope::Plan));
        assert_eq!(needed(Method::POST, "/v1/simulations/{id}/cancel"), Some(Scope::Plan));
        assert_eq!(needed(Method::GET, "/v1/comparisons/{id}"), Some(Scope::Read));
        assert_eq!(needed(Method::PUT, "/v1/target"), Some(Scope::Apply));
        assert_eq!(needed(Method::DELETE, "/v1/pipelines/{name}"), Some(Scope::Apply));
        assert_eq!(needed(Method::PUT, "/v1/hardware/{name}"), Some(Scope::Admin));
        assert_eq!(needed(Method::PUT, "/v1/projects/{name}"), Some(Scope::Admin));
        assert_eq!(needed(Method::GET, "/v1/projects/{name}"), Some(Scope::Read));
        assert_eq!(needed(Method::GET, "/v1/tokens"), Some(Scope::Admin));
        assert_eq!(needed(Method::GET, "/v1/audit"), Some(Scope::Admin));
        assert_eq!(needed(Method::GET, "/v1/webhooks/{name}"), Some(Scope::Admin));
        assert_eq!(needed(Method::PUT, "/v1/webhooks/{name}"), Some(Scope::Admin));
        assert_eq!(needed(Method::POST, "/v1/new-things"), Some(Scope::Apply), "an operation that nobody has listed");
        assert_eq!(needed_scope(&Method::GET, None), Some(Scope::Agent), "a path that nothing answers");
        assert_eq!(needed_scope(&Method::PUT, None), Some(Scope::Admin));
    }

    #[test]
    fn probes_and_scrapes_have_no_rate_limit() {
        for free in ["/livez", "/readyz", "/metrics", "/page/{version}/{name:.*}"] {
            assert!(!has_rate_limit(&Method::GET, Some(free)), "{free}");
        }
        for limited in [Some("/v1/plans"), Some("/v1/access"), None] {
            assert!(has_rate_limit(&Method::GET, limited), "{limited:?}");
        }
    }

    #[test]
    fn agents_are_not_counted() {
        let client = |scope, token| Principal { token, ..unbound("x", scope) };
        assert_eq!(rate_client(&client(Scope::Agent, None)), None);
        let id = Uuid::now_v7();
        assert_eq!(rate_client(&client(Scope::Agent, Some(id))), Some(RateClient::Token(id)));
        assert_eq!(rate_client(&client(Scope::Admin, None)), Some(RateClient::Named("x".into())));
    }

    #[test]
    fn a_bound_client_lists_its_own_project() {
        let client = |project: Option<&str>| Principal { project: project.map(str::to_owned), ..unbound("x", Scope::Read) };
        let listed = |own: Option<&str>, asked: Option<&str>| {
            client(own).listed_project(asked.map(str::to_owned)).map_err(|refusal| refusal.status)
        };
        assert_eq!(listed(None, None), Ok(None));
        assert_eq!(listed(None, Some("a")), Ok(Some("a".into())));
        assert_eq!(listed(Some("a"), None), Ok(Some("a".into())));
        assert_eq!(listed(Some("a"), Some("a")), Ok(Some("a".into())));
        assert_eq!(listed(Some("a"), Some("b")), Err(404));
    }

    #[test]
    fn a_bearer_token_is_found_in_any_case() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("abc"), None);
    }
}
