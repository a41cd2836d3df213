//! Which groups serve a request that says its needs? INFaaS's selector (section 4.1) chooses among the pipeline's choices.
//!
//! A choice is one group of each task. To the selector a choice is a variant. Its accuracy is the pipeline's accuracy
//! with these groups. Its latency is the longest path through their full batches. Its load is the load of its busiest
//! group. The router chooses the replica within a group, so to the selector all choices are on one worker.
//!
//! A choice may have groups that are offered and not loaded. If devices have room for one replica of each, the selector
//! may answer that the choice is to be loaded.

use crate::layout::{LayoutPipeline, VariantCombination};
use crate::spare::SpareShares;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::Selector;
use apportion_serving::selector::{LoadRule, QueryNeeds, RegisteredVariant, VariantSelection, WorkerMeasurement};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNeeds {
    /// Smallest accuracy, in millionths; 0 accepts any.
    pub accuracy_ppm_min: u32,
    /// Longest latency, in nanoseconds; `u64::MAX` accepts any.
    pub latency_ns_max: u64,
    /// Highest price of a query at full use, in billionths of the currency; `u64::MAX` accepts any.
    pub price_nano_max: u64,
}

impl Default for RequestNeeds {
    fn default() -> Self {
        Self { accuracy_ppm_min: 0, latency_ns_max: u64::MAX, price_nano_max: u64::MAX }
    }
}

impl RequestNeeds {
    fn query(&self) -> QueryNeeds {
        QueryNeeds::Needs {
            application: 0,
            accuracy: self.accuracy(),
            latency: TimeSpan::from_nanos(self.latency_ns_max),
            price: if self.price_nano_max == u64::MAX { f64::INFINITY } else { self.price_nano_max as f64 / 1e9 },
        }
    }

    /// The smallest accuracy, 0 to 1.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        f64::from(self.accuracy_ppm_min) / 1e6
    }

    /// In words: `an accuracy of at least 0.9 within 40 ms`.
    fn described(&self) -> String {
        let latency = match self.latency_ns_max {
            u64::MAX => "any time".to_owned(),
            ns => format!("{} ms", TimeSpan::from_nanos(ns).as_millis()),
        };
        let price = match self.price_nano_max {
            u64::MAX => String::new(),
            nano => format!(" for at most {} per 1,000 queries", nano as f64 / 1e6),
        };
        format!("an accuracy of at least {} within {latency}{price}", self.accuracy())
    }
}

/// A request's needs, and the variants that it names.
#[derive(Clone, Copy, Debug)]
pub struct AskedChoice<'a> {
    /// Its needs.
    pub needs: RequestNeeds,
    /// Variants that must serve it, each as `variant` or `task:variant`.
    pub variants: &'a [String],
}

/// The load of a group's ready replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupLoad {
    /// How many are ready.
    pub replicas: u32,
    /// Queries that wait or run there.
    pub queued: u64,
    /// Queries that they serve per second.
    pub served_qps: f64,
    /// Time of their batches, divided by their time in the profile; 0 if none ended.
    pub slowness: f64,
}

/// The groups that serve a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenVariants {
    /// Its group at each task, by position.
    pub groups: Vec<u64>,
    /// `task:variant` of each, in the order of tasks, separated by commas.
    pub variants: String,
    /// The pipeline's accuracy with them, 0 to 1.
    pub accuracy: f64,
    /// Price of a query beyond that of the cheapest choice on offer that does what the request needs, in billionths of the
    /// currency.
    pub regret_nano: u64,
}

/// Variants that would serve a request if they were loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnloadedVariants {
    /// The offered groups without replicas, by number; if all have one, all offered groups.
    pub groups: Vec<u64>,
    /// Whether the target has a replica of each of them, so that they are being loaded.
    pub is_loading: bool,
    /// Time to load them, in nanoseconds; 0 if it is not known.
    pub load_ns: u64,
    /// `task:variant` of each task.
    pub variants: String,
}

/// Why no choice serves a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmetNeeds {
    /// No choice meets its needs, even when idle. The text names the nearest choice.
    Never(String),
    /// A choice meets its needs, but is not ready now, or there is no room for it.
    NotNow(String),
    /// A choice meets its needs, and what it lacks is being loaded, or there is room for it.
    Unloaded(UnloadedVariants),
}

