//! How are the traces of Azure's LLM inference read?
//!
//! The format is that of `AzureLLMInferenceDataset2023.md` and `AzureLLMInferenceDataset2024.md` in the repository
//! AzurePublicDataset: `TIMESTAMP,ContextTokens,GeneratedTokens`. The times of 2024 have an offset.

use super::moments::{TimeUnit, arrivals, time_in};
use crate::table::Table;
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

/// Reads a trace.
pub(super) fn read(file: &str, text: &str) -> Result<ArrivalTrace, BadInput> {
    let table = Table::open(file, text, "the header TIMESTAMP,ContextTokens,GeneratedTokens")?;
    let column = table.required(&["TIMESTAMP"])?;
    let mut times = Vec::new();
    table.each_row(|row| {
        times.push(time_in(row, column, TimeUnit::Date)?);
        Ok(())
    })?;
    arrivals(file, times)
}
