//! Which crate may use which.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate of the workspace may use of the others. A crate that is not here is refused.
const ARROWS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("process", &[]),
    ("certificates", &[]),
    ("tls", &[]),
    ("serving", &["domain"]),
    ("checker", &["domain"]),
    ("estimator", &["domain", "serving"]),
    ("mip", &["domain"]),
    ("planning", &["domain", "serving", "estimator", "checker", "mip"]),
    ("reference", &["domain"]),
    ("protocol", &["domain"]),
    ("node", &["serving", "protocol", "domain"]),
    ("executor", &["process", "certificates", "tls", "node", "serving", "protocol", "domain"]),
    ("profiler", &["domain", "executor"]),
    ("wire", &["domain"]),
    ("prometheus", &[]),
    ("page", &[]),
    ("kubernetes", &[]),
    ("substrates", &["kubernetes"]),
    ("webhooks", &[]),
    ("scalers", &["tls"]),
    (
        "api",
        &[
            "process",
            "certificates",
            "domain",
            "serving",
            "checker",
            "estimator",
            "kubernetes",
            "page",
            "planning",
            "prometheus",
            "protocol",
            "scalers",
            "substrates",
            "tls",
            "webhooks",
            "wire",
        ],
    ),
    ("needs", &[]),
    ("support", &["wire", "domain"]),
    ("export", &["wire", "domain"]),
    ("import", &["wire", "domain"]),
    ("experiments", &["process", "support", "wire", "domain", "serving", "estimator", "planning", "profiler", "protocol"]),
    (
        "cli",
        &[
            "process",
            "experiments",
            "export",
            "import",
            "support",
            "tls",
            "api",
            "page",
            "wire",
            "profiler",
            "prometheus",
            "checker",
            "estimator",
            "planning",
            "reference",
            "serving",
            "domain",
        ],
    ),
];

/// Crates that may use any other: they are the tests.
const TESTS: &[&str] = &["tests", "tidy"];

/// What the pure crates may use of the world. None of it waits, connects or has a clock.
const PURE: &[(&str, &[&str])] = &[
    ("domain", &["thiserror"]),
    ("serving", &["thiserror", "serde"]),
    // `bytes`, `prost` and `sha2` encode messages and records, `hmac` proves keys; `tracing` only logs.
    ("node", &["thiserror", "bytes", "half", "hmac", "prost", "sha2", "tracing"]),
    ("checker", &["thiserror"]),
    ("estimator", &["thiserror", "serde", "rand_xoshiro"]),
    ("mip", &["tracing", "highs", "highs-sys"]),
    ("planning", &["thiserror", "serde", "rayon", "tracing"]),
    ("reference", &["thiserror", "good_lp"]),
];

/// What the agent's binary must do without: it is small, and has neither solver nor database.
const NOT_IN_AGENT: &[&str] = &[
    "highs",
    "highs-sys",
    "good_lp",
    "sqlx",
    "sqlx-core",
    "utoipa",
    "apportion-planning",
    "apportion-api",
    "apportion-estimator",
];

/// The reference formulations' own: `good_lp` is a second way to a solver, and only one crate goes it.
const REFERENCE_ONLY: &[&str] = &["good_lp", "microlp"];

/// One crate's dependencies, without those of its tests.
struct Package {
    ours: BTreeSet<String>,
    others: BTreeSet<String>,
    test_ours: BTreeSet<String>,
}

fn cargo(args: &[&str]) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command.args(args).current_dir(apportion_tidy::root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn packages() -> BTreeMap<String, Package> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let text = |v: &Value| v.as_str().expect("a string").to_owned();
    let mut packages = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let mut sorted = Package { ours: BTreeSet::new(), others: BTreeSet::new(), test_ours: BTreeSet::new() };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = text(&dependency["name"]);
            let test_only = dependency["kind"].as_str() == Some("dev");
            match (name.strip_prefix("apportion-"), test_only) {
                (Some(ours), false) => sorted.ours.insert(ours.to_owned()),
                (Some(ours), true) => sorted.test_ours.insert(ours.to_owned()),
                (None, false) => sorted.others.insert(name),
                (None, true) => false,
            };
        }
        let name = text(&package["name"]);
        let name = name.strip_prefix("apportion-").unwrap_or_else(|| panic!("{name} is called apportion-.."));
        packages.insert(name.to_owned(), sorted);
    }
    packages
}

fn allowed(table: &[(&str, &'static [&'static str])], name: &str) -> Option<BTreeSet<String>> {
    let row = table.iter().find(|(n, _)| *n == name)?;
    Some(row.1.iter().map(|n| (*n).to_owned()).collect())
}

#[test]
fn every_crate_keeps_to_its_arrows() {
    let packages = packages();
    for (name, package) in &packages {
        if TESTS.contains(&name.as_str()) {
            continue;
        }
        let allowed = allowed(ARROWS, name).unwrap_or_else(|| panic!("crate {name} has no row in ARROWS: give it one"));
        let wrong: Vec<_> = package.ours.difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} uses {wrong:?}; it may use {allowed:?}");
    }
    for (name, _) in ARROWS {
        assert!(packages.contains_key(*name), "ARROWS has a row for {name}, which is no crate");
    }
}

#[test]
fn the_checker_never_meets_a_planner_not_even_in_tests() {
    let checker = &packages()["checker"];
    for planner in ["planning", "estimator"] {
        assert!(!checker.ours.contains(planner) && !checker.test_ours.contains(planner), "the checker uses {planner}");
    }
}

#[test]
fn pure_crates_use_nothing_that_waits_or_connects() {
    let packages = packages();
    for (name, _) in PURE {
        let allowed = allowed(PURE, name).expect("its own row");
        let wrong: Vec<_> = packages[*name].others.difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} uses {wrong:?}; a pure crate may use {allowed:?}");
    }
}

#[test]
fn only_the_reference_formulations_use_good_lp() {
    let packages = packages();
    let users = packages.iter().filter(|(_, package)| REFERENCE_ONLY.iter().any(|name| package.others.contains(*name)));
    assert_eq!(users.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["reference"]);
    for service in ["api", "planning"] {
        assert!(!packages[service].ours.contains("reference"), "{service} uses the reference formulations");
    }
}

#[test]
fn the_agent_has_neither_solver_nor_database() {
    let tree = cargo(&["tree", "--package", "apportion-executor", "--edges", "normal", "--prefix", "none", "--offline"]);
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("apportion-serving") && names.contains("ort"), "what the agent does use: {names:?}");
    let wrong: Vec<_> = NOT_IN_AGENT.iter().filter(|n| names.contains(*n)).collect();
    assert!(wrong.is_empty(), "the agent links {wrong:?}");
}
