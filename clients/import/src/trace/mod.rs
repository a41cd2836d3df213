//! Which published traces and logs of requests are read?

mod any_csv;
mod azure_functions;
mod azure_llm;
mod burstgpt;
mod moments;
mod mooncake;
mod twitter;

use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

pub use moments::TimeUnit;

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// A table with a column of times.
    Csv,
    /// Azure Functions, 2019 (counts by minute) and 2021 (invocations).
    AzureFunctions,
    /// Azure LLM inference, 2023 and 2024.
    AzureLlm,
    /// BurstGPT.
    BurstGpt,
    /// Mooncake, JSON lines.
    Mooncake,
    /// Twitter, a count for each second.
    Twitter,
}

impl TraceFormat {
    /// The names of the formats on a command line.
    pub const NAMES: [&'static str; 6] = ["csv", "azure-functions", "azure-llm", "burstgpt", "mooncake", "twitter"];

    /// The format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let formats = [Self::Csv, Self::AzureFunctions, Self::AzureLlm, Self::BurstGpt, Self::Mooncake, Self::Twitter];
        Self::NAMES.iter().position(|known| *known == name).map(|at| formats[at])
    }
}

/// A choice among the content of a trace file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceChoice {
    /// The column of times, in a table.
    pub column: Option<String>,
    /// The unit of that column.
    pub unit: Option<TimeUnit>,
    /// The function whose invocations count, in a trace of functions; all without it.
    pub function: Option<String>,
}

/// Reads a trace. Its time begins with the first request, or with the first minute or second of a file of counts.
///
/// # Errors
/// The first refused value with its line and column.
pub fn import_trace(format: TraceFormat, file: &str, text: &str, choice: &TraceChoice) -> Result<ArrivalTrace, BadInput> {
    match format {
        TraceFormat::Csv => any_csv::read(file, text, choice.column.as_deref(), choice.unit),
        TraceFormat::AzureFunctions => azure_functions::read(file, text, choice.function.as_deref()),
        TraceFormat::AzureLlm => azure_llm::read(file, text),
        TraceFormat::BurstGpt => burstgpt::read(file, text),
        TraceFormat::Mooncake => mooncake::read(file, text),
        TraceFormat::Twitter => twitter::read(file, text),
    }
}
