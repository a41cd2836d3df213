//! How do the numbers of a solution become a plan, and what is its value?

pub(crate) mod choice;
mod coupling;
pub(crate) mod deployed;
pub(crate) mod finish;
pub(crate) mod flows;
pub(crate) mod found;
pub(crate) mod plan;
pub(crate) mod trim;
pub(crate) mod worth;
