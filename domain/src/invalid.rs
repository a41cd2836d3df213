//! Why a draft was refused: place, value, what would be right.

use std::fmt;

/// One refused value of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// JSON pointer of the place in the problem file, for example `/pipelines/0/slo_ms`.
    pub pointer: String,
    /// The value found there, as it would be written in the file.
    pub value: String,
    /// What would be right.
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

/// Everything that was refused in one draft, never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalids(pub Vec<Invalid>);

impl Invalids {
    /// Refuses a number outside `range`, described by `expected`.
    pub(crate) fn number(&mut self, pointer: &str, value: f64, ok: bool, expected: &str) {
        if !ok || value.is_nan() {
            self.0.push(Invalid::new(pointer, value, expected));
        }
    }

    /// Refuses whatever is at `pointer`.
    pub(crate) fn push(&mut self, pointer: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) {
        self.0.push(Invalid::new(pointer, value, expected));
    }

    /// `Ok(())` if nothing was refused.
    pub(crate) fn result(self) -> Result<(), Invalids> {
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
