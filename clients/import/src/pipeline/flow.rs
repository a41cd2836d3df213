//! How are steps that follow each other written as a pipeline file?

use crate::draft::{comment, scalar};
use apportion_wire::BadInput;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The objective of a draft, in milliseconds.
const SLO_MS: u32 = 500;

/// A draft of a pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPipeline {
    /// The pipeline file. Its comments say what its reader must decide.
    pub yaml: String,
    /// What a pipeline file cannot express, one sentence each.
    pub remarks: Vec<String>,
}

/// A model that does a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowVariant {
    pub name: String,
    /// Its file, if it is known.
    pub model: Option<String>,
}

/// A tensor of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowTensor {
    pub name: String,
    /// In the words of the Open Inference Protocol.
    pub datatype: &'static str,
    /// The rows first; -1 for any size.
    pub shape: Vec<i64>,
}

impl FlowTensor {
    fn to_yaml(&self) -> String {
        format!("{{name: {}, datatype: {}, shape: {:?}}}", scalar(&self.name), self.datatype, self.shape)
    }
}

/// The tensors of a step; empty where the model file says them, or nothing does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowTensors {
    pub inputs: Vec<FlowTensor>,
    pub outputs: Vec<FlowTensor>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowTask {
    pub name: String,
    pub tensors: FlowTensors,
    pub variants: Vec<FlowVariant>,
    /// Whether a query goes to one of the steps that follow, not to all.
    pub chooses: bool,
}

/// One step follows another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FlowEdge {
    pub from: usize,
    pub to: usize,
    /// Share of the queries that go this way, where the step before chooses.
    pub ratio: Option<f64>,
    /// Output of the parent by input of the child.
    pub map: BTreeMap<String, String>,
    /// What the reader must decide about it.
    pub decide: Option<String>,
}

/// Steps and their order.
#[derive(Clone, Debug)]
pub(super) struct ForeignPipeline<'a> {
    pub file: &'a str,
    pub name: String,
    pub tasks: Vec<FlowTask>,
    pub edges: Vec<FlowEdge>,
    pub remarks: Vec<String>,
}

