//! How does a browser get the page at `/`?
//!
//! The page itself is asked for again each time, by its entity tag. The path of its other files has their version, so a
//! browser keeps them.

use super::refusal::{HandlerResult, Refusal};
use actix_web::http::header::{self, Header as _, IfNoneMatch};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_page::Asset;

/// How long a browser keeps the files of one version: a year.
const KEEP: &str = "public, max-age=31536000, immutable";
/// The page's own rule: keep it, and ask each time whether it is the newest.
const ASK_AGAIN: &str = "no-cache";

/// The routes of the page.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/").route(web::get().to(index)).route(web::head().to(index)))
        .service(web::resource("/page/{version}/{name:.*}").route(web::get().to(file)).route(web::head().to(file)));
}

async fn index(request: HttpRequest) -> HttpResponse {
    answer(&request, apportion_page::index(), ASK_AGAIN)
}

async fn file(request: HttpRequest, path: web::Path<(String, String)>) -> HandlerResult {
    let (version, name) = path.into_inner();
    let missing = || Refusal::not_found(format!("{name} of version {version} of the page"));
    let found = apportion_page::asset(&name).filter(|_| version == apportion_page::version());
    Ok(answer(&request, found.ok_or_else(missing)?, KEEP))
}

fn answer(request: &HttpRequest, asset: &'static Asset, caching: &'static str) -> HttpResponse {
    let is_known = IfNoneMatch::parse(request).is_ok_and(|known| match known {
        IfNoneMatch::Any => false,
        IfNoneMatch::Items(tags) => tags.iter().any(|tag| format!("\"{}\"", tag.tag()) == asset.tag),
    });
    let mut response = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response
        .insert_header((header::ETAG, asset.tag.as_str()))
        .insert_header((header::CACHE_CONTROL, caching))
        .insert_header((header::VARY, "Accept-Encoding"))
        .insert_header((header::CONTENT_SECURITY_POLICY, apportion_page::SECURITY_POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"));
    if is_known {
        return response.finish();
    }
    response.content_type(asset.media_type);
    if takes_gzip(request) {
        return response.insert_header((header::CONTENT_ENCODING, "gzip")).body(asset.gzip.as_slice());
    }
    response.body(asset.plain.as_slice())
}

/// Whether the client names gzip, and does not refuse it by a weight of 0.
fn takes_gzip(request: &HttpRequest) -> bool {
    let values = request.headers().get_all(header::ACCEPT_ENCODING).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|p| p.strip_prefix("q=")?.parse::<f64>().ok());
        is_gzip && weight.unwrap_or(1.0) > 0.0
    })
}
