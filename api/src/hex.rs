//! How are bytes written as text? Each as two lower-case hexadecimal digits.

/// The digits of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
