//! Which figures of a problem are doubtful?
//!
//! Example: a file without `network_ms` has a network that takes no time. Its plans may be right on one machine and miss
//! the SLO on several. So the report says it. It also names shares of a device that were measured without neighbours.

use apportion_domain::{Pipeline, Problem, ProfileEvidence, Share, TaskIndex};

/// The notes of a problem, and sentences about each pipeline's times, sizes and shares.
pub(crate) fn warnings_of(problem: &Problem) -> Vec<String> {
    let zeros = problem.pipelines.iter().flat_map(|p| zero_times(p).into_iter().chain(zero_sizes(p)));
    let alone = problem.pipelines.iter().filter_map(|pipeline| shares_alone(&pipeline.name, &problem.evidence));
    problem.notes.iter().cloned().chain(zeros).chain(alone).collect()
}

/// The sentence about shares of a device whose latencies were measured without neighbours. Nothing is known of latencies
/// that do not say how they were measured.
fn shares_alone(pipeline: &str, evidence: &[ProfileEvidence]) -> Option<String> {
    let is_measured = |known: &ProfileEvidence| known.measured_at_s.is_some() || known.width.is_some();
    let is_alone = |known: &&ProfileEvidence| {
        known.pipeline == pipeline
            && known.group.share != Share::WHOLE
            && known.interference.is_none()
            && is_measured(known)
    };
    let mut alone = evidence.iter().filter(is_alone);
    let first = &alone.next()?.group;
    let more = match alone.count() {
        0 => String::new(),
        count => format!(" and of {count} more"),
    };
    Some(format!(
        "pipeline {pipeline}: latencies of {first}{more} were measured without neighbours on the device, which lengthen \
         batches: measure them with `apportion profile --share {}`",
        first.share
    ))
}

/// The sentence about sizes without a time for them, or about a time without all sizes. A pipeline without either gets
/// none: `network_ms` then stands for whole hops.
fn zero_sizes(pipeline: &Pipeline) -> Option<String> {
    let (name, all) = (&pipeline.name, pipeline.tasks.len());
    let unknown = (0..all).filter(|&t| pipeline.kib_per_query(TaskIndex(t)) <= 0.0).count();
    match pipeline.network_ms_per_mib > 0.0 {
        false if unknown < all => {
            Some(format!("pipeline {name}: network_ms_per_mib is 0: the sizes of queries count as no time"))
        }
        true if unknown > 0 => {
            Some(format!("pipeline {name}: the size of {unknown} of {all} hops is 0: what they bring counts as no time"))
        }
        _ => None,
    }
}

