//! How does a command say on which samples a plan was judged?

use apportion_domain::JudgedLoad;
use apportion_wire::{ComparisonSamplesFile, JudgedOnFile};

/// The samples, for example `8 fresh samples (seeds 7 to 14)`.
pub fn fresh_samples(judged: &JudgedOnFile) -> String {
    let JudgedOnFile { load, samples, first_seed, .. } = judged;
    compared_samples(&ComparisonSamplesFile { load: load.clone(), samples: *samples, first_seed: *first_seed })
}

/// As [`fresh_samples`], for the samples of a comparison.
pub fn compared_samples(of: &ComparisonSamplesFile) -> String {
    let last = of.first_seed + of.samples.saturating_sub(1);
    let drawn = if of.load == JudgedLoad::FromRecording.name() { " of the recording's rates" } else { "" };
    format!("{} fresh samples{drawn} (seeds {} to {last})", of.samples, of.first_seed)
}
