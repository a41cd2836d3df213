//! Which values of the settings are refused?

use crate::names::{WORD_CHARS_MAX, ZONE_CHARS_MAX, is_hardware_word, is_zone_word};

/// Most devices of one machine.
pub const DEVICES_EACH_MAX: u32 = 256;
/// Most zones of a hardware type.
pub const ZONES_MAX: usize = 64;

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

/// Checks the names of the zones of a hardware type.
pub(crate) fn check_zones<'a>(
    pointer: &str,
    mut zones: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), RefusedSetting> {
    if zones.len() > ZONES_MAX {
        return Err(refused(format!("{pointer}/zones"), zones.len(), format!("at most {ZONES_MAX} zones")));
    }
    match zones.find(|zone| !is_zone_word(zone)) {
        Some(zone) => {
            let expected = format!("names of 1 to {ZONE_CHARS_MAX} letters, digits, -, _ and .");
            Err(refused(format!("{pointer}/zones"), format!("{zone:?}"), expected))
        }
        None => Ok(()),
    }
}
