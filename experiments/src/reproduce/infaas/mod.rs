//! Do the results of INFaaS's comparisons (section 6) hold on this code?

pub mod cost;
pub mod decisions;
