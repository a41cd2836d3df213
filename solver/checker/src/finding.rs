//! How is a violated rule reported?

/// One violated rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's name, one of [`crate::rules`].
    pub rule: &'static str,
    /// For plans: pipeline, `pipeline/task/variant/hardware`, path or hardware type. For scaling plans: application,
    /// `application/variant` or resource.
    pub place: String,
    /// A sentence with the numbers.
    pub evidence: String,
}

impl Finding {
    /// A violated rule with its place and its evidence.
    pub(crate) fn new(rule: &'static str, place: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { rule, place: place.into(), evidence: evidence.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, self.place, self.evidence)
    }
}
