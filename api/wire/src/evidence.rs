//! How old and how sure are the latencies of a problem, and those that a plan rests on?

use crate::explanation::finite;
use crate::row_measurement::GroupProfileFile;
use crate::spec::PipelineSpec;
use crate::utc_time::{parse_utc, utc_text};
use apportion_domain::{GroupEvidence, GroupName, Plan, Problem, ProfileEvidence, Share};

/// How the latencies of these pipelines were measured, by group.
pub(crate) fn evidence_of(pipelines: &[PipelineSpec]) -> Vec<ProfileEvidence> {
    let mut all = Vec::new();
    for pipeline in pipelines {
        for (task, variant) in pipeline.tasks.iter().flat_map(|t| t.variants.iter().map(move |v| (t, v))) {
            for row in variant.profile.iter().flatten() {
                let Some(share) = Share::new(row.share.unwrap_or(1.0)) else { continue };
                let (task, variant) = (task.name.clone(), variant.name.clone());
                let group = GroupName { task, variant, hardware: row.hardware.clone(), share };
                let measured = row.measured.as_ref();
                all.push(ProfileEvidence {
                    pipeline: pipeline.name.clone(),
                    group,
                    measured_at_s: measured.and_then(|m| parse_utc(m.at.as_deref()?)),
                    width: measured.and_then(|m| m.width(row.latency_ms)),
                    drift: measured.and_then(|m| m.drift),
                });
            }
        }
    }
    all
}

/// Age and error of the profiles that a plan rests on, a row for each group.
pub(crate) fn group_profiles(problem: &Problem, plan: &Plan) -> Vec<GroupProfileFile> {
    let of = |pipeline: &str, group: &GroupName| {
        let GroupEvidence { measured_at_s, width, drift } = GroupEvidence::of(&problem.evidence, pipeline, group);
        GroupProfileFile {
            pipeline: pipeline.to_owned(),
            task: group.task.clone(),
            variant: group.variant.clone(),
            hardware: group.hardware.clone(),
            share: group.share.value(),
            measured_at: measured_at_s.map(utc_text),
            interval: width.and_then(finite),
            drift: drift.and_then(finite),
        }
    };
    plan.pipelines.iter().flat_map(|p| p.assignments.iter().map(|a| of(&p.name, &a.group))).collect()
}
