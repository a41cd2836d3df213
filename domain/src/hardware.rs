//! Which hardware types and fractions of a device are there?

use std::fmt;

/// A kind of device that can be rented or is owned.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Unique in its problem.
    pub name: String,
    /// Price of one whole device per hour, at least 0.
    pub price_per_hour: f64,
    /// Whole devices that exist; `None` is unlimited.
    pub count: Option<u32>,
    /// Memory of one whole device; `None` is not limited.
    pub memory_mib: Option<f64>,
}

/// A fraction of one device: 1, 1/2, 1/4 or 1/8. The fractions divide each other, so first-fit decreasing packs them
/// without waste and the number of devices is the sum of the shares, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u8);

impl Share {
    /// The whole device.
    pub const WHOLE: Share = Share(8);
    /// All shares, largest first.
    pub const ALL: [Share; 4] = [Share(8), Share(4), Share(2), Share(1)];

    /// The share with this value, if it is one.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.value() == value)
    }

    /// As a fraction of a device.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 8.0
    }

    /// In eighths of a device.
    #[must_use]
    pub const fn eighths(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}
