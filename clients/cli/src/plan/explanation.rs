//! How is the explanation of a plan shown to people?

use apportion_support::output::{TextTable, number, optional};
use apportion_wire::explanation::{BindingFile, DecisionFile, ExplanationFile, PriceFile, ShortfallFile};
use std::fmt::Write as _;

/// The explanation of a plan file.
pub fn text(e: &ExplanationFile) -> String {
    let mut text = String::new();
    if !e.decisions.is_empty() {
        text.push_str("\nwhy\n");
        e.decisions.iter().for_each(|d| decision(d, &mut text));
    }
    if !e.binding.is_empty() {
        let mut table = TextTable::new(&["without room", "of", "used", "limit"]);
        e.binding.iter().for_each(|b| table.row(binding(b).to_vec()));
        text.push('\n');
        text.push_str(&table.text(""));
    }
    prices(&e.prices, &mut text);
    e.shortfalls.iter().for_each(|s| shortfall(s, &mut text));
    for what in &e.left_out {
        line(&mut text, format_args!("\nleft out: {what}"));
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("text does not fail");
}

fn decision(d: &DecisionFile, text: &mut String) {
    line(text, format_args!("  {}: {}", d.what, d.why));
    for b in &d.binding {
        let [constraint, place, used, limit] = binding(b);
        line(text, format_args!("    bound by {constraint} of {place}: {used}, limit {limit}"));
    }
    if d.alternatives.is_empty() {
        return;
    }
    let mut table = TextTable::new(&["instead", "", "effect"]);
    for a in &d.alternatives {
        table.row(vec![a.kind.clone(), a.to.clone(), a.effect.clone()]);
    }
    text.push_str(&table.text("    "));
}

fn binding(b: &BindingFile) -> [String; 4] {
    [b.constraint.clone(), b.place.clone(), optional(b.used), optional(b.limit)]
}

fn prices(prices: &[PriceFile], text: &mut String) {
    if prices.is_empty() {
        return;
    }
    let mut table = TextTable::new(&["more", "of", "gain", "buys"]);
    for p in prices {
        table.row(vec![p.unit.clone(), p.place.clone(), optional(p.gain), p.effect.clone()]);
    }
    text.push('\n');
    text.push_str(&table.text(""));
}

fn shortfall(s: &ShortfallFile, text: &mut String) {
    let wanted_and_best = format!("asked {}, best {}", optional(s.asked), optional(s.best));
    let relax = s.relax.as_ref().map_or_else(
        || "; no single change makes it feasible".to_owned(),
        |r| {
            // All digits are shown: a rounded limit may be too tight.
            let to = r.to.map_or_else(|| "-".to_owned(), |to| to.to_string());
            format!("; feasible with {} changed from {} to {to}", r.pointer, r.from.map_or_else(String::new, number))
        },
    );
    line(text, format_args!("\nshortfall: {} of {}: {wanted_and_best}{relax}", s.constraint, s.place));
}
