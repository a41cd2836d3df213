//! Which tools' reports of latencies are read?

mod aiperf;
mod any_csv;
mod model_analyzer;
mod nexus;
mod perf_analyzer;

use crate::gathered::{GatheredProfile, GivenNames};
use apportion_wire::BadInput;

/// The formats of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileFormat {
    /// A table with a row for each latency, whatever its order of columns.
    Csv,
    /// Triton's Perf Analyzer, `-f FILE`.
    PerfAnalyzer,
    /// Triton's Model Analyzer, `metrics-model-inference.csv`.
    ModelAnalyzer,
    /// AIPerf, `profile_export_aiperf.json`.
    Aiperf,
    /// The profiler of Nexus (SOSP 2019).
    Nexus,
}

impl ProfileFormat {
    /// The names of the formats on a command line.
    pub const NAMES: [&'static str; 5] = ["csv", "perf-analyzer", "model-analyzer", "aiperf", "nexus"];

    /// The format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let formats = [Self::Csv, Self::PerfAnalyzer, Self::ModelAnalyzer, Self::Aiperf, Self::Nexus];
        Self::NAMES.iter().position(|known| *known == name).map(|at| formats[at])
    }
}

/// Adds the latencies of one file.
///
/// # Errors
/// The first refused value with its line and column. A figure that contradicts an earlier one.
pub fn add_profile(
    profile: &mut GatheredProfile,
    format: ProfileFormat,
    file: &str,
    text: &str,
    names: &GivenNames,
) -> Result<(), BadInput> {
    match format {
        ProfileFormat::Csv => any_csv::add(profile, file, text, names),
        ProfileFormat::PerfAnalyzer => perf_analyzer::add(profile, file, text, names),
        ProfileFormat::ModelAnalyzer => model_analyzer::add(profile, file, text, names),
        ProfileFormat::Aiperf => aiperf::add(profile, file, text, names),
        ProfileFormat::Nexus => nexus::add(profile, file, text, names),
    }
}
