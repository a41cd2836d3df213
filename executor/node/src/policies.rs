//! How does a target's pipeline configure the machines of crate `serving`? Exactly as the plan does in the estimator.

use crate::layout::{LayoutGroup, LayoutPipeline};
use apportion_domain::{Queueing, TimeSpan};
use apportion_serving::batcher::Batcher;
use apportion_serving::replica::QueuePolicy;
use apportion_serving::{Dropper, StatePlanner, Station};

/// Queries that may wait at one replica.
pub const QUEUE_LEN_MAX: usize = 10_000;

/// Level of queries whose request does not say one. The request's parameter `priority` is a level; 0 means this one.
pub const LEVEL_DEFAULT: u32 = 100;
/// Level of offline queries, which run when no other query waits. Priorities of requests are smaller numbers.
pub const LEVEL_OFFLINE: u32 = u32::MAX;

/// A station's handle of a query. To a station, queries of one request are equal, so that one input cancels them all.
#[derive(Clone, Copy, Debug)]
pub struct QueryHandle {
    /// The agent's own number of it.
    pub key: u64,
    /// The agent whose gateway waits for its request.
    pub origin: u64,
    /// The gateway's number of the request.
    pub request: u64,
    /// Its importance: the lowest number comes first.
    pub level: u32,
    /// Queries of one kind may share a batch: their inputs have the same shapes, and their senders are not kept apart.
    pub kind: u64,
}

impl QueryHandle {
    /// Equals each query of this request.
    #[must_use]
    pub const fn of_request(origin: u64, request: u64) -> Self {
        Self { key: 0, origin, request, level: 0, kind: 0 }
    }
}

impl PartialEq for QueryHandle {
    fn eq(&self, other: &Self) -> bool {
        (self.origin, self.request) == (other.origin, other.request)
    }
}

impl LayoutGroup {
    /// Time of a full batch.
    #[must_use]
    pub fn execution(&self) -> TimeSpan {
        TimeSpan::from_nanos(self.latency_ns(self.batch))
    }

    /// Queries per second that one replica can serve with full batches.
    #[must_use]
    pub fn capacity_qps(&self) -> f64 {
        let batch_ms = self.execution().as_millis();
        if batch_ms > 0.0 { 1_000.0 * self.batch as f64 / batch_ms } else { 0.0 }
    }
}

impl LayoutPipeline {
    /// Whether all replicas of a group share one queue (InferLine section 3).
    #[must_use]
    pub fn is_central(&self) -> bool {
        self.serving.queueing == Queueing::Central
    }

    /// The servers of one replica: one for batches, or one for each slot of a continuous task.
    #[must_use]
    pub fn servers(&self, group: &LayoutGroup) -> u32 {
        if self.tasks[group.task].is_continuous { group.batch as u32 } else { 1 }
    }

    /// How queries of a group form batches, and the expected time of a batch of each size.
    #[must_use]
    pub fn batching(&self, group: &LayoutGroup) -> (Batcher, Vec<TimeSpan>) {
        if self.tasks[group.task].is_continuous {
            // Each slot is a server that runs one query at a time.
            return (Batcher::AtStart { batch_max: 1 }, vec![group.execution()]);
        }
        let reserve = self.outline().reserves()[group.task];
        let service = (1..=group.batch).map(|size| TimeSpan::from_nanos(group.latency_ns(size))).collect();
        (Batcher::of(self.serving.batching, group.batch as u32, reserve), service)
    }

    /// How the queue of a group orders, drops and measures.
    #[must_use]
    pub fn queue_policy(&self, group: &LayoutGroup) -> QueuePolicy {
        let dropping = self.serving.dropping;
        QueuePolicy {
            dropper: Dropper::of(dropping, self.tasks[group.task].children.is_empty()),
            is_by_remaining_time: StatePlanner::sorts(dropping),
            is_monitored: StatePlanner::needs_measurements(dropping),
        }
    }

