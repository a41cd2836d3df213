//! The machines of `serving`, constructed from a target exactly as the estimator constructs them from the plan.

use crate::layout::{Group, Pipeline};
use apportion_domain::{Dropping, Span};
use apportion_serving::batcher::Batcher;
use apportion_serving::modules::Module;
use apportion_serving::{Dropper, StatePlanner, Station};

/// Queries that may wait at one replica.
pub const QUEUE_LEN_MAX: usize = 10_000;

/// How important a query is whose request does not say: the parameter `priority` is a level, and 0 is this one.
pub const LEVEL_DEFAULT: u32 = 100;
/// Of offline queries, which run where no other waits; requests' priorities stay above.
pub const LEVEL_OFFLINE: u32 = u32::MAX;

/// A station's handle of a query. To a station, queries of one request are equal, so that one input cancels them all.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// The agent's own number of it.
    pub key: u64,
    /// The agent whose gateway waits for its request.
    pub origin: u64,
    /// The gateway's number of the request.
    pub request: u64,
    /// How important it is: the lowest number comes first.
    pub level: u32,
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        (self.origin, self.request) == (other.origin, other.request)
    }
}

impl Group {
    /// Time of a full batch.
    #[must_use]
    pub fn execution(&self) -> Span {
        Span::from_nanos(self.latency_ns(self.batch))
    }

    /// Queries per second that one replica can serve with full batches.
    #[must_use]
    pub fn capacity_qps(&self) -> f64 {
        let batch_ms = self.execution().as_millis();
        if batch_ms > 0.0 { 1_000.0 * self.batch as f64 / batch_ms } else { 0.0 }
    }
}

impl Pipeline {
    /// Queue, batcher and dropper of one replica of a group.
    #[must_use]
    pub fn station(&self, group: &Group) -> Station<Handle> {
        let dropping = self.serving.dropping;
        let is_last = self.tasks[group.task].children.is_empty();
        let reserve = Span::from_millis(self.reserves_ms()[group.task]);
        let batcher = Batcher::of(self.serving.batching, group.batch as u32, reserve);
        let service = (1..=group.batch).map(|size| Span::from_nanos(group.latency_ns(size))).collect();
        let station = Station::new(1, batcher, Dropper::of(dropping, is_last), QUEUE_LEN_MAX).with_service(service);
        let station = if StatePlanner::needs(dropping).1 { station.monitored() } else { station };
        if StatePlanner::sorts(dropping) { station.by_remaining_time() } else { station }
    }

    /// How long a query may take at a group before it is behind (Loki section 5.2): `queue_factor` batches.
    #[must_use]
    pub fn budget(&self, group: &Group) -> Span {
        match self.serving.dropping {
            Dropping::PerTask | Dropping::Reroute => Span::from_millis(self.queue_factor * group.execution().as_millis()),
            _ => Span::from_nanos(u64::MAX),
        }
    }

    /// By task, the longest way from its end to the end of the pipeline in milliseconds, with the hop charge of each task's
    /// slowest group: what `wait_until` leaves to later tasks.
    fn reserves_ms(&self) -> Vec<f64> {
        let network_ms = Span::from_nanos(self.network_ns).as_millis();
        let charge_ms = |task: usize| {
            let of_task = self.groups.values().filter(|g| g.task == task);
            let slowest = of_task.map(|g| g.execution().as_millis()).fold(0.0, f64::max);
            if slowest > 0.0 { self.queue_factor * slowest + network_ms } else { 0.0 }
        };
        let mut reserves = vec![0.0; self.tasks.len()];
        // A pass for each task settles any order of the tasks.
        for _ in 0..self.tasks.len() {
            for (at, task) in self.tasks.iter().enumerate() {
                let edges = task.children.iter().chain(&task.delays);
                reserves[at] = edges.map(|e| charge_ms(e.to) + reserves[e.to]).fold(0.0, f64::max);
            }
        }
        reserves
    }

    /// Module states at the start, where the policy looks at them; none if it does not, or if there are too many paths.
    #[must_use]
    pub fn state_planner(&self) -> Option<StatePlanner> {
        if !StatePlanner::needs(self.serving.dropping).0 {
            return None;
        }
        let replicas = |group: u64| self.replicas.iter().filter(|r| r.group == group).count() as f64;
        let module = |task: usize| {
            let of_task = self.groups.iter().filter(|(_, g)| g.task == task);
            let parts: Vec<(f64, f64)> =
                of_task.map(|(id, g)| (g.capacity_qps() * replicas(*id), g.execution().as_millis())).collect();
            let throughput_qps: f64 = parts.iter().map(|(qps, _)| qps).sum();
            let weighted: f64 = parts.iter().map(|(qps, ms)| qps * ms).sum();
            let execution = Span::from_millis(if throughput_qps > 0.0 { weighted / throughput_qps } else { 0.0 });
            let edges = self.tasks[task].children.iter().chain(&self.tasks[task].delays);
            Module { execution, throughput_qps, after: edges.map(|e| e.to).collect() }
        };
        let modules = (0..self.tasks.len()).map(module).collect();
        let (slo, network) = (Span::from_nanos(self.slo_ns), Span::from_nanos(self.network_ns));
        StatePlanner::new(self.serving.dropping, slo, network, modules).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::{lay_out, tests::chain};
    use apportion_domain::Span;
    use apportion_protocol::v1;

    fn pipeline(dropping: &str) -> crate::layout::Pipeline {
        let mut target = chain();
        target.pipelines[0].serving = Some(v1::Serving { dropping: dropping.into(), ..Default::default() });
        target.pipelines[0].network_ns = 1_000;
        lay_out(&target).expect("valid").pipelines["p"].as_ref().clone()
    }

    #[test]
    fn states_and_budgets_follow_from_the_groups() {
        // Both tasks: batches of 4 in 20 ns.
        let pard = pipeline("pard");
        let states = pard.state_planner().expect("pard looks at states");
        assert_eq!([0, 1].map(|task| states.view(task).forward.as_nanos()), [1_020, 0]);
        assert!(pipeline("reroute").state_planner().is_none());
        let group = &pard.groups[&1];
        assert_eq!(pard.budget(group), Span::from_nanos(u64::MAX));
        assert_eq!(pipeline("reroute").budget(group).as_nanos(), 40);
        assert_eq!(pard.reserves_ms().map_ns(), [1_040, 0]);
    }

    trait Nanos {
        fn map_ns(self) -> Vec<u64>;
    }

    impl Nanos for Vec<f64> {
        fn map_ns(self) -> Vec<u64> {
            self.into_iter().map(|ms| Span::from_millis(ms).as_nanos()).collect()
        }
    }
}
