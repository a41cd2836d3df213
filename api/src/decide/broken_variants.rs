//! Which variants are left out of plans because they cannot be loaded?

use super::placement::GroupKey;
use apportion_wire::PipelineSpec;
use apportion_wire::spec::{TaskSpec, VariantSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A broken variant is planned with again after this time: memory may be free by then.
const BROKEN_FOR: Duration = Duration::from_secs(600);

/// Variants that could be loaded on no device of a hardware type, each with the moment when that was found.
#[derive(Clone, Debug, Default)]
pub struct BrokenVariants(BTreeMap<GroupKey, Instant>);

impl BrokenVariants {
    /// Adds a variant; returns whether it is new.
    pub fn add(&mut self, key: GroupKey, at: Instant) -> bool {
        self.expire(at);
        self.0.insert(key, at).is_none()
    }

    /// Removes variants that may be planned with again.
    pub fn expire(&mut self, at: Instant) {
        self.0.retain(|_, since| at.saturating_duration_since(*since) < BROKEN_FOR);
    }

    /// Returns the spec without broken variants. If a task had no variant left, the spec stays complete: a plan that fails
    /// in part is better than none.
    #[must_use]
    pub fn remove_from(&self, spec: PipelineSpec) -> PipelineSpec {
        let mut kept = spec.clone();
        for task in &mut kept.tasks {
            let name = task.name.clone();
            for variant in &mut task.variants {
                self.remove_rows(&spec.name, &name, variant);
            }
            task.variants.retain(|v| v.profile.as_ref().is_none_or(|rows| !rows.is_empty()));
        }
        if kept.tasks.iter().any(|task| task.variants.is_empty()) {
            return spec;
        }
        let known = stages(&kept);
        // The keys of the table are `task:variant>task:variant`.
        kept.path_accuracy.retain(|path, _| path.split('>').all(|stage| known.contains(stage)));
        kept
    }

    /// Removes the profile rows of hardware types on which the variant is broken.
    fn remove_rows(&self, pipeline: &str, task: &str, variant: &mut VariantSpec) {
        let digest = variant.model_digest.clone().unwrap_or_default();
        let name = &variant.name;
        let is_broken = |hardware: &str, share: f64| {
            self.0.keys().any(|key| {
                let group = &key.group;
                let names = (key.pipeline.as_str(), group.task.as_str(), &group.variant, group.hardware.as_str());
                let is_same = names == (pipeline, task, name, hardware) && key.digest == digest;
                is_same && (group.share.value() - share).abs() < 1e-9
            })
        };
        if let Some(rows) = &mut variant.profile {
            rows.retain(|row| !is_broken(&row.hardware, row.share.unwrap_or(1.0)));
        }
    }
}

/// All `task:variant` of a pipeline.
fn stages(spec: &PipelineSpec) -> BTreeSet<String> {
    let of_task = |t: &TaskSpec| t.variants.iter().map(|v| format!("{}:{}", t.name, v.name)).collect::<Vec<_>>();
    spec.tasks.iter().flat_map(of_task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{GroupName, Share};

    fn spec() -> PipelineSpec {
        serde_json::from_value(serde_json::json!({
            "name": "p", "slo_ms": 100.0, "path_accuracy": {"t:a": 0.9, "t:b": 0.8},
            "tasks": [{"name": "t", "variants": [
                {"name": "a", "profile": [{"hardware": "h", "batch": 1, "latency_ms": 1.0}]},
                {"name": "b", "profile": [{"hardware": "h", "batch": 1, "latency_ms": 1.0}]}]}],
        }))
        .expect("a spec")
    }

    fn key(variant: &str) -> GroupKey {
        let group = GroupName { task: "t".into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE };
        GroupKey { pipeline: "p".into(), group, digest: String::new() }
    }

    #[test]
    fn a_broken_variant_is_left_out_until_it_expires() {
        let begin = Instant::now();
        let mut broken = BrokenVariants::default();
        assert!(broken.add(key("a"), begin) && !broken.add(key("a"), begin));
        let left = broken.remove_from(spec());
        assert_eq!(stages(&left), ["t:b".to_string()].into());
        assert_eq!(left.path_accuracy.keys().collect::<Vec<_>>(), ["t:b"]);
        broken.expire(begin + BROKEN_FOR);
        assert_eq!(broken.remove_from(spec()), spec());
    }

    #[test]
    fn a_task_keeps_its_variants_if_all_are_broken() {
        let mut broken = BrokenVariants::default();
        ["a", "b"].into_iter().for_each(|variant| assert!(broken.add(key(variant), Instant::now())));
        assert_eq!(broken.remove_from(spec()), spec());
    }
}
