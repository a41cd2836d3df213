//! What is the name of a machine?
//!
//! Example: `apportion.t4.0c9f3e21ab44`. Fleet and hardware type are in it, so that a service that has lost its database
//! finds its machines again. No dot is in the name of a fleet; so `app` does not take a machine of `app-2` for its own.

/// Longest name of a fleet or a hardware type, in characters.
pub(crate) const WORD_CHARS_MAX: usize = 64;

/// Longest name of a zone, in characters: Kubernetes allows no more in the value of a label.
pub(crate) const ZONE_CHARS_MAX: usize = 63;

/// Longest name on Kubernetes, in characters.
const DNS_CHARS_MAX: usize = 253;

/// The name of a machine.
pub(crate) fn machine_name(fleet: &str, hardware: &str, id: &str) -> String {
    format!("{fleet}.{hardware}.{id}")
}

/// The hardware type of a machine of this fleet; `None` for another name.
pub(crate) fn hardware_of<'a>(fleet: &str, name: &'a str) -> Option<&'a str> {
    let (hardware, id) = name.strip_prefix(fleet)?.strip_prefix('.')?.rsplit_once('.')?;
    let is_id = !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit());
    (is_id && is_hardware_word(hardware)).then_some(hardware)
}

/// Whether a text can be the name of a fleet.
pub(crate) fn is_fleet_word(text: &str) -> bool {
    is_word(text, "-_")
}

/// Whether a text can be the hardware type in the name of a machine.
pub(crate) fn is_hardware_word(text: &str) -> bool {
    is_word(text, "-_.") && !text.starts_with('.')
}

/// Whether Kubernetes takes a text as a name: words of small letters, digits and -, with dots between them (RFC 1123).
pub(crate) fn is_name_of_dns(text: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(is_sign) && !label.starts_with('-') && !label.ends_with('-');
    text.len() <= DNS_CHARS_MAX && text.split('.').all(is_label)
}

/// Whether a text can be the name of a zone.
pub(crate) fn is_zone_word(text: &str) -> bool {
    is_word(text, "-_.") && text.len() <= ZONE_CHARS_MAX
}

fn is_word(text: &str, marks: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    (1..=WORD_CHARS_MAX).contains(&text.len()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kubernetes_are_small_words_with_dots() {
        for right in ["t4", "a100-80gb", "t4.large", "1"] {
            assert!(is_name_of_dns(right), "{right}");
        }
        for wrong in ["", "T4", "t4.", ".t4", "a..b", "-a", "a-", "a_b", "a b", "a".repeat(254).as_str()] {
            assert!(!is_name_of_dns(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_name_tells_fleet_and_hardware() {
        let name = machine_name("app", "t4.large", "0c9f");
        assert_eq!(hardware_of("app", &name), Some("t4.large"));
        for fleet in ["ap", "app-2", "apportion", ""] {
            assert_eq!(hardware_of(fleet, &name), None, "{fleet}");
        }
        for other in ["app", "app.", "app.t4", "app.t4.", "app.t4.job", "app..0c", "app.a b.0c", "app.../../x.0c"] {
            assert_eq!(hardware_of("app", other), None, "{other}");
        }
    }
}
