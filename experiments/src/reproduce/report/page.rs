//! How does a page show all results? One HTML file with tables and plots, which loads nothing from elsewhere.

use super::findings::{Report, TitledTable};
use apportion_support::exit::Failure;
use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #2d323c; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 3rem; border-top: 1px solid #e2e5ea; padding-top: 1.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
.source { color: #6a7080; } .method { max-width: 50rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .25rem .7rem; border-bottom: 1px solid #e2e5ea; }
th { text-align: left; } .n { text-align: right; font-variant-numeric: tabular-nums; } th { vertical-align: bottom; } td { vertical-align: top; }
td.n { white-space: nowrap; }
.verdict { white-space: nowrap; font-weight: 600; } .agrees { color: #00714f; } .differs, .partly { color: #b03a00; } .open { color: #6a7080; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
nav li { margin: .1rem 0; }
";

/// The page. `head` describes the run.
pub fn html(reports: &[Report], head: &str) -> Result<String, Failure> {
    let mut page = String::new();
    let mut add = |text: &str| page.push_str(text);
    add("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    add("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Apportion: comparisons</title>");
    add(&format!("<style>{STYLE}</style></head><body>\n<h1>The papers' comparisons, run again</h1>\n"));
    add(&format!("<p class=\"method\">{}</p>\n<nav><ul>\n", escape(head)));
    for r in reports {
        add(&format!("<li><a href=\"#{}\">{}</a> <span class=\"source\">{}</span></li>\n", r.name, r.title, r.source));
    }
    add("</ul></nav>\n");
    for r in reports {
        add(&section(r)?);
    }
    add("</body></html>\n");
    Ok(page)
}

fn section(r: &Report) -> Result<String, Failure> {
    let mut text = format!("<section id=\"{}\"><h2>{}</h2>\n", r.name, escape(r.title));
    let mut add = |line: &str| text.push_str(line);
    add(&format!("<p class=\"source\">{} · <code>apportion dev reproduce {}</code></p>\n", escape(r.source), r.name));
    add(&format!("<p class=\"method\">{}</p>\n", escape(&r.method)));
    if !r.claims.is_empty() {
        add("<h3>Claims</h3><div class=\"scroll\"><table><tr><th>claim</th><th>here</th><th>verdict</th><th>probable \
             reason (not tested)</th></tr>\n");
        for c in &r.claims {
            let verdict = c.verdict.name();
            let cells = [&c.claimed, &c.seen].map(|t| format!("<td>{}</td>", escape(t))).concat();
            let why = escape(&c.why);
            add(&format!("<tr>{cells}<td class=\"verdict {verdict}\">{verdict}</td><td>{why}</td></tr>\n"));
        }
        add("</table></div>\n");
    }
    for plot in &r.plots {
        add(&format!("<figure>{}</figure>\n", plot.svg()?));
    }
    for titled in &r.tables {
        add(&table(titled));
    }
    add("</section>\n");
    Ok(text)
}

fn table(titled: &TitledTable) -> String {
    let mut text = format!("<h3>{}</h3><div class=\"scroll\"><table>\n", escape(&titled.title));
    let rows = titled.table.rows();
    let (header, cells) = rows.split_first().expect("a table has a header");
    let is_of_numbers = |column: usize| !cells.is_empty() && cells.iter().all(|row| is_number(&row[column]));
    let numbers: Vec<bool> = (0..header.len()).map(is_of_numbers).collect();
    for (i, row) in rows.iter().enumerate() {
        text.push_str("<tr>");
        let tag = if i == 0 { "th" } else { "td" };
        for (cell, is_of_numbers) in row.iter().zip(&numbers) {
            let class = if *is_of_numbers { " class=\"n\"" } else { "" };
            write!(text, "<{tag}{class}>{}</{tag}>", escape(cell)).expect("text does not fail");
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n");
    text
}

/// Whether a cell is a number, with or without sign, error and percent sign, or empty.
fn is_number(cell: &str) -> bool {
    cell.chars().all(|c| c.is_ascii_digit() || "+-.±% ".contains(c))
}

/// Text as HTML. A percent sign stays with its number, and text in backticks becomes code.
fn escape(text: &str) -> String {
    let safe = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace(" %", "&nbsp;%");
    let parts: Vec<&str> = safe.split('`').collect();
    match parts.len() % 2 {
        1 => parts
            .iter()
            .enumerate()
            .map(|(i, p)| if i % 2 == 1 { format!("<code>{p}</code>") } else { (*p).to_owned() })
            .collect(),
        _ => safe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::report::{Claim, ClaimVerdict};
    use apportion_support::output::TextTable;

    #[test]
    fn a_page_loads_nothing_from_elsewhere() {
        let mut rows = TextTable::new(&["policy", "a < b"]);
        rows.row(vec!["x & y".into(), "1.5".into()]);
        let claim = Claim { claimed: "c".into(), seen: "s".into(), verdict: ClaimVerdict::Differs, why: "w".into() };
        let report = Report {
            name: "n",
            title: "t",
            source: "Paper, Fig. 1",
            method: "m".into(),
            claims: vec![claim],
            tables: vec![TitledTable { title: "rows".into(), table: rows }],
            plots: vec![],
        };
        let page = html(&[report], "head").expect("a page");
        let shown_as_code = ["run <code>x</code> at 5&nbsp;%", "<p class=\"method\">m</p>"];
        assert_eq!((escape("run `x` at 5 %"), escape("a ` b")), (shown_as_code[0].into(), "a ` b".into()));
        assert!(is_number("+1.5 ± 0.2 %") && is_number("-") && !is_number("3 of 4"));
        for shown in [
            "x &amp; y",
            "<th class=\"n\">a &lt; b</th>",
            "<td class=\"n\">1.5</td>",
            shown_as_code[1],
            "verdict differs",
            "id=\"n\"",
        ] {
            assert!(page.contains(shown), "{shown} in {page}");
        }
        for fetched in ["http://", "https://", "<script", "<link", "<img"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }
}
