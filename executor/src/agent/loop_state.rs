//! Which state does the agent's loop keep?

use super::callers::Callers;
use super::handle::{AgentHandle, AgentOptions, NodeView};
use super::load_times::LoadTimes;
use super::measurer::Measurer;
use crate::alarm::Alarm;
use crate::peers::PeerLinks;
use crate::record::Recorder;
use crate::slot::{Slot, SlotTimes};
use crate::wake_lock::WakeLock;
use apportion_node::greeting::ReceivedKeys;
use apportion_node::node::Node;
use apportion_node::node::counts::{Batches, ChoiceCounts, Labels, ReportCounts};
use apportion_protocol::v1;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// The loop: the node, and all that carries out its actions.
pub(super) struct Loop {
    pub(super) node: Node,
    pub(super) wake_lock: WakeLock,
    pub(super) options: AgentOptions,
    pub(super) peers: PeerLinks,
    pub(super) alarm: Option<Alarm>,
    pub(super) recorder: Option<Recorder>,
    /// Clients that wait for an answer, by the numbers that the node knows.
    pub(super) callers: Callers,
    pub(super) slots: HashMap<u64, Slot>,
    /// Replicas by the numbers of their loadings, which their threads know them by: a target may number replicas anew.
    pub(super) loadings: HashMap<u64, u64>,
    pub(super) load_times: LoadTimes,
    /// Draws the times of queries in slots.
    pub(super) slot_times: SlotTimes,
    pub(super) measurer: Measurer,
    /// When the times of hops were reported last.
    pub(super) hops_reported: Option<Instant>,
    /// Quick batches have ended that the node has not acted upon yet.
    pub(super) is_more: bool,
    pub(super) agent: u64,
    /// The number that the control plane gave last.
    pub(super) welcomed: Option<u64>,
    pub(super) target: Option<v1::Target>,
    pub(super) received_keys: ReceivedKeys,
    pub(super) totals: Arc<BTreeMap<String, [u64; 4]>>,
    pub(super) choices: Arc<BTreeMap<String, ChoiceCounts>>,
    pub(super) batches: Arc<BTreeMap<Labels, Batches>>,
    pub(super) unreported: ReportCounts,
    pub(super) handle: AgentHandle,
    pub(super) view: watch::Sender<NodeView>,
    pub(super) ack: watch::Sender<Option<v1::Ack>>,
}
