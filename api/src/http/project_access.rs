//! May a client whose token is bound to a project use this resource?
//!
//! Example: a token is bound to the project `shop`. It has the pipelines of `shop`, with their profiles and measurements,
//! and the plans, traces and schedules of `shop`. A pipeline of another project answers as one that does not exist (404).
//! Operations on the whole fleet are refused (403).
//!
//! [`check`] looks at the path of a request. Handlers compare what bodies and queries name, and leave other projects out of
//! lists. An operation that is not listed here is refused, so a new one is closed to bound tokens.

use super::body;
use super::refusal::Refusal;
use crate::app::{App, counts};
use crate::store::owners::{self, OwnedKind, Owner};
use crate::store::{self, PgConnection};
use actix_web::dev::ServiceRequest;
use actix_web::http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// The client of a bound token.
pub(super) struct BoundClient<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its project.
    pub(super) project: &'a str,
}

/// What bound tokens may do with an operation, if their scope allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The same as unbound ones. Its handler leaves other projects out.
    Open,
    /// It, if the resource in the path is of their project.
    Own(OwnedKind),
    /// Nothing.
    Closed,
}

/// Resources of projects, by the begin of their patterns.
const OWNED: [(&str, OwnedKind); 4] = [
    ("/v1/pipelines/{name}", OwnedKind::Pipeline),
    ("/v1/plans/{id}", OwnedKind::Plan),
    ("/v1/traces/{id}", OwnedKind::Trace),
    ("/v1/schedules/{name}", OwnedKind::Schedule),
];

/// What bound tokens may do with an operation. `pattern` is the path of its resource.
fn reach(method: &Method, pattern: Option<&str>) -> Reach {
    let Some(pattern) = pattern else { return Reach::Open };
    match pattern {
        "/v1/access" | "/v1/pipelines" | "/v1/plans" | "/v1/traces" | "/v1/schedules" => Reach::Open,
        "/v1/tokens" | "/v1/tokens/{id}" => Reach::Open,
        "/v1/hardware" | "/v1/hardware/{name}" if method.is_safe() => Reach::Open,
        // The digest of a file is known to those who have it, or have a pipeline with it.
        "/v1/files/{sha256}" if *method != Method::DELETE => Reach::Open,
        "/v1/projects/{name}" if method.is_safe() => Reach::Own(OwnedKind::Project),
        _ => {
            OWNED.iter().find(|(begin, _)| pattern.starts_with(begin)).map_or(Reach::Closed, |(_, kind)| Reach::Own(*kind))
        }
    }
}

/// Whether the operation may make the resource that its path names.
fn may_create(method: &Method, pattern: &str) -> bool {
    *method == Method::PUT && matches!(pattern, "/v1/pipelines/{name}" | "/v1/schedules/{name}")
}

/// Refuses a request for another project or for the whole fleet.
///
/// # Errors
/// 403 for the whole fleet, and for a name that another project has; 404 for any other resource of another project.
pub(super) async fn check(
    app: &App,
    client: BoundClient<'_>,
    request: &ServiceRequest,
    pattern: Option<&str>,
) -> Result<(), Refusal> {
    let BoundClient { name, project } = client;
    let (method, pattern_text) = (request.method(), pattern.unwrap_or_default());
    let kind = match reach(method, pattern) {
        Reach::Open => return Ok(()),
        Reach::Own(kind) => kind,
        Reach::Closed => {
            counts::OUT_OF_SCOPE.increment();
            let detail = format!("{name} is bound to project {project}: this operation is for all projects");
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
    };
    let key = key_in(request.match_info().as_str(), pattern_text);
    if kind.has_name() {
        body::name(&key)?;
    }
    let owner = owners::owner_of(&mut *app.pool.acquire().await?, kind, &key).await?;
    match owner {
        owner if owner.is_project(project) => Ok(()),
        Owner::Missing if may_create(method, pattern_text) => Ok(()),
        _ if may_create(method, pattern_text) => {
            counts::OUT_OF_SCOPE.increment();
            Err(Refusal::new(StatusCode::FORBIDDEN, format!("{} {key} is not of project {project}", kind.name())))
        }
        _ => Err(Refusal::not_found(format!("{} {key}", kind.name()))),
    }
}

/// The value of the first parameter of a pattern that the path matches, as handlers read it. Each parameter is a whole
/// segment.
pub(super) fn key_in(path: &str, pattern: &str) -> String {
    let raw = pattern.split('/').zip(path.split('/')).find_map(|(part, value)| part.starts_with('{').then_some(value));
    percent_decode_str(raw.unwrap_or_default()).decode_utf8_lossy().into_owned()
}

/// Whether a request may name this resource: it is of the client's project, or the client has all projects.
///
/// # Errors
/// The database's.
pub(super) async fn may_name(
    db: &mut PgConnection,
    project: Option<&str>,
    kind: OwnedKind,
    key: &str,
) -> store::Result<bool> {
    match project {
        Some(project) => Ok(owners::owner_of(db, kind, key).await?.is_project(project)),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_operations_are_closed_to_bound_tokens() {
        let of = |method: Method, pattern: &str| reach(&method, Some(pattern));
        for (method, pattern) in [
            (Method::GET, "/v1/target"),
            (Method::PUT, "/v1/target"),
            (Method::GET, "/v1/new-things/{name}"),
            (Method::PUT, "/v1/hardware/{name}"),
            (Method::PUT, "/v1/projects/{name}"),
            (Method::DELETE, "/v1/files/{sha256}"),
            (Method::GET, "/v1/pipelines-of-all"),
        ] {
            assert_eq!(of(method, pattern), Reach::Closed, "{pattern}");
        }
        assert_eq!(of(Method::POST, "/v1/plans/{id}/stop"), Reach::Own(OwnedKind::Plan));
        assert_eq!(of(Method::GET, "/v1/pipelines/{name}/anything"), Reach::Own(OwnedKind::Pipeline));
        assert_eq!(of(Method::GET, "/v1/projects/{name}"), Reach::Own(OwnedKind::Project));
        assert_eq!((of(Method::GET, "/v1/hardware"), of(Method::POST, "/v1/plans")), (Reach::Open, Reach::Open));
        assert_eq!(reach(&Method::PUT, None), Reach::Open, "a path that nothing answers");
    }

    #[test]
    fn keys_are_read_as_handlers_read_them() {
        let pattern = "/v1/pipelines/{name}/hold";
        for (path, key) in [
            ("/v1/pipelines/photos/hold", "photos"),
            ("/v1/pipelines/a%2Fb/hold", "a/b"),
            ("/v1/pipelines/a%20b%C3%A4/hold", "a b\u{e4}"),
            ("/v1/pipelines/50%/hold", "50%"),
        ] {
            assert_eq!(key_in(path, pattern), key, "{path}");
        }
        let id = "0190a5c2-7e1b-7000-8000-000000000000";
        assert_eq!(key_in(&format!("/v1/plans/{id}/stop"), "/v1/plans/{id}/stop"), id);
    }
}
