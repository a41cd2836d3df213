//! How is a value of a parsed file read, so that an error names its place?

use apportion_wire::BadInput;
use serde_json::Value;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct ReadValue<'a> {
    pub file: &'a str,
    /// JSON pointer.
    pub pointer: String,
    pub value: &'a Value,
}

impl<'a> ReadValue<'a> {
    pub fn root(file: &'a str, value: &'a Value) -> Self {
        Self { file, pointer: String::new(), value }
    }

    pub fn refused(&self, found: impl Into<String>, expected: impl Into<String>) -> BadInput {
        BadInput::one(self.file, self.pointer.clone(), found.into(), expected)
    }

    fn at(&self, key: &str, value: &'a Value) -> Self {
        Self { file: self.file, pointer: format!("{}/{}", self.pointer, key.replace('~', "~0").replace('/', "~1")), value }
    }

    /// The value of a key that may be absent; null is absent.
    pub fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).filter(|v| !v.is_null()).map(|value| self.at(key, value))
    }

    pub fn need(&self, key: &str, expected: &str) -> Result<Self, BadInput> {
        self.get(key).ok_or_else(|| self.refused(format!("no key {key:?}"), expected))
    }

    pub fn text(&self) -> Result<&'a str, BadInput> {
        let text = self.value.as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| self.refused(self.value.to_string(), "a text that is not empty"))
    }

    /// The text of a key that may be absent.
    pub fn text_of(&self, key: &str) -> Result<Option<&'a str>, BadInput> {
        self.get(key).map(|value| value.text()).transpose()
    }

    pub fn items(&self) -> Result<Vec<Self>, BadInput> {
        let items = self.value.as_array().ok_or_else(|| self.refused(self.value.to_string(), "a list"))?;
        Ok(items.iter().enumerate().map(|(i, value)| self.at(&i.to_string(), value)).collect())
    }

    /// The items of a key that may be absent.
    pub fn items_of(&self, key: &str) -> Result<Vec<Self>, BadInput> {
        self.get(key).map_or(Ok(Vec::new()), |value| value.items())
    }

    /// The texts of a map, by key.
    pub fn texts(&self) -> Result<Vec<(&'a str, &'a str)>, BadInput> {
        let map = self.value.as_object().ok_or_else(|| self.refused(self.value.to_string(), "a map"))?;
        map.iter().map(|(key, value)| Ok((key.as_str(), self.at(key, value).text()?))).collect()
    }

    /// Refuses a file of another kind.
    pub fn check_kind(&self, kind: &str) -> Result<(), BadInput> {
        let found = self.need("kind", &format!("kind: {kind}"))?;
        match found.text()? {
            text if text == kind => Ok(()),
            text => Err(found.refused(format!("{text:?}"), format!("{kind:?}"))),
        }
    }
}
