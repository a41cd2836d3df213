//! How does a service's refusal become the failure of a command?
//!
//! Example: a pipeline file has two wrong values. The service answers that two values are refused, with a list of them. The
//! command prints a line for each.

use anyhow::anyhow;
use apportion_support::exit::Failure;
use apportion_wire::BadInput;
use reqwest::StatusCode;
use serde_json::Value;
use std::fmt::Write as _;

/// Refused values that are printed; the others are counted.
const REFUSED_PRINTED_MAX: usize = 20;

/// The failure for a refusal at a URL, by the body of the answer. A refused value is bad input.
pub fn refusal(url: &str, status: StatusCode, body: &Value) -> Failure {
    let detail = body["detail"].as_str().map_or_else(|| body.to_string(), str::to_owned);
    match status {
        StatusCode::NOT_FOUND => BadInput::one(url, "", "not found", format!("a name that is there: {detail}")).into(),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            Failure::BadInput(format!("{url}: {detail}{}", refused_values(&body["errors"])))
        }
        _ => anyhow!("{url}: {status}: {detail}").into(),
    }
}

/// A line for each refused value. A single one is in the detail already.
fn refused_values(errors: &Value) -> String {
    let mut text = String::new();
    let Some(all) = errors.as_array().filter(|all| all.len() > 1) else { return text };
    for error in all.iter().take(REFUSED_PRINTED_MAX) {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        write!(text, "\n  {}: {}", part("pointer"), part("detail")).expect("text does not fail");
    }
    if let Some(more) = all.len().checked_sub(REFUSED_PRINTED_MAX).filter(|more| *more > 0) {
        write!(text, "\n  and {more} more").expect("text does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(status: StatusCode, body: &Value) -> String {
        refusal("http://s/v1/pipelines/p", status, body).to_string()
    }

    #[test]
    fn each_refused_value_has_a_line() {
        let error = |pointer: &str| json!({"pointer": pointer, "detail": "-1: expected a number above 0"});
        let two = json!({"detail": "2 values of p are refused", "errors": [error("/slo_ms"), error("/max_qps")]});
        let expected = "http://s/v1/pipelines/p: 2 values of p are refused\n  /slo_ms: -1: expected a number above 0\n  \
                        /max_qps: -1: expected a number above 0";
        assert_eq!(said(StatusCode::UNPROCESSABLE_ENTITY, &two), expected);
        let one = json!({"detail": "p: /slo_ms: -1: expected a number above 0", "errors": [error("/slo_ms")]});
        let expected = "http://s/v1/pipelines/p: p: /slo_ms: -1: expected a number above 0";
        assert_eq!(said(StatusCode::UNPROCESSABLE_ENTITY, &one), expected);
        let many = json!({"detail": "21 values of p are refused", "errors": vec![error("/x"); REFUSED_PRINTED_MAX + 1]});
        let many = said(StatusCode::UNPROCESSABLE_ENTITY, &many);
        assert!(many.ends_with("\n  and 1 more") && many.lines().count() == REFUSED_PRINTED_MAX + 2, "{many}");
    }

    #[test]
    fn an_answer_of_another_server_is_shown_as_it_is() {
        let page = json!("<html>");
        assert_eq!(said(StatusCode::BAD_GATEWAY, &page), "http://s/v1/pipelines/p: 502 Bad Gateway: \"<html>\"");
        let missing = said(StatusCode::NOT_FOUND, &json!({"detail": "pipeline p"}));
        assert!(missing.contains("not found: expected a name that is there: pipeline p"), "{missing}");
    }
}
