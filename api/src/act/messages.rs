//! How do messages of agents become JSON and rows?

use crate::decide::drift::PERIOD_S;
use crate::decide::measured::{AgentHop, HOPS_MAX, LOAD_TIMES_MAX, ReplicaLoadTime, TIME_MS_MAX};
use crate::store::Time;
use crate::store::arrivals::ArrivalsRow;
use crate::store::drifts::GroupSumsRow;
use crate::store::wants::VariantWantRow;
use apportion_protocol::v1::{self, replica_state::State};
use apportion_protocol::{DEVICES_MAX, TEXT_BYTES_MAX};
use apportion_wire::ReplicaState;
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Most pipelines in one report.
const REPORT_PIPELINES_MAX: usize = 1_024;
/// Most groups in one report.
const REPORT_GROUPS_MAX: usize = 1_024;
/// Most child tasks of one group in one report.
const REPORT_CHILDREN_MAX: usize = 64;
/// Most bins of one pipeline in one report. An agent reports each second, in bins of 10 ms.
const REPORT_BINS_MAX: usize = 60_000;
/// Highest count of one kind of answer in one report; larger counts are cut to it.
const COUNT_MAX: u64 = u32::MAX as u64;
/// Most groups of one want: one of each task.
const WANT_GROUPS_MAX: usize = 64;
/// Most names of variants in one want.
const WANT_NAMES_MAX: usize = 64;
/// Width of a report's bin.
const BIN_MS: u64 = 10;

fn replica_state(state: State) -> ReplicaState {
    match state {
        State::Unknown => ReplicaState::Unknown,
        State::Loading => ReplicaState::Loading,
        State::Ready => ReplicaState::Ready,
        State::Failed => ReplicaState::Failed,
        State::Draining => ReplicaState::Draining,
    }
}

/// An acknowledgement as JSON.
pub(super) fn ack_json(ack: &v1::Ack) -> serde_json::Value {
    let fence = ack.fence.unwrap_or_default();
    let replica = |r: &v1::ReplicaState| {
        json!({
            "replica": r.replica,
            "state": replica_state(r.state()),
            "error": without_nul(&r.error),
            "interfered": r.interfered,
            "slowness": r.slowness,
        })
    };
    json!({
        "incarnation": fence.incarnation,
        "generation": fence.generation,
        "applied": ack.applied,
        "error": without_nul(&ack.error),
        "replicas": ack.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

/// The text without U+0000, which PostgreSQL's texts cannot hold.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

/// The use of each device as JSON; unknown values are null.
pub(super) fn devices_json(devices: &[v1::DeviceStats]) -> serde_json::Value {
    let one = |d: &v1::DeviceStats| {
        json!({
            "device": d.device,
            "uuid": without_nul(&d.uuid).chars().take(TEXT_BYTES_MAX).collect::<String>(),
            "memory_used": d.memory_used,
            "memory_total": d.memory_total,
            "utilisation": d.utilisation.filter(|u| u.is_finite()),
        })
    };
    devices.iter().take(DEVICES_MAX as usize).map(one).collect()
}

/// The hops of a report as JSON; none if it has none. Times that no link has are left out.
pub(super) fn hops_json(hops: &[v1::HopTime], at: Time) -> Option<serde_json::Value> {
    let known = hops.iter().filter(|hop| is_time(hop.hop_ms)).take(HOPS_MAX);
    let known: Vec<AgentHop> =
        known.map(|hop| AgentHop { to: hop.agent, hop_ms: hop.hop_ms, samples: hop.samples, at }).collect();
    (!known.is_empty()).then(|| serde_json::to_value(known).expect("hops are JSON"))
}

/// The loads of a report. Names that cannot be registered are left out, and so are times that no load has.
pub(super) fn load_times(loads: &[v1::LoadTime], at: Time) -> Vec<ReplicaLoadTime> {
    let is_known = |load: &&v1::LoadTime| {
        let names = [&load.pipeline, &load.task, &load.variant, &load.hardware];
        names.into_iter().all(|name| is_name(name)) && is_time(load.download_ms) && is_time(load.start_ms)
    };
    let time = |load: &v1::LoadTime| ReplicaLoadTime {
        pipeline: load.pipeline.clone(),
        task: load.task.clone(),
        variant: load.variant.clone(),
        hardware: load.hardware.clone(),
        download_ms: load.download_ms,
        start_ms: load.start_ms,
        at,
    };
    loads.iter().filter(is_known).take(LOAD_TIMES_MAX).map(time).collect()
}

fn is_time(ms: f64) -> bool {
    (0.0..=TIME_MS_MAX).contains(&ms)
}

/// Whether it may be the name of something registered.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= TEXT_BYTES_MAX && !name.contains('\0')
}

/// The arrivals of a report, by pipeline and second of the service's clock.
///
/// Example: the report was sent at second 100 (`sent_ms`), and a bin is 1.5 s older by the agent's uptime: it belongs to
/// second 98. Names that cannot be registered are left out.
pub(super) fn arrivals(report: &v1::Report, sent_ms: i64) -> Vec<ArrivalsRow> {
    let mut rows: BTreeMap<(String, i64), ArrivalsRow> = BTreeMap::new();
    for part in report.arrivals.iter().take(REPORT_PIPELINES_MAX).filter(|part| is_name(&part.pipeline)) {
        let row = |second: i64| ArrivalsRow { pipeline: part.pipeline.clone(), second, ..ArrivalsRow::default() };
        for (i, &count) in part.bins.iter().take(REPORT_BINS_MAX).enumerate().filter(|(_, count)| **count > 0) {
            let at = part.first_bin_ms.saturating_add(i as u64 * BIN_MS);
            let ago = report.uptime_ms.saturating_sub(at).min(REPORT_BINS_MAX as u64 * BIN_MS) as i64;
            let second = (sent_ms - ago).div_euclid(1_000);
            rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second)).offered += i64::from(count);
        }
        let [ok, late, dropped, failed] =
            [part.ok, part.late, part.dropped, part.failed].map(|count| count.min(COUNT_MAX) as i64);
        if ok + late + dropped + failed > 0 {
            let second = sent_ms.div_euclid(1_000);
            let row = rows.entry((part.pipeline.clone(), second)).or_insert_with(|| row(second));
            row.ok += ok;
            row.late += late;
            row.dropped += dropped;
            row.failed += failed;
        }
    }
    rows.into_values().collect()
}

