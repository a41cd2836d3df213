//! Which variants does another variant surpass in everything?
//!
//! Example: `read-l` takes 4 ms and finds 95 % of the labels, and `read-m` takes 5 ms and finds 93 %. No plan on this
//! hardware type gains by `read-m`.
//!
//! A variant of a task *dominates* another one on a hardware type if three things hold. It is at least as accurate. It
//! is at least as fast at each size and share that was measured of the other one. It needs at most as much memory; a
//! variant whose memory is not known needs the most. Of variants that are equal in all this, the first by name
//! dominates. Fan-out and load time do not count.

use crate::profile_set::{MeasuredVariant, ProfileSet};
use crate::spec::{PipelineSpec, TaskSpec, VariantSpec};
use std::collections::{BTreeMap, BTreeSet};

/// A variant that another one surpasses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DominatedVariant {
    /// Its task.
    pub task: String,
    /// Its name.
    pub variant: String,
    /// On which hardware type.
    pub hardware: String,
    /// The most accurate variant that dominates it and is not dominated there.
    pub by: String,
}

/// The figures of a variant on one hardware type.
struct PlaceFigures<'a> {
    name: &'a str,
    accuracy: f64,
    memory_mib: f64,
    /// Latency by share (its bits) and batch size.
    latency_ms: BTreeMap<(u64, u32), f64>,
}

impl<'a> PlaceFigures<'a> {
    /// Those of a variant. None if its accuracy is not known, or if it was not measured there.
    fn of(variant: &'a VariantSpec, hardware: &str) -> Option<Self> {
        let rows = variant.profile.iter().flatten().filter(|row| row.hardware == hardware);
        let latency_ms: BTreeMap<(u64, u32), f64> =
            rows.map(|row| ((row.share.unwrap_or(1.0).to_bits(), row.batch), row.latency_ms)).collect();
        let (accuracy, memory_mib) = (variant.accuracy?, variant.memory_mib.unwrap_or(f64::INFINITY));
        (!latency_ms.is_empty()).then_some(Self { name: &variant.name, accuracy, memory_mib, latency_ms })
    }

    /// Whether it is nowhere worse.
    fn covers(&self, other: &Self) -> bool {
        let is_as_fast =
            |(place, theirs): (&(u64, u32), &f64)| self.latency_ms.get(place).is_some_and(|mine| mine <= theirs);
        self.accuracy >= other.accuracy && self.memory_mib <= other.memory_mib && other.latency_ms.iter().all(is_as_fast)
    }

    fn dominates(&self, other: &Self) -> bool {
        self.covers(other) && (!other.covers(self) || self.name < other.name)
    }
}

/// The dominated variants of a task on one hardware type, each with the variant that dominates it.
fn dominated_on<'a>(task: &'a TaskSpec, hardware: &str) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<PlaceFigures<'a>> =
        task.variants.iter().filter_map(|variant| PlaceFigures::of(variant, hardware)).collect();
    all.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy).then_with(|| a.name.cmp(b.name)));
    let is_best = |one: &PlaceFigures<'a>| !all.iter().any(|other| other.dominates(one));
    let best: Vec<&PlaceFigures<'a>> = all.iter().filter(|one| is_best(one)).collect();
    let by = |one: &PlaceFigures<'a>| best.iter().find(|other| other.dominates(one)).map(|other| (one.name, other.name));
    all.iter().filter_map(by).collect()
}

impl PipelineSpec {
    /// Its dominated variants, by task, variant and hardware type. They stay in every plan's choice.
    #[must_use]
    pub fn dominated(&self) -> Vec<DominatedVariant> {
        let mut found = Vec::new();
        for task in &self.tasks {
            let rows = task.variants.iter().flat_map(|variant| variant.profile.iter().flatten());
            let types: BTreeSet<&str> = rows.map(|row| row.hardware.as_str()).collect();
            for hardware in types {
                let place = |(variant, by): (&str, &str)| DominatedVariant {
                    task: task.name.clone(),
                    variant: variant.to_owned(),
                    hardware: hardware.to_owned(),
                    by: by.to_owned(),
                };
                found.extend(dominated_on(task, hardware).into_iter().map(place));
            }
        }
        found.sort_unstable();
        found
    }
}