/// The sentences about times of a pipeline that are 0.
fn zero_times(pipeline: &Pipeline) -> Vec<String> {
    let name = &pipeline.name;
    let mut sentences = Vec::new();
    if pipeline.network_ms <= 0.0 {
        sentences.push(format!("pipeline {name}: network_ms is 0: hops between tasks count as no time"));
    }
    let variants = pipeline.tasks.iter().flat_map(|task| &task.variants);
    let (all, zero) = variants.fold((0, 0), |(all, zero), v| (all + 1, zero + usize::from(v.load_ms <= 0.0)));
    if zero > 0 {
        sentences.push(format!("pipeline {name}: load_ms of {zero} of {all} variants is 0: their loads count as no time"));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use apportion_domain::{GroupName, MEDIANS_NOTE, Profile, ProfileRow};

    /// A problem whose pipeline has this time of a hop, and this time of a load of each variant.
    fn with_times(network_ms: f64, load_ms: f64) -> Problem {
        let mut draft = chain(200.0);
        draft.network_ms = network_ms;
        draft.tasks.iter_mut().flat_map(|task| &mut task.variants).for_each(|variant| variant.load_ms = load_ms);
        problem(draft).changed(|all| all.notes = vec!["a note".into()]).expect("a valid problem")
    }

    #[test]
    fn planning_on_medians_is_warned_of() {
        let mut draft = chain(200.0);
        for variant in draft.tasks.iter_mut().flat_map(|task| &mut task.variants) {
            let with_p99 = |row: &ProfileRow| ProfileRow { p99_ms: Some(2.0 * row.latency_ms), ..row.clone() };
            variant.profile = Profile::new(variant.profile.rows().iter().map(with_p99).collect());
        }
        let drawn = problem(draft);
        let on_medians = drawn.on_medians();
        let variants = || on_medians.pipelines[0].tasks.iter().flat_map(|task| &task.variants);
        assert!(variants().flat_map(|variant| variant.profile.rows()).all(|row| row.p99_ms.is_none()));
        let is_warned = |of: &Problem| warnings_of(of).iter().any(|warning| warning == MEDIANS_NOTE);
        assert!(is_warned(&on_medians) && !is_warned(&drawn));
        assert_eq!(on_medians.on_medians(), on_medians, "nothing more is left out");
    }

    #[test]
    fn sizes_are_warned_of_where_they_count_as_no_time() {
        let warned = |change: fn(&mut apportion_domain::PipelineDraft)| {
            let mut draft = chain(200.0);
            change(&mut draft);
            zero_sizes(&problem(draft).pipelines[0])
        };
        assert_eq!(warned(|_| {}), None);
        let sized = warned(|d| d.edges[0].kib_per_query = 64.0).expect("a size without a time");
        assert_eq!(sized, "pipeline p: network_ms_per_mib is 0: the sizes of queries count as no time");
        let timed =
            warned(|d| (d.network_ms_per_mib, d.edges[0].kib_per_query) = (8.0, 64.0)).expect("no size of requests");
        assert!(timed.starts_with("pipeline p: the size of 1 of "), "{timed}");
        let whole = |d: &mut apportion_domain::PipelineDraft| {
            (d.network_ms_per_mib, d.ingress_kib_per_query) = (8.0, 512.0);
            d.edges.iter_mut().for_each(|edge| edge.kib_per_query = 64.0);
        };
        assert_eq!(warned(whole), None);
    }

    #[test]
    fn zeros_are_warned_of_and_given_times_are_not() {
        assert_eq!(warnings_of(&with_times(0.5, 10.0)), ["a note"]);
        let warnings = warnings_of(&with_times(0.0, 0.0));
        let expected = [
            "a note",
            "pipeline p: network_ms is 0: hops between tasks count as no time",
            "pipeline p: load_ms of 3 of 3 variants is 0: their loads count as no time",
        ];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn shares_that_were_measured_alone_are_warned_of() {
        let known = |share: f64, measured_at_s: Option<i64>, interference: Option<f64>| ProfileEvidence {
            pipeline: "p".into(),
            group: GroupName {
                task: "read".into(),
                variant: "v".into(),
                hardware: "t4".into(),
                share: Share::new(share).expect("a share"),
            },
            measured_at_s,
            width: None,
            interference,
            drift: None,
        };
        let silent = [known(1.0, Some(1), None), known(0.5, Some(1), Some(1.5)), known(0.25, None, None)];
        assert_eq!(shares_alone("p", &silent), None, "whole, beside neighbours, and not known");
        let alone = [&silent[..], &[known(0.5, Some(1), None)]].concat();
        assert_eq!(shares_alone("q", &alone), None, "another pipeline");
        let one = "pipeline p: latencies of read/v/t4/0.5 were measured without neighbours on the device, which lengthen \
                   batches: measure them with `apportion profile --share 0.5`";
        assert_eq!(shares_alone("p", &alone).as_deref(), Some(one));
        let two = [&alone[..], &[known(0.25, Some(1), None)]].concat();
        assert!(shares_alone("p", &two).is_some_and(|said| said.contains("read/v/t4/0.5 and of 1 more were")));
        let problem = with_times(0.5, 10.0).changed(|all| all.evidence = alone).expect("a valid problem");
        assert_eq!(warnings_of(&problem), ["a note", one]);
    }
}
