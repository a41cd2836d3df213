//! What did a comparison find? Tables, plots, and results beside the paper's claims.

use super::plot::Plot;
use apportion_support::output::TextTable;
use std::fmt::Write as _;

/// The relation of a result to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The claim holds here: the paper's number or better.
    Agrees,
    /// The claim holds in a part of the cases; the result says in how many.
    Partly,
    /// The claim does not hold here; the report has a reason.
    Differs,
    /// The paper states no figure in our copy, or the figure does not apply.
    Open,
}

impl ClaimVerdict {
    /// `Agrees` if the claim holds, else `Differs`.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Agrees } else { Self::Differs }
    }

    /// `Agrees` if the claim holds in all of `cases`, `Partly` if in some, else `Differs`.
    pub fn of_cases(holding: usize, cases: usize) -> Self {
        match holding {
            0 => Self::Differs,
            _ if holding < cases => Self::Partly,
            _ => Self::Agrees,
        }
    }

    /// `Agrees` if every part of the claim holds, `Partly` if some do, else `Differs`.
    pub fn of_parts(parts: &[bool]) -> Self {
        Self::of_cases(parts.iter().filter(|holds| **holds).count(), parts.len())
    }

    /// `Agrees` if a factor reaches the claimed one, `Partly` if it is above 1, else `Differs`.
    pub fn of_factor(found: f64, claimed: f64) -> Self {
        Self::of_parts(&[found > 1.0, found >= claimed])
    }

    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Partly => "partly",
            Self::Differs => "differs",
            Self::Open => "open",
        }
    }
}

/// A claim of a paper, or an aim of this project, beside the result.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The claim in our words, with its place in the paper.
    pub claimed: String,
    /// The result of this run.
    pub seen: String,
    /// Whether the two agree.
    pub verdict: ClaimVerdict,
    /// The probable reason of a difference, or a caution.
    pub why: String,
}

/// A table with a heading.
pub struct TitledTable {
    /// The heading.
    pub title: String,
    /// The rows.
    pub table: TextTable,
}

/// The result of one comparison.
pub struct Report {
    /// The name on the command line.
    pub name: &'static str,
    /// The title.
    pub title: &'static str,
    /// The paper and figure that it repeats.
    pub source: &'static str,
    /// The method: problem, traces, policies and fixed settings.
    pub method: String,
    /// Claims beside results.
    pub claims: Vec<Claim>,
    /// The figures.
    pub tables: Vec<TitledTable>,
    /// The plots.
    pub plots: Vec<Plot>,
}

impl Report {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {} ({})\n{}\n", self.name, self.title, self.source, self.method);
        for titled in &self.tables {
            write!(text, "\n{}\n{}", titled.title, titled.table.text("  ")).expect("text does not fail");
        }
        for c in &self.claims {
            write!(text, "\n{}: {}\n  here: {}\n", c.verdict.name(), c.claimed, c.seen).expect("text does not fail");
            if !c.why.is_empty() {
                writeln!(text, "  probable reason (not tested): {}", c.why).expect("text does not fail");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::ClaimVerdict::{self, Agrees, Differs, Partly};

    #[test]
    fn a_verdict_is_as_strict_as_its_claim() {
        assert_eq!([0, 1, 2].map(|holding| ClaimVerdict::of_cases(holding, 2)), [Differs, Partly, Agrees]);
        assert_eq!(ClaimVerdict::of_cases(0, 0), Differs);
        let of = |parts: &[bool]| ClaimVerdict::of_parts(parts);
        assert_eq!([of(&[true, true]), of(&[false, true]), of(&[false])], [Agrees, Partly, Differs]);
        // the paper has 2.5 times
        let factors = [0.9, 1.0, 1.1, 2.49, 2.5, 9.0, f64::NAN].map(|found| ClaimVerdict::of_factor(found, 2.5));
        assert_eq!(factors, [Differs, Differs, Partly, Partly, Agrees, Agrees, Differs]);
    }
}
