//! How is the answer to a request of a test read?

use serde_json::Value;

/// The JSON of an answer, which must be a success; null if it has another form.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.expect("the service answers");
    let (url, status) = (response.url().clone(), response.status());
    let text = response.text().await.expect("a whole answer");
    assert!(status.is_success(), "{url}: {status}: {text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}