    /// Queue, batcher, dropper and servers of one replica of a group. If the group has a central queue, whole batches come
    /// from there: the replica starts each as it comes, and drops nothing.
    #[must_use]
    pub fn station(&self, group: &LayoutGroup) -> Station<QueryHandle> {
        if !self.is_central() {
            return self.queue_station(group, self.servers(group));
        }
        let (batcher, service) = self.batching(group);
        let at_start = Batcher::AtStart { batch_max: batcher.batch_max() };
        let station = Station::new(self.servers(group), at_start, Dropper::Never, QUEUE_LEN_MAX).with_service(service);
        station.with_kinds(|query: &QueryHandle| query.kind)
    }

    /// A queue of a group under the plan's policies, with this many servers behind it.
    #[must_use]
    pub fn queue_station(&self, group: &LayoutGroup, servers: u32) -> Station<QueryHandle> {
        let (batcher, service) = self.batching(group);
        let mut station = Station::new(servers, batcher, Dropper::Never, QUEUE_LEN_MAX).with_service(service);
        station = station.with_kinds(|query: &QueryHandle| query.kind);
        station.set_policy(self.queue_policy(group));
        station
    }

    /// How long a query may take at a group before it is behind (Loki section 5.2): `queue_factor` batches.
    #[must_use]
    pub fn budget(&self, group: &LayoutGroup) -> TimeSpan {
        match self.serving.dropping.looks_back() {
            true => TimeSpan::from_millis(self.queue_factor * group.execution().as_millis()),
            false => TimeSpan::from_nanos(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::{lay_out, tests::chain};
    use apportion_domain::TimeSpan;
    use apportion_protocol::v1;

    fn pipeline(dropping: &str) -> crate::layout::LayoutPipeline {
        let mut target = chain();
        target.pipelines[0].serving = Some(v1::Serving { dropping: dropping.into(), ..Default::default() });
        target.pipelines[0].network_ns = 1_000;
        lay_out(&target).expect("valid").pipelines["p"].as_ref().clone()
    }

    #[test]
    fn states_and_budgets_follow_from_the_groups() {
        // Both tasks: batches of 4 in 20 ns.
        let pard = pipeline("pard");
        let states = pard.outline().state_planner().expect("few paths").expect("pard looks at states");
        assert_eq!([0, 1].map(|task| states.view(task).forward.as_nanos()), [1_020, 0]);
        assert!(pipeline("reroute").outline().state_planner().expect("few paths").is_none());
        let group = &pard.groups[&1];
        assert_eq!(pard.budget(group), TimeSpan::from_nanos(u64::MAX));
        assert_eq!(pipeline("reroute").budget(group).as_nanos(), 40);
        assert_eq!(pard.outline().reserves(), [TimeSpan::from_nanos(1_040), TimeSpan::ZERO]);
        // A larger hop into the second task is left to it by the first one.
        let mut sized = pard.clone();
        sized.hops_ns = vec![5_000, 3_000];
        let states = sized.outline().state_planner().expect("few paths").expect("pard looks at states");
        assert_eq!([0, 1].map(|task| states.view(task).forward.as_nanos()), [3_020, 0]);
        assert_eq!(sized.outline().reserves(), [TimeSpan::from_nanos(3_040), TimeSpan::ZERO]);
    }

    #[test]
    fn replicas_behind_a_central_queue_start_what_comes() {
        let mut target = chain();
        let serving = v1::Serving { queueing: "central".into(), batching: "forming".into(), ..Default::default() };
        target.pipelines[0].serving = Some(v1::Serving { dropping: "pard".into(), ..serving });
        let laid = lay_out(&target).expect("valid").pipelines["p"].as_ref().clone();
        let group = &laid.groups[&1];
        let (mut replica, mut queue) = (laid.station(group), laid.queue_station(group, 3));
        assert!(laid.is_central() && replica.monitor().is_none() && queue.monitor().is_some());
        assert_eq!((replica.servers(), queue.servers()), (1, 3));
        assert!(!replica.batcher().is_forming() && queue.batcher().is_forming());
        assert_eq!((replica.batcher().batch_max(), queue.batcher().batch_max()), (4, 4));
    }
}