/// The choices of one pipeline, with their loads.
pub struct Chooser {
    selector: Selector,
    choices: Vec<VariantCombination>,
}

/// The only worker.
const WORKER: u32 = 0;
/// The hardware type of choices that are loaded, or that no device has room for.
const HOME: u32 = 0;
/// The hardware type of choices that are being loaded for requests, or for which there is room. It has a worker of its own,
/// with room for any of them. What is being loaded takes no time to the selector, so it is never loaded twice.
const SPARE: u32 = 1;

impl Chooser {
    /// A chooser for a pipeline. No choice is ready before the first [`Chooser::report`].
    #[must_use]
    pub fn new(of: &LayoutPipeline, spare: &SpareShares<'_>) -> Self {
        let registered = |choice: &VariantCombination| {
            let missing: Vec<_> = missing_groups(of, choice).iter().map(|g| &of.groups[g]).collect();
            let is_offered = offered_groups(of, choice).next().is_some();
            let hardware = if is_offered && spare.have_room_for(&missing) { SPARE } else { HOME };
            RegisteredVariant { hardware, ..registered_variant(of, choice) }
        };
        let mut selector = Selector::new(of.choices.iter().map(registered).collect());
        assert_eq!(selector.add_worker(HOME, 0), WORKER, "the first one");
        selector.add_worker(SPARE, 1);
        Self { selector, choices: of.choices.clone() }
    }

    /// Updates the loads of the groups.
    pub fn report(&mut self, now: Moment, of: &LayoutPipeline, used: impl Fn(u64) -> GroupLoad) {
        let seen: Vec<WorkerMeasurement> =
            (0..).zip(&self.choices).filter_map(|(at, choice)| seen_load(of, at, choice, &used)).collect();
        self.selector.report(now, WORKER, 0.0, 0, &seen);
    }

    /// Chooses the groups for a request. Its rows count as sent there.
    ///
    /// # Errors
    /// [`UnmetNeeds`].
    pub fn choose(
        &mut self,
        now: Moment,
        of: &LayoutPipeline,
        asked: &AskedChoice<'_>,
        rows: u32,
    ) -> Result<ChosenVariants, UnmetNeeds> {
        let query = asked.needs.query();
        let Self { selector, choices } = self;
        let has_all = |at: u32| asked.variants.iter().all(|name| has_variant(of, &choices[at as usize], name));
        // Overloaded variants are the planner's affair, and the steward's: a request loads only what is on offer alone.
        match selector.select_among(now, query, rows, LoadRule::WhenMissing, has_all) {
            VariantSelection::Serve { variant, .. } => {
                let choice = &choices[variant as usize];
                let regret_nano = (selector.regret(query, variant, has_all) * 1e9) as u64;
                let (groups, variants) = (choice.groups.clone(), variant_names(of, choice));
                Ok(ChosenVariants { groups, variants, accuracy: choice.accuracy, regret_nano })
            }
            VariantSelection::Load { variant, .. } => {
                let choice = &choices[variant as usize];
                let (missing, variants) = (missing_groups(of, choice), variant_names(of, choice));
                let is_loading = missing.is_empty();
                let groups = if is_loading { offered_groups(of, choice).collect() } else { missing };
                let load_ns = groups.iter().map(|g| of.groups[g].load_ns).max().unwrap_or(0);
                Err(UnmetNeeds::Unloaded(UnloadedVariants { groups, is_loading, load_ns, variants }))
            }
            VariantSelection::NoRoom { variant } => {
                let choice = &choices[variant as usize];
                let is_loaded = missing_groups(of, choice).is_empty();
                let why = if is_loaded { "is not ready" } else { "no device has room for it" };
                Err(UnmetNeeds::NotNow(format!("{} would do, and {why}", variant_names(of, choice))))
            }
            VariantSelection::Nearest { variant } => {
                Err(UnmetNeeds::Never(nearest_offer(of, &choices[variant as usize], &asked.needs)))
            }
            VariantSelection::Unknown => Err(UnmetNeeds::Never(no_such_choice(of, choices, asked.variants))),
        }
    }
}

