//! How do JSON forms become nouns of the domain? Names become positions, absent values become defaults, and every refusal
//! gets its pointer.

use crate::bad_input::{near, near_named};
use crate::shape_check::{RowTimes, check_same_shapes, row_times};
use crate::spec::{
    DeployedSpec, EdgeSpec, HardwareSpec, ObjectiveSpec, PipelineSpec, ProfileRowSpec, ServingSpec, TaskSpec, VariantSpec,
};
use apportion_domain::pipeline::{TASKS_MAX, escape};
use apportion_domain::{
    AccuracyModel, Batching, Deployed, Dropping, Edge, FanoutCounts, Hardware, HardwareIndex, Invalid, Invalids,
    LatencyRule, Mode, Objective, Partial, PathAccuracy, Pipeline, PipelineDraft, PipelineIndex, Profile, ProfileRow,
    Queueing, Route, RoutingPolicy, ServingWishes, Share, Task, TaskIndex, TaskKind, Variant, VariantIndex,
};
use std::collections::{BTreeMap, BTreeSet};

impl From<&HardwareSpec> for Hardware {
    fn from(spec: &HardwareSpec) -> Self {
        Self {
            name: spec.name.clone(),
            price_per_hour: spec.price_per_hour,
            count: spec.count,
            memory_mib: spec.memory_mib,
        }
    }
}

impl From<&Hardware> for HardwareSpec {
    fn from(h: &Hardware) -> Self {
        Self { name: h.name.clone(), price_per_hour: h.price_per_hour, count: h.count, memory_mib: h.memory_mib }
    }
}

/// Positions by name.
struct Names<'a> {
    what: &'static str,
    by_name: BTreeMap<&'a str, usize>,
    in_order: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn new(what: &'static str, names: impl Iterator<Item = &'a str>) -> Self {
        let in_order: Vec<_> = names.collect();
        let mut by_name = BTreeMap::new();
        for (i, name) in in_order.iter().enumerate() {
            by_name.entry(*name).or_insert(i);
        }
        Self { what, by_name, in_order }
    }

    fn find(&self, name: &str, at: impl Into<String>, problems: &mut Vec<Invalid>) -> Option<usize> {
        let found = self.by_name.get(name).copied();
        if found.is_none() {
            let expected = near_named(self.what, name, self.in_order.iter().copied());
            problems.push(Invalid::new(at, format!("unknown {} {name:?}", self.what), expected));
        }
        found
    }
}

/// A word of the domain, or its default if absent. An unknown word is refused; those of files are refused earlier.
fn parse_word<T: Default>(
    given: Option<&str>,
    from_name: fn(&str) -> Option<T>,
    names: &[&str],
    at: impl Fn() -> String,
    problems: &mut Vec<Invalid>,
) -> T {
    let Some(given) = given else { return T::default() };
    from_name(given).unwrap_or_else(|| {
        problems.push(Invalid::new(at(), format!("{given:?}"), near(given, names.iter().copied())));
        T::default()
    })
}

pub(crate) fn share_at(value: Option<f64>, at: impl Fn() -> String, problems: &mut Vec<Invalid>) -> Share {
    let value = value.unwrap_or(1.0);
    Share::new(value).unwrap_or_else(|| {
        problems.push(Invalid::new(at(), value, "a share of 1, 0.5, 0.25 or 0.125"));
        Share::WHOLE
    })
}

/// The objective; `at` is its pointer.
///
/// # Errors
/// Unknown words.
pub fn objective_of(spec: &ObjectiveSpec, at: &str) -> Result<Objective, Invalids> {
    let mut problems = Vec::new();
    let mode = parse_word(Some(spec.mode.as_str()), Mode::from_name, Mode::NAMES, || format!("{at}/mode"), &mut problems);
    let rule = spec.latency_rule.as_deref();
    let latency_rule =
        parse_word(rule, LatencyRule::from_name, LatencyRule::NAMES, || format!("{at}/latency_rule"), &mut problems);
    let objective = Objective { mode, latency_rule, budget_per_hour: spec.budget_per_hour };
    if problems.is_empty() { Ok(objective) } else { Err(Invalids(problems)) }
}

