//! How does a result become one HTML file? With the page's own modules inside it, so that it needs no network.
//!
//! A browser loads no modules beside a local file. So each module is a `data:` address in an import map, and imports name
//! modules by their whole names. The result is data: its text is parsed as JSON and is never markup or a script.

use crate::files::FILES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The module that shows the result.
const ENTRY: &str = "reports/main.js";
/// The style sheets, in their order.
const STYLES: [&str; 3] = ["css/base.css", "css/parts.css", "vendor/uplot/uPlot.min.css"];
/// Modules that are named by it are those of the import map.
const PREFIX: &str = "apportion/";
/// Where an import names its file.
const FROM: &str = " from \"";

/// An HTML file that shows a result. `document` is the JSON text that `reports/main.js` describes.
#[must_use]
pub fn report_html(document: &str) -> String {
    let style: String = STYLES.iter().map(|name| text(name)).collect();
    let map = import_map();
    let start = format!("import \"{PREFIX}{ENTRY}\";");
    // In JSON, `<` stands in texts only, and a text may have it in this form.
    let document = document.replace('<', "\\u003c");
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let (scripts, styles) = (format!("{} {} data:", hash(&map), hash(&start)), hash(&style));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {scripts}; \
         style-src {styles}; base-uri 'none'; form-action 'none'\">\n\
         <title>Apportion report</title>\n<style>{style}</style>\n\
         <script type=\"importmap\">{map}</script>\n\
         <script type=\"application/json\" id=\"result\">{document}</script>\n\
         <script type=\"module\">{start}</script>\n</head>\n<body>\n\
         <header class=\"top\"><span class=\"brand\">Apportion</span></header>\n\
         <main id=\"main\"><noscript><p>This report needs JavaScript.</p></noscript></main>\n</body>\n</html>\n"
    )
}

/// The text of a file; empty if it is no text or not there, which a test rules out.
fn text(name: &str) -> &'static str {
    let bytes = FILES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes);
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

/// The entry and all modules that it needs, as an import map.
fn import_map() -> String {
    let mut modules = BTreeMap::new();
    let mut open = vec![ENTRY.to_owned()];
    while let Some(name) = open.pop() {
        if modules.contains_key(&name) {
            continue;
        }
        let (module, needed) = with_whole_names(&name, text(&name));
        open.extend(needed);
        modules.insert(name, module);
    }
    let address = |module: &str| format!("data:text/javascript;charset=utf-8;base64,{}", STANDARD.encode(module));
    let entries: Vec<String> =
        modules.iter().map(|(name, module)| format!("\"{PREFIX}{name}\":\"{}\"", address(module))).collect();
    format!("{{\"imports\":{{{}}}}}", entries.join(","))
}

/// A module whose imports have whole names, and the files that it needs.
fn with_whole_names(name: &str, module: &str) -> (String, Vec<String>) {
    let mut needed = Vec::new();
    let line = |line: &str| match line.split_once(FROM).and_then(|(head, tail)| Some((head, tail.split_once('"')?))) {
        Some((head, (import, rest))) if import.starts_with('.') => {
            let file = resolved(name, import);
            let line = format!("{head}{FROM}{PREFIX}{file}\"{rest}\n");
            needed.push(file);
            line
        }
        _ => format!("{line}\n"),
    };
    let text = module.lines().map(line).collect();
    (text, needed)
}

/// The file that a module's import names. Example: `../lib/dom.js` in `parts/table.js` is `lib/dom.js`.
#[must_use]
pub fn resolved(name: &str, import: &str) -> String {
    let mut folders: Vec<&str> = name.split('/').collect();
    folders.pop();
    for part in import.split('/') {
        match part {
            "." => {}
            ".." => drop(folders.pop()),
            part => folders.push(part),
        }
    }
    folders.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_no_other_place() {
        let html = report_html("{}");
        for mark in ["src=", "href=", "@import", "url("] {
            let head = html.split("<script type=\"importmap\">").next().unwrap_or_default();
            assert!(!head.contains(mark), "{mark}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn hostile_text_does_not_end_the_data() {
        let html = report_html(r#"{"name":"</script><script>alert(1)</script><!--"}"#);
        assert!(html.contains(r#"{"name":"\u003c/script>\u003cscript>alert(1)\u003c/script>\u003c!--"}"#));
        assert_eq!(html.matches("<script").count(), 3, "the map, the data and the start");
    }

    #[test]
    fn every_module_of_the_map_is_there() {
        let map: BTreeMap<String, Vec<String>> = FILES
            .iter()
            .filter(|(name, _)| name.ends_with(".js"))
            .map(|(name, _)| ((*name).to_owned(), with_whole_names(name, text(name)).1))
            .collect();
        let mut open = vec![ENTRY.to_owned()];
        let mut seen = Vec::new();
        while let Some(name) = open.pop() {
            let needed = map.get(&name).unwrap_or_else(|| panic!("{name} is no file"));
            open.extend(needed.iter().filter(|n| !seen.contains(*n)).cloned());
            seen.push(name);
        }
        assert!(seen.iter().any(|name| name == "parts/chart.js") && seen.iter().all(|name| !text(name).is_empty()));
        assert!(!seen.iter().any(|name| name == "lib/api.js"), "a report asks no service: {seen:?}");
        for style in STYLES {
            assert!(!text(style).is_empty(), "{style}");
        }
    }
}
