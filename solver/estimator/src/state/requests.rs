//! Requests in flight: a slab whose slots are reused, so that memory follows the load and not the trace.

use super::group::CompiledGroup;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::RequestProgress;

/// One request in flight.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// Its position among all arrivals of the run.
    pub number: u64,
    /// Its pipeline.
    pub pipeline: u32,
    /// The task at which a query of it was dropped first, if one was.
    pub drop_task: Option<u32>,
    /// When it arrived.
    pub arrival: Moment,
    /// When it should be answered.
    pub deadline: Moment,
    /// Its queries in flight, and its outcome so far.
    pub progress: RequestProgress,
    /// Device time spent on it; 0 in runs without changes.
    pub spent: TimeSpan,
    /// Whether any path of it was scored.
    pub is_scored: bool,
    /// Whether a less accurate variant of some task served a query of it; only runs that count classes say so.
    pub on_fallback: bool,
}

/// A request of a run. Its slot is used again, and its number is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Its pipeline.
    pub pipeline: u32,
    /// Its slot while it is open.
    pub slot: u32,
    /// Its number among the requests of its pipeline.
    pub number: u64,
}

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest {
    /// Its pipeline.
    pub pipeline: usize,
    /// Its number among the requests of its pipeline.
    pub number: u64,
    /// When it arrives.
    pub arrival: Moment,
    /// When it should be answered.
    pub deadline: Moment,
}

/// A request whose slot is free again.
#[derive(Clone, Copy, Debug)]
pub struct ClosedRequest<'a> {
    /// The request.
    pub request: &'a SimulatedRequest,
    /// Its accuracy; `None` if nothing of it was scored.
    pub accuracy: Option<f64>,
}

/// Sum and number of accuracies.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    sum: f64,
    count: u32,
}

/// All requests in flight with their accuracies so far.
///
/// Each request has one score for each *channel* (a sink, or a task under `task_mean`). Before them is a score for paths
/// that ended because a draw made no queries; it counts only if no channel has a score.
#[derive(Debug)]
pub struct RequestSlots {
    slots: Vec<SimulatedRequest>,
    scores: Vec<Score>,
    width: usize,
    free: Vec<u32>,
    /// How many of those in flight have lost a query.
    dropped: usize,
}

impl RequestSlots {
    /// For pipelines with at most `channels_max` channels.
    #[must_use]
    pub fn new(channels_max: usize) -> Self {
        Self { slots: Vec::new(), scores: Vec::new(), width: channels_max + 1, free: Vec::new(), dropped: 0 }
    }

    /// Takes a slot for a request that arrives, with one query.
    #[inline(always)]
    pub fn open(&mut self, new: NewRequest) -> u32 {
        let NewRequest { pipeline, number, arrival, deadline } = new;
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        // Field by field: a struct that is put together first would be read again before it has arrived in memory.
        let request = &mut self.slots[slot as usize];
        request.number = number;
        request.pipeline = pipeline as u32;
        request.drop_task = None;
        request.arrival = arrival;
        request.deadline = deadline;
        request.progress = RequestProgress::new(1);
        request.spent = TimeSpan::ZERO;
        request.is_scored = false;
        request.on_fallback = false;
        slot
    }

    #[cold]
    #[inline(never)]
    fn add_slot(&mut self) -> u32 {
        self.slots.push(SimulatedRequest {
            number: 0,
            pipeline: 0,
            drop_task: None,
            arrival: Moment::ZERO,
            deadline: Moment::ZERO,
            progress: RequestProgress::new(1),
            spent: TimeSpan::ZERO,
            is_scored: false,
            on_fallback: false,
        });
        self.scores.resize(self.scores.len() + self.width, Score::default());
        (self.slots.len() - 1) as u32
    }

    /// Memory of all slots, in bytes: buffers double when they grow.
    pub fn bytes(&self) -> usize {
        self.slots.len() * self.bytes_each()
    }

