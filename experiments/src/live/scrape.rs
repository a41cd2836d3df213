//! What do the metrics of an agent say? Samples of the OpenMetrics text format.

use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Why a page of metrics cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// A line is no sample.
    #[error("line {line} of the metrics: {text:?}: expected NAME NUMBER or NAME{{LABEL=\"VALUE\",..}} NUMBER")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// The name, with the suffix of counters and histograms.
    pub name: String,
    /// Values of its labels, by their names.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl MetricSample {
    /// The value of a label; empty without it.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// From a line.
    fn parse(line: &str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        // A timestamp may follow.
        let value = rest.strip_prefix(' ')?.split_whitespace().next()?.parse().ok()?;
        (!name.is_empty()).then(|| Self { name: name.to_owned(), labels, value })
    }
}

/// Labels up to the closing brace, and the text that follows it.
fn parse_labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, value) = rest.split_once("=\"")?;
        let (mut text, mut characters) = (String::new(), value.char_indices());
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => text.push(other),
            }
        };
        labels.insert(name.to_owned(), text);
        rest = &value[end + 1..];
        if !rest.starts_with('}') {
            rest = rest.strip_prefix(',')?;
        }
    }
}

/// All samples of a page. Comments and empty lines are left out.
///
/// # Errors
/// [`ScrapeError::Line`] with the first line that is no sample.
pub fn read_samples(page: &str) -> Result<Vec<MetricSample>, ScrapeError> {
    let lines = (1..).zip(page.lines()).filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    let read = |(line, text): (usize, &str)| {
        MetricSample::parse(text).ok_or_else(|| ScrapeError::Line { line, text: text.to_owned() })
    };
    lines.map(read).collect()
}

/// The metrics of the agent with this ingress (`host:port`).
///
/// # Errors
/// If it does not answer, or answers with something else.
pub async fn scrape_agent(ingress: &str) -> Result<Vec<MetricSample>> {
    let url = format!("http://{ingress}/metrics");
    let page = reqwest::get(&url).await.with_context(|| format!("asking {url}"))?.error_for_status()?.text().await?;
    read_samples(&page).with_context(|| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_names_labels_and_values() {
        let page = "# HELP m Help.\n# TYPE m counter\n\
                    m_total{a=\"1\",b=\"x\\\"y\\\\z\\n\"} 2.5\nn 7 1600000000\no{} +Inf\n# EOF\n";
        let samples = read_samples(page).expect("a page");
        let of = |at: usize| (samples[at].name.as_str(), samples[at].label("a"), samples[at].label("b"), samples[at].value);
        assert_eq!(samples.len(), 3);
        assert_eq!(of(0), ("m_total", "1", "x\"y\\z\n", 2.5));
        assert_eq!((of(1), of(2)), (("n", "", "", 7.0), ("o", "", "", f64::INFINITY)));
    }

    #[test]
    fn malformed_lines_are_named() {
        let lines =
            ["m", "m{a=\"1\"", "m{a=\"1} 2", "m{a=1} 2", "m{a=\"1\"b=\"2\"} 3", "m x", "{a=\"1\"} 2", "m{a=\"1\"}2", " 2"];
        for text in lines {
            let error = read_samples(&format!("n 1\n{text}\n")).expect_err(text);
            assert_eq!(error, ScrapeError::Line { line: 2, text: text.to_owned() });
            assert!(error.to_string().contains("expected NAME"), "{error}");
        }
    }
}
