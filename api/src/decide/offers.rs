//! Which groups may requests have loaded beyond those of the plans?
//!
//! Example: the plan in force has the small variant of `read` on `t4`. The large variant has a profile on `t4`, too, and
//! the pipeline lets requests load variants. So the target offers the large variant: a group without replicas.

use super::placement::{GroupKey, Placement};
use apportion_domain::{Assignment, GroupName, Hardware, HardwareIndex, Pipeline, ProfileRow, TaskKind};
use apportion_wire::{ReplanMode, ReplanSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Most offered groups of one pipeline. Of a pipeline with more, the first ones are offered.
pub const OFFERS_MAX: usize = 512;

/// What a pipeline's replan settings mean for the groups on offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offering {
    /// Nothing is offered.
    #[default]
    None,
    /// Groups are offered, and wants are only noted.
    Noted,
    /// Groups are offered, and loaded when they are wanted.
    Loaded,
}

impl Offering {
    /// The meaning of a pipeline's settings; `None`: it has none.
    #[must_use]
    pub fn of(settings: Option<&ReplanSpec>) -> Self {
        match settings {
            Some(replan) if replan.on_demand.is_none() || replan.mode == ReplanMode::Off.name() => Self::None,
            Some(replan) if replan.mode == ReplanMode::Apply.name() => Self::Loaded,
            Some(_) => Self::Noted,
            None => Self::None,
        }
    }
}

/// A pipeline with its profiles, and what its groups need.
#[derive(Clone, Copy, Debug)]
pub struct OfferedPipeline<'a> {
    /// Its graph and profiles.
    pub pipeline: &'a Pipeline,
    /// The hardware types of its profiles.
    pub hardware: &'a [Hardware],
    /// SHA-256 of the model file by (task, variant).
    pub digests: &'a BTreeMap<(String, String), String>,
}

/// The groups of a pipeline that these hardware types can run: each variant on each type and share with a profile. A
/// pipeline with a continuous task has none: the number of its slots is the plan's decision, and no request's.
#[must_use]
pub fn groups_on_offer(of: &OfferedPipeline<'_>, hardware: &BTreeSet<&str>) -> Vec<GroupKey> {
    let pipeline = of.pipeline;
    if pipeline.tasks.iter().any(|task| task.kind == TaskKind::Continuous) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    for task in &pipeline.tasks {
        for variant in &task.variants {
            let names = (task.name.clone(), variant.name.clone());
            let digest = of.digests.get(&names).cloned().unwrap_or_default();
            for (index, share) in variant.profile.places() {
                let Some(known) = of.hardware.get(index.0).filter(|h| hardware.contains(h.name.as_str())) else {
                    continue;
                };
                let (task, variant, hardware) = (names.0.clone(), names.1.clone(), known.name.clone());
                let group = GroupName { task, variant, hardware, share };
                keys.push(GroupKey { pipeline: pipeline.name.clone(), group, digest: digest.clone() });
            }
        }
    }
    keys.truncate(OFFERS_MAX);
    keys
}

/// An offered group with its number.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedOffer {
    /// Its number in the placement.
    pub id: u64,
    /// The group with its batch. It has neither planned replicas nor traffic.
    pub assignment: Assignment,
}

/// The offered groups of a pipeline. A group without a profile is left out.
#[must_use]
pub fn numbered_offers(pipeline: &Pipeline, hardware: &[Hardware], placement: &Placement) -> Vec<NumberedOffer> {
    let of_pipeline = placement.offered.iter().filter(|g| g.pipeline == pipeline.name);
    let numbered = of_pipeline.filter_map(|placed| {
        let group = placed.key()?.group;
        let batch = offered_batch(pipeline, profile_of(pipeline, hardware, &group)?)?;
        let (replicas, traffic_share, latency_budget_ms, utilisation) = (0, 0.0, 0.0, 0.0);
        let assignment = Assignment { group, batch, replicas, traffic_share, latency_budget_ms, utilisation };
        Some(NumberedOffer { id: placed.id, assignment })
    });
    numbered.collect()
}

/// The batch of an offered group: the largest one that leaves each task an equal part of the SLO, with the wait for the
/// batch before it; else the smallest.
fn offered_batch(pipeline: &Pipeline, rows: &[ProfileRow]) -> Option<u32> {
    let part_ms = pipeline.slo_ms / (pipeline.queue_factor * pipeline.tasks.len() as f64);
    let fitting = rows.iter().filter(|row| row.latency_ms <= part_ms).map(|row| row.batch).max();
    fitting.or_else(|| rows.first().map(|row| row.batch))
}

fn profile_of<'p>(pipeline: &'p Pipeline, hardware: &[Hardware], group: &GroupName) -> Option<&'p [ProfileRow]> {
    let task = pipeline.tasks.iter().find(|task| task.name == group.task)?;
    let variant = task.variants.iter().find(|variant| variant.name == group.variant)?;
    let index = hardware.iter().position(|h| h.name == group.hardware).map(HardwareIndex)?;
    Some(variant.profile.on(index, group.share)).filter(|rows| !rows.is_empty())
}