    /// Memory of a slot, in bytes.
    pub fn bytes_each(&self) -> usize {
        2 * (size_of::<SimulatedRequest>() + self.width * size_of::<Score>() + size_of::<u32>())
    }

    /// Requests without an outcome.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether a query was dropped of any request in flight.
    #[inline]
    pub fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// Whether no query of the request was dropped.
    #[inline]
    pub fn is_whole(&self, slot: u32) -> bool {
        !self.has_dropped() || self.slots[slot as usize].drop_task.is_none()
    }

    /// A query of the request was dropped at this task. Returns whether it is the first.
    pub fn drop_at(&mut self, slot: u32, task: u32) -> bool {
        let first = &mut self.slots[slot as usize].drop_task;
        if first.is_some() {
            return false;
        }
        *first = Some(task);
        self.dropped += 1;
        true
    }

    #[inline]
    fn free(&mut self, slot: u32) {
        self.free.push(slot);
        self.dropped -= usize::from(self.slots[slot as usize].drop_task.is_some());
    }

    /// The request of a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut SimulatedRequest {
        &mut self.slots[slot as usize]
    }

    /// Whether a request has no outcome yet.
    pub fn is_open(&self, id: RequestKey) -> bool {
        let request = &self.slots[id.slot as usize];
        (request.pipeline, request.number) == (id.pipeline, id.number) && !request.progress.is_complete()
    }

    /// A query of the request was served in this group. `accuracy` is its path's, if the path ends here. It counts for the
    /// channels for which the path does end, otherwise as ended by a draw.
    #[inline]
    pub fn score(&mut self, slot: u32, group: &CompiledGroup, accuracy: f64) {
        match (group.stage_channel, group.closes.as_slice()) {
            (Some(channel), _) => self.add(slot, channel + 1, group.accuracy),
            (None, []) => self.add(slot, 0, accuracy),
            (None, closes) => closes.iter().for_each(|&channel| self.add(slot, channel + 1, accuracy)),
        }
    }

    #[inline]
    fn add(&mut self, slot: u32, at: u32, accuracy: f64) {
        let score = &mut self.scores[slot as usize * self.width + at as usize];
        score.sum += accuracy;
        score.count += 1;
    }

    /// Frees the slot of a request of which nothing was scored.
    #[inline]
    pub fn close_unscored(&mut self, slot: u32) -> &SimulatedRequest {
        self.free(slot);
        &self.slots[slot as usize]
    }

    /// Frees the slot of a request that has never had more than the one query that ends now, of which none was dropped;
    /// when it arrived.
    #[inline(always)]
    pub fn close_single(&mut self, slot: u32) -> Moment {
        let request = &self.slots[slot as usize];
        debug_assert!(request.drop_task.is_none() && !request.is_scored && request.progress.outstanding() == 1);
        self.free.push(slot);
        request.arrival
    }

    /// Frees the slot. The request's accuracy is the mean over channels, by `weights`, of the mean over the paths that
    /// ended there; `None` if nothing did.
    #[inline]
    pub fn close(&mut self, slot: u32, weights: &[f64]) -> ClosedRequest<'_> {
        let scores = &mut self.scores[slot as usize * self.width..][..=weights.len()];
        let accuracy = match scores {
            [_, only] if only.count == 1 => Some(only.sum),
            [_, only] if only.count > 0 => Some(only.sum / f64::from(only.count)),
            _ => combined(scores, weights),
        };
        scores.fill(Score::default());
        self.free(slot);
        ClosedRequest { request: &self.slots[slot as usize], accuracy }
    }
}

#[inline(never)]
fn combined(scores: &[Score], weights: &[f64]) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (score, w) in scores[1..].iter().zip(weights).filter(|(s, _)| s.count > 0) {
        sum += w * (score.sum / f64::from(score.count));
        weight += w;
    }
    if weight > 0.0 {
        return Some(sum / weight);
    }
    let all = scores.iter().fold(Score::default(), |a, s| Score { sum: a.sum + s.sum, count: a.count + s.count });
    (all.count > 0).then(|| all.sum / f64::from(all.count))
}
