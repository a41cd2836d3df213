//! How are the results of a comparison shown? As text, as plots and as one HTML page.

mod findings;
mod page;
mod plot;

pub use findings::{Claim, ClaimVerdict, Report, TitledTable};
pub use page::html;
pub use plot::{Plot, Series};
