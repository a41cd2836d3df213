//! The tables of keys in `docs/reference/files.md` are those of the JSON Schemas. `APPORTION_WRITE=1` writes them again.
//!
//! Example: `<!-- keys of plan.schema.json: /pipelines/assignments -->` stands before the table of an assignment's keys.
//! The path leads from key to key through the schema; `/` alone is the whole file. Text before such a mark and after its
//! table is written by hand.

use apportion_tidy::root;
use serde_json::Value;
use std::collections::BTreeMap;

const PAGE: &str = "docs/reference/files.md";
const MARK: &str = "<!-- keys of ";

/// The schemas by the names of their files.
type Schemas = BTreeMap<String, Value>;

/// A part of the page with the keys of one record.
struct Section {
    /// The line of its mark, counted from 0.
    line: usize,
    heading: String,
    /// The schema's file.
    file: String,
    /// The record's definition in the schema; `None` for the whole file.
    definition: Option<String>,
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The sections of the page, with the schemas that they name.
fn sections(page: &str) -> (Vec<Section>, Schemas) {
    let (mut found, mut schemas, mut heading) = (Vec::new(), Schemas::new(), "");
    for (line, text) in page.lines().enumerate() {
        if text.starts_with('#') {
            heading = text.trim_start_matches('#').trim();
        }
        let Some(mark) = text.strip_prefix(MARK) else { continue };
        let place = mark.trim_end_matches("-->").trim().split_once(": ");
        let (file, path) = place.unwrap_or_else(|| panic!("{PAGE}:{}: expected FILE: PATH", line + 1));
        let load =
            || serde_json::from_str(&read(&format!("docs/schemas/{file}"))).unwrap_or_else(|e| panic!("{file}: {e}"));
        let schema = schemas.entry(file.to_owned()).or_insert_with(load);
        let definition = definition_at(schema, path);
        found.push(Section { line, heading: heading.to_owned(), file: file.to_owned(), definition });
    }
    (found, schemas)
}

/// The definition that a path leads to.
fn definition_at(schema: &Value, path: &str) -> Option<String> {
    let mut reached = None;
    for key in path.split('/').filter(|key| !key.is_empty()) {
        let value = &record(schema, reached.as_deref())["properties"][key];
        reached = Some(definition_in(value).unwrap_or_else(|| panic!("{path}: {key} is no record with keys")));
    }
    reached
}

/// The definition that a value refers to: alone, in a list, in a table, or beside null.
fn definition_in(value: &Value) -> Option<String> {
    if let Some(reference) = value["$ref"].as_str() {
        return Some(reference.trim_start_matches("#/$defs/").to_owned());
    }
    let forms = value["anyOf"].as_array().into_iter().flatten();
    forms.chain(value.get("items")).chain(value.get("additionalProperties")).find_map(definition_in)
}

/// The schema of a record.
fn record<'a>(schema: &'a Value, definition: Option<&str>) -> &'a Value {
    definition.map_or(schema, |name| &schema["$defs"][name])
}

/// A link to the section of a definition. Records that are the same in several files have one section.
fn link(name: &str, file: &str, sections: &[Section], schemas: &Schemas) -> String {
    let keys = |file: &str| record(&schemas[file], Some(name));
    let is_it = |section: &&Section| section.definition.as_deref() == Some(name);
    let own = sections.iter().filter(is_it).find(|section| section.file == file);
    let same = || sections.iter().filter(is_it).find(|section| keys(&section.file) == keys(file));
    let section = own.or_else(same).unwrap_or_else(|| panic!("{PAGE} has no section for {name} of {file}"));
    let text = section.heading.to_lowercase();
    format!("[{text}](#{})", text.replace(' ', "-"))
}

