//! The page comes from the binary, with its cache tags and its security policy.

use crate::support::{Service, service};
use reqwest::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH};

async fn get(s: &Service, path: &str, headers: &[(reqwest::header::HeaderName, &str)]) -> reqwest::Response {
    let request = s.client.get(format!("{}{path}", s.base));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, *value));
    request.send().await.expect("an answer")
}

fn header(response: &reqwest::Response, name: impl reqwest::header::AsHeaderName) -> String {
    response.headers().get(name).map_or_else(String::new, |value| value.to_str().expect("text").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_its_files_are_served() {
    let s = service().await;
    let page = get(&s, "/", &[]).await;
    assert_eq!((page.status().as_u16(), header(&page, CONTENT_TYPE).as_str()), (200, "text/html; charset=utf-8"));
    let policy = header(&page, "content-security-policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(
        (header(&page, CACHE_CONTROL).as_str(), header(&page, "x-content-type-options").as_str()),
        ("no-cache", "nosniff")
    );
    let text = page.text().await.expect("text");
    let files: Vec<&str> = text.split('"').filter(|part| part.starts_with("page/")).collect();
    assert!(files.iter().any(|file| file.ends_with("/app.js")) && files.len() > 4, "{files:?}");
    for file in files {
        let answer = get(&s, &format!("/{file}"), &[]).await;
        assert_eq!(answer.status(), 200, "{file}");
        assert!(header(&answer, CACHE_CONTROL).contains("immutable"), "{file}");
    }
    let head = s.client.head(format!("{}/", s.base)).send().await.expect("an answer");
    assert_eq!(head.status(), 200);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_page_is_not_sent_again() {
    let s = service().await;
    let tag = header(&get(&s, "/", &[]).await, ETAG);
    for (known, status) in [(tag.as_str(), 304), ("\"other\"", 200), (&format!("\"other\", W/{tag}"), 304)] {
        assert_eq!(get(&s, "/", &[(IF_NONE_MATCH, known)]).await.status(), status, "{known}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_compressed_for_clients_that_say_so() {
    let s = service().await;
    let path = format!("/page/{}/vendor/uplot/uPlot.esm.js", apportion_page::version());
    let plain = get(&s, &path, &[]).await.bytes().await.expect("bytes").len();
    for (accepted, coding) in
        [("gzip, deflate, br", "gzip"), ("br;q=1.0, GZIP;q=0.5", "gzip"), ("gzip;q=0", ""), ("br", "")]
    {
        let answer = get(&s, &path, &[(ACCEPT_ENCODING, accepted)]).await;
        assert_eq!(header(&answer, CONTENT_ENCODING), coding, "{accepted}");
        let bytes = answer.bytes().await.expect("bytes").len();
        assert_eq!(bytes < plain / 2, coding == "gzip", "{accepted}: {bytes} of {plain} bytes");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_of_the_page_is_not_found() {
    let s = service().await;
    let version = apportion_page::version();
    let paths = [
        format!("/page/{version}/nothing.js"),
        "/page/0123456789abcdef/app.js".to_owned(),
        format!("/page/{version}/../../etc/passwd"),
        format!("/page/{version}/%2e%2e/%2e%2e/etc/passwd"),
        format!("/page/{version}/"),
    ];
    for path in paths {
        let answer = get(&s, &path, &[]).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, CONTENT_TYPE).as_str()),
            (404, "application/problem+json"),
            "{path}"
        );
    }
    s.running.stop().await;
}
