//! How are the two sides shown beside each other?

use super::judge::ServedLoad;
use super::load::LoadPhases;
use super::syncs::ComparedSync;
use super::workload::ScalingSide;
use apportion_support::output::{TextTable, number, percent};
use serde::Serialize;

/// The result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct HpaReport {
    /// The hash of the protocol that the autoscaler's target is from.
    pub protocol: String,
    /// Seed of the load.
    pub seed: u64,
    /// The load.
    pub phases: LoadPhases,
    /// Its requests.
    pub requests: usize,
    /// Both sides.
    pub sides: Vec<SideReport>,
    /// The autoscaler's decisions beside those of our model.
    pub syncs: SyncReport,
}

/// One side.
#[derive(Clone, Debug, Serialize)]
pub struct SideReport {
    /// Which.
    pub side: ScalingSide,
    /// Cost and service.
    pub served: ServedLoad,
    /// Its Deployments.
    pub workloads: Vec<WorkloadReport>,
}

/// One Deployment of a side.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadReport {
    /// Its name.
    pub workload: String,
    /// Its replicas at the start of the load.
    pub at_start: u32,
    /// Its changes during the load.
    pub changes: Vec<ReplicaStep>,
    /// Its recorded changes, those before and after the load included.
    pub recorded: u64,
    /// Changes that the side's author tells in its own events: it made them through `/scale`.
    pub told: u64,
}

/// A change of `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaStep {
    /// Seconds from the start of the load.
    pub at_s: f64,
    /// The new number.
    pub replicas: u32,
}

/// The autoscaler's decisions, sync by sync.
#[derive(Clone, Debug, Serialize)]
pub struct SyncReport {
    /// Syncs that were compared.
    pub compared: usize,
    /// Syncs in which our model decided the same.
    pub equal: usize,
    /// The others.
    pub differing: Vec<ComparedSync>,
}

impl SyncReport {
    /// Of these syncs.
    pub fn of(syncs: Vec<ComparedSync>) -> Self {
        let compared = syncs.len();
        let differing: Vec<ComparedSync> = syncs.into_iter().filter(|sync| !sync.agrees()).collect();
        Self { compared, equal: compared - differing.len(), differing }
    }
}

impl SideReport {
    /// Its name in tables.
    const fn name(&self) -> &'static str {
        match self.side {
            ScalingSide::Autoscaler => "HPA, real controller",
            ScalingSide::Service => "Apportion",
        }
    }
}

impl HpaReport {
    /// The report for people.
    pub fn text(&self) -> String {
        let mut table = TextTable::new(&["side", "cost", "replica-s", "in time", "p50 ms", "p99 ms", "changes", "told"]);
        for side in &self.sides {
            let ServedLoad { replica_seconds, cost, attainment, p50_ms, p99_ms } = side.served;
            let changes: usize = side.workloads.iter().map(|workload| workload.changes.len()).sum();
            let sum = |count: fn(&WorkloadReport) -> u64| side.workloads.iter().map(count).sum::<u64>();
            let told = format!("{} of {}", sum(|of| of.told), sum(|of| of.recorded));
            let figures = [number(cost), number(replica_seconds), percent(attainment), number(p50_ms), number(p99_ms)];
            let mut cells = vec![side.name().to_owned()];
            cells.extend(figures);
            cells.extend([changes.to_string(), told]);
            table.row(cells);
        }
        let head = format!("{} requests in {} s, seed {}\n\n", self.requests, self.phases.end_s, self.seed);
        format!("{head}{}\n{}\n{}\nprotocol {}\n", table.text(""), self.steps_text(), self.syncs_text(), self.protocol)
    }

    /// The replicas over time.
    fn steps_text(&self) -> String {
        let mut text = String::new();
        for (side, of) in self.sides.iter().flat_map(|side| side.workloads.iter().map(move |of| (side, of))) {
            let steps = of.changes.iter().map(|step| format!(", {} at {:.0} s", step.replicas, step.at_s));
            text += &format!("{}: {}: {}{}\n", side.name(), of.workload, of.at_start, steps.collect::<String>());
        }
        text
    }

    fn syncs_text(&self) -> String {
        let SyncReport { compared, equal, differing } = &self.syncs;
        let mut text = format!("our model of the controller: {equal} of {compared} decisions are equal\n");
        if differing.is_empty() {
            return text;
        }
        let mut table = TextTable::new(&["at s", "workload", "queries/s", "replicas", "real", "model"]);
        for sync in differing {
            let [current, decided, modelled] = [sync.current, sync.decided, sync.modelled].map(|count| count.to_string());
            let (at, metric) = (number(sync.at_s), number(sync.metric_qps));
            table.row(vec![at, sync.workload.clone(), metric, current, decided, modelled]);
        }
        text += &table.text("");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(decided: u32, modelled: u32) -> ComparedSync {
        ComparedSync { at_s: 30.5, workload: "find-l".into(), metric_qps: 320.0, current: 3, decided, modelled }
    }

    #[test]
    fn differences_are_counted_and_shown() {
        let syncs = SyncReport::of(vec![sync(5, 5), sync(5, 6), sync(3, 3)]);
        assert_eq!((syncs.compared, syncs.equal, syncs.differing.len()), (3, 2, 1));
        let served = ServedLoad { replica_seconds: 3600.0, cost: 0.53, attainment: 0.995, p50_ms: 80.0, p99_ms: 120.0 };
        let changes = vec![ReplicaStep { at_s: 31.0, replicas: 5 }];
        let workload = WorkloadReport { workload: "find-l".into(), at_start: 3, changes, recorded: 1, told: 1 };
        let side = SideReport { side: ScalingSide::Autoscaler, served, workloads: vec![workload] };
        let phases = LoadPhases { ramp_from_s: 1, ramp_until_s: 2, double_at_s: 3, fall_at_s: 4, end_s: 5 };
        let protocol = "ab".to_owned();
        let text = HpaReport { protocol, seed: 1, phases, requests: 800, sides: vec![side], syncs }.text();
        for expected in ["2 of 3 decisions are equal", "find-l: 3, 5 at 31 s", "99.50 %", "1 of 1", "0.5300"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
