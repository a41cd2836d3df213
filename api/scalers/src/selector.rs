//! Which groups does a label selector of Kubernetes choose?
//!
//! Example: `pipeline=photos,variant in (find-l,find-s)`. Equality, sets and existence are all of the language.

use crate::limits::REQUIREMENTS_MAX;

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// All conditions of a selector. Without one, every group is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("labelSelector {found:?}: expected {expected}")]
pub(crate) struct SelectorError {
    found: String,
    expected: String,
}

impl SelectorError {
    fn new(found: &str, expected: impl Into<String>) -> Self {
        Self { found: found.chars().take(100).collect(), expected: expected.into() }
    }
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// If a part is no condition.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let parts = parts(text).into_iter().map(str::trim).filter(|part| !part.is_empty());
        let requirements: Vec<_> = parts.map(requirement).collect::<Result<_, _>>()?;
        if requirements.len() > REQUIREMENTS_MAX {
            let expected = format!("at most {REQUIREMENTS_MAX} conditions, not {}", requirements.len());
            return Err(SelectorError::new(text, expected));
        }
        Ok(Self(requirements))
    }

    /// Whether a group has these labels. `label` gives the value of a name.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.iter().any(|v| v == value)),
            // Kubernetes chooses objects without the label too.
            Requirement::NotIn(key, values) => label(key).is_none_or(|value| values.iter().all(|v| v != value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        })
    }
}

/// The parts between the commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let one = |key: &str, value: &str| Ok((name(part, key)?, vec![name(part, value)?]));
    if let Some((key, value)) = part.split_once("!=") {
        return one(key, value).map(|(key, values)| Requirement::NotIn(key, values));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return one(key, value).map(|(key, values)| Requirement::In(key, values));
    }
    if let Some((head, list)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let mut words = head.split_whitespace();
        let (key, word) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let values = list.split(',').map(|value| name(part, value)).collect::<Result<Vec<_>, _>>()?;
        return match (word, words.next()) {
            ("in", None) => Ok(Requirement::In(name(part, key)?, values)),
            ("notin", None) => Ok(Requirement::NotIn(name(part, key)?, values)),
            _ => Err(SelectorError::new(part, "KEY in (VALUE,VALUE) or KEY notin (VALUE,VALUE)")),
        };
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(name(part, key)?)),
        None => Ok(Requirement::Exists(name(part, part)?)),
    }
}

/// A key or a value: letters, digits and `-_./`.
fn name(part: &str, text: &str) -> Result<String, SelectorError> {
    let text = text.trim();
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match !text.is_empty() && text.chars().all(is_known) {
        true => Ok(text.to_owned()),
        false => Err(SelectorError::new(part, "KEY=VALUE, KEY!=VALUE, KEY in (VALUE), KEY notin (VALUE), KEY or !KEY")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_choose_as_kubernetes_does() {
        let label = |key: &str| match key {
            "pipeline" => Some("photos"),
            "variant" => Some("find-l"),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("pipeline=photos", true),
            ("pipeline==photos, variant = find-l", true),
            ("pipeline=photos,variant=find-s", false),
            ("variant!=find-s", true),
            ("colour!=red", true),
            ("variant in (find-l, find-s),pipeline", true),
            ("variant notin (find-l,find-s)", false),
            ("!colour", true),
            ("!pipeline", false),
            ("colour", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(selector.matches(label), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let many = vec!["a=b"; REQUIREMENTS_MAX + 1].join(",");
        for text in ["=", "a=", "=b", "a in", "a in b", "a in ()", "a of (b)", "a b", "!", "a=b c", "a in (b", "é=b", &many]
        {
            let said = LabelSelector::parse(text).expect_err(text).to_string();
            assert!(said.contains("labelSelector") && said.contains("expected"), "{said}");
        }
    }
}