impl<'a> ForeignPipeline<'a> {
    pub fn new(file: &'a str, name: &str) -> Self {
        Self { file, name: plain(name), tasks: Vec::new(), edges: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a step; its position. A name that is taken gets a number.
    pub fn add_task(&mut self, name: &str, variants: Vec<FlowVariant>) -> usize {
        let wanted = plain(name);
        let numbered = (2..).map(|n| format!("{wanted}-{n}"));
        let is_free = |name: &String| self.tasks.iter().all(|t| t.name != *name);
        let name = std::iter::once(wanted.clone()).chain(numbered).find(is_free).expect("more numbers than steps");
        let named = |v: FlowVariant| FlowVariant { name: plain(&v.name), model: v.model };
        let (tensors, variants) = (FlowTensors::default(), variants.into_iter().map(named).collect());
        self.tasks.push(FlowTask { name, tensors, variants, chooses: false });
        self.tasks.len() - 1
    }

    /// Adds an edge. A second one between the same steps adds its tensors to the first.
    pub fn add_edge(&mut self, edge: FlowEdge) {
        match self.edges.iter_mut().find(|e| (e.from, e.to) == (edge.from, edge.to)) {
            Some(known) => known.map.extend(edge.map),
            None => self.edges.push(edge),
        }
    }

    /// Adds a sentence for the reader, once.
    pub fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// The pipeline file.
    pub fn finish(mut self) -> Result<ImportedPipeline, BadInput> {
        self.check()?;
        for at in 0..self.tasks.len() {
            let into: Vec<&str> =
                self.edges.iter().filter(|e| e.to == at).map(|e| self.tasks[e.from].name.as_str()).collect();
            if into.len() > 1 {
                let remark =
                    format!("{} waits for {}: its queries are those of {}", self.tasks[at].name, into.join(", "), into[0]);
                self.remark(remark);
            }
        }
        Ok(ImportedPipeline { yaml: self.to_yaml(), remarks: self.remarks })
    }

    /// A pipeline begins with one task and has no cycle; where a task chooses, all its edges have a ratio.
    fn check(&self) -> Result<(), BadInput> {
        let names = |of: &mut dyn Iterator<Item = usize>| -> String {
            of.map(|t| self.tasks[t].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let refused = |found: String, expected: &str| Err(BadInput::one(self.file, "", found, expected));
        if self.tasks.is_empty() {
            return refused("no steps".to_owned(), "a graph with at least one step");
        }
        let mut left: BTreeSet<usize> = (0..self.tasks.len()).collect();
        let is_fed = |t: usize, left: &BTreeSet<usize>| self.edges.iter().any(|e| e.to == t && left.contains(&e.from));
        while let Some(&next) = left.iter().find(|&&t| !is_fed(t, &left)) {
            left.remove(&next);
        }
        if !left.is_empty() {
            return refused(format!("a cycle through or before {}", names(&mut left.into_iter())), "no cycle");
        }
        let roots = || (0..self.tasks.len()).filter(|&t| self.edges.iter().all(|e| e.to != t));
        if roots().count() != 1 {
            let found = format!("{} steps that take the request ({})", roots().count(), names(&mut roots()));
            return refused(found, "one first step; put a step before them, or plan each way as a pipeline of its own");
        }
        let mixed = |t: usize| self.tasks[t].chooses && self.edges.iter().any(|e| e.from == t && e.ratio.is_none());
        match (0..self.tasks.len()).find(|&t| mixed(t)) {
            Some(t) => {
                let found = format!("{} feeds a router that chooses, and other steps", self.tasks[t].name);
                refused(found, "a step of its own before the router")
            }
            None => Ok(()),
        }
    }

    fn to_yaml(&self) -> String {
        let mut text =
            format!("# A draft of {}. Each \"decide\" is a choice that the file does not make.\n", comment(self.file));
        let mut line = |content: String| writeln!(text, "{content}").expect("text does not fail");
        line(format!("name: {}", scalar(&self.name)));
        line(format!("slo_ms: {SLO_MS}   # decide: within how many milliseconds a request must be answered"));
        line("percentile: 99   # decide: how many percent of the requests".to_owned());
        line("tasks:".to_owned());
        for task in &self.tasks {
            line(format!("  - name: {}", scalar(&task.name)));
            if task.chooses {
                line("    route: one_of".to_owned());
            }
            for (key, tensors) in [("inputs", &task.tensors.inputs), ("outputs", &task.tensors.outputs)] {
                if !tensors.is_empty() {
                    let listed: Vec<String> = tensors.iter().map(FlowTensor::to_yaml).collect();
                    line(format!("    {key}: [{}]", listed.join(", ")));
                }
            }
            line("    variants:   # decide: further variants, of another accuracy and speed".to_owned());
            for variant in &task.variants {
                let model = variant.model.as_ref().map_or(String::new(), |m| format!(", model: {}", scalar(m)));
                line(format!("      - {{name: {}{model}}}", scalar(&variant.name)));
            }
        }
        if !self.edges.is_empty() {
            line("edges:".to_owned());
        }
        for (at, edge) in self.edges.iter().enumerate() {
            line(self.edge_line(at, edge));
        }
        text
    }

    fn edge_line(&self, at: usize, edge: &FlowEdge) -> String {
        let (from, to) = (scalar(&self.tasks[edge.from].name), scalar(&self.tasks[edge.to].name));
        let mut text = format!("  - {{from: {from}, to: {to}");
        if let Some(ratio) = edge.ratio {
            write!(text, ", ratio: {ratio}").expect("text does not fail");
        }
        let first = self.edges.iter().position(|e| e.to == edge.to);
        if self.edges.iter().filter(|e| e.to == edge.to).count() > 1 {
            write!(text, ", primary: {}", first == Some(at)).expect("text does not fail");
        }
        if !edge.map.is_empty() {
            let pairs: Vec<String> =
                edge.map.iter().map(|(input, output)| format!("{}: {}", scalar(input), scalar(output))).collect();
            write!(text, ", map: {{{}}}", pairs.join(", ")).expect("text does not fail");
        }
        let decide = edge.decide.as_ref().map_or(String::new(), |what| format!("   # decide: {}", comment(what)));
        format!("{text}}}{decide}")
    }
}

/// A name without the characters that separate names in paths.
fn plain(name: &str) -> String {
    name.replace(['>', ':'], "-")
}
