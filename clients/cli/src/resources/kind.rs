//! How is a kind of resource described? By its paths, its key, its columns, and the operations that it has.

use apportion_support::output::number;
use serde_json::Value;

/// A kind of resource of the service.
#[derive(Debug)]
pub struct ResourceKind {
    /// Its noun in messages: `pipeline`.
    pub noun: &'static str,
    /// Path of its list: `/v1/pipelines`. The path of one resource is this path and its key.
    pub list: &'static str,
    /// The rest of the path of one resource, after its key.
    pub rest: Option<&'static str>,
    /// The member of a list's entry that is its key.
    pub key: &'static str,
    /// The key in help texts.
    pub key_help: KeyHelp,
    /// The columns of its table.
    pub columns: &'static [ResourceColumn],
    /// The table without rows.
    pub empty: &'static str,
    /// The parameters of its list.
    pub filters: &'static [ListFilter],
    /// The operations, in the order of the help text.
    pub operations: &'static [ResourceOperation],
    /// How a resource is written from a file.
    pub apply: ApplyRule,
    /// The events after which its list may differ.
    pub events: &'static [&'static str],
}

/// The words for a key in help texts.
#[derive(Clone, Copy, Debug)]
pub struct KeyHelp {
    /// The name of the argument: `NAME`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// A column of a table.
#[derive(Debug)]
pub struct ResourceColumn {
    /// Its head.
    pub head: &'static str,
    /// The text of its cells.
    pub cell: CellText,
}

/// Where the text of a cell comes from.
#[derive(Debug)]
pub enum CellText {
    /// From one member of the entry.
    Member {
        /// The JSON pointer of the member.
        pointer: &'static str,
        /// The text without such a member.
        absent: &'static str,
    },
    /// From the whole entry.
    Entry(fn(&Value) -> String),
}

/// A parameter of a list, which is also a flag.
#[derive(Debug)]
pub struct ListFilter {
    /// Its name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
}

/// What a command does with resources of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceVerb {
    /// Lists them.
    List,
    /// Prints one.
    Get,
    /// Writes one from a file.
    Apply,
    /// Deletes one.
    Delete,
    /// Ends one that runs.
    Cancel,
    /// Ends one that runs; what it made can still be read.
    CancelKept,
    /// Ends the search of one that runs, and keeps the best result so far.
    Stop,
    /// Lists them, and then each change.
    Watch,
    /// Prints each event when it happens.
    Follow,
}

impl ResourceVerb {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Cancel | Self::CancelKept => "cancel",
            Self::Stop => "stop",
            Self::Watch | Self::Follow => "watch",
        }
    }
}

/// An operation with its help text.
#[derive(Debug)]
pub struct ResourceOperation {
    /// What it does.
    pub verb: ResourceVerb,
    /// Its help text.
    pub about: &'static str,
}

/// How a resource is written from a file.
#[derive(Debug)]
pub struct ApplyRule {
    /// Where its name is.
    pub name: NamePlace,
    /// JSON pointer of the written part in an answer of the service.
    pub part: &'static str,
    /// Members of this part that only the service writes.
    pub own: &'static [&'static str],
    /// A member that the service does not show again.
    pub hidden: Option<&'static str>,
    /// The document as the service stores it; `None` if this release does not know.
    pub stored: fn(&str, &Value) -> Option<Value>,
    /// The forms of the file.
    pub forms: FileForms,
    /// Whether the answer is an entry of the list too.
    pub answer: AnswerForm,
}

/// Where the name of a written resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// On the command line.
    Argument,
    /// On the command line, or in the file's `name`.
    ArgumentOrFile,
}

/// The forms of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileForms {
    /// JSON or YAML.
    Tree,
    /// JSON or YAML; or CSV, if the name ends in `.csv`.
    TreeOrCsv,
}

/// What the service answers to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// An entry of the list: it is shown as a row.
    Entry,
    /// The written document alone: no row is shown.
    Document,
}

/// A name for a kind in types: the commands of a kind are `ResourceCommand<NAME>`.
pub trait ResourceName {
    /// The kind.
    fn kind() -> &'static ResourceKind;
}

impl ResourceKind {
    /// The segments of the path of one resource.
    pub fn segments<'a>(&self, key: &'a str) -> Vec<&'a str> {
        let list = self.list.split('/').filter(|segment| !segment.is_empty());
        list.chain([key]).chain(self.rest).collect()
    }

    /// The key of an entry of its list.
    pub fn key_of(&self, entry: &Value) -> String {
        text_of(entry.get(self.key), "-")
    }

    /// The cells of an entry of its list.
    pub fn cells(&self, entry: &Value) -> Vec<String> {
        self.columns.iter().map(|column| column.cell.text(entry)).collect()
    }

    /// The heads of its table.
    pub fn heads(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.head).collect()
    }
}

impl CellText {
    fn text(&self, entry: &Value) -> String {
        match self {
            Self::Member { pointer, absent } => text_of(entry.pointer(pointer), absent),
            Self::Entry(text) => text(entry),
        }
    }
}

/// A value in a cell, on one line. Lists are their elements.
pub fn text_of(value: Option<&Value>, absent: &str) -> String {
    match value {
        None | Some(Value::Null) => absent.to_owned(),
        Some(Value::String(text)) => text.replace('\n', " "),
        Some(Value::Bool(is)) => if *is { "yes" } else { "no" }.to_owned(),
        Some(Value::Number(n)) => n.as_f64().map_or_else(|| n.to_string(), number),
        Some(Value::Array(items)) => items.iter().map(|item| text_of(Some(item), "-")).collect::<Vec<_>>().join(" "),
        Some(object) => object.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cell_has_few_forms() {
        let text = |value: &Value| text_of(Some(value), "none");
        assert_eq!(
            [json!("a"), json!(true), json!(0.53), json!(12), json!(null)].map(|v| text(&v)),
            ["a", "yes", "0.5300", "12", "none"]
        );
        assert_eq!(text(&json!(["a", "b"])), "a b");
        assert_eq!(text(&json!({"a": 1})), "{\"a\":1}");
    }
}
