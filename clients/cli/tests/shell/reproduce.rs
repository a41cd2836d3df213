//! What does `reproduce` print and write?

use super::program::apportion;
use std::path::Path;

/// Runs one comparison with tiny settings: what it prints, and its page.
fn quick(name: &str, out: &Path) -> (String, String) {
    let output = apportion(&["reproduce", name, "--quick", "--out", out.to_str().expect("text")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{name}");
    let page = std::fs::read_to_string(out.join("index.html")).expect("the page");
    (String::from_utf8(output.stdout).expect("text"), page)
}

#[test]
fn a_comparison_writes_a_page_that_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, page) = quick("inferline-cost", folder.path());
    for shown in ["greedy", "cg-mean", "cg-peak", "cost/h", "here:"] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    assert!(
        page.contains("<svg")
            && page.contains("id=\"inferline-cost\"")
            && !page.contains("<script")
            && !page.contains("src="),
        "{page}"
    );
    let svg = std::fs::read_to_string(folder.path().join("inferline-cost-1.svg")).expect("the plot");
    assert!(svg.contains("cg-peak"), "{svg}");
}

#[test]
fn a_run_repeats_with_its_seed() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [first, second] = folders.each_ref().map(|f| quick("estimator-closed-forms", f.path()).0);
    let rows =
        |text: &str| text.lines().filter(|l| l.trim_start().starts_with("M/D/")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&first).len(), 12);
    assert_eq!(rows(&first), rows(&second));
    for row in rows(&first) {
        let error = row.split_whitespace().rev().nth(1).and_then(|e| e.parse::<f64>().ok()).expect("an error in percent");
        assert!(error.abs() < 30.0, "{row}: even a short run is near the formula");
    }
}

#[test]
fn unknown_names_and_folders_are_refused() {
    let unknown = apportion(&["reproduce", "pard-goodputs"]);
    assert_eq!(unknown.status.code(), Some(2));
    let missing = apportion(&["reproduce", "all", "--data", "no/such/folder"]);
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(2), "{text}");
    assert!(text.contains("--data") && text.contains("no/such/folder"), "{text}");
    let out = tempfile::tempdir().expect("a folder");
    let out = out.path().to_str().expect("text");
    for (flag, said) in [("--problem", "no/such/input"), ("--traces", "one of the protocol's sets")] {
        let refused = apportion(&["reproduce", "headline", "--quick", "--out", out, flag, "no/such/input"]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(said), "{text}");
    }
}

/// Every name that the command line knows, as its help lists them.
fn names() -> Vec<String> {
    let help = String::from_utf8(apportion(&["reproduce", "--help"]).stdout).expect("text");
    let listed =
        help.split("[possible values: ").nth(1).and_then(|rest| rest.split(']').next()).expect("names in the help");
    listed.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "all").collect()
}

#[test]
fn every_comparison_runs_and_is_documented() {
    let names = names();
    assert!(names.len() >= 15 && names.iter().any(|n| n == "headline"), "{names:?}");
    let documented = include_str!("../../../../docs/reference/reproduce.md");
    for name in &names {
        let folder = tempfile::tempdir().expect("a folder");
        let (text, page) = quick(name, folder.path());
        assert!(text.starts_with(&format!("{name}: ")) && text.contains("here: "), "{text}");
        assert!(page.contains(&format!("id=\"{name}\"")) && page.contains("<svg"), "{name}");
        assert!(documented.contains(&format!("`{name}`")), "docs/reference/reproduce.md says nothing of {name}");
    }
}
