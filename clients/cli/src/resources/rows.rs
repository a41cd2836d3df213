//! How do resources look in a table, and which rows of it have changed?

use super::kind::ResourceKind;
use apportion_support::output::TextTable;
use serde_json::Value;
use std::collections::BTreeMap;

/// The table of a list's entries.
pub fn table(kind: &ResourceKind, entries: &[Value]) -> String {
    if entries.is_empty() { format!("{}\n", kind.empty) } else { rows(kind, entries).text("") }
}

fn rows(kind: &ResourceKind, entries: &[Value]) -> TextTable {
    let mut table = TextTable::new(&kind.heads());
    entries.iter().for_each(|entry| table.row(kind.cells(entry)));
    table
}

/// The lines of some entries, aligned with the table of all.
pub fn lines(kind: &ResourceKind, entries: &[Value], of: &[usize]) -> String {
    let text = rows(kind, entries).text("");
    // The first line is the header.
    let lines: Vec<&str> = text.lines().skip(1).collect();
    of.iter().map(|at| format!("{}\n", lines[*at])).collect()
}

/// How a row differs from the list before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// It is new.
    Added,
    /// Its cells differ.
    Changed,
}

impl RowChange {
    /// Its word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
        }
    }
}

/// A row that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// Its position in the list.
    pub at: usize,
    /// How it differs.
    pub change: RowChange,
}

/// The differences between two lists of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListChanges {
    /// The rows that are new or differ, in the order of the list.
    pub rows: Vec<ChangedRow>,
    /// The keys of the rows that are gone.
    pub gone: Vec<String>,
}

/// Whether a list has all entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListExtent {
    /// It has all.
    Whole,
    /// It may lack some: a limit cut it.
    Cut,
}

/// The rows that were shown, by key.
#[derive(Debug, Default)]
pub struct ShownRows(BTreeMap<String, Vec<String>>);

impl ShownRows {
    /// The differences of a list from the one before. A list that a limit cut says nothing about rows that it lacks.
    pub fn update(&mut self, kind: &ResourceKind, entries: &[Value], extent: ListExtent) -> ListChanges {
        let mut changes = ListChanges::default();
        let mut now = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let (key, cells) = (kind.key_of(entry), kind.cells(entry));
            match self.0.remove(&key) {
                None => changes.rows.push(ChangedRow { at, change: RowChange::Added }),
                Some(before) if before != cells => changes.rows.push(ChangedRow { at, change: RowChange::Changed }),
                Some(_) => {}
            }
            now.insert(key, cells);
        }
        if extent == ListExtent::Whole {
            changes.gone = std::mem::take(&mut self.0).into_keys().collect();
        }
        self.0 = now;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::kind::ResourceName as _;
    use crate::resources::kinds::HardwareResource;
    use serde_json::json;

    #[test]
    fn only_rows_that_differ_are_shown_again() {
        let (t4, dear) = (json!({"name": "t4", "price_per_hour": 0.53}), json!({"name": "t4", "price_per_hour": 0.6}));
        let a100 = json!({"name": "a100", "price_per_hour": 3});
        let mut shown = ShownRows::default();
        let mut update = |entries: &[Value], extent| shown.update(HardwareResource::kind(), entries, extent);
        let row = |at, change| ChangedRow { at, change };
        let both = [a100.clone(), t4];
        let expected = vec![row(0, RowChange::Added), row(1, RowChange::Added)];
        assert_eq!(update(&both, ListExtent::Whole), ListChanges { rows: expected, gone: vec![] });
        assert_eq!(update(&both, ListExtent::Whole), ListChanges::default());
        let expected = vec![row(1, RowChange::Changed)];
        assert_eq!(update(&[a100.clone(), dear], ListExtent::Whole), ListChanges { rows: expected, gone: vec![] });
        let gone = ListChanges { rows: vec![], gone: vec!["t4".to_owned()] };
        assert_eq!(update(std::slice::from_ref(&a100), ListExtent::Whole), gone);
        assert_eq!(update(&[], ListExtent::Cut), ListChanges::default(), "a limit hides the row");
    }

    #[test]
    fn lines_are_aligned_with_the_whole_table() {
        let entries = [json!({"name": "a-long-name", "price_per_hour": 3}), json!({"name": "t4", "price_per_hour": 0.53})];
        let all = table(HardwareResource::kind(), &entries);
        assert_eq!(
            lines(HardwareResource::kind(), &entries, &[1]),
            format!("{}\n", all.lines().nth(2).expect("three lines"))
        );
        assert_eq!(table(HardwareResource::kind(), &[]), "no hardware type is registered\n");
    }
}
