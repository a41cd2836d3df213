//! What do the rows of all kinds have in common?

use crate::resources::kind::{
    AnswerForm, ApplyRule, CellText, FileForms, KeyHelp, ListFilter, NamePlace, ResourceColumn, ResourceOperation,
    ResourceVerb,
};
use serde_json::Value;

/// A key that people choose.
pub const NAME: KeyHelp = KeyHelp { name: "NAME", text: "Its name" };
/// A key that the service chooses.
pub const ID: KeyHelp = KeyHelp { name: "ID", text: "Its identifier" };
/// The filter by the begin of a name.
pub const PREFIX: ListFilter = ListFilter { name: "prefix", help: "Only those with names that begin with this text" };
/// The filter by name.
pub const NAMED: ListFilter = ListFilter { name: "name", help: "Only those with this name" };
/// The filter by the name of a client.
pub const WHO: ListFilter = ListFilter { name: "who", help: "Only those of clients with this name" };
/// The filter by project.
pub const PROJECT: ListFilter = ListFilter { name: "project", help: "Only those of this project" };
/// The filter by pipeline.
pub const PIPELINE: ListFilter = ListFilter { name: "pipeline", help: "Only those of this pipeline" };
/// The filter by state.
pub const STATE: ListFilter = ListFilter { name: "state", help: "Only those in this state" };

/// The rule of kinds that `apply` does not write, and the base of the others.
pub const NO_FILE: ApplyRule = ApplyRule {
    name: NamePlace::Argument,
    part: "",
    own: &[],
    hidden: None,
    stored: |_, tree| Some(tree.clone()),
    forms: FileForms::Tree,
    answer: AnswerForm::Entry,
};

/// A column with a member of the entry.
pub const fn member(head: &'static str, pointer: &'static str) -> ResourceColumn {
    member_or(head, pointer, "-")
}

/// As [`member`], with the text where the entry has no such member.
pub const fn member_or(head: &'static str, pointer: &'static str, absent: &'static str) -> ResourceColumn {
    ResourceColumn { head, cell: CellText::Member { pointer, absent } }
}

/// A column that is made of the whole entry.
pub const fn entry(head: &'static str, text: fn(&Value) -> String) -> ResourceColumn {
    ResourceColumn { head, cell: CellText::Entry(text) }
}

/// An operation with its help text.
pub const fn operation(verb: ResourceVerb, about: &'static str) -> ResourceOperation {
    ResourceOperation { verb, about }
}

/// Makes the type that names a kind.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl $crate::resources::ResourceName for $name {
            fn kind() -> &'static $crate::resources::ResourceKind {
                &$kind
            }
        }
    };
}
pub(super) use named;
