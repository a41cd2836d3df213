//! Which orders do the agents of this process have, and which of their measurements wait for the database?

use apportion_protocol::v1;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// Most measurements that wait. Beyond them the oldest are dropped; their agents are asked again.
const WAITING_MAX: usize = 4_096;

/// The orders to measure, by the number of their agent.
pub type MeasureOrders = Arc<BTreeMap<u64, v1::Measure>>;

/// A measurement of an agent.
#[derive(Clone, Debug)]
pub struct AgentMeasurement {
    /// The agent's number.
    pub agent: u64,
    /// What it says.
    pub measurement: v1::Measurement,
}

/// The orders and the measurements of one service process.
#[derive(Debug)]
pub struct MeasureQueue {
    waiting: Mutex<VecDeque<AgentMeasurement>>,
    added: Notify,
    orders: watch::Sender<MeasureOrders>,
}

impl Default for MeasureQueue {
    fn default() -> Self {
        Self { waiting: Mutex::default(), added: Notify::new(), orders: watch::Sender::new(MeasureOrders::default()) }
    }
}

impl MeasureQueue {
    fn with_waiting<T>(&self, change: impl FnOnce(&mut VecDeque<AgentMeasurement>) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a measurement.
    pub fn add(&self, measurement: AgentMeasurement) {
        self.with_waiting(|waiting| {
            waiting.push_back(measurement);
            if waiting.len() > WAITING_MAX {
                waiting.pop_front();
            }
        });
        self.added.notify_one();
    }

    /// The oldest measurement.
    pub fn take(&self) -> Option<AgentMeasurement> {
        self.with_waiting(VecDeque::pop_front)
    }

    /// Puts a measurement back that could not be stored.
    pub fn put_back(&self, measurement: AgentMeasurement) {
        self.with_waiting(|waiting| waiting.push_front(measurement));
    }

    /// Waits until there is something to do: a measurement, or a job that this process was told of.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// Says that there is something to do.
    pub fn wake(&self) {
        self.added.notify_one();
    }

    /// Hands the orders to the streams, if they differ from those before.
    pub fn set_orders(&self, orders: BTreeMap<u64, v1::Measure>) {
        self.orders.send_if_modified(|known| {
            let is_new = **known != orders;
            if is_new {
                *known = Arc::new(orders);
            }
            is_new
        });
    }

    /// The orders, and each change of them.
    pub fn orders(&self) -> watch::Receiver<MeasureOrders> {
        self.orders.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_measurements_are_dropped() {
        let measurements = MeasureQueue::default();
        let of = |agent| AgentMeasurement { agent, measurement: v1::Measurement::default() };
        (0..WAITING_MAX as u64 + 1).for_each(|agent| measurements.add(of(agent)));
        assert_eq!(measurements.take().map(|m| m.agent), Some(1));
        measurements.put_back(of(7));
        assert_eq!(measurements.take().map(|m| m.agent), Some(7));
    }

    #[test]
    fn equal_orders_are_handed_out_once() {
        let measurements = MeasureQueue::default();
        let mut orders = measurements.orders();
        let order = |claim| BTreeMap::from([(1, v1::Measure { claim, ..Default::default() })]);
        measurements.set_orders(order(3));
        assert!(orders.has_changed().expect("it lives"));
        assert_eq!(orders.borrow_and_update()[&1].claim, 3);
        measurements.set_orders(order(3));
        assert!(!orders.has_changed().expect("it lives"));
        measurements.set_orders(order(4));
        assert!(orders.has_changed().expect("it lives"));
    }
}
