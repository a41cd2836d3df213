//! No crate has a circle of modules or an import from a module above; functions are short and have few parameters.

use apportion_tidy::shape::{functions, modules};
use apportion_tidy::{files, root};
use std::collections::BTreeMap;

/// Longest function, in lines.
const FUNCTION_LINES_MAX: usize = 60;
/// Most parameters of a function, `self` left out.
const PARAMETERS_MAX: usize = 6;

fn sources() -> Vec<(String, String)> {
    let is_generated = |path: &str| apportion_tidy::GENERATED.contains(&path);
    files(&["rs"]).into_iter().filter(|(path, _)| !is_generated(path)).collect()
}

/// Files of each crate's `src`, by the crate's folder: (path below `src`, text).
fn crates() -> BTreeMap<String, Vec<(String, String)>> {
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let is_generated = |path: &str| apportion_tidy::GENERATED.contains(&path);
    // A generated module is a module, but its own imports are its generator's.
    let text_of = |(path, text): (String, String)| if is_generated(&path) { (path, String::new()) } else { (path, text) };
    for (path, text) in files(&["rs"]).into_iter().map(text_of) {
        let Some((folder, below)) = path.split_once("/src/") else { continue };
        if root().join(folder).join("Cargo.toml").is_file() && !below.starts_with("bin/") {
            found.entry(folder.to_owned()).or_default().push((below.to_owned(), text));
        }
    }
    assert!(found.len() > 10, "crates: {found:?}");
    found
}

#[test]
fn functions_are_short_and_have_few_parameters() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for f in functions(&text) {
            if f.lines > FUNCTION_LINES_MAX || f.parameters > PARAMETERS_MAX {
                found.push(format!("{path}:{}: {} has {} lines, {} parameters", f.line, f.name, f.lines, f.parameters));
            }
        }
    }
    assert!(found.is_empty(), "{} functions are too long or have too many parameters:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let mut found = Vec::new();
    for (folder, files) in crates() {
        for circle in modules(&files).circles() {
            let names: Vec<String> = circle.iter().map(|m| m.join("::")).collect();
            found.push(format!("{folder}: {}", names.join(", ")));
        }
    }
    assert!(found.is_empty(), "{} circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_module_uses_what_a_module_above_it_defines() {
    let mut found = Vec::new();
    for (folder, files) in crates() {
        for (above, below, line) in modules(&files).upward() {
            found.push(format!(
                "{folder}: {}:{line} uses {}",
                below.join("::"),
                if above.is_empty() { "crate".to_owned() } else { above.join("::") }
            ));
        }
    }
    assert!(found.is_empty(), "{} imports run up:\n{}", found.len(), found.join("\n"));
}
