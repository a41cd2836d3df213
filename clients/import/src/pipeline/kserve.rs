//! How is an `InferenceGraph` of KServe read (`serving.kserve.io/v1alpha1`)?
//!
//! The keys are those of "InferenceGraph general spec" in KServe's documentation. A `Sequence` is a chain, an `Ensemble` is
//! steps side by side, a `Switch` goes to one of its steps. A `Splitter` between services is one task, and the services are
//! its variants: what a splitter divides by weights, a plan divides by accuracy and cost.

use super::flow::{FlowEdge, FlowVariant, ForeignPipeline, ImportedPipeline};
use super::tree::ReadValue;
use apportion_wire::{BadInput, parse_tree};

/// The keys that name the target of a step.
const TARGETS: [&str; 3] = ["serviceName", "serviceUrl", "nodeName"];

/// The steps that feed a step.
#[derive(Clone, Debug, Default)]
struct Before {
    tasks: Vec<usize>,
    /// Share of the queries, and the choice behind it, below a router that chooses.
    ratio: Option<(f64, String)>,
}

/// The last steps of a part of the graph.
#[derive(Clone, Debug)]
struct Ends {
    tasks: Vec<usize>,
    /// Whether a query passes only one of them.
    only_one: bool,
}

struct Graph<'a> {
    nodes: ReadValue<'a>,
    flow: ForeignPipeline<'a>,
    /// The nodes that are being read, the outermost first.
    open: Vec<String>,
}

pub(super) fn read(file: &str, text: &str) -> Result<ImportedPipeline, BadInput> {
    let tree = parse_tree(file, text)?;
    let root = ReadValue::root(file, &tree);
    root.check_kind("InferenceGraph")?;
    let metadata = root.get("metadata");
    let name = metadata.as_ref().map(|m| m.text_of("name")).transpose()?.flatten();
    let nodes = root.need("spec", "the spec of the graph")?.need("nodes", "the nodes of the graph, by name")?;
    let mut graph = Graph { nodes, flow: ForeignPipeline::new(file, name.unwrap_or("main")), open: Vec::new() };
    let at = graph.nodes.clone();
    graph.node("root", &at, &Before::default())?;
    graph.flow.finish()
}

impl<'a> Graph<'a> {
    /// Adds the steps of a node. `at` is the place that names it.
    fn node(&mut self, name: &str, at: &ReadValue<'a>, before: &Before) -> Result<Ends, BadInput> {
        if self.open.iter().any(|open| open == name) {
            return Err(at.refused(format!("the node {name:?} inside itself"), "a graph without a cycle"));
        }
        let node =
            self.nodes.need(name, &format!("a node {name:?}")).map_err(|error| match at.pointer == self.nodes.pointer {
                true => error,
                false => at.refused(format!("{name:?}"), "the name of a node of this graph"),
            })?;
        self.open.push(name.to_owned());
        let router = node.need("routerType", "Sequence, Splitter, Ensemble or Switch")?;
        let steps = node.need("steps", "the steps of the node")?.items()?;
        if steps.is_empty() {
            return Err(node.refused("no steps", "at least one step"));
        }
        let ends = match router.text()? {
            "Sequence" => self.sequence(&steps, before),
            "Ensemble" => self.ensemble(&steps, before),
            "Switch" => {
                let ratio = 1.0 / steps.len() as f64;
                let shares =
                    steps.iter().map(|step| condition(step).map(|when| (ratio, when))).collect::<Result<_, _>>()?;
                self.chosen(&node, &steps, before, shares)
            }
            "Splitter" if steps.iter().all(|step| step.get("nodeName").is_none()) => self.variants(name, &steps, before),
            "Splitter" => self.chosen(&node, &steps, before, weights(&node, &steps)?),
            other => Err(router.refused(format!("{other:?}"), "Sequence, Splitter, Ensemble or Switch")),
        }?;
        self.open.pop();
        Ok(ends)
    }