/// The batches of a report that ended well, in the period of the service's clock in which it was sent. Groups that say
/// nothing, names that cannot be registered and times that no batches have are left out. An agent of an earlier release
/// names no task.
pub(super) fn group_sums(report: &v1::Report, session: Uuid, sent_ms: i64) -> Vec<GroupSumsRow> {
    let period = sent_ms.div_euclid(1_000 * PERIOD_S);
    let count = |count: u64| count.min(COUNT_MAX) as i64;
    let is_known = |of: &&v1::GroupStats| {
        let names = [&of.pipeline, &of.task, &of.variant, &of.hardware];
        let are_times = is_time(of.ended_ms) && is_time(of.expected_ms);
        names.into_iter().all(|name| is_name(name)) && are_times && (of.ended_batches > 0 || of.ended_queries > 0)
    };
    let row = |of: &v1::GroupStats| {
        let children = of.children.iter().take(REPORT_CHILDREN_MAX).filter(|child| is_name(&child.task));
        GroupSumsRow {
            period,
            pipeline: of.pipeline.clone(),
            task: of.task.clone(),
            variant: of.variant.clone(),
            hardware: of.hardware.clone(),
            session,
            batches: count(of.ended_batches),
            took_ms: of.ended_ms,
            expected_ms: of.expected_ms,
            queries: count(of.ended_queries),
            children: children.map(|child| (child.task.clone(), count(child.queries))).collect(),
        }
    };
    report.groups.iter().filter(is_known).take(REPORT_GROUPS_MAX).map(row).collect()
}

