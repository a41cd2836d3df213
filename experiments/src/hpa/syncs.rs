//! Does our model of Kubernetes' autoscaler decide as the real controller does?
//!
//! The real controller asks for its metric once in each sync. So the questions are its syncs, and the replicas that its
//! Deployment asks for at the next question are its decision. The model gets the same metrics, the same replicas and the
//! same moments.

use super::fleet_log::FleetLog;
use super::groups::BenchGroup;
use super::workload::{BenchWorkload, ScalingSide};
use apportion_domain::Moment;
use apportion_estimator::controllers::Hpa;
use apportion_estimator::{Controller, GroupObservation, Observation, ScenarioEvent};
use serde::Serialize;
use std::time::Duration;

/// The watch shows a decision within this time. Later questions only are compared at the end of a run.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// A question of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricQuestion {
    /// When it came, from the start of the benchmark.
    pub at: Duration,
    /// The task.
    pub task: String,
    /// The answer in thousandths of a query per second.
    pub milli: u64,
}

/// One sync of the real controller, and the model's decision in the same place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedSync {
    /// Seconds from the start of the load.
    pub at_s: f64,
    /// The Deployment.
    pub workload: String,
    /// The metric, in queries per second.
    pub metric_qps: f64,
    /// The replicas before.
    pub current: u32,
    /// The real decision.
    pub decided: u32,
    /// The model's decision.
    pub modelled: u32,
}

impl ComparedSync {
    /// Whether both decided the same.
    pub const fn agrees(&self) -> bool {
        self.decided == self.modelled
    }
}

/// The part of a run that is compared, from the start of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct ComparedSpan {
    /// The start of the load.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
}

/// All syncs of a group's autoscaler in this span, in order.
pub fn compare_syncs(
    questions: &[MetricQuestion],
    log: &FleetLog,
    group: &BenchGroup,
    span: ComparedSpan,
) -> Vec<ComparedSync> {
    let workload = BenchWorkload { side: ScalingSide::Autoscaler, name: group.autoscaler.workload.clone() };
    let of_group = |q: &&MetricQuestion| q.task == group.name.task && (span.from..span.until).contains(&q.at);
    let asked: Vec<&MetricQuestion> = questions.iter().filter(of_group).collect();
    let mut model = Hpa::new(group.modelled());
    let mut compared = Vec::new();
    for (at, question) in asked.iter().enumerate() {
        let next = asked.get(at + 1).map_or(span.until, |next| next.at);
        let is_shown = next.saturating_sub(question.at) >= SHOWN_WITHIN;
        let (current, decided) = (log.replicas_at(&workload, question.at), log.replicas_at(&workload, next));
        let (Some(current), Some(decided), true) = (current, decided, is_shown) else { continue };
        let since = question.at.saturating_sub(span.from);
        compared.push(ComparedSync {
            at_s: since.as_secs_f64(),
            workload: workload.name.clone(),
            metric_qps: question.milli as f64 / 1e3,
            current,
            decided,
            modelled: modelled(&mut model, group, question, current),
        });
    }
    compared
}

/// The model's decision after one report.
fn modelled(model: &mut Hpa, group: &BenchGroup, question: &MetricQuestion, current: u32) -> u32 {
    let seen = GroupObservation {
        pipeline: String::new(),
        group: group.name.clone(),
        ready: current,
        loading: 0,
        queued: question.milli,
        running: 0,
        arrived: 0,
        utilisation: 0.0,
    };
    let at = Moment::from_nanos(question.at.as_nanos() as u64);
    let report =
        Observation { at, arrivals: vec![Vec::new()], headrooms: vec![1.0], outcomes: Vec::new(), groups: vec![seen] };
    let commands = model.observe(&report);
    let asked = commands.into_iter().find_map(|(_, event)| match event {
        ScenarioEvent::Replicas { replicas, .. } => Some(replicas),
        _ => None,
    });
    asked.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpa::workload::AutoscalerSettings;
    use apportion_domain::{GroupName, Share};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// 64 queries/s for each replica, 10 replicas at most, and a window of 15 s for scaling down.
    fn group() -> BenchGroup {
        let name = GroupName { task: "find".into(), variant: "find-l".into(), hardware: "t4".into(), share: Share::WHOLE };
        let (workload, task) = ("find-l".to_owned(), "find".to_owned());
        let autoscaler = AutoscalerSettings { workload, task, target_milli: 64_000, replicas_max: 10, down_window_s: 15 };
        BenchGroup { name, visits: 1.0, price_per_hour: 1.0, autoscaler }
    }

    fn question(at: u64, milli: u64) -> MetricQuestion {
        MetricQuestion { at: s(at), task: "find".into(), milli }
    }

    /// A log in which the Deployment has these replicas from these seconds on.
    fn log(settings: &[(u64, u32)]) -> FleetLog {
        let workload = BenchWorkload { side: ScalingSide::Autoscaler, name: "find-l".into() };
        let mut log = FleetLog::default();
        settings.iter().for_each(|&(at, replicas)| log.note_deployment(&workload.deployment(Some(replicas)), s(at)));
        log
    }

    #[test]
    fn a_controller_that_keeps_the_formula_agrees() {
        // 160/64 is 2.5, 240/64 is 3.75 and 320/64 is 5. At 1 query/s the 5 replicas stay for the window of 15 s.
        let metrics = [(115, 160_000), (130, 240_000), (145, 320_000), (155, 1_000), (170, 1_000)];
        let questions = metrics.map(|(at, milli)| question(at, milli));
        let log = log(&[(50, 3), (131, 4), (146, 5), (171, 1)]);
        let found = compare_syncs(&questions, &log, &group(), ComparedSpan { from: s(100), until: s(180) });
        let decided: Vec<(u32, u32)> = found.iter().map(|sync| (sync.current, sync.decided)).collect();
        assert_eq!(decided, [(3, 3), (3, 4), (4, 5), (5, 5), (5, 1)]);
        assert!(found.iter().all(ComparedSync::agrees));
    }

    #[test]
    fn another_decision_is_a_difference_with_its_time() {
        let questions = [question(115, 320_000), question(130, 320_000)];
        let log = log(&[(50, 3), (116, 4)]);
        let found = compare_syncs(&questions, &log, &group(), ComparedSpan { from: s(100), until: s(180) });
        let differing: Vec<_> =
            found.iter().filter(|sync| !sync.agrees()).map(|s| (s.at_s, s.decided, s.modelled)).collect();
        assert_eq!(differing, [(15.0, 4, 5), (30.0, 4, 5)]);
    }

    #[test]
    fn questions_outside_the_span_are_not_compared() {
        let other = MetricQuestion { task: "read".into(), ..question(120, 1) };
        let questions = [question(90, 160_000), other, question(115, 160_000), question(179, 160_000)];
        let found = compare_syncs(&questions, &log(&[(50, 3)]), &group(), ComparedSpan { from: s(100), until: s(180) });
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