    fn sequence(&mut self, steps: &[ReadValue<'a>], before: &Before) -> Result<Ends, BadInput> {
        let mut before = before.clone();
        let mut ends = Ends { tasks: Vec::new(), only_one: false };
        for (at, step) in steps.iter().enumerate() {
            if ends.only_one {
                let expected = "the step at the end of each way: behind a choice, a pipeline does not come together again";
                return Err(step.refused("a step behind a node that chooses", expected));
            }
            if let Some(when) = step.text_of("condition")? {
                self.flow.remark(format!(
                    "{}: a query goes on only if {when}; the ratio of the edge says how many do",
                    step.pointer
                ));
            }
            if at > 0 && step.text_of("data")? != Some("$response") {
                self.flow.remark(format!("{}: the step takes the request, not the answer before it", step.pointer));
            }
            ends = self.step(step, &before)?;
            before = Before { tasks: ends.tasks.clone(), ratio: None };
        }
        Ok(ends)
    }

    fn ensemble(&mut self, steps: &[ReadValue<'a>], before: &Before) -> Result<Ends, BadInput> {
        let mut all = Ends { tasks: Vec::new(), only_one: false };
        for step in steps {
            let ends = self.step(step, before)?;
            all.only_one |= ends.only_one;
            all.tasks.extend(ends.tasks);
        }
        Ok(all)
    }

    /// The steps of a router that chooses one of them, each with its share and the reason of the choice.
    fn chosen(
        &mut self,
        node: &ReadValue<'a>,
        steps: &[ReadValue<'a>],
        before: &Before,
        shares: Vec<(f64, String)>,
    ) -> Result<Ends, BadInput> {
        let [chooser] = before.tasks[..] else {
            let found = format!("a router that chooses behind {} steps", before.tasks.len());
            return Err(node.refused(found, "one step before it: a task of a pipeline chooses by its answer"));
        };
        self.flow.tasks[chooser].chooses = true;
        let mut all = Ends { tasks: Vec::new(), only_one: steps.len() > 1 };
        for (step, (share, why)) in steps.iter().zip(shares) {
            let outer = before.ratio.as_ref().map_or(1.0, |(ratio, _)| *ratio);
            let before = Before { tasks: vec![chooser], ratio: Some((share * outer, why)) };
            all.tasks.extend(self.step(step, &before)?.tasks);
        }
        Ok(all)
    }

    /// A splitter between services: one task.
    fn variants(&mut self, name: &str, steps: &[ReadValue<'a>], before: &Before) -> Result<Ends, BadInput> {
        let services = steps.iter().map(service).collect::<Result<Vec<_>, _>>()?;
        let variants = services.iter().map(|name| FlowVariant { name: (*name).to_owned(), model: None }).collect();
        self.flow
            .remark(format!("the splitter {name:?} is one task, and its services are variants: plans divide the queries"));
        Ok(self.add(name, variants, before))
    }

    fn step(&mut self, step: &ReadValue<'a>, before: &Before) -> Result<Ends, BadInput> {
        let targets = TARGETS.iter().filter(|key| step.get(key).is_some()).count();
        if targets != 1 {
            return Err(step.refused(format!("{targets} targets"), format!("one of {}", TARGETS.join(", "))));
        }
        if let Some(node) = step.get("nodeName") {
            return self.node(node.text()?, &node, before);
        }
        let service = service(step)?;
        let name = step.text_of("name")?.unwrap_or(service);
        let variants = vec![FlowVariant { name: service.to_owned(), model: None }];
        Ok(self.add(name, variants, before))
    }

    fn add(&mut self, name: &str, variants: Vec<FlowVariant>, before: &Before) -> Ends {
        let to = self.flow.add_task(name, variants);
        for &from in &before.tasks {
            let ratio = before.ratio.as_ref().map(|(ratio, _)| *ratio);
            let decide = before.ratio.as_ref().map(|(_, why)| why.clone());
            self.flow.add_edge(FlowEdge { from, to, ratio, decide, ..FlowEdge::default() });
        }
        Ends { tasks: vec![to], only_one: false }
    }
}

/// The service of a step.
fn service<'a>(step: &ReadValue<'a>) -> Result<&'a str, BadInput> {
    match step.text_of("serviceName")? {
        Some(name) => Ok(name),
        None => step.need("serviceUrl", "serviceName or serviceUrl")?.text(),
    }
}

/// The choice of a step of a switch.
fn condition(step: &ReadValue<'_>) -> Result<String, BadInput> {
    let when = step.text_of("condition")?.unwrap_or("no other condition holds");
    Ok(format!("the share of the queries for which {when}"))
}

/// Shares by weight.
fn weights(node: &ReadValue<'_>, steps: &[ReadValue<'_>]) -> Result<Vec<(f64, String)>, BadInput> {
    let weight = |step: &ReadValue<'_>| {
        let weight = step.need("weight", "a weight from 0 to 100")?;
        let number = weight.value.as_f64().filter(|w| (0.0..=100.0).contains(w));
        number.ok_or_else(|| weight.refused(weight.value.to_string(), "a weight from 0 to 100"))
    };
    let all = steps.iter().map(weight).collect::<Result<Vec<f64>, BadInput>>()?;
    let total: f64 = all.iter().sum();
    if total <= 0.0 {
        return Err(node.refused("weights that sum to 0", "weights that sum to 100"));
    }
    Ok(all.iter().map(|w| (w / total, "whether these weights stay".to_owned())).collect())
}
