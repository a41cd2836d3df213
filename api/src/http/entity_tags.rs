//! Does the client have the present form of a resource already? By the headers `ETag` and `If-None-Match` (RFC 9110).
//!
//! Example: a client has read a plan with `ETag: W/"5f1c..."`. It asks again with `If-None-Match: W/"5f1c..."`, and gets
//! 304 without a body until the plan has changed. Its tag is weak: a digest of the answer, for reading alone. The tag of a
//! model file is its own digest.
//!
//! The tag of a resource that is written with a condition is its version, for writing alone: the due times of a schedule
//! change without another version.

use crate::hex::hex;
use actix_web::HttpResponse;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, EntityTag, Header as _, HeaderValue, IfNoneMatch};
use actix_web::middleware::Next;
use sha2::{Digest, Sha256};
use utoipa::Modify;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{HeaderBuilder, Object, OpenApi, RefOr, Required, ResponseBuilder, Type};

/// Bytes of the digest in a weak tag.
const DIGEST_BYTES: usize = 16;

/// Whether the path is that of one resource. Lists have no tag.
fn is_resource(pattern: &str) -> bool {
    pattern.starts_with("/v1/") && pattern.contains('{')
}

/// Gives the answer about one resource a tag, and leaves the body out if the client has it.
pub async fn answers_have_tags(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let pattern = || request.resource_map().match_pattern(request.match_info().as_str());
    if *request.method() != Method::GET || !pattern().is_some_and(|pattern| is_resource(&pattern)) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    // A header of another form names no tag.
    let known = IfNoneMatch::parse(&request).unwrap_or(IfNoneMatch::Items(Vec::new()));
    let response = next.call(request).await?.map_into_boxed_body();
    if !response.status().is_success() {
        return Ok(response);
    }
    let (request, response) = response.into_parts();
    let (mut head, body) = response.into_parts();
    let own: Option<EntityTag> = head.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()?.parse().ok());
    let (body, tag) = match (own, body.try_into_bytes()) {
        (None, Ok(bytes)) => {
            let tag = digest_tag(&bytes);
            (BoxBody::new(bytes), Some(tag))
        }
        (Some(_version), Ok(bytes)) => (BoxBody::new(bytes), None),
        (own, Err(body)) => (body, own),
    };
    let Some(tag) = tag else { return Ok(ServiceResponse::new(request, head.set_body(body))) };
    let value = HeaderValue::from_str(&tag.to_string()).expect("a tag is visible ASCII");
    // A browser asks each time, and no other cache keeps the answer.
    let caching = HeaderValue::from_static("private, no-cache");
    if is_known(&known, &tag) {
        let mut unchanged = HttpResponse::NotModified();
        unchanged.insert_header((header::ETAG, value)).insert_header((header::CACHE_CONTROL, caching));
        return Ok(ServiceResponse::new(request, unchanged.finish()));
    }
    head.headers_mut().insert(header::ETAG, value);
    head.headers_mut().insert(header::CACHE_CONTROL, caching);
    Ok(ServiceResponse::new(request, head.set_body(body)))
}

/// A weak tag of these bytes.
fn digest_tag(bytes: &[u8]) -> EntityTag {
    let digest = Sha256::digest(bytes);
    EntityTag::new_weak(hex(&digest[..DIGEST_BYTES]))
}

/// Whether a client has the form with this tag.
fn is_known(known: &IfNoneMatch, tag: &EntityTag) -> bool {
    match known {
        IfNoneMatch::Any => true,
        IfNoneMatch::Items(tags) => tags.iter().any(|one| one.weak_eq(tag)),
    }
}

/// Describes the tags.
pub struct EntityTags;

impl Modify for EntityTags {
    fn modify(&self, description: &mut OpenApi) {
        let text = || Some(Object::with_type(Type::String));
        let tag =
            HeaderBuilder::new().schema(text()).description(Some("A digest of the answer, for `If-None-Match`.")).build();
        let unchanged = "The client has it: `If-None-Match` names its tag.";
        let asked = "Tags that the client has. If one of them is that of the resource, the answer is 304 without a body.";
        for (path, item) in &mut description.paths.paths {
            let Some(operation) = item.get.as_mut().filter(|_| is_resource(path)) else { continue };
            let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") else { continue };
            if answer.headers.contains_key("ETag") && answer.content.contains_key("application/json") {
                continue;
            }
            answer.headers.entry("ETag".into()).or_insert_with(|| RefOr::T(tag.clone()));
            let answer = ResponseBuilder::new().description(unchanged).build();
            operation.responses.responses.insert("304".into(), RefOr::T(answer));
            let parameter = ParameterBuilder::new().name("If-None-Match").parameter_in(ParameterIn::Header);
            let parameter = parameter.required(Required::False).description(Some(asked)).schema(text()).build();
            operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_that_of_the_bytes() {
        let tag = digest_tag(b"{}");
        assert_eq!(tag.to_string(), "W/\"44136fa355b3678a1146ad16f7e8649e\"");
        assert!(digest_tag(b"{ }").weak_ne(&tag) && digest_tag(b"{}").weak_eq(&tag));
    }

    #[test]
    fn a_client_may_name_several_tags_or_any() {
        let tag = EntityTag::new_strong("3".into());
        let items =
            |tags: &[&str]| IfNoneMatch::Items(tags.iter().map(|tag| EntityTag::new_weak((*tag).to_owned())).collect());
        assert!(is_known(&IfNoneMatch::Any, &tag) && is_known(&items(&["2", "3"]), &tag));
        assert!(!is_known(&items(&["2"]), &tag) && !is_known(&items(&[]), &tag));
    }

    #[test]
    fn lists_have_no_tag() {
        let resources = ["/v1/files/{sha256}", "/v1/plans/{id}", "/v1/pipelines/{name}/times"].map(is_resource);
        let others = ["/v1/plans", "/v1/events/stream", "/v1/audit/stream", "/page/{file}", "/metrics"].map(is_resource);
        assert_eq!((resources, others), ([true; 3], [false; 5]));
    }
}
