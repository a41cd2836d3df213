//! Why was a draft refused? The place, the value, and the permitted values.

use std::fmt;
use std::ops::RangeBounds;

/// One refused value of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// JSON pointer of the place in the problem file, for example `/pipelines/0/slo_ms`.
    pub pointer: String,
    /// The value at that place, in the notation of the file.
    pub value: String,
    /// The permitted values.
    pub expected: String,
}

impl Invalid {
    /// The refusal of `value` at `pointer`.
    pub fn new(pointer: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), value: value.to_string(), expected: expected.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: expected {}", self.pointer, self.value, self.expected)
    }
}

impl std::error::Error for Invalid {}

/// All refused values of one draft; never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalids(pub Vec<Invalid>);

impl Invalids {
    /// Refuses a number outside `range`, and NaN. `expected` describes the range.
    pub(crate) fn check_number(&mut self, pointer: &str, value: f64, range: impl RangeBounds<f64>, expected: &str) {
        if !range.contains(&value) {
            self.0.push(Invalid::new(pointer, value, expected));
        }
    }

    /// Refuses the value at `pointer`.
    pub(crate) fn push(&mut self, pointer: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) {
        self.0.push(Invalid::new(pointer, value, expected));
    }

    /// `Ok(())` if nothing was refused.
    ///
    /// # Errors
    /// All refused values.
    pub(crate) fn into_result(self) -> Result<(), Invalids> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Invalids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, invalid) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{invalid}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalids {}
