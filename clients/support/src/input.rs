//! How are the files that a command line names read?

use crate::exit::Failure;
use apportion_domain::{ArrivalTrace, Plan, Problem};
use apportion_wire::{AnyPlan, BadInput, ProblemFile, parse_tree};

/// The bytes of a file.
///
/// # Errors
/// If the file cannot be read.
pub fn read_bytes(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|e| {
        let found = format!("cannot be read ({e})");
        BadInput::one(file, "", found, "a file that exists and may be read").into()
    })
}

/// The text of a file.
///
/// # Errors
/// If the file cannot be read, or is not UTF-8.
pub fn read_text(file: &str) -> Result<String, Failure> {
    String::from_utf8(read_bytes(file)?).map_err(|e| {
        let at = format!("byte {}", e.utf8_error().valid_up_to());
        BadInput::one(file, at, "not UTF-8", "text in UTF-8").into()
    })
}

/// Refuses a model file where a command reads a file about models.
///
/// # Errors
/// If the name ends as that of an ONNX file does. `expected` says which file the command reads.
pub fn refuse_model_file(file: &str, expected: &str) -> Result<(), Failure> {
    if file.to_ascii_lowercase().ends_with(".onnx") {
        let expected = format!("{expected}; `apportion init {file}` drafts a pipeline file");
        return Err(BadInput::one(file, "", "a model file", expected).into());
    }
    Ok(())
}

/// The problem of either kind in a file.
///
/// # Errors
/// If the file cannot be read, or holds no valid problem.
pub fn read_problem(file: &str) -> Result<ProblemFile, Failure> {
    let text = read_text(file)?;
    apportion_wire::read_problem(file, &text).map_err(|refused| other_kind(file, &text).unwrap_or(refused).into())
}

/// The refusal of a file that is no problem, if its keys say that it is a pipeline or a profile.
fn other_kind(file: &str, text: &str) -> Option<BadInput> {
    let tree = parse_tree(file, text).ok()?;
    let has = |key: &str| tree.get(key).is_some();
    let (found, expected) = match (has("pipelines"), has("tasks"), has("rows")) {
        (false, true, _) => ("a pipeline file", format!("a problem file: apportion profile {file} --out problem.json")),
        (false, false, true) => {
            ("a profile", format!("a problem file: apportion plan {file} .. --problem-out problem.json"))
        }
        _ => return None,
    };
    Some(BadInput::one(file, "", found, expected))
}

/// The allocation problem in a file.
///
/// # Errors
/// As [`read_problem`], and if the file holds a scaling problem.
pub fn read_allocation_problem(file: &str) -> Result<Problem, Failure> {
    match read_problem(file)? {
        ProblemFile::Allocation(problem) => Ok(problem),
        ProblemFile::Scaling(_) => {
            let expected = "a problem with pipelines: scaling problems are planned, checked and compared by `diff`";
            Err(BadInput::one(file, "/scaling", "a scaling problem", expected).into())
        }
    }
}

/// The plan of either kind in a file.
///
/// # Errors
/// If the file cannot be read, or holds no valid plan.
pub fn read_plan(file: &str) -> Result<AnyPlan, Failure> {
    Ok(apportion_wire::read_any_plan(file, &read_text(file)?)?)
}

/// The plan for `problem` in a file.
///
/// # Errors
/// If the file cannot be read, or holds no plan for this problem.
pub fn read_plan_for(problem: &Problem, file: &str) -> Result<Plan, Failure> {
    Ok(apportion_wire::read_plan_for(problem, file, &read_text(file)?)?)
}

/// The trace in a file. `column` names the column of rates.
///
/// # Errors
/// If the file cannot be read, or holds no valid trace.
pub fn read_trace(file: &str, column: Option<&str>) -> Result<ArrivalTrace, Failure> {
    Ok(apportion_wire::read_trace(file, read_bytes(file)?, column)?)
}