impl PipelineSpec {
    /// The pipeline with its names resolved and checked; `at` is its pointer in the file, for example `/pipelines/0`.
    ///
    /// # Errors
    /// Unknown names, missing accuracies and profiles, and all values that [`Pipeline::new`] refuses.
    pub fn to_domain(&self, hardware: &[Hardware], at: &str) -> Result<Pipeline, Invalids> {
        if self.tasks.is_empty() || self.tasks.len() > TASKS_MAX {
            let found = format!("{} tasks", self.tasks.len());
            let expected = format!("1 to {TASKS_MAX} tasks");
            return Err(Invalids(vec![Invalid::new(format!("{at}/tasks"), found, expected)]));
        }
        let mut problems = Vec::new();
        let mut seen = BTreeSet::new();
        for (t, task) in self.tasks.iter().enumerate().filter(|(_, task)| !seen.insert(&task.name)) {
            let expected = "a name that no other task has";
            problems.push(Invalid::new(format!("{at}/tasks/{t}/name"), format!("{:?}", task.name), expected));
        }
        let draft = draft_of(self, hardware, at, &mut problems);
        if !problems.is_empty() {
            return Err(Invalids(problems));
        }
        Pipeline::new(draft, hardware, at)
    }
}

fn draft_of(p: &PipelineSpec, hardware: &[Hardware], at: &str, problems: &mut Vec<Invalid>) -> PipelineDraft {
    let tasks = Names::new("task", p.tasks.iter().map(|t| t.name.as_str()));
    let hardware = Names::new("hardware type", hardware.iter().map(|h| h.name.as_str()));
    let model = p.accuracy_model.as_deref();
    let accuracy_model =
        parse_word(model, AccuracyModel::from_name, AccuracyModel::NAMES, || format!("{at}/accuracy_model"), problems);
    let partial = p.partial.as_deref();
    let default = PipelineDraft::default();
    PipelineDraft {
        name: p.name.clone(),
        demand_qps: p.demand_qps,
        slo_ms: p.slo_ms,
        percentile: p.percentile.unwrap_or(default.percentile),
        queue_factor: p.queue_factor.unwrap_or(default.queue_factor),
        network_ms: p.network_ms.unwrap_or(default.network_ms),
        network_ms_per_mib: p.network_ms_per_mib.unwrap_or(default.network_ms_per_mib),
        ingress_ms: p.ingress_ms.unwrap_or(default.ingress_ms),
        ingress_kib_per_query: p.ingress_kib_per_query.unwrap_or(default.ingress_kib_per_query),
        weight: p.weight.unwrap_or(default.weight),
        min_accuracy: p.min_accuracy,
        accuracy_model,
        path_accuracy: path_table(p, &tasks, at, problems),
        leaf_weights: by_task(&p.leaf_weights, &tasks, &format!("{at}/leaf_weights"), problems, |w| *w),
        survive: p.survive.unwrap_or(default.survive),
        partial: parse_word(partial, Partial::from_name, Partial::NAMES, || format!("{at}/partial"), problems),
        serving: wishes_of(p.serving.as_ref(), &format!("{at}/serving"), problems),
        tasks: task_list(&p.tasks, &tasks, &hardware, at, problems),
        edges: edge_list(&p.edges, &tasks, at, problems),
    }
}

fn by_task<V, T>(
    table: &BTreeMap<String, V>,
    tasks: &Names<'_>,
    at: &str,
    problems: &mut Vec<Invalid>,
    value: impl Fn(&V) -> T,
) -> BTreeMap<TaskIndex, T> {
    let mut resolved = BTreeMap::new();
    for (name, v) in table {
        if let Some(task) = tasks.find(name, format!("{at}/{}", escape(name)), problems) {
            resolved.insert(TaskIndex(task), value(v));
        }
    }
    resolved
}