/// Says what the nearest choice can do.
fn nearest_offer(of: &LayoutPipeline, choice: &VariantCombination, needs: &RequestNeeds) -> String {
    let r = registered_variant(of, choice);
    let (names, accuracy, takes_ms) = (variant_names(of, choice), choice.accuracy, r.inference.as_millis());
    let price = match r.query_price() {
        price if price > 0.0 => format!(" for {:.6} per 1,000 queries", 1e3 * price),
        _ => String::new(),
    };
    let asked = needs.described();
    format!("no variants on offer have {asked}: the nearest are {names} with {accuracy:.4} within {takes_ms:.3} ms{price}")
}

/// Says why there is no choice with these variants.
fn no_such_choice(of: &LayoutPipeline, choices: &[VariantCombination], variants: &[String]) -> String {
    if choices.is_empty() || variants.is_empty() {
        return "the plan offers no choice of variants, or more combinations than 256".to_owned();
    }
    let is_unknown = |name: &&String| !choices.iter().any(|choice| has_variant(of, choice, name));
    match variants.iter().find(is_unknown) {
        Some(name) => {
            let all = of.groups.values().map(|g| format!("{}:{}", of.tasks[g.task].name, g.variant));
            let known: std::collections::BTreeSet<String> = all.collect();
            let known: Vec<String> = known.into_iter().collect();
            format!("no variant on offer is called {name}: expected one of {}", known.join(", "))
        }
        None => format!("no choice has all of {}: expected one variant of each task at most", variants.join(",")),
    }
}

/// Whether a choice has the variant of this name, `variant` or `task:variant`.
fn has_variant(of: &LayoutPipeline, choice: &VariantCombination, name: &str) -> bool {
    of.tasks.iter().zip(&choice.groups).any(|(task, group)| {
        let variant = of.groups[group].variant.as_str();
        let of_task = name.strip_prefix(task.name.as_str()).and_then(|rest| rest.strip_prefix(':'));
        name == variant || of_task == Some(variant)
    })
}

/// The offered groups of a choice.
fn offered_groups(of: &LayoutPipeline, choice: &VariantCombination) -> impl Iterator<Item = u64> {
    choice.groups.iter().copied().filter(move |group| of.groups[group].is_offered)
}

/// The offered groups of a choice that have no replica.
fn missing_groups(of: &LayoutPipeline, choice: &VariantCombination) -> Vec<u64> {
    offered_groups(of, choice).filter(|group| of.replicas.iter().all(|r| r.group != *group)).collect()
}

/// `task:variant` of each task.
fn variant_names(of: &LayoutPipeline, choice: &VariantCombination) -> String {
    let part = |(task, group): (&crate::layout::LayoutTask, &u64)| format!("{}:{}", task.name, of.groups[group].variant);
    of.tasks.iter().zip(&choice.groups).map(part).collect::<Vec<_>>().join(",")
}

/// Queries of each task that one request makes with these groups.
fn visits_by_task(of: &LayoutPipeline, choice: &VariantCombination) -> Vec<f64> {
    let mut visits = vec![0.0; of.tasks.len()];
    visits[of.root] = 1.0;
    for at in of.order() {
        let means = of.fanout_means(&of.groups[&choice.groups[at]]);
        for (edge, mean) in of.tasks[at].children.iter().zip(means) {
            visits[edge.to] += visits[at] * mean;
        }
    }
    visits
}

/// Time of the longest way through the pipeline: a full batch of each group, slower by `slowness`, and the hops.
fn longest_path(of: &LayoutPipeline, choice: &VariantCombination, slowness: impl Fn(u64) -> f64) -> TimeSpan {
    let mut done_ns = vec![0.0_f64; of.tasks.len()];
    // A pass for each task settles any order of the tasks.
    for _ in 0..of.tasks.len() {
        for at in 0..of.tasks.len() {
            let edges = of.tasks.iter().zip(&done_ns);
            let before = edges.filter(|(t, _)| t.children.iter().chain(&t.delays).any(|e| e.to == at));
            let before_ns = before.map(|(_, ns)| *ns).fold(0.0, f64::max);
            let group = choice.groups[at];
            let takes_ns = of.groups[&group].execution().as_nanos() as f64 * slowness(group);
            done_ns[at] = before_ns + of.hops_ns[at] as f64 + takes_ns;
        }
    }
    TimeSpan::from_nanos(done_ns.into_iter().fold(0.0, f64::max) as u64)
}

