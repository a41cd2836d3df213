//! How does a command say on which samples a plan was judged?

use apportion_domain::JudgedLoad;
use apportion_wire::JudgedOnFile;

/// The samples, for example `8 fresh samples (seeds 7 to 14)`.
pub fn fresh_samples(judged: &JudgedOnFile) -> String {
    let last = judged.first_seed + judged.samples.saturating_sub(1);
    let drawn = if judged.load == JudgedLoad::FromRecording.name() { " of the recording's rates" } else { "" };
    format!("{} fresh samples{drawn} (seeds {} to {last})", judged.samples, judged.first_seed)
}
