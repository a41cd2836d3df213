//! Which name does a thing get where only some characters are allowed?
//!
//! A name that is allowed already stays. Any other gets the first eight digits of its SHA-256 at its end, and so do names
//! that would become equal. A name therefore depends on nothing but the set of raw names.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a system allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A label of DNS as Services of Kubernetes need it (RFC 1035): `a-z`, `0-9` and `-`. It begins with a letter and ends
    /// with a letter or digit.
    /// At most 52 characters: KEDA puts `keda-hpa-` in front of it, and a label has at most 63.
    Dns,
    /// A name of a file or folder: letters, digits, `_`, `.` and `-`, from a letter or digit on. At most 100 characters.
    File,
}

impl NameRule {
    /// Most characters of a name.
    pub const fn characters_max(self) -> usize {
        match self {
            Self::Dns => 52,
            Self::File => 100,
        }
    }

    /// The name with each character that is not allowed replaced.
    fn cleaned(self, raw: &str) -> String {
        let is_allowed = |c: char| match self {
            Self::Dns => c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
            Self::File => c.is_ascii_alphanumeric() || ['_', '.', '-'].contains(&c),
        };
        let lower = |c: char| if self == Self::Dns { c.to_ascii_lowercase() } else { c };
        let name: String = raw.chars().map(lower).map(|c| if is_allowed(c) { c } else { '-' }).collect();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let starts = name.chars().next().is_some_and(|c| self == Self::File || c.is_ascii_lowercase());
        let name = if starts { name.to_owned() } else { format!("x{name}") };
        name.chars().take(self.characters_max()).collect()
    }
}

/// Safe names of a set of raw names. A raw name has parts, which stand in the safe name with lines between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafeNames(BTreeMap<Vec<String>, String>);

impl SafeNames {
    /// A safe name for each raw name; no two are equal.
    #[must_use]
    pub fn new(rule: NameRule, raw: impl IntoIterator<Item = Vec<String>>) -> Self {
        let mut names: BTreeMap<Vec<String>, String> = raw.into_iter().map(|raw| (raw, String::new())).collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (raw, name) in &mut names {
            *name = rule.cleaned(&raw.join("-"));
            *counts.entry(name.to_lowercase()).or_default() += 1;
        }
        for (raw, name) in &mut names {
            if *name != raw.join("-") || counts[&name.to_lowercase()] > 1 {
                *name = with_digest(rule, name, raw);
            }
        }
        Self(names)
    }

    /// The safe name of a raw name, or an empty text for a name that was not given.
    #[must_use]
    pub fn of(&self, raw: &[String]) -> &str {
        self.0.get(raw).map_or("", String::as_str)
    }

    /// Raw names with their safe names.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], &str)> {
        self.0.iter().map(|(raw, name)| (raw.as_slice(), name.as_str()))
    }
}

fn with_digest(rule: NameRule, name: &str, raw: &[String]) -> String {
    const DIGITS: usize = 8;
    // The text of a list has each part in quotes, so that it is another one for other parts.
    let digest = Sha256::digest(format!("{raw:?}").as_bytes());
    let digest: String = digest.iter().take(DIGITS / 2).map(|b| format!("{b:02x}")).collect();
    let kept: String = name.chars().take(rule.characters_max() - DIGITS - 1).collect();
    format!("{}-{digest}", kept.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HOSTILE: [&str; 14] =
        ["", "-", "..", "../../etc/passwd", "A", "a", "a b", "a\nb", "ä", "1st", "a\"'$(x)", "a.", "a/b", "\u{202e}x"];

    fn names(rule: NameRule) -> SafeNames {
        let long = ["y".repeat(200), format!("{}z", "y".repeat(199))];
        SafeNames::new(rule, HOSTILE.iter().map(|raw| (*raw).to_owned()).chain(long).map(|raw| vec![raw]))
    }

    #[test]
    fn hostile_names_become_distinct_names_of_dns() {
        let names = names(NameRule::Dns);
        let safe: BTreeSet<&str> = names.iter().map(|(_, name)| name).collect();
        assert_eq!(safe.len(), HOSTILE.len() + 2);
        for name in safe {
            assert!(name.len() <= NameRule::Dns.characters_max() && name.starts_with(|c: char| c.is_ascii_lowercase()));
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
            assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
        }
    }

    #[test]
    fn hostile_names_become_distinct_names_of_files() {
        let names = names(NameRule::File);
        let safe: BTreeSet<String> = names.iter().map(|(_, name)| name.to_lowercase()).collect();
        assert_eq!(safe.len(), HOSTILE.len() + 2, "also where a file system ignores case");
        assert!(safe.iter().all(|name| !name.contains('/') && name.starts_with(|c: char| c.is_ascii_alphanumeric())));
    }

    #[test]
    fn a_good_name_stays_and_order_has_no_effect() {
        let raw = ["find-l", "a b"].map(|raw| vec![raw.to_owned()]);
        let names = SafeNames::new(NameRule::Dns, raw.clone());
        assert_eq!(names.of(&raw[0]), "find-l");
        assert_eq!(names, SafeNames::new(NameRule::Dns, raw.into_iter().rev()));
    }

    #[test]
    fn parts_that_join_to_one_text_get_two_names() {
        let raw = [["a-b", "c"], ["a", "b-c"]].map(|parts| parts.map(str::to_owned).to_vec());
        let names = SafeNames::new(NameRule::Dns, raw.clone());
        assert_ne!(names.of(&raw[0]), names.of(&raw[1]));
    }
}