/// The choice as the selector knows it: with the plan's replicas, and one of each group that would be loaded.
fn registered_variant(of: &LayoutPipeline, choice: &VariantCombination) -> RegisteredVariant {
    let least = |group: u64| if of.groups[&group].is_offered { 1.0 } else { 0.0 };
    let replicas = |group: u64| (of.replicas.iter().filter(|r| r.group == group).count() as f64).max(least(group));
    let limit = |(group, visits): (&u64, f64)| {
        if visits > 0.0 { of.groups[group].capacity_qps() * replicas(*group) / visits } else { f64::INFINITY }
    };
    let peak_qps = choice.groups.iter().zip(visits_by_task(of, choice)).map(limit).fold(f64::INFINITY, f64::min);
    let price = choice.groups.iter().map(|g| of.groups[g].price_per_hour * replicas(*g)).sum();
    RegisteredVariant {
        application: 0,
        accuracy: choice.accuracy,
        inference: longest_path(of, choice, |_| 1.0),
        load: TimeSpan::from_nanos(missing_groups(of, choice).iter().map(|g| of.groups[g].load_ns).max().unwrap_or(0)),
        peak_qps: if peak_qps.is_finite() { peak_qps } else { 0.0 },
        hardware: HOME,
        eighths: 1,
        price,
    }
}

