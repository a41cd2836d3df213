//! How old and how sure are the latencies of a problem, and those that a plan rests on?

use crate::explanation::finite;
use crate::row_measurement::GroupProfileFile;
use crate::spec::{PipelineSpec, ProfileRowSpec};
use crate::utc_time::{parse_utc, utc_text};
use apportion_domain::{GroupName, Plan, Problem, ProfileEvidence, Share};
use std::collections::BTreeMap;

/// How the latencies of these pipelines were measured, for each group of which something is known.
pub(crate) fn evidence_of(pipelines: &[PipelineSpec]) -> Vec<ProfileEvidence> {
    let mut all = Vec::new();
    for pipeline in pipelines {
        for (task, variant) in pipeline.tasks.iter().flat_map(|t| t.variants.iter().map(move |v| (t, v))) {
            let rows = variant.profile.as_deref().unwrap_or_default();
            if rows.iter().all(|row| row.measured.is_none()) {
                continue;
            }
            let mut groups: BTreeMap<GroupName, Vec<&ProfileRowSpec>> = BTreeMap::new();
            for row in rows {
                let Some(share) = Share::new(row.share.unwrap_or(1.0)) else { continue };
                let (task, variant) = (task.name.clone(), variant.name.clone());
                let group = GroupName { task, variant, hardware: row.hardware.clone(), share };
                groups.entry(group).or_default().push(row);
            }
            all.extend(groups.into_iter().map(|(group, rows)| of_group(&pipeline.name, group, &rows)));
        }
    }
    all
}

/// The oldest and the least sure of the latencies of a group.
fn of_group(pipeline: &str, group: GroupName, rows: &[&ProfileRowSpec]) -> ProfileEvidence {
    let at = |row: &&ProfileRowSpec| parse_utc(row.measured.as_ref()?.at.as_deref()?);
    let width = |row: &&ProfileRowSpec| row.measured.as_ref()?.width(row.latency_ms);
    let factor = |row: &&ProfileRowSpec| row.measured.as_ref()?.interference;
    let times: Option<Vec<i64>> = rows.iter().map(at).collect();
    let widths: Option<Vec<f64>> = rows.iter().map(width).collect();
    let factors: Option<Vec<f64>> = rows.iter().map(factor).collect();
    ProfileEvidence {
        pipeline: pipeline.to_owned(),
        group,
        interference: factors.and_then(|factors| factors.into_iter().max_by(f64::total_cmp)),
        measured_at_s: times.and_then(|times| times.into_iter().min()),
        width: widths.and_then(|widths| widths.into_iter().max_by(f64::total_cmp)),
        drift: rows.iter().find_map(|row| row.measured.as_ref()?.drift),
    }
}

/// Age and error of the profiles that a plan rests on, a row for each group.
pub(crate) fn group_profiles(problem: &Problem, plan: &Plan) -> Vec<GroupProfileFile> {
    let of = |pipeline: &str, group: &GroupName| {
        let known = problem.evidence.iter().find(|known| known.pipeline == pipeline && known.group == *group);
        GroupProfileFile {
            pipeline: pipeline.to_owned(),
            task: group.task.clone(),
            variant: group.variant.clone(),
            hardware: group.hardware.clone(),
            share: group.share.value(),
            measured_at: known.and_then(|known| known.measured_at_s).map(utc_text),
            interval: known.and_then(|known| known.width).and_then(finite),
            drift: known.and_then(|known| known.drift).and_then(finite),
        }
    };
    plan.pipelines.iter().flat_map(|p| p.assignments.iter().map(|a| of(&p.name, &a.group))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_measurement::RowMeasurement;

    #[test]
    fn a_group_is_as_old_as_its_oldest_latency() {
        let row = |hardware: &str, batch: u32, at: Option<&str>, high: Option<f64>| ProfileRowSpec {
            hardware: hardware.into(),
            batch,
            latency_ms: 10.0,
            p99_ms: None,
            share: None,
            measured: at.map(|at| RowMeasurement {
                at: Some(at.into()),
                median_low_ms: Some(9.0),
                median_high_ms: high,
                ..RowMeasurement::default()
            }),
        };
        let (old, new) = ("2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z");
        let rows = [
            row("a", 1, Some(new), Some(10.0)),
            row("a", 2, Some(old), Some(11.0)),
            row("b", 1, Some(old), None),
            row("b", 2, None, None),
        ];
        let variant = |name: &str, profile: &[ProfileRowSpec]| crate::spec::VariantSpec {
            name: name.into(),
            profile: Some(profile.to_vec()),
            ..Default::default()
        };
        let task = crate::spec::TaskSpec {
            name: "t".into(),
            variants: vec![variant("v", &rows), variant("unknown", &rows[3..])],
            ..Default::default()
        };
        let pipeline = PipelineSpec { name: "p".into(), tasks: vec![task], ..PipelineSpec::default() };
        let all = evidence_of(&[pipeline]);
        let seen: Vec<_> = all.iter().map(|e| (e.group.hardware.as_str(), e.measured_at_s, e.width)).collect();
        assert_eq!(seen, [("a", parse_utc(old), Some(0.2)), ("b", None, None)], "one row of b is not known");
    }

    #[test]
    fn interference_is_the_largest_of_a_share() {
        let row = |share: f64, batch: u32, interference: Option<f64>| ProfileRowSpec {
            hardware: "a".into(),
            batch,
            latency_ms: 10.0,
            p99_ms: None,
            share: Some(share),
            measured: Some(RowMeasurement { interference, ..RowMeasurement::default() }),
        };
        let rows = [
            row(1.0, 1, None),
            row(0.5, 1, Some(1.5)),
            row(0.5, 2, Some(1.25)),
            row(0.25, 1, Some(3.0)),
            row(0.25, 2, None),
        ];
        let variant = crate::spec::VariantSpec { name: "v".into(), profile: Some(rows.to_vec()), ..Default::default() };
        let task = crate::spec::TaskSpec { name: "t".into(), variants: vec![variant], ..Default::default() };
        let all = evidence_of(&[PipelineSpec { name: "p".into(), tasks: vec![task], ..PipelineSpec::default() }]);
        let mut seen: Vec<_> = all.iter().map(|known| (known.group.share.value(), known.interference)).collect();
        seen.sort_by(|a, b| b.0.total_cmp(&a.0));
        assert_eq!(seen, [(1.0, None), (0.5, Some(1.5)), (0.25, None)], "one row of a quarter was measured alone");
    }
}