/// The form of a value in words. `link` makes a link to a definition.
fn form(value: &Value, link: &dyn Fn(&str) -> String) -> String {
    if let Some(reference) = value["$ref"].as_str() {
        return link(reference.trim_start_matches("#/$defs/"));
    }
    if let Some(forms) = value["anyOf"].as_array() {
        return forms.iter().map(|one| form(one, link)).collect::<Vec<_>>().join(" or ");
    }
    match value["type"].as_str() {
        Some("array") => format!("list of {}", form(&value["items"], link)),
        Some("object") => format!("object of {}", form(&value["additionalProperties"], link)),
        Some("integer") if value.get("minimum").is_none() => "whole number, may be negative".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some(other) => other.to_owned(),
        None if value.get("enum").is_some() => "word".to_owned(),
        None => "any value".to_owned(),
    }
}

/// The description of a value, with the words that it may be and does not name.
fn meaning(value: &Value) -> String {
    let about = value["description"].as_str().unwrap_or_default().replace('|', "\\|");
    let words = value["enum"].as_array().or_else(|| value["anyOf"][0]["enum"].as_array());
    let words: Vec<String> = words.into_iter().flatten().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect();
    if words.iter().all(|word| about.contains(word)) { about } else { format!("{about} Words: {}.", words.join(", ")) }
}

/// The generated lines of a section. Required keys come first; the others follow by name.
fn generated(section: &Section, sections: &[Section], schemas: &Schemas) -> Vec<String> {
    let record = record(&schemas[&section.file], section.definition.as_deref());
    let properties = record["properties"].as_object().expect("a record has properties");
    let required: Vec<&str> = record["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let optional = properties.keys().map(String::as_str).filter(|key| !required.contains(key));
    let row = |key: &str| {
        let value = &properties[key];
        let form = form(value, &|name| link(name, &section.file, sections, schemas));
        let is_required = if required.contains(&key) { "yes" } else { "" };
        format!("| `{key}` | {form} | {is_required} | {} |", meaning(value))
    };
    let about = record["description"].as_str().unwrap_or_default();
    let head = ["", about, "", "| key | type | required | meaning |", "|---|---|---|---|"].map(str::to_owned);
    head.into_iter().chain(required.iter().copied().chain(optional).map(row)).collect()
}

/// The line after the table that follows a mark; the line after the mark if a heading comes first.
fn after_table(lines: &[&str], mark: usize) -> usize {
    let begin = (mark + 1..lines.len()).find(|&at| lines[at].starts_with(['|', '#']));
    match begin.filter(|&at| lines[at].starts_with('|')) {
        Some(begin) => (begin..lines.len()).find(|&at| !lines[at].starts_with('|')).unwrap_or(lines.len()),
        None => mark + 1,
    }
}

/// The page with its tables written again.
fn written(page: &str) -> String {
    let (sections, schemas) = sections(page);
    let lines: Vec<&str> = page.lines().collect();
    let (mut text, mut next) = (Vec::new(), 0);
    for section in &sections {
        text.extend(lines[next..=section.line].iter().map(|line| (*line).to_owned()));
        text.extend(generated(section, &sections, &schemas));
        next = after_table(&lines, section.line);
    }
    text.extend(lines[next..].iter().map(|line| (*line).to_owned()));
    text.join("\n") + "\n"
}

#[test]
fn tables_of_keys_are_those_of_the_schemas() {
    let page = read(PAGE);
    let now = written(&page);
    if std::env::var_os("APPORTION_WRITE").is_some() {
        std::fs::write(root().join(PAGE), &now).expect("the repository can be written");
    } else {
        assert!(page == now, "{PAGE} is old; run APPORTION_WRITE=1 cargo test -p apportion-tidy --test files_page");
    }
    assert_eq!(written(&now), now, "writing again changes nothing");
}

#[test]
fn hand_written_text_stays() {
    let page =
        "# Files\n\nBefore.\n\n## Problem\n\n<!-- keys of problem.schema.json: /switching -->\nold\n| old |\n\nAfter.\n";
    let lines: Vec<String> = written(page).lines().map(str::to_owned).collect();
    assert_eq!(lines[..7], page.lines().take(7).collect::<Vec<_>>());
    assert_eq!(lines[lines.len() - 2..], ["", "After."]);
    assert!(lines.iter().any(|line| line.starts_with("| `weight` | number |  | ")) && !lines.contains(&"old".to_owned()));
}
