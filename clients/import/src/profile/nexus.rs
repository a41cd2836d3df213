//! How is a profile of Nexus read (Shen et al., SOSP 2019)?
//!
//! The format is that of `tools/profiler` and `tests/data/model_db/profiles` in Nexus: the model's id, the device, in newer
//! versions the device's UUID, the line `Forward latency`, and a table of batches in microseconds and bytes. The times of
//! preprocessing and postprocessing behind it run on the processor and are not a part of the batch. The colons of the id
//! become hyphens, because colons separate names in paths.

use crate::gathered::{FilePlace, GatheredProfile, GivenNames, LatencyRow};
use crate::table::quoted;
use apportion_domain::pipeline::BATCH_MAX;
use apportion_wire::{BadInput, MeasuredRow};

const TITLE: &str = "Forward latency";
/// The columns of the table that are read. Newer versions have `repeat` behind them.
const COLUMNS: [&str; 4] = ["batch", "latency(us)", "std(us)", "memory(B)"];
/// The lines of the table end at one of these.
const ENDS: [&str; 2] = ["Preprocess latenc", "Postprocess latenc"];
/// Microseconds of a millisecond.
const MICROS: f64 = 1e3;
const MIB: f64 = 1_048_576.0;

/// Adds the batches of a profile.
pub(super) fn add(profile: &mut GatheredProfile, file: &str, text: &str, names: &GivenNames) -> Result<(), BadInput> {
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())).filter(|(_, line)| !line.is_empty());
    let mut next =
        |expected: &str| lines.next().ok_or_else(|| BadInput::one(file, "the end", "no further line", expected.to_owned()));
    let (_, variant) = next("the id of a model, FRAMEWORK:NAME:VERSION")?;
    let (at, device) = next("the name of a device")?;
    if device == TITLE {
        return Err(refused(file, at, device, "the name of a device"));
    }
    let (mut at, mut line) = next(TITLE)?;
    if line != TITLE {
        (at, line) = next(TITLE)?;
    }
    if line != TITLE {
        return Err(refused(file, at, line, TITLE));
    }
    let (at, header) = next(&COLUMNS.join(","))?;
    if !header.split(',').map(str::trim).take(COLUMNS.len()).eq(COLUMNS) {
        return Err(refused(file, at, header, &COLUMNS.join(",")));
    }
    let mut count = 0;
    for (at, line) in lines.take_while(|(_, line)| !ENDS.iter().any(|end| line.starts_with(end))) {
        count += 1;
        let (batch, latency_ms, memory_mib) = row_of(file, at, line)?;
        if names.batch_max.is_some_and(|most| batch > most) {
            continue;
        }
        let (task, variant, hardware) = (names.task.clone(), variant.replace(':', "-"), device.to_owned());
        let measured = MeasuredRow { task, variant, hardware, share: 1.0, batch, latency_ms, p99_ms: None, measured: None };
        let row = LatencyRow { measured, accuracy: None, load_ms: None, memory_mib: Some(memory_mib) };
        profile.add(FilePlace { file, at: &format!("line {at}") }, row)?;
    }
    if count == 0 { Err(BadInput::one(file, "the end", "0 batches", "at least one batch")) } else { Ok(()) }
}

/// Batch, milliseconds and MiB of a line.
fn row_of(file: &str, at: usize, line: &str) -> Result<(u32, f64, f64), BadInput> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() < COLUMNS.len() {
        return Err(refused(file, at, line, &COLUMNS.join(",")));
    }
    let cell = |column: usize, expected: &str| {
        let place = format!("line {at}, column {:?}", COLUMNS[column]);
        BadInput::one(file, place, quoted(cells[column]), expected.to_owned())
    };
    let number = |column: usize, expected: &str| {
        let number = cells[column].parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite());
        number.ok_or_else(|| cell(column, expected))
    };
    let batch = cells[0].parse::<u32>().ok().filter(|n| (1..=BATCH_MAX).contains(n));
    let batch = batch.ok_or_else(|| cell(0, &format!("a batch from 1 to {BATCH_MAX}")))?;
    Ok((batch, number(1, "microseconds above 0")? / MICROS, number(3, "bytes above 0")? / MIB))
}

fn refused(file: &str, at: usize, found: &str, expected: &str) -> BadInput {
    BadInput::one(file, format!("line {at}"), quoted(found), expected.to_owned())
}