impl ProfileSet {
    /// Says at each variant of the pipeline by which variants it is dominated. Accuracies and memory that the pipeline says
    /// itself count before the measured ones, as in plans.
    pub fn mark_dominated(&mut self, pipeline: &PipelineSpec) {
        self.variants.iter_mut().for_each(|variant| variant.dominated_by.clear());
        let place = |(at, known): (usize, &MeasuredVariant)| ((known.task.clone(), known.variant.clone()), at);
        let mut places: BTreeMap<(String, String), usize> = self.variants.iter().enumerate().rev().map(place).collect();
        for DominatedVariant { task, variant, hardware, by } in pipeline.with_profiles(self).dominated() {
            let at = *places.entry((task.clone(), variant.clone())).or_insert_with(|| {
                self.variants.push(MeasuredVariant { task, variant, ..MeasuredVariant::default() });
                self.variants.len() - 1
            });
            self.variants[at].dominated_by.insert(hardware, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ProfileRowSpec;

    /// Draws numbers from 0 to `below` - 1, the same ones each time (Knuth's MMIX).
    struct Draw(u64);

    impl Draw {
        fn number(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % below
        }
    }

    fn row(hardware: &str, share: f64, batch: u32, latency_ms: f64) -> ProfileRowSpec {
        let share = (share != 1.0).then_some(share);
        ProfileRowSpec { hardware: hardware.into(), batch, latency_ms, p99_ms: None, share, measured: None }
    }

    /// A variant with few different figures, so that many are equal or better in all.
    fn drawn(draw: &mut Draw, name: String) -> VariantSpec {
        let mut profile = Vec::new();
        for hardware in ["a", "b"] {
            for (share, batch) in [(1.0, 1), (1.0, 4), (0.5, 1)] {
                if draw.number(4) > 0 {
                    profile.push(row(hardware, share, batch, 1.0 + draw.number(3) as f64));
                }
            }
        }
        let accuracy = (draw.number(8) > 0).then(|| 0.5 + 0.1 * draw.number(3) as f64);
        let memory_mib = (draw.number(3) > 0).then(|| 10.0 * draw.number(2) as f64);
        VariantSpec { name, accuracy, memory_mib, profile: Some(profile), ..VariantSpec::default() }
    }

    /// The rule word by word, with all figures side by side: -1 if `a` is worse somewhere, 0 if both are equal, else 1.
    fn compared(a: &VariantSpec, b: &VariantSpec, hardware: &str) -> i32 {
        let (Some(of_a), Some(of_b)) = (a.accuracy, b.accuracy) else { return -1 };
        let rows =
            |v: &VariantSpec| v.profile.iter().flatten().filter(|r| r.hardware == hardware).cloned().collect::<Vec<_>>();
        let (mine, theirs) = (rows(a), rows(b));
        if mine.is_empty() || theirs.is_empty() {
            return -1;
        }
        let mut pairs = vec![(-of_a, -of_b), (a.memory_mib.unwrap_or(1e300), b.memory_mib.unwrap_or(1e300))];
        for their in &theirs {
            let Some(my) = mine.iter().find(|r| (r.batch, r.share) == (their.batch, their.share)) else { return -1 };
            pairs.push((my.latency_ms, their.latency_ms));
        }
        if pairs.iter().any(|(my, their)| my > their) {
            return -1;
        }
        i32::from(pairs.iter().any(|(my, their)| my < their) || mine.len() > theirs.len())
    }

    #[test]
    fn dominated_variants_are_those_of_all_pairs() {
        let (mut draw, mut marked, mut free) = (Draw(7), 0, 0);
        for _ in 0..500 {
            let variants: Vec<VariantSpec> = (0..5).map(|v| drawn(&mut draw, format!("v{v}"))).collect();
            let task = TaskSpec { name: "t".into(), variants: variants.clone(), ..TaskSpec::default() };
            let found = PipelineSpec { tasks: vec![task], ..PipelineSpec::default() }.dominated();
            for hardware in ["a", "b"] {
                let beats = |a: &VariantSpec, b: &VariantSpec| {
                    let is_more = compared(a, b, hardware);
                    is_more > 0 || (is_more == 0 && a.name < b.name)
                };
                for one in &variants {
                    let above: Vec<_> = variants.iter().filter(|other| beats(other, one)).collect();
                    let by = found.iter().find(|d| d.variant == one.name && d.hardware == hardware);
                    assert_eq!(by.is_some(), !above.is_empty(), "{} on {hardware} of {variants:#?}", one.name);
                    let Some(by) = by else {
                        free += 1;
                        continue;
                    };
                    marked += 1;
                    let shown = above.iter().find(|v| v.name == by.by).unwrap_or_else(|| panic!("{by:?}: {variants:#?}"));
                    assert!(!variants.iter().any(|other| beats(other, shown)), "{by:?} is dominated: {variants:#?}");
                    let mut undominated = above.iter().filter(|v| !variants.iter().any(|other| beats(other, v)));
                    assert!(undominated.all(|v| v.accuracy <= shown.accuracy), "{by:?}: {variants:#?}");
                }
            }
        }
        assert!(marked > 500 && free > 500, "{marked} dominated and {free} others");
    }

    #[test]
    fn marks_replace_given_ones_and_need_no_entry() {
        let variant =
            |name: &str, accuracy: Option<f64>| VariantSpec { name: name.into(), accuracy, ..VariantSpec::default() };
        let variants = vec![variant("slow", Some(0.8)), variant("fast", None)];
        let task = TaskSpec { name: "t".into(), variants, ..TaskSpec::default() };
        let pipeline = PipelineSpec { name: "p".into(), tasks: vec![task], ..PipelineSpec::default() };
        let text = r#"{"rows": [
            {"task": "t", "variant": "slow", "hardware": "cpu", "batch": 1, "latency_ms": 2},
            {"task": "t", "variant": "fast", "hardware": "cpu", "batch": 1, "latency_ms": 1}],
            "variants": [{"task": "t", "variant": "fast", "accuracy": 0.9, "dominated_by": {"cpu": "slow"}}]}"#;
        let mut set = crate::read_profile_set("p.json", text).unwrap_or_else(|e| panic!("{e}"));
        set.mark_dominated(&pipeline);
        assert!(set.variants[0].dominated_by.is_empty(), "{set:?}");
        assert_eq!((set.variants[1].variant.as_str(), set.variants[1].dominated_by["cpu"].as_str()), ("slow", "fast"));
        let mut merged = ProfileSet::default();
        merged.merge(set);
        assert!(merged.variants.iter().all(|variant| variant.dominated_by.is_empty()), "{merged:?}");
    }
}
