//! What a comparison found: tables, plots, and its result beside the paper's claim.

use super::plot::Plot;
use apportion_support::output::Table;
use std::fmt::Write as _;

/// How our result stands to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds here.
    Agrees,
    /// It does not; the reason is beside it.
    Differs,
    /// Our copy of the paper states no figure, or it does not apply.
    Open,
}

impl Verdict {
    /// `Agrees` if the claim holds, else `Differs`.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Agrees } else { Self::Differs }
    }

    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Open => "open",
        }
    }
}

/// A claim of a paper, or an aim of ours, and what we saw.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is claimed, in our words, with where.
    pub claimed: String,
    /// What this run measured.
    pub seen: String,
    /// Whether the two agree.
    pub verdict: Verdict,
    /// Why, where they differ or where reading the result needs care.
    pub why: String,
}

/// A table with a heading.
pub struct TitledTable {
    /// The heading.
    pub title: String,
    /// The rows.
    pub table: Table,
}

/// The result of one comparison.
pub struct Report {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Paper and figure that it is in the sense of.
    pub source: &'static str,
    /// How it was made: problem, traces, policies, what is held fixed.
    pub method: String,
    /// Claims beside results.
    pub claims: Vec<Claim>,
    /// The figures.
    pub tables: Vec<TitledTable>,
    /// The same as pictures.
    pub plots: Vec<Plot>,
}

impl Report {
    /// For a terminal.
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