fn wishes_of(spec: Option<&ServingSpec>, at: &str, problems: &mut Vec<Invalid>) -> ServingWishes {
    let Some(s) = spec else { return ServingWishes::default() };
    let place = |key: &'static str| move || format!("{at}/{key}");
    ServingWishes {
        queueing: s
            .queueing
            .as_deref()
            .map(|w| parse_word(Some(w), Queueing::from_name, Queueing::NAMES, place("queueing"), problems)),
        batching: s
            .batching
            .as_deref()
            .map(|w| parse_word(Some(w), Batching::from_name, Batching::NAMES, place("batching"), problems)),
        routing: s
            .routing
            .as_deref()
            .map(|w| parse_word(Some(w), RoutingPolicy::from_name, RoutingPolicy::NAMES, place("routing"), problems)),
        dropping: s
            .dropping
            .as_deref()
            .map(|w| parse_word(Some(w), Dropping::from_name_or_alias, Dropping::NAMES, place("dropping"), problems)),
    }
}

fn task_list(
    specs: &[TaskSpec],
    tasks: &Names<'_>,
    hardware: &Names<'_>,
    at: &str,
    problems: &mut Vec<Invalid>,
) -> Vec<Task> {
    let task = |(t, spec): (usize, &TaskSpec)| {
        let at = format!("{at}/tasks/{t}");
        let place = |key: &'static str| {
            let at = &at;
            move || format!("{at}/{key}")
        };
        let variant = |v: usize, spec, problems: &mut Vec<Invalid>| {
            variant_of(spec, tasks, hardware, &format!("{at}/variants/{v}"), problems)
        };
        Task {
            name: spec.name.clone(),
            kind: parse_word(spec.kind.as_deref(), TaskKind::from_name, TaskKind::NAMES, place("kind"), problems),
            route: parse_word(spec.route.as_deref(), Route::from_name, Route::NAMES, place("route"), problems),
            min_replicas: spec.min_replicas.unwrap_or(1),
            variants: spec.variants.iter().enumerate().map(|(v, s)| variant(v, s, problems)).collect(),
        }
    };
    specs.iter().enumerate().map(task).collect()
}

fn variant_of(
    spec: &VariantSpec,
    tasks: &Names<'_>,
    hardware: &Names<'_>,
    at: &str,
    problems: &mut Vec<Invalid>,
) -> Variant {
    if spec.accuracy.is_none() {
        let expected = "an accuracy from 0 to 1, given or measured; 1 for each variant if all are equally good";
        problems.push(Invalid::new(format!("{at}/accuracy"), "missing", expected));
    }
    let counts = |c: &BTreeMap<u32, f64>| FanoutCounts(c.iter().map(|(&n, &p)| (n, p)).collect());
    let rows = spec.profile.as_deref().unwrap_or_default();
    check_same_shapes(rows, &format!("{at}/profile"), problems);
    Variant {
        name: spec.name.clone(),
        accuracy: spec.accuracy.unwrap_or(0.0),
        fanout: spec.fanout.unwrap_or(1.0),
        fanout_to: by_task(&spec.fanout_to, tasks, &format!("{at}/fanout_to"), problems, |x| *x),
        fanout_counts: by_task(&spec.fanout_counts, tasks, &format!("{at}/fanout_counts"), problems, counts),
        load_ms: spec.load_ms.unwrap_or(0.0),
        memory_mib: spec.memory_mib,
        profile: Profile::new(
            rows.iter()
                .enumerate()
                .filter_map(|(r, row)| profile_row(row, hardware, &format!("{at}/profile/{r}"), problems))
                .collect(),
        ),
    }
}

fn profile_row(row: &ProfileRowSpec, hardware: &Names<'_>, at: &str, problems: &mut Vec<Invalid>) -> Option<ProfileRow> {
    let share = share_at(row.share, || format!("{at}/share"), problems);
    row.measured.iter().for_each(|measured| measured.check(share, &format!("{at}/measured"), problems));
    let RowTimes { p99_ms, by_shape } = row_times(row, at, problems);
    let index = hardware.find(&row.hardware, format!("{at}/hardware"), problems)?;
    Some(ProfileRow {
        hardware: HardwareIndex(index),
        share,
        batch: row.batch,
        latency_ms: row.latency_ms,
        p99_ms,
        by_shape,
    })
}

