//! What do INFaaS's comparisons (section 6) say of this code?

pub mod cost;
pub mod decisions;
