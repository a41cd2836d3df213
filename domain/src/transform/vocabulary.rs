//! Which number does each text of a list have?

use std::collections::BTreeMap;

/// Most texts of a vocabulary or an alphabet.
pub const VOCABULARY_MAX: usize = 131_072;
/// Most bytes of all texts of a vocabulary or an alphabet. They travel with the target.
pub const VOCABULARY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Texts with their positions: the tokens of a tokeniser, or the classes of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    texts: Vec<String>,
    positions: BTreeMap<String, usize>,
    longest: usize,
}

impl Vocabulary {
    /// The texts in their order. Of equal texts the first one is found.
    #[must_use]
    pub fn new(texts: Vec<String>) -> Self {
        let mut positions = BTreeMap::new();
        for (position, text) in texts.iter().enumerate() {
            positions.entry(text.clone()).or_insert(position);
        }
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        Self { texts, positions, longest }
    }

    /// All texts.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Bytes of the longest text.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The position of a text; none if it is not there.
    #[must_use]
    pub fn position(&self, text: &str) -> Option<usize> {
        self.positions.get(text).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_texts_is_found() {
        let known = Vocabulary::new(["a", "b", "a"].map(str::to_owned).to_vec());
        assert_eq!(["a", "b", "c"].map(|text| known.position(text)), [Some(0), Some(1), None]);
        assert_eq!(known.texts().len(), 3);
    }
}
