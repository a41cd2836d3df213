//! Which values of the settings are refused?

use crate::names::{WORD_CHARS_MAX, is_hardware_word};

/// Most devices of one machine.
pub const DEVICES_EACH_MAX: u32 = 256;

/// A setting that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {found}: expected {expected}")]
pub struct RefusedSetting {
    /// Its place, a JSON pointer.
    pub pointer: String,
    /// Its value.
    pub found: String,
    /// The right form.
    pub expected: String,
}

pub(crate) fn refused(pointer: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> RefusedSetting {
    RefusedSetting { pointer: pointer.into(), found: found.to_string(), expected: expected.into() }
}

/// Checks what every substrate needs of a hardware type: its name, and the devices of one machine.
pub(crate) fn check_hardware(pointer: &str, name: &str, devices: u32) -> Result<(), RefusedSetting> {
    if !is_hardware_word(name) {
        let expected = format!("1 to {WORD_CHARS_MAX} letters, digits, -, _ and . as the name of a hardware type");
        return Err(refused(pointer, format!("{name:?}"), expected));
    }
    if !(1..=DEVICES_EACH_MAX).contains(&devices) {
        let expected = format!("a whole number from 1 to {DEVICES_EACH_MAX}");
        return Err(refused(format!("{pointer}/devices"), devices, expected));
    }
    Ok(())
}