/// A want as a row; none if no agent of ours says such a one.
pub(super) fn want_row(want: &v1::VariantWant) -> Option<VariantWantRow> {
    let mut groups: Vec<i64> = want.groups.iter().map(|group| i64::try_from(*group).ok()).collect::<Option<_>>()?;
    groups.sort_unstable();
    groups.dedup();
    let is_bounded = (1..=WANT_GROUPS_MAX).contains(&groups.len()) && want.variants.len() <= WANT_NAMES_MAX;
    let are_names = is_name(&want.pipeline) && want.variants.iter().all(|name| is_name(name));
    let is_part = (0.0..=1.0).contains(&want.accuracy_min);
    (is_bounded && are_names && is_part).then(|| VariantWantRow {
        pipeline: want.pipeline.clone(),
        groups,
        accuracy_min: want.accuracy_min,
        latency_ms_max: (want.latency_ns_max > 0).then_some(want.latency_ns_max as f64 / 1e6),
        variants: want.variants.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plausible_wants_become_rows() {
        let want = |pipeline: &str, groups: &[u64], accuracy_min| v1::VariantWant {
            pipeline: pipeline.into(),
            groups: groups.to_vec(),
            accuracy_min,
            latency_ns_max: 2_500_000,
            variants: vec!["read:large".into()],
        };
        let row = want_row(&want("p", &[9, 7, 9], 0.9)).expect("a want");
        assert_eq!((row.groups, row.latency_ms_max), (vec![7, 9], Some(2.5)));
        let many: Vec<u64> = (0..=WANT_GROUPS_MAX as u64).collect();
        for wrong in [
            want("", &[7], 0.9),
            want("a\0b", &[7], 0.9),
            want("p", &[], 0.9),
            want("p", &many, 0.9),
            want("p", &[u64::MAX], 0.9),
            want("p", &[7], f64::NAN),
            v1::VariantWant { variants: vec![String::new()], ..want("p", &[7], 0.9) },
            v1::VariantWant { variants: vec!["v".into(); WANT_NAMES_MAX + 1], ..want("p", &[7], 0.9) },
        ] {
            assert_eq!(want_row(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn arrivals_are_counted_in_the_seconds_of_their_bins() {
        let part = v1::Arrivals {
            pipeline: "p".into(),
            first_bin_ms: 4_980,
            bins: vec![1, 2, 0, 5],
            ok: 3,
            late: 1,
            dropped: 0,
            failed: 0,
        };
        // The agent has run for 5.02 s and it is second 100.02 here: the first two bins fell into second 99.
        let report = v1::Report { uptime_ms: 5_020, arrivals: vec![part], groups: vec![], ..Default::default() };
        let rows = arrivals(&report, 100_020);
        let seen: Vec<_> = rows.iter().map(|r| (r.second, r.offered, r.ok, r.late)).collect();
        assert_eq!(seen, [(99, 3, 0, 0), (100, 5, 3, 1)]);
    }

    #[test]
    fn implausible_times_are_left_out() {
        let at = chrono::DateTime::UNIX_EPOCH;
        let hop = |agent, hop_ms| v1::HopTime { agent, hop_ms, samples: 9 };
        assert_eq!(hops_json(&[hop(1, f64::NAN), hop(2, -1.0), hop(3, f64::INFINITY)], at), None);
        let known = hops_json(&[hop(1, f64::NAN), hop(2, 0.5)], at).expect("one is a time");
        assert_eq!((known[0]["to"].as_u64(), known[0]["hop_ms"].as_f64()), (Some(2), Some(0.5)));
        let many: Vec<_> = (0..HOPS_MAX as u64 + 1).map(|agent| hop(agent, 0.5)).collect();
        assert_eq!(hops_json(&many, at).and_then(|hops| Some(hops.as_array()?.len())), Some(HOPS_MAX));
        let load = |pipeline: &str, start_ms| v1::LoadTime {
            pipeline: pipeline.into(),
            task: "t".into(),
            variant: "v".into(),
            hardware: "h".into(),
            download_ms: 0.0,
            start_ms,
        };
        let of = [load("p", 2.0), load("", 3.0), load("a\0b", 4.0), load("p", -5.0), load("p", 2.0 * TIME_MS_MAX)];
        assert_eq!(load_times(&of, at).iter().map(|l| l.start_ms).collect::<Vec<_>>(), [2.0]);
        assert_eq!(load_times(&vec![load("p", 2.0); LOAD_TIMES_MAX + 1], at).len(), LOAD_TIMES_MAX);
    }

    #[test]
    fn groups_are_summed_in_the_period_of_their_report() {
        let child = |task: &str, queries| v1::ChildCount { task: task.into(), queries };
        let of = |task: &str, ended_ms| v1::GroupStats {
            pipeline: "p".into(),
            task: task.into(),
            variant: "v".into(),
            hardware: "h".into(),
            ended_batches: 2,
            ended_ms,
            expected_ms: 20.0,
            ended_queries: u64::MAX,
            children: vec![child("read", 7), child("", 1)],
            ..Default::default()
        };
        let idle = v1::GroupStats { ended_batches: 0, ended_queries: 0, ..of("t", 0.0) };
        let groups = vec![of("t", 26.0), of("", 26.0), of("t", f64::NAN), of("t", -1.0), idle];
        let rows = group_sums(&v1::Report { groups, ..Default::default() }, Uuid::from_u128(7), 100_020);
        let [row] = rows.as_slice() else { panic!("one group says something: {rows:?}") };
        assert_eq!((row.period, row.batches, row.took_ms, row.expected_ms), (20, 2, 26.0, 20.0));
        assert_eq!((row.queries, row.session), (i64::from(u32::MAX), Uuid::from_u128(7)));
        assert_eq!(row.children, [("read".to_owned(), 7)].into());
        let many = v1::Report { groups: vec![of("t", 1.0); REPORT_GROUPS_MAX + 1], ..Default::default() };
        assert_eq!(group_sums(&many, Uuid::nil(), 0).len(), REPORT_GROUPS_MAX);
        let children = (0..=REPORT_CHILDREN_MAX).map(|task| child(&format!("t{task}"), 1)).collect();
        let wide = v1::Report { groups: vec![v1::GroupStats { children, ..of("t", 1.0) }], ..Default::default() };
        assert_eq!(group_sums(&wide, Uuid::nil(), 0)[0].children.len(), REPORT_CHILDREN_MAX);
    }

    #[test]
    fn counts_and_names_are_bounded() {
        let part = |pipeline: &str| v1::Arrivals { pipeline: pipeline.into(), ok: u64::MAX, ..Default::default() };
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let arrivals_of = ["p", "a\0b", "", &long].map(part).to_vec();
        let report = v1::Report { arrivals: arrivals_of, ..Default::default() };
        let rows = arrivals(&report, 100_020);
        assert_eq!(rows.iter().map(|r| (r.pipeline.as_str(), r.ok)).collect::<Vec<_>>(), [("p", i64::from(u32::MAX))]);
        let ack = v1::Ack { error: "a\0b".into(), ..Default::default() };
        assert_eq!(ack_json(&ack)["error"], "ab");
    }
}
