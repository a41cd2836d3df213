//! How does a problem file become a problem: allocation of variants, or scaling?

use crate::bad_input::{BadInput, near_named};
use crate::check::read;
use crate::convert::{deployed_of, objective_of};
use crate::record::{FileKind, record};
use crate::scaling_spec::{ApplicationSpec, ScalingFileSpec, ScalingSpec, ScalingVariantSpec};
use crate::spec::{HardwareSpec, ProblemSpec};
use crate::tree::parse_tree;
use apportion_domain::pipeline::{NUMBER_MAX, escape};
use apportion_domain::problem::check_hardware;
use apportion_domain::{Application, Hardware, Invalid, Invalids, Problem, ProblemDraft, ScalingProblem, ScalingVariant};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most applications of a scaling problem.
pub const APPLICATIONS_MAX: usize = 4_096;
/// Most variants of one of its applications.
pub const APPLICATION_VARIANTS_MAX: usize = 256;
/// Most resources of a scaling problem.
pub const RESOURCES_MAX: usize = 256;
/// The only version of the file formats so far.
pub const VERSION: u32 = 1;

record! {
    /// A list of hardware types.
    #[derive(serde::Deserialize)]
    struct HardwareList {
        /// The types.
        hardware: Vec<HardwareSpec> => required,
    }
}

/// The content of a problem file.
#[derive(Clone, Debug, PartialEq)]
pub enum ProblemFile {
    /// Pipelines to plan.
    Allocation(Problem),
    /// A scaling problem (INFaaS section 4.2.1).
    Scaling(ScalingProblem),
}

/// Reads a problem file, JSON or YAML.
///
/// # Errors
/// Every refused value with its pointer and what would be right.
pub fn read_problem(file: &str, text: &str) -> Result<ProblemFile, BadInput> {
    problem_from_tree(file, parse_tree(file, text)?)
}

/// Reads a problem from a parsed tree, for example from a part of a request's body.
///
/// # Errors
/// As [`read_problem`].
pub fn problem_from_tree(file: &str, tree: Value) -> Result<ProblemFile, BadInput> {
    check_version(file, &tree)?;
    if tree.get("scaling").is_some() {
        let spec: ScalingFileSpec = read(file, tree, FileKind::ScalingProblem, &ScalingFileSpec::RECORD)?;
        let problem = spec.scaling.to_domain("/scaling").map_err(|e| BadInput::refused(file, e))?;
        return Ok(ProblemFile::Scaling(problem));
    }
    let spec: ProblemSpec = read(file, tree, FileKind::Problem, &ProblemSpec::RECORD)?;
    spec.to_domain().map(ProblemFile::Allocation).map_err(|e| BadInput::refused(file, e))
}

/// Refuses other versions of the format, before the file is checked.
pub(crate) fn check_version(file: &str, tree: &Value) -> Result<(), BadInput> {
    match tree.get("version") {
        Some(v) if v.as_u64() != Some(u64::from(VERSION)) => {
            Err(BadInput::one(file, "/version", crate::bad_input::shown(v), format!("{VERSION}")))
        }
        _ => Ok(()),
    }
}

/// Reads a list of hardware types (for example the body that registers them).
///
/// # Errors
/// As [`read_problem`]; places are below `/hardware`.
pub fn hardware_from_tree(file: &str, tree: Value) -> Result<Vec<Hardware>, BadInput> {
    let tree = serde_json::json!({ "hardware": tree });
    let list: HardwareList = read(file, tree, FileKind::HardwareList, &HardwareList::RECORD)?;
    let hardware: Vec<Hardware> = list.hardware.iter().map(Hardware::from).collect();
    let invalids = check_hardware(&hardware);
    if invalids.0.is_empty() { Ok(hardware) } else { Err(BadInput::refused(file, invalids)) }
}

impl ProblemSpec {
    /// The problem with its names resolved and checked.
    ///
    /// # Errors
    /// Every refused value with its pointer.
    pub fn to_domain(&self) -> Result<Problem, Invalids> {
        let hardware: Vec<Hardware> = self.hardware.iter().map(Hardware::from).collect();
        let mut problems = check_hardware(&hardware).0;
        let objective = objective_of(&self.objective, "/objective").map_err(|e| problems.extend(e.0)).ok();
        let mut pipelines = Vec::with_capacity(self.pipelines.len());
        for (i, spec) in self.pipelines.iter().enumerate() {
            match spec.to_domain(&hardware, &format!("/pipelines/{i}")) {
                Ok(pipeline) => pipelines.push(pipeline),
                Err(e) => problems.extend(e.0),
            }
        }
        let Some(objective) = objective.filter(|_| problems.is_empty()) else { return Err(Invalids(problems)) };
        let deployed = deployed_of(&self.deployed, &pipelines, &hardware, "/deployed")?;
        let switching_weight = self.switching.as_ref().map_or(0.0, |s| s.weight);
        let notes = self.notes.clone();
        Problem::new(ProblemDraft { objective, hardware, pipelines, deployed, switching_weight, notes })
    }
}

