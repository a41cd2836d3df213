//! What does the agent tell the control plane? Acknowledgements of targets with the states of replicas, counts, and the
//! times of hops.

use super::loop_state::Loop;
use apportion_node::node::counts::{BIN_NS, ChoiceCounts, ReportCounts};
use apportion_node::node::replica::{LocalReplica, ReplicaPhase};
use apportion_node::steering::EXTRA_BIT;
use apportion_protocol::v1;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the times of hops are reported: they change little.
const HOPS_EVERY: Duration = Duration::from_secs(5);
/// Fewest times of which a median is reported.
const HOP_SAMPLES_MIN: usize = 5;
/// Most other agents of which the times of hops are reported. Medians over a fleet need no more of one agent.
const HOPS_REPORTED_MAX: usize = 256;

impl Loop {
    /// Adds what the node has counted to what is reported next and to the sums since the start.
    pub(super) fn collect_counts(&mut self) {
        let counts = self.node.take_counts();
        if counts.is_empty() {
            return;
        }
        let totals = Arc::make_mut(&mut self.totals);
        for (pipeline, c) in &counts.pipelines {
            let total = totals.entry(pipeline.clone()).or_default();
            let new = [c.ok, c.late, c.dropped, c.failed];
            total.iter_mut().zip(new).for_each(|(sum, n)| *sum += n);
        }
        let choices = Arc::make_mut(&mut self.choices);
        for (pipeline, c) in counts.pipelines.iter().filter(|(_, c)| c.choices != ChoiceCounts::default()) {
            choices.entry(pipeline.clone()).or_default().add(c.choices);
        }
        let batches = Arc::make_mut(&mut self.batches);
        counts.groups.values().for_each(|c| batches.entry(c.labels.clone()).or_default().add(c));
        self.unreported.add(counts);
    }

    /// The times of hops, if their report is due.
    pub(super) fn due_hops(&mut self, now: Instant) -> Vec<v1::HopTime> {
        if self.hops_reported.is_some_and(|last| now.saturating_duration_since(last) < HOPS_EVERY) {
            return Vec::new();
        }
        let known = self.node.hops().filter(|hop| hop.samples >= HOP_SAMPLES_MIN);
        let told = known.take(HOPS_REPORTED_MAX).map(|hop| v1::HopTime {
            agent: hop.agent,
            hop_ms: hop.median_ns as f64 / 1e6,
            samples: hop.samples as u32,
        });
        let told: Vec<_> = told.collect();
        if !told.is_empty() {
            self.hops_reported = Some(now);
        }
        told
    }

    pub(super) fn refuse(&mut self, target: &v1::Target, error: &str) {
        let ack = v1::Ack { fence: target.fence, applied: false, error: error.to_string(), replicas: Vec::new() };
        self.ack.send_replace(Some(ack));
    }

    pub(super) fn acknowledge(&mut self) {
        let Some(target) = &self.target else { return };
        let replicas: Vec<_> = self.node.replicas().map(replica_state).collect();
        // What was added since is no part of the target.
        let failed = replicas.iter().find(|r| !r.error.is_empty() && r.replica & EXTRA_BIT == 0);
        let error = failed.map(|r| format!("replica {}: {}", r.replica, r.error)).unwrap_or_default();
        let applied = self.node.is_target_applied() && error.is_empty();
        self.ack.send_replace(Some(v1::Ack { fence: target.fence, applied, error, replicas }));
    }
}

/// Where a replica is in its life.
fn replica_state(replica: &LocalReplica) -> v1::ReplicaState {
    use v1::replica_state::State as Reported;
    let (state, error) = match &replica.state {
        ReplicaPhase::Failed(error) => (Reported::Failed, error.clone()),
        _ if replica.retired => (Reported::Draining, String::new()),
        ReplicaPhase::Blocked | ReplicaPhase::Loading => (Reported::Loading, String::new()),
        ReplicaPhase::Ready => (Reported::Ready, String::new()),
        ReplicaPhase::Draining(_) => (Reported::Draining, String::new()),
    };
    let (interfered, slowness) = (replica.load().is_disturbed, replica.slowness());
    v1::ReplicaState { replica: replica.id, state: state.into(), error, interfered, slowness }
}

/// What was counted since the last report.
pub(super) fn report(uptime_ms: u64, counts: ReportCounts) -> v1::Report {
    let bin_ms = BIN_NS / 1_000_000;
    let arrivals = counts.pipelines.into_iter().map(|(pipeline, c)| {
        let first = c.bins.keys().next().copied().unwrap_or(0);
        let last = c.bins.keys().next_back().copied().unwrap_or(0);
        let bins = if c.bins.is_empty() {
            Vec::new()
        } else {
            (first..=last).map(|bin| c.bins.get(&bin).copied().unwrap_or(0)).collect()
        };
        let first_bin_ms = first * bin_ms;
        v1::Arrivals { pipeline, first_bin_ms, bins, ok: c.ok, late: c.late, dropped: c.dropped, failed: c.failed }
    });
    let groups = counts.groups.into_iter().map(|((pipeline, group), c)| v1::GroupStats {
        pipeline,
        group,
        queries: c.queries,
        batches: c.batches,
        busy_ms: c.busy_ns as f64 / 1e6,
        waited_ms: c.waited_ns as f64 / 1e6,
        children: c.children.into_iter().map(|(task, queries)| v1::ChildCount { task, queries }).collect(),
        task: c.labels.task,
        variant: c.labels.variant,
        hardware: c.labels.hardware,
        ended_batches: c.ended_well.batches,
        ended_ms: c.ended_well.took_ns as f64 / 1e6,
        expected_ms: c.ended_well.compared_ns() as f64 / 1e6,
        ended_queries: c.ended_well.queries,
    });
    v1::Report { uptime_ms, arrivals: arrivals.collect(), groups: groups.collect(), ..Default::default() }
}