fn edge_list(specs: &[EdgeSpec], tasks: &Names<'_>, at: &str, problems: &mut Vec<Invalid>) -> Vec<Edge> {
    let mut parents: BTreeMap<&str, usize> = BTreeMap::new();
    for spec in specs {
        *parents.entry(spec.to.as_str()).or_default() += 1;
    }
    let edge = |(e, spec): (usize, &EdgeSpec)| {
        let from = tasks.find(&spec.from, format!("{at}/edges/{e}/from"), problems);
        let to = tasks.find(&spec.to, format!("{at}/edges/{e}/to"), problems);
        Some(Edge {
            from: TaskIndex(from?),
            to: TaskIndex(to?),
            ratio: spec.ratio.unwrap_or(1.0),
            primary: spec.primary.unwrap_or(parents[spec.to.as_str()] == 1),
            kib_per_query: spec.kib_per_query.unwrap_or(0.0),
            map: spec.map.clone(),
        })
    };
    specs.iter().enumerate().filter_map(edge).collect()
}

fn path_table(p: &PipelineSpec, tasks: &Names<'_>, at: &str, problems: &mut Vec<Invalid>) -> Vec<PathAccuracy> {
    let mut table = Vec::with_capacity(p.path_accuracy.len());
    for (key, &accuracy) in &p.path_accuracy {
        let place = format!("{at}/path_accuracy/{}", escape(key));
        let stages: Option<Vec<_>> = key.split('>').map(|s| parse_stage(p, s, tasks, &place, problems)).collect();
        if let Some(path) = stages {
            table.push(PathAccuracy { path, accuracy });
        }
    }
    table
}

fn parse_stage(
    p: &PipelineSpec,
    text: &str,
    tasks: &Names<'_>,
    at: &str,
    problems: &mut Vec<Invalid>,
) -> Option<(TaskIndex, VariantIndex)> {
    let Some((task, variant)) = text.trim().split_once(':') else {
        problems.push(Invalid::new(at, format!("{text:?}"), "stages \"task:variant\" joined by \">\""));
        return None;
    };
    let t = tasks.find(task, at, problems)?;
    let variants = Names::new("variant", p.tasks[t].variants.iter().map(|v| v.name.as_str()));
    let v = variants.find(variant, at, problems)?;
    Some((TaskIndex(t), VariantIndex(v)))
}

/// The groups that run now; `at` is the pointer of their list.
pub(crate) fn deployed_of(
    specs: &[DeployedSpec],
    pipelines: &[Pipeline],
    hardware: &[Hardware],
    at: &str,
) -> Result<Vec<Deployed>, Invalids> {
    let names = Names::new("pipeline", pipelines.iter().map(|p| p.name.as_str()));
    let hardware = Names::new("hardware type", hardware.iter().map(|h| h.name.as_str()));
    let mut problems = Vec::new();
    let mut resolved = Vec::with_capacity(specs.len());
    for (d, spec) in specs.iter().enumerate() {
        let at = format!("{at}/{d}");
        if spec.batch == 0 {
            problems.push(Invalid::new(format!("{at}/batch"), 0, "a batch of at least 1"));
        }
        let share = share_at(spec.share, || format!("{at}/share"), &mut problems);
        let on = hardware.find(&spec.hardware, format!("{at}/hardware"), &mut problems);
        let Some(p) = names.find(&spec.pipeline, format!("{at}/pipeline"), &mut problems) else { continue };
        let tasks = Names::new("task", pipelines[p].tasks.iter().map(|t| t.name.as_str()));
        let Some(t) = tasks.find(&spec.task, format!("{at}/task"), &mut problems) else { continue };
        let variants = Names::new("variant", pipelines[p].tasks[t].variants.iter().map(|v| v.name.as_str()));
        let variant = variants.find(&spec.variant, format!("{at}/variant"), &mut problems);
        if let (Some(h), Some(v)) = (on, variant) {
            resolved.push(Deployed {
                pipeline: PipelineIndex(p),
                task: TaskIndex(t),
                variant: VariantIndex(v),
                hardware: HardwareIndex(h),
                share,
                batch: spec.batch,
                replicas: spec.replicas,
            });
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(Invalids(problems)) }
}
