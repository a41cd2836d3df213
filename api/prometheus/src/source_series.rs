//! Which series does a PromQL expression read? The age of its number is the age of their newest samples.
//!
//! Example: `sum(rate(a{b="c"}[1m])) / 2` reads `a{b="c"}`. Prometheus gives the number of such an expression the moment of
//! the evaluation, even when the last scrape was a minute ago. The selectors alone have the moments of the scrapes.

/// Words that are no metrics where no parenthesis follows.
const WORDS: [&str; 14] = [
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "inf",
    "nan",
];
/// Words with a list of labels in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The selectors of an expression, each once, without ranges and offsets. Prometheus judges the expression itself: here a
/// wrong one gives any selectors.
#[must_use]
pub fn source_series(promql: &str) -> Vec<String> {
    let mut rest = promql;
    let mut found: Vec<String> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' | '`' => string_length(rest),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '[' => enclosed_length(rest, ']'),
            '{' => {
                let length = enclosed_length(rest, '}');
                add(&mut found, &rest[..length]);
                length
            }
            _ if first.is_ascii_digit() || first == '.' => word_length(rest),
            _ if is_name(first) => {
                let (length, selector) = named(rest);
                selector.into_iter().for_each(|s| add(&mut found, s));
                length
            }
            _ => first.len_utf8(),
        };
        rest = &rest[length..];
    }
    found
}

fn add(found: &mut Vec<String>, selector: &str) {
    if !found.iter().any(|s| s == selector) {
        found.push(selector.to_owned());
    }
}

/// The length of a word with what belongs to it, and the selector if it is one.
fn named(text: &str) -> (usize, Option<&str>) {
    let length = word_length(text);
    let word = text[..length].to_ascii_lowercase();
    let after = &text[length..];
    let space = after.len() - after.trim_start().len();
    let next = after[space..].chars().next();
    let is_aggregation = || {
        let next_word = after[space..].get(..word_length(&after[space..])).unwrap_or_default().to_ascii_lowercase();
        ["by", "without"].contains(&next_word.as_str())
    };
    match next {
        Some('(') if BEFORE_LABELS.contains(&word.as_str()) => {
            (length + space + enclosed_length(&after[space..], ')'), None)
        }
        Some('(') => (length, None),
        _ if WORDS.contains(&word.as_str()) || is_aggregation() => (length, None),
        Some('{') => {
            let end = length + space + enclosed_length(&after[space..], '}');
            (end, Some(&text[..end]))
        }
        _ => (length, Some(&text[..length])),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !is_name(c) && c != '.').unwrap_or(text.len()).max(usize::from(!text.is_empty()))
}

/// The length of a string with its quotes. Backticks have no escapes.
fn string_length(text: &str) -> usize {
    let quote = text.chars().next().unwrap_or_default();
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != '`' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length up to the closing character; strings inside may have it too.
fn enclosed_length(text: &str, close: char) -> usize {
    let mut at = 1;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' | '\'' | '`' => at += string_length(&text[at..]),
            _ if c == close => return at + 1,
            _ => at += c.len_utf8(),
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_found_without_functions_and_words() {
        let cases: [(&str, &[&str]); 16] = [
            ("up", &["up"]),
            ("sum(rate(a{b=\"c\"}[1m])) / 2", &["a{b=\"c\"}"]),
            ("sum by (model) (rate(a[5m])) + sum(b) without (x)", &["a", "b"]),
            ("sum(rate(a[1m])) by (x) / on (y) group_left (z) sum(c)", &["a", "c"]),
            ("a offset 5m and b @ start() or -c unless nan", &["a", "b", "c"]),
            ("job:requests:rate1m > bool 0x1f", &["job:requests:rate1m"]),
            ("{__name__=~\"a|b\", c=\"}\"}", &["{__name__=~\"a|b\", c=\"}\"}"]),
            ("rate(a {b='\\'}'} [1m])", &["a {b='\\'}'}"]),
            ("label_replace(a, \"b\", \"$1\", \"c\", \"(.*)\")", &["a"]),
            ("max_over_time(rate(a[1m])[5m:10s])", &["a"]),
            ("a # b\n+ a", &["a"]),
            ("1.5e3 + Inf", &[]),
            ("vector(60)", &[]),
            ("count by(model)(a)", &["a"]),
            ("topk(3, a) by", &["a"]),
            ("", &[]),
        ];
        for (promql, expected) in cases {
            assert_eq!(source_series(promql), expected, "{promql}");
        }
    }

    #[test]
    fn broken_expressions_end() {
        for promql in ["a{", "a{b=\"", "[", "\"", "'\\", "`\\", "é{ü", "sum(", "a[\"]", ".", "\u{0}\u{7f}"] {
            let _ = source_series(promql);
        }
    }
}