/// What is seen of a choice: of its groups, the most loaded one's load and the longest queue; none if one of them is not
/// ready.
fn seen_load(
    of: &LayoutPipeline,
    variant: u32,
    choice: &VariantCombination,
    used: &impl Fn(u64) -> GroupLoad,
) -> Option<WorkerMeasurement> {
    let r = registered_variant(of, choice);
    let (mut load, mut wait_s, mut is_slow) = (0.0_f64, 0.0_f64, false);
    for group in &choice.groups {
        let used = used(*group);
        let capacity_qps = of.groups[group].capacity_qps() * f64::from(used.replicas);
        if used.replicas == 0 {
            return None;
        }
        if capacity_qps > 0.0 {
            load = load.max(used.served_qps / capacity_qps);
            wait_s = wait_s.max(used.queued as f64 / capacity_qps);
        }
        is_slow |= used.slowness > 0.0;
    }
    let slowness = |group: u64| Some(used(group).slowness).filter(|s| *s > 0.0).unwrap_or(1.0);
    let inference = if is_slow { longest_path(of, choice, slowness) } else { TimeSpan::ZERO };
    let queued = (wait_s * r.peak_qps) as u64;
    Some(WorkerMeasurement { variant, replicas: 1, served_qps: load * r.peak_qps, inference, queued })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};

    /// The chain with a second, faster and less accurate group 3 of task `b`.
    fn pipeline() -> LayoutPipeline {
        let mut target = chain();
        let of = &mut target.pipelines[0];
        let mut fast = of.groups[1].clone();
        (fast.group, fast.variant) = (3, "fast".into());
        fast.service.iter_mut().for_each(|p| p.latency_ns /= 2);
        of.groups.push(fast);
        of.groups.iter_mut().for_each(|g| g.price_per_hour = 1.0);
        of.replicas.push(apportion_protocol::v1::ReplicaTarget { replica: 3, group: 3, agent: 2, device: 1 });
        let choice = |groups: [u64; 2], accuracy| apportion_protocol::v1::Choice { groups: groups.to_vec(), accuracy };
        of.choices = vec![choice([1, 2], 0.9), choice([1, 3], 0.8)];
        LayoutPipeline::clone(&lay_out(&target).expect("valid").pipelines["p"])
    }

    const IDLE: GroupLoad = GroupLoad { replicas: 1, queued: 0, served_qps: 0.0, slowness: 1.0 };

    fn needs(accuracy: f64, latency_ns_max: u64) -> AskedChoice<'static> {
        let accuracy_ppm_min = (accuracy * 1e6) as u32;
        AskedChoice { needs: RequestNeeds { accuracy_ppm_min, latency_ns_max, ..RequestNeeds::default() }, variants: &[] }
    }

    fn chooser(of: &LayoutPipeline) -> Chooser {
        Chooser::new(of, &SpareShares::default())
    }

    /// Full batches of 4 take 20 ns at `a` and at group 2, 10 ns at group 3.
    #[test]
    fn the_cheapest_choice_that_meets_the_needs_serves() {
        let of = pipeline();
        let mut chooser = chooser(&of);
        let at = Moment::from_nanos;
        let unready = chooser.choose(at(0), &of, &needs(0.85, u64::MAX), 1).expect_err("nothing is ready yet");
        assert_eq!(unready, UnmetNeeds::NotNow("a:v,b:v would do, and is not ready".into()));
        chooser.report(at(0), &of, |_| IDLE);
        let mut choose = |accuracy, ns| chooser.choose(at(1_000), &of, &needs(accuracy, ns), 1);
        let accurate = choose(0.85, 40).expect("group 2 does both");
        assert_eq!((accurate.groups, accurate.variants.as_str(), accurate.accuracy), (vec![1, 2], "a:v,b:v", 0.9));
        assert_eq!(choose(0.0, 30).expect("only group 3 is so fast").groups, [1, 3]);
        let Err(UnmetNeeds::Never(why)) = choose(0.95, 40) else { panic!("nothing is so accurate") };
        assert!(why.contains("at least 0.95") && why.contains("nearest are a:v,b:v with 0.9000"), "{why}");
        let Err(UnmetNeeds::Never(why)) = choose(0.0, 29) else { panic!("nothing is so fast") };
        assert!(why.contains("nearest are a:v,b:fast with 0.8000"), "{why}");
    }

    /// The pipeline with a third group of task `b` that is offered: 0.99 in half the time of group 2.
    fn with_offer(devices: u32) -> crate::layout::Layout {
        let mut target = chain();
        for peer in &mut target.agents {
            (peer.hardware, peer.devices) = ("h".into(), devices);
        }
        let of = &mut target.pipelines[0];
        for group in &mut of.groups {
            (group.hardware, group.price_per_hour, group.load_ns) = ("h".into(), 1.0, 7_000);
        }
        let large = apportion_protocol::v1::GroupTarget {
            group: 9,
            variant: "large".into(),
            price_per_hour: 4.0,
            offered: true,
            ..of.groups[1].clone()
        };
        of.groups.push(large);
        let choice = |groups: [u64; 2], accuracy| apportion_protocol::v1::Choice { groups: groups.to_vec(), accuracy };
        of.choices = vec![choice([1, 2], 0.9), choice([1, 9], 0.99)];
        lay_out(&target).expect("valid")
    }

    #[test]
    fn an_offer_is_loaded_if_nothing_loaded_does_and_there_is_room() {
        let layout = with_offer(2);
        let of = &layout.pipelines["p"];
        let mut chooser = Chooser::new(of, &SpareShares::of(&layout));
        // At first nothing is ready. What is planned comes without being asked for.
        chooser.report(Moment::ZERO, of, |_| GroupLoad::default());
        let loadable = |groups: &[u64]| {
            let variants = "a:v,b:large".to_owned();
            UnmetNeeds::Unloaded(UnloadedVariants { groups: groups.to_vec(), is_loading: false, load_ns: 7_000, variants })
        };
        let ready = |group: u64| if group == 9 { GroupLoad::default() } else { IDLE };
        chooser.report(Moment::ZERO, of, ready);
        let mut choose = |accuracy| chooser.choose(Moment::ZERO, of, &needs(accuracy, u64::MAX), 1);
        assert_eq!(choose(0.95), Err(loadable(&[9])));
        assert_eq!(choose(0.9).expect("group 2 is loaded").groups, [1, 2]);
        chooser.report(
            Moment::ZERO,
            of,
            |group| if group == 2 { GroupLoad { served_qps: 1e12, ..IDLE } } else { ready(group) },
        );
        let busy = chooser.choose(Moment::ZERO, of, &needs(0.9, u64::MAX), 1).expect("overload is the planner's affair");
        assert_eq!(busy.groups, [1, 2]);
        // Once the target has a replica of it, it is being loaded, and nothing else is.
        let mut loading = LayoutPipeline::clone(of);
        loading.replicas.push(crate::layout::LayoutReplica { id: 90, group: 9, agent: 1, device: 1 });
        let mut chooser = Chooser::new(&loading, &SpareShares::of(&layout));
        let coming = chooser.choose(Moment::ZERO, &loading, &needs(0.95, u64::MAX), 1);
        let is_loading = |of: &UnloadedVariants| of.is_loading && of.groups == [9];
        assert!(matches!(&coming, Err(UnmetNeeds::Unloaded(of)) if is_loading(of)), "{coming:?}");
        // Without a spare device nobody can load it.
        let full = with_offer(1);
        let mut chooser = Chooser::new(&full.pipelines["p"], &SpareShares::of(&full));
        let none = chooser.choose(Moment::ZERO, &full.pipelines["p"], &needs(0.95, u64::MAX), 1);
        assert_eq!(none, Err(UnmetNeeds::NotNow("a:v,b:large would do, and no device has room for it".into())));
    }

    #[test]
    fn names_and_prices_are_needs_and_regret_is_counted() {
        let layout = with_offer(2);
        let of = &layout.pipelines["p"];
        let mut chooser = Chooser::new(of, &SpareShares::of(&layout));
        chooser.report(Moment::ZERO, of, |_| IDLE);
        let mut named = |names: &[&str], price_nano_max| {
            let variants: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let needs = RequestNeeds { price_nano_max, ..RequestNeeds::default() };
            chooser.choose(Moment::ZERO, of, &AskedChoice { needs, variants: &variants }, 1)
        };
        assert_eq!(named(&["large"], u64::MAX).expect("loaded").groups, [1, 9]);
        let cheap = named(&["b:v", "a:v"], u64::MAX).expect("loaded");
        assert_eq!((cheap.groups, cheap.regret_nano), (vec![1, 2], 0));
        let Err(UnmetNeeds::Never(why)) = named(&["b:small"], u64::MAX) else { panic!("there is none") };
        assert!(why.contains("called b:small: expected one of a:v, b:large, b:v"), "{why}");
        let Err(UnmetNeeds::Never(why)) = named(&["b:v", "b:large"], u64::MAX) else { panic!("one of both only") };
        assert!(why.contains("no choice has all of b:v,b:large"), "{why}");
        let Err(UnmetNeeds::Never(why)) = named(&["large"], 0) else { panic!("nothing is free") };
        assert!(why.contains("for at most 0 per 1,000 queries: the nearest are a:v,b:large with 0.9900"), "{why}");
    }

    #[test]
    fn overloaded_disturbed_and_lost_choices_are_avoided() {
        let of = pipeline();
        let (two, any) = (2, needs(0.0, 1_000));
        let peak_qps = of.groups[&two].capacity_qps();
        for (bad, fallback) in [
            (GroupLoad { served_qps: peak_qps, ..IDLE }, true),
            (GroupLoad { slowness: 3.0, ..IDLE }, true),
            (GroupLoad { replicas: 0, ..IDLE }, false),
        ] {
            let mut chooser = chooser(&of);
            chooser.report(Moment::ZERO, &of, |group| if group == two { bad } else { IDLE });
            assert_eq!(chooser.choose(Moment::ZERO, &of, &any, 1).expect("group 3").groups, [1, 3], "{bad:?}");
            // Only group 2 is so accurate: it serves as it is, if it is there.
            let only = chooser.choose(Moment::ZERO, &of, &needs(0.9, 1_000), 1);
            assert_eq!(only.is_ok(), fallback, "{bad:?}");
        }
    }

    #[test]
    fn rows_fill_a_queue_until_another_choice_is_sooner() {
        let of = pipeline();
        let mut chooser = chooser(&of);
        chooser.report(Moment::ZERO, &of, |_| IDLE);
        let first = chooser.choose(Moment::ZERO, &of, &needs(0.0, 100), 1_000).expect("ready").groups;
        let next = chooser.choose(Moment::ZERO, &of, &needs(0.0, 100), 1).expect("the other one is free").groups;
        assert_ne!(first, next);
    }
}
