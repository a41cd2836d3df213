//! Which crates of others may the workspace use? `deny.toml` has the lists.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// One package that is compiled on Linux.
struct Package {
    name: String,
    version: String,
    licence: String,
    source: String,
}

fn packages() -> Vec<Package> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = command.current_dir(apportion_tidy::root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let compiled: BTreeSet<&str> = nodes.iter().filter_map(|n| n["id"].as_str()).collect();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let all = metadata["packages"].as_array().expect("packages").iter();
    all.filter(|p| p["id"].as_str().is_some_and(|id| compiled.contains(id)))
        .map(|p| Package {
            name: text(&p["name"]),
            version: text(&p["version"]),
            licence: text(&p["license"]),
            source: text(&p["source"]),
        })
        .collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(apportion_tidy::root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The first quoted text of each line of a list in `deny.toml`.
fn list(key: &str) -> BTreeSet<String> {
    let text = read("deny.toml");
    let (_, rest) = text.split_once(&format!("\n{key} = [\n")).unwrap_or_else(|| panic!("deny.toml has no {key}"));
    let lines = rest.lines().take_while(|line| *line != "]");
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// Whether allowed licences fulfil an SPDX expression. `/` is an old form of `OR`; `AND` binds tighter than `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    if let Some((before, rest)) = expression.split_once('(') {
        let (inner, after) = rest.split_once(')').expect("parentheses close");
        let value = if is_allowed(inner, allowed) { "yes" } else { "no" };
        return is_allowed(&format!("{before}{value}{after}"), allowed);
    }
    let expression = expression.replace('/', " OR ");
    let is_one_allowed = |licence: &str| licence.trim() == "yes" || allowed.contains(licence.trim());
    expression.split(" OR ").any(|all| all.split(" AND ").all(is_one_allowed))
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allowed = list("allow");
    let refused: Vec<String> = packages()
        .iter()
        .filter(|p| !is_allowed(&p.licence, &allowed))
        .map(|p| format!("{} {}: {:?}", p.name, p.version, p.licence))
        .collect();
    assert!(refused.is_empty(), "licences that deny.toml does not allow: {refused:#?}");
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed: BTreeSet<String> = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for expression in
        ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(MIT OR GPL-3.0) AND Zlib", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", "Apache-2.0"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

#[test]
fn crates_come_in_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages().into_iter().filter(|p| !p.source.is_empty()) {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let twice: BTreeSet<String> = versions.into_iter().filter(|(_, v)| v.len() > 1).map(|(name, _)| name).collect();
    let skipped: BTreeSet<String> = list("skip").iter().map(|s| s.split('@').next().unwrap_or(s).to_owned()).collect();
    let wrong: Vec<&String> = twice.symmetric_difference(&skipped).collect();
    assert!(wrong.is_empty(), "deny.toml's list of duplicates and Cargo.lock differ in {wrong:?}");
}

#[test]
fn crates_come_from_the_registry() {
    let packages = packages();
    let others = packages.iter().filter(|p| !p.source.is_empty() && !p.source.starts_with("registry+"));
    assert_eq!(others.map(|p| p.name.as_str()).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let root = read("Cargo.toml");
    let (_, rest) = root.split_once("[workspace.dependencies]\n").expect("the list");
    let names = rest.lines().take_while(|l| !l.starts_with('[')).filter_map(|l| l.split_once(" = ")).map(|(name, _)| name);
    let manifests: String = root
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(members, _)| members.split('"').skip(1).step_by(2).map(|m| read(&format!("{m}/Cargo.toml"))).collect())
        .expect("the members");
    let is_used = |name: &str| manifests.lines().any(|l| l.strip_prefix(name).is_some_and(|l| l.starts_with([' ', '.'])));
    let unused: Vec<&str> = names.filter(|name| !name.starts_with('#') && !is_used(name)).collect();
    assert!(unused.is_empty(), "dependencies that no member names: {unused:?}");
}
