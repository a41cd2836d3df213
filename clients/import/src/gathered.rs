//! How do latencies of several files become one profile? A figure that stands twice is refused with both places.

use apportion_domain::Share;
use apportion_domain::pipeline::BATCH_MAX;
use apportion_wire::{BadInput, MeasuredRow, MeasuredVariant, ProfileSet};
use std::collections::BTreeMap;

/// Names and limits that a command line adds to the content of the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenNames {
    /// The task of rows that name none.
    pub task: String,
    /// The variant of rows that name none.
    pub variant: Option<String>,
    /// The hardware type of rows that name none.
    pub hardware: Option<String>,
    /// The batch size of rows that name none.
    pub batch: Option<u32>,
    /// Rows of larger batches are left out.
    pub batch_max: Option<u32>,
}

/// One latency with the other figures of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyRow {
    /// Latency and names.
    pub measured: MeasuredRow,
    /// Accuracy of the variant, 0 to 1.
    pub accuracy: Option<f64>,
    /// Time to load the variant.
    pub load_ms: Option<f64>,
    /// Device memory. Of several rows, the largest counts.
    pub memory_mib: Option<f64>,
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub struct FilePlace<'a> {
    /// The file.
    pub file: &'a str,
    /// The line or the pointer.
    pub at: &'a str,
}

/// The latencies of several files.
#[derive(Clone, Debug, Default)]
pub struct GatheredProfile {
    set: ProfileSet,
    rows: BTreeMap<(String, String, String, u64, u32), String>,
    accuracies: BTreeMap<(String, String), String>,
    notes: Vec<String>,
}

impl GatheredProfile {
    /// The profile, and the remarks for the person who gave the files.
    #[must_use]
    pub fn finish(self) -> (ProfileSet, Vec<String>) {
        (self.set, self.notes)
    }

    /// Adds a remark.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds one latency.
    ///
    /// # Errors
    /// If a figure is out of its range, or contradicts an earlier row.
    pub fn add(&mut self, place: FilePlace<'_>, row: LatencyRow) -> Result<(), BadInput> {
        check(place, &row.measured)?;
        let m = &row.measured;
        let name = format!("{}/{} on {}, batch {}", m.task, m.variant, m.hardware, m.batch);
        let key = (m.task.clone(), m.variant.clone(), m.hardware.clone(), m.share.to_bits(), m.batch);
        let here = format!("{}: {}", place.file, place.at);
        if let Some(first) = self.rows.insert(key, here.clone()) {
            let found = format!("a second latency of {name}");
            return Err(refused(place, found, format!("one row for each batch; the first is at {first}")));
        }
        self.add_figures(place, &row, here)?;
        self.set.rows.push(row.measured);
        Ok(())
    }

    fn add_figures(&mut self, place: FilePlace<'_>, row: &LatencyRow, here: String) -> Result<(), BadInput> {
        let (task, variant) = (&row.measured.task, &row.measured.variant);
        let known = self.set.variants.iter().position(|v| (&v.task, &v.variant) == (task, variant));
        let known = known.unwrap_or_else(|| {
            let (task, variant) = (task.clone(), variant.clone());
            self.set.variants.push(MeasuredVariant { task, variant, ..MeasuredVariant::default() });
            self.set.variants.len() - 1
        });
        let figures = &mut self.set.variants[known];
        if let Some(accuracy) = row.accuracy {
            if let Some(before) = figures.accuracy.filter(|before| *before != accuracy) {
                let first = &self.accuracies[&(task.clone(), variant.clone())];
                let expected = format!("one accuracy of {task}/{variant}; it is {before} at {first}");
                return Err(refused(place, format!("accuracy {accuracy}"), expected));
            }
            figures.accuracy = Some(accuracy);
            self.accuracies.entry((task.clone(), variant.clone())).or_insert(here);
        }
        figures.load_ms = row.load_ms.or(figures.load_ms);
        figures.memory_mib = [figures.memory_mib, row.memory_mib].into_iter().flatten().reduce(f64::max);
        Ok(())
    }

    /// Adds the profile of a JSON file.
    ///
    /// # Errors
    /// As [`GatheredProfile::add`].
    pub fn add_set(&mut self, file: &str, set: ProfileSet) -> Result<(), BadInput> {
        for (i, measured) in set.rows.into_iter().enumerate() {
            let at = format!("/rows/{i}");
            let row = LatencyRow { measured, accuracy: None, load_ms: None, memory_mib: None };
            self.add(FilePlace { file, at: &at }, row)?;
        }
        let rest = ProfileSet { rows: Vec::new(), ..set };
        self.set.merge(rest);
        Ok(())
    }
}

fn check(place: FilePlace<'_>, row: &MeasuredRow) -> Result<(), BadInput> {
    if let Some(name) = [&row.task, &row.variant].into_iter().find(|name| name.contains(['>', ':']) || name.is_empty()) {
        return Err(refused(place, format!("the name {name:?}"), "a name without '>' and ':'"));
    }
    if !(1..=BATCH_MAX).contains(&row.batch) {
        return Err(refused(place, format!("batch {}", row.batch), format!("a batch from 1 to {BATCH_MAX}")));
    }
    if !(row.latency_ms > 0.0 && row.latency_ms.is_finite()) {
        return Err(refused(place, format!("latency_ms {}", row.latency_ms), "a latency above 0"));
    }
    if let Some(p99) = row.p99_ms.filter(|p99| !(*p99 >= row.latency_ms && p99.is_finite())) {
        let expected = format!("a p99 of at least the median latency, {}", row.latency_ms);
        return Err(refused(place, format!("p99_ms {p99}"), expected));
    }
    if Share::new(row.share).is_none() {
        return Err(refused(place, format!("share {}", row.share), "1, 0.5, 0.25 or 0.125"));
    }
    Ok(())
}

fn refused(place: FilePlace<'_>, found: String, expected: impl Into<String>) -> BadInput {
    BadInput::one(place.file, place.at, found, expected)
}
