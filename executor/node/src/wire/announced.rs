//! What does an agent announce of its replicas?

/// A replica that its agent announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The replica.
    pub replica: u64,
    /// Its group.
    pub group: u64,
    /// Its pipeline.
    pub pipeline: String,
    /// Its task.
    pub task: String,
    /// Accuracy of its variant, in millionths.
    pub accuracy_ppm: u32,
}

/// The load of a replica between its agent's last two announcements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Queries that wait or run, at the period's end.
    pub queued: u32,
    /// Queries that were served, in thousandths of a query per second.
    pub served_mqps: u32,
    /// Part of the period in which batches ran, in millionths. Batches of offline queries do not count.
    pub busy_ppm: u32,
    /// Time of the batches that ended, divided by their time in the profile, in millionths; 0 if none ended.
    pub slowness_ppm: u32,
    /// Whether it has been slower than profiled for some periods, though it was not overloaded.
    pub is_disturbed: bool,
}

/// A replica that is not ready yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReplica {
    /// The replica.
    pub replica: u64,
    /// Whether it waits for room on its device.
    pub is_blocked: bool,
}
