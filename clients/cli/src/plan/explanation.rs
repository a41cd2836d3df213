//! How is the explanation of a plan shown to people?

use apportion_support::output::{TextTable, number, optional};
use apportion_wire::explanation::{BindingFile, DecisionFile, ExplanationFile, PriceFile, ShortfallFile};
use apportion_wire::{GroupProfileFile, parse_utc};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

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
    profiles(&e.profiles, now_s(), &mut text);
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

/// This moment, in seconds since 1970.
fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Age and error of the profiles, if anything is known of one of them.
fn profiles(profiles: &[GroupProfileFile], now_s: i64, text: &mut String) {
    let is_known = |p: &GroupProfileFile| p.measured_at.is_some() || p.interval.is_some() || p.drift.is_some();
    if !profiles.iter().any(is_known) {
        return;
    }
    let mut table = TextTable::new(&["profile of", "on", "age", "interval", "drift"]);
    for p in profiles {
        let age = p.measured_at.as_deref().and_then(parse_utc).map_or_else(|| "-".to_owned(), |at| age(now_s - at));
        let interval = p.interval.map_or_else(|| "-".to_owned(), |width| format!("{:.1} %", 100.0 * width));
        let group = format!("{}/{}/{}", p.pipeline, p.task, p.variant);
        table.row(vec![group, p.hardware.clone(), age, interval, optional(p.drift)]);
    }
    text.push('\n');
    text.push_str(&table.text(""));
}

/// An age in its largest unit.
fn age(seconds: i64) -> String {
    const UNITS: [(i64, &str); 3] = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    unit.map_or_else(|| format!("{} s", seconds.max(0)), |(length, name)| format!("{} {name}", seconds / length))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_an_age_and_an_interval() {
        let of = |variant: &str, measured_at: Option<&str>, interval, drift| GroupProfileFile {
            pipeline: "p".into(),
            task: "t".into(),
            variant: variant.into(),
            hardware: "h".into(),
            share: 1.0,
            measured_at: measured_at.map(str::to_owned),
            interval,
            drift,
        };
        let now_s = parse_utc("2026-03-04T12:30:00Z").expect("a moment");
        let mut text = String::new();
        profiles(&[of("a", None, None, None)], now_s, &mut text);
        assert_eq!(text, "", "nothing is known");
        let all = [of("a", None, None, None), of("b", Some("2026-03-01T12:00:00Z"), Some(0.041), Some(1.3))];
        profiles(&all, now_s, &mut text);
        let rows: Vec<Vec<&str>> = text.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["p/t/a", "h", "-", "-", "-"]);
        assert_eq!(rows[2], ["p/t/b", "h", "3", "d", "4.1", "%", "1.300"]);
        assert_eq!([age(-5), age(59), age(120), age(7_200)], ["0 s", "59 s", "2 min", "2 h"]);
    }
}
