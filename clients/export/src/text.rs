//! How are foreign texts written? YAML by its crate, quoted words for shells and for protocol buffers' text format.

use serde_json::Value;

/// The documents as one YAML text.
///
/// # Panics
/// Never: values of JSON always have a form in YAML.
pub(crate) fn yaml(documents: &[Value]) -> String {
    let texts = documents.iter().map(|d| serde_saphyr::to_string(d).expect("JSON has a form in YAML"));
    let texts: Vec<String> = texts.map(|text| format!("{}\n", text.trim_end_matches('\n'))).collect();
    texts.join("---\n")
}

/// A word of a shell, in single quotes.
pub(crate) fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', "'\\''"))
}

/// A string of the text format of protocol buffers: each byte outside printable ASCII in octal digits.
pub(crate) fn proto_string(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        0x20..=0x7e => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    format!("\"{}\"", text.bytes().map(escaped).collect::<String>())
}

/// A string inside a selector of Prometheus.
pub(crate) fn prometheus_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hostile_texts_survive_a_round_trip_through_yaml() {
        for text in ["no", "1e3", "a: b", "- x", "#", "'\"", "a\nb\n", "", " ", "\u{202e}", "{{x}}", "!!int 3", "null"] {
            let value = json!({"key": text, text: [text]});
            let read: Value = serde_saphyr::from_str(&yaml(std::slice::from_ref(&value))).expect("YAML");
            assert_eq!(read, value, "{text:?}");
        }
    }

    #[test]
    fn a_word_of_a_shell_is_the_text() {
        for text in ["", "a b", "$(touch x)", "it's", "`x`", "\\", "a\nb", "*"] {
            let script = format!("printf %s {}", shell_word(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