impl ScalingSpec {
    /// The scaling problem, checked; `at` is its pointer.
    ///
    /// # Errors
    /// Every refused value with its pointer.
    pub fn to_domain(&self, at: &str) -> Result<ScalingProblem, Invalids> {
        let mut problems = Vec::new();
        number(&format!("{at}/lambda"), self.lambda, 0.0, &mut problems);
        for (name, &amount) in &self.resources {
            number(&format!("{at}/resources/{}", escape(name)), amount, 0.0, &mut problems);
        }
        let count = self.applications.len();
        if count == 0 || count > APPLICATIONS_MAX {
            let expected = format!("1 to {APPLICATIONS_MAX} applications");
            problems.push(Invalid::new(format!("{at}/applications"), format!("a list of {count}"), expected));
        }
        if self.resources.len() > RESOURCES_MAX {
            let found = format!("{} resources", self.resources.len());
            problems.push(Invalid::new(format!("{at}/resources"), found, format!("at most {RESOURCES_MAX} resources")));
        }
        unique(self.applications.iter().map(|a| &a.name), &format!("{at}/applications"), &mut problems);
        for (i, a) in self.applications.iter().enumerate() {
            check_application(a, &self.resources, &format!("{at}/applications/{i}"), &mut problems);
        }
        if !problems.is_empty() {
            return Err(Invalids(problems));
        }
        let applications = self.applications.iter().map(application_of).collect();
        Ok(ScalingProblem { lambda: self.lambda, resources: self.resources.clone(), applications })
    }
}

fn number(at: &str, value: f64, least: f64, problems: &mut Vec<Invalid>) {
    if !(value >= least && value <= NUMBER_MAX) {
        problems.push(Invalid::new(at, value, format!("a number of at least {least}, at most 1e12")));
    }
}

fn positive(at: &str, value: f64, problems: &mut Vec<Invalid>) {
    if !(value > 0.0 && value <= NUMBER_MAX) {
        problems.push(Invalid::new(at, value, "a number above 0, at most 1e12"));
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a String>, at: &str, problems: &mut Vec<Invalid>) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if name.is_empty() || !seen.insert(name) {
            problems.push(Invalid::new(format!("{at}/{i}/name"), format!("{name:?}"), "a name that no other has"));
        }
    }
}

fn check_application(a: &ApplicationSpec, resources: &BTreeMap<String, f64>, at: &str, problems: &mut Vec<Invalid>) {
    number(&format!("{at}/load_qps"), a.load_qps, 0.0, problems);
    number(&format!("{at}/slack_qps"), a.slack_qps, 0.0, problems);
    positive(&format!("{at}/slo_ms"), a.slo_ms, problems);
    let count = a.variants.len();
    if count == 0 || count > APPLICATION_VARIANTS_MAX {
        let expected = format!("1 to {APPLICATION_VARIANTS_MAX} variants");
        problems.push(Invalid::new(format!("{at}/variants"), format!("a list of {count}"), expected));
    }
    unique(a.variants.iter().map(|v| &v.name), &format!("{at}/variants"), problems);
    for (i, v) in a.variants.iter().enumerate() {
        let at = format!("{at}/variants/{i}");
        positive(&format!("{at}/saturation_qps"), v.saturation_qps, problems);
        positive(&format!("{at}/latency_ms"), v.latency_ms, problems);
        number(&format!("{at}/load_s"), v.load_s, 0.0, problems);
        number(&format!("{at}/cost_per_s"), v.cost_per_s, 0.0, problems);
        for (name, &amount) in &v.resources {
            let place = format!("{at}/resources/{}", escape(name));
            number(&place, amount, 0.0, problems);
            if !resources.contains_key(name) {
                let expected = near_named("resource", name, resources.keys().map(String::as_str));
                problems.push(Invalid::new(place, format!("unknown resource {name:?}"), expected));
            }
        }
    }
}

fn application_of(a: &ApplicationSpec) -> Application {
    let variant = |v: &ScalingVariantSpec| ScalingVariant {
        name: v.name.clone(),
        saturation_qps: v.saturation_qps,
        latency_ms: v.latency_ms,
        load_s: v.load_s,
        cost_per_s: v.cost_per_s,
        resources: v.resources.clone(),
        running: v.running,
    };
    Application {
        name: a.name.clone(),
        load_qps: a.load_qps,
        slack_qps: a.slack_qps,
        slo_ms: a.slo_ms,
        variants: a.variants.iter().map(variant).collect(),
    }
}
