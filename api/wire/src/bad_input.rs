//! What is wrong with an input? The file, and for each refused value its place, the value and what would be right.

use apportion_domain::{Invalid, Invalids};
use std::fmt;

/// Most refused values that are printed. The others are counted.
pub const PROBLEMS_PRINTED_MAX: usize = 20;
/// Longest value that is quoted in an error, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;

/// An input that was refused.
///
/// `Display` prints one line for each refused value, `file: /pointer: value: expected ...`, at most
/// [`PROBLEMS_PRINTED_MAX`] of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadInput {
    /// Name of the file, or another name by which its sender knows the input.
    pub file: String,
    /// All refused values, at least one. In text formats without pointers the place is `line 17`.
    pub problems: Vec<Invalid>,
}

impl BadInput {
    /// A single refusal.
    pub fn one(file: &str, pointer: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problems: vec![Invalid::new(pointer, value, expected)] }
    }

    /// All values of `file` that the domain refuses.
    #[must_use]
    pub fn refused(file: &str, invalids: Invalids) -> Self {
        Self { file: file.to_owned(), problems: invalids.0 }
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.problems.iter().take(PROBLEMS_PRINTED_MAX).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            if p.pointer.is_empty() {
                write!(f, "{}: {}: expected {}", self.file, p.value, p.expected)?;
            } else {
                write!(f, "{}: {p}", self.file)?;
            }
        }
        match self.problems.len().saturating_sub(PROBLEMS_PRINTED_MAX) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

/// A value as an error shows it: scalars as they are, collections by their size.
pub(crate) fn shown(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(keys) => format!("an object of {} keys", keys.len()),
        scalar => clipped(&scalar.to_string()),
    }
}

/// Text cut to a length that fits an error line.
pub(crate) fn clipped(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The known names that the writer of `name` may have meant, in words: the nearest if one is near, else all of them.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    near_named("", name, known)
}

/// The known names that the writer of `name` may have meant, in words. `what` is the kind of the names, for example `key`.
pub fn near_named<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// A name with at least this similarity (Jaro-Winkler) is taken for a slip.
    const NEAR: f64 = 0.75;
    const LISTED_MAX: usize = 16;
    let (one, many) =
        if what.is_empty() { (String::new(), String::new()) } else { (format!("the {what} "), format!("the {what}s ")) };
    let score = |k: &str| strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase());
    let scored = known.clone().map(|k| (k, score(k))).filter(|(_, score)| *score >= NEAR);
    if let Some((best, _)) = scored.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
        return format!("{one}{best:?}");
    }
    let count = known.clone().count();
    let listed: Vec<_> = known.take(LISTED_MAX).map(|k| format!("{k:?}")).collect();
    match (count, count.saturating_sub(LISTED_MAX)) {
        (0, _) => format!("no {what}: none is listed"),
        (1, _) => format!("{one}{}", listed.concat()),
        (_, 0) => format!("one of {many}{}", listed.join(", ")),
        (_, more) => format!("one of {many}{} and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_problems_is_counted_not_printed() {
        let problems = (0..10_000).map(|i| Invalid::new(format!("/{i}"), i, "less")).collect();
        let text = BadInput { file: "f".into(), problems }.to_string();
        assert_eq!(text.lines().count(), PROBLEMS_PRINTED_MAX + 1);
        assert!(text.ends_with("f: and 9980 more"), "{text}");
    }

    #[test]
    fn a_slip_gets_the_nearest_name() {
        let known = ["slo_ms", "demand_qps"];
        assert_eq!(near("slo", known.into_iter()), "\"slo_ms\"");
        assert_eq!(near("zzz", known.into_iter()), "one of \"slo_ms\", \"demand_qps\"");
    }
}
