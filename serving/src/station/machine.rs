//! The station: one queue and the servers behind it. A server is a replica, or a slot of one.

use super::batcher::Batcher;
use super::dropper::{ADMIT_ALL, DropReason, Dropper, StationView};
use super::intake::{DroppedQuery, Intake, KindOf};
use super::messages::{StationInput, StationOutput, StationWakeup};
use super::monitor::Monitor;
use super::queue::Waiting;
use super::servers::{Removal, ServerState, Servers};
use apportion_domain::{Moment, TimeSpan};

/// One queue and the `n` identical servers that serve it, lowest number first.
///
/// One server is a replica with its own queue (Loki); several servers are a group with a central queue (InferLine). Once
/// its buffers have grown, neither a query nor a batch costs an allocation.
///
/// Under `forming`, free servers start first; then waiting queries enter the batches that start soonest. Drop decisions are
/// made when a query enters a batch, which under the other disciplines is when the batch starts.
#[derive(Clone, Debug)]
pub struct Station<Q> {
    pub(super) intake: Intake<Q>,
    pub(super) servers: Servers<Q>,
    pub(super) monitor: Option<Box<Monitor>>,
    pub(super) now: Moment,
    /// Fast path: arriving queries are appended to the queue and nothing else happens.
    appends_only: bool,
    /// Fast path: a free server takes the waiting queries at once and as they stand, up to the batch size.
    starts_at_once: bool,
    pub(super) is_forming: bool,
    /// Admission that has not been used, in 2^-16 of a query.
    pub(super) admission: u32,
    is_starting: bool,
    /// The first server that this tick has not examined.
    pub(super) cursor: u32,
    /// Whether a free server has a batch to start, or places in next batches have become free for waiting queries.
    pub(super) is_open: bool,
    /// Whether a busy server's next batch had room when it was last examined.
    pub(super) has_room: bool,
    /// How many of the intake's dropped queries have been reported, the first ones first.
    reported: usize,
    /// A server that has left and has not been reported.
    left: Option<u32>,
    /// Whether `poll_output` has anything to search.
    has_output: bool,
    /// Debug builds: whether outputs have not been drained.
    is_undrained: bool,
}

impl<Q: Copy + PartialEq> Station<Q> {
    /// A station of `servers` idle servers whose queue holds at most `queue_len_max` queries.
    #[must_use]
    pub fn new(servers: u32, batcher: Batcher, dropper: Dropper, queue_len_max: usize) -> Self {
        assert!(batcher.batch_max() >= 1, "a batch of at least one");
        let mut station = Self {
            intake: Intake::new(batcher, dropper, queue_len_max),
            servers: Servers::new(servers),
            monitor: None,
            now: Moment::ZERO,
            appends_only: false,
            starts_at_once: false,
            is_forming: batcher.is_forming(),
            admission: 0,
            is_starting: false,
            cursor: 0,
            is_open: false,
            has_room: false,
            reported: 0,
            left: None,
            has_output: false,
            is_undrained: false,
        };
        station.choose_fast_paths();
        station
    }

    /// Notes which fast paths the settings allow.
    pub(super) fn choose_fast_paths(&mut self) {
        let Intake { dropper, batcher, is_sorted, kind_of, .. } = &self.intake;
        let measures_nothing = !is_sorted && self.monitor.is_none();
        let has_kinds = kind_of.is_some();
        self.appends_only = measures_nothing && *dropper != Dropper::Admission && !(has_kinds && self.is_forming);
        let is_at_start = matches!(batcher, Batcher::AtStart { .. });
        self.starts_at_once = measures_nothing && is_at_start && !dropper.inspects() && !has_kinds;
    }

    /// With the expected time of a batch of `i + 1` queries. Without it, batches count as taking no time. Only `wait_until`
    /// and dropping policies that look ahead use the times.
    #[must_use]
    pub fn with_service(mut self, service: Vec<TimeSpan>) -> Self {
        self.intake.service = service;
        self
    }

    /// With a queue kept by remaining time. [`StationView::priority`] says which end comes first.
    #[must_use]
    pub fn by_remaining_time(mut self) -> Self {
        assert!(self.intake.queue.is_empty(), "before the first query");
        self.intake.is_sorted = true;
        self.choose_fast_paths();
        self
    }

    /// With a monitor.
    #[must_use]
    pub fn monitored(mut self) -> Self {
        self.monitor = Some(Box::default());
        self.choose_fast_paths();
        self
    }

    /// With queries of several kinds. Only queries of one kind share a batch.
    #[must_use]
    pub fn with_kinds(mut self, kind_of: KindOf<Q>) -> Self {
        assert!(self.intake.queue.is_empty(), "before the first query");
        self.intake.kind_of = Some(kind_of);
        self.choose_fast_paths();
        self
    }

    /// The measurements since the monitor was last cleared, if there is a monitor.
    pub fn monitor(&mut self) -> Option<&mut Monitor> {
        self.monitor.as_deref_mut()
    }

    /// Takes one input. `now` never goes backwards, and the outputs of the previous input have been drained.
    #[inline(always)]
    pub fn handle(&mut self, now: Moment, input: StationInput<Q>) {
        self.begin(now);
        if cfg!(debug_assertions) {
            self.is_undrained = true;
        }
        match input {
            StationInput::Arrive { query, deadline } => {
                if self.appends_only && self.intake.queue.has_place() {
                    self.intake.queue.put(query, now, deadline);
                } else {
                    // A copy, so that the query above may stay in registers: its address is not needed.
                    self.arrive(std::hint::black_box(query), deadline, 0);
                }
            }
            StationInput::Overtake { query, deadline, passes } => self.arrive(query, deadline, passes),
            StationInput::BatchFinished { server } => self.finish_batch(server),
            StationInput::Tick => {
                self.is_starting = true;
                self.has_output = true;
                self.cursor = 0;
            }
            StationInput::Cancel { query } => self.cancel(query, None),
            StationInput::CancelJoined { query, arrived, deadline } => {
                self.cancel(query, Some(Joined { arrived, deadline }))
            }
            StationInput::Steer { view } => self.intake.view = view,
            StationInput::AddServer { server } => self.servers.add(server),
            StationInput::RemoveServer { server } => self.remove_server(server),
        }
    }

    /// Queries join the queue at one moment, in this order. The same as a [`StationInput::Arrive`] for each of them.
    #[inline(always)]
    pub fn handle_arrivals(&mut self, now: Moment, queries: impl ExactSizeIterator<Item = (Q, Moment)>) {
        self.begin(now);
        if self.appends_only && self.intake.queue.has_places(queries.len()) {
            return self.intake.queue.put_all(now, queries);
        }
        if cfg!(debug_assertions) {
            self.is_undrained = true;
        }
        for (query, deadline) in queries {
            self.arrive(query, deadline, 0);
        }
    }

    #[inline(always)]
    fn begin(&mut self, now: Moment) {
        debug_assert!(now >= self.now, "time went backwards: {now} after {}", self.now);
        debug_assert!(!self.is_undrained, "an input before the outputs of the last one were drained");
        self.now = now;
    }

    /// Whether the station has no output and wants no tick. The driver then need not ask for either before the next input.
    #[inline(always)]
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        if cfg!(debug_assertions) && !self.has_output {
            self.is_undrained = false;
        }
        !self.has_output && self.poll_timeout().is_none()
    }

    /// The next output, until `None`.
    #[inline(always)]
    pub fn poll_output(&mut self) -> Option<StationOutput<Q>> {
        if !self.has_output {
            if cfg!(debug_assertions) {
                self.is_undrained = false;
            }
            return None;
        }
        self.next_output()
    }

    fn next_output(&mut self) -> Option<StationOutput<Q>> {
        if self.starts_at_once
            && self.is_starting
            && !self.intake.queue.is_empty()
            && let Some(server) = self.servers.idle.first()
        {
            let size = self.start_at_once(server);
            // Nothing else can start, and there is nothing else to report.
            let is_last = self.intake.queue.is_empty() || self.servers.idle.is_empty();
            if is_last && self.intake.dropped.is_empty() && self.left.is_none() {
                self.is_starting = false;
                self.has_output = false;
                self.is_undrained = false;
            }
            return Some(StationOutput::StartBatch { server, size });
        }
        if self.is_starting {
            if let Some(output) = self.start_next() {
                return Some(output);
            }
            self.is_starting = false;
        }
        if let Some(&DroppedQuery { query, reason }) = self.intake.dropped.get(self.reported) {
            self.reported += 1;
            return Some(StationOutput::Drop { query, reason });
        }
        self.intake.dropped.clear();
        self.reported = 0;
        if let Some(server) = self.left.take() {
            return Some(StationOutput::ServerGone { server });
        }
        self.has_output = false;
        if cfg!(debug_assertions) {
            self.is_undrained = false;
        }
        None
    }

    /// When to tick, and why.
    #[inline(always)]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Moment, StationWakeup)> {
        // Without a free server nothing can start, and only `forming` has something else to do.
        if !self.is_forming && (self.servers.idle.is_empty() || self.intake.queue.is_empty()) {
            return None;
        }
        self.next_timeout()
    }

    fn next_timeout(&self) -> Option<(Moment, StationWakeup)> {
        let can_enter = || self.has_room || !self.servers.idle.is_empty();
        let is_now = match self.intake.batcher {
            Batcher::AtStart { .. } => true,
            Batcher::Forming { .. } => self.is_open || (!self.intake.queue.is_empty() && can_enter()),
            Batcher::WaitUntil { .. } => {
                return self.intake.due(self.now).map(|due| (due.max(self.now), StationWakeup::Start));
            }
        };
        is_now.then_some((self.now, StationWakeup::Start))
    }

    /// Members of the batch that a server runs, or has just ended.
    #[inline]
    #[must_use]
    pub fn batch(&self, server: u32) -> &[Waiting<Q>] {
        &self.servers.get(server).members
    }

    /// The servers that run a query which equals this one. A driver whose servers are slots, with one query each, may
    /// report [`StationInput::BatchFinished`] for a slot whose query it has ended early.
    #[must_use]
    pub fn servers_of(&self, query: Q) -> Vec<u32> {
        self.servers.running_with(query)
    }

    /// PARD's batch wait (section 4.2) of the batch that a server runs or has just ended: from entering the batch to its
    /// start, summed over its members. Zero under every discipline but `forming`.
    #[inline]
    #[must_use]
    pub fn batch_wait(&self, server: u32) -> TimeSpan {
        self.servers.get(server).batch_wait
    }

    /// Exchanges the members of the batch that a server has just ended for an empty buffer. For a driver that sends queries
    /// on while it goes through the members.
    #[inline]
    pub fn swap_batch(&mut self, server: u32, buffer: &mut Vec<Waiting<Q>>) {
        debug_assert!(buffer.is_empty(), "an empty buffer");
        debug_assert!(self.servers.get(server).state != ServerState::Busy, "a batch that has ended");
        std::mem::swap(&mut self.servers.get_mut(server).members, buffer);
    }

    /// The queries in the queue, first to last. Members of next batches have left it.
    #[must_use]
    pub fn waiting(&self) -> &[Waiting<Q>] {
        self.intake.queue.waiting()
    }

    /// Queries that do not run yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.intake.queue.len() + self.servers.forming()
    }

    /// Queries that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.servers.running()
    }

    /// Servers that have not left. Draining servers count.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.present()
    }

    /// Whether a server has left, or was never here.
    #[must_use]
    pub fn is_gone(&self, server: u32) -> bool {
        self.servers.is_gone(server)
    }

    /// Whether a server is here and runs nothing.
    #[must_use]
    pub fn is_idle(&self, server: u32) -> bool {
        self.servers.is_idle(server)
    }

    /// The batching discipline.
    #[must_use]
    pub const fn batcher(&self) -> Batcher {
        self.intake.batcher
    }

    /// The last module states that the station was given.
    #[must_use]
    pub const fn view(&self) -> StationView {
        self.intake.view
    }

    /// A server dies. The queries that it ran, or would have run next, go to the end of `lost`. Returns whether it ran a
    /// batch; the driver must not report the end of that batch.
    pub fn fail(&mut self, server: u32, lost: &mut Vec<Waiting<Q>>) -> bool {
        self.servers.fail(server, lost)
    }

    /// Moves all queries in the queue to the end of `into`, for a driver that sends them elsewhere.
    pub fn evacuate(&mut self, into: &mut Vec<Waiting<Q>>) {
        self.intake.queue.take(usize::MAX, into);
    }

    /// A query arrives where more is to do than to append it, or where the queue has no place for it.
    #[inline(never)]
    fn arrive(&mut self, query: Q, deadline: Moment, passes: u32) {
        let waiting = Waiting { query, arrived: self.now, deadline };
        if let Some(monitor) = &mut self.monitor {
            monitor.arrived += 1;
        }
        if self.intake.dropper == Dropper::Admission && !self.admits() {
            self.drop(waiting.query, DropReason::Admission);
            return;
        }
        let queue = &mut self.intake.queue;
        let is_taken = match passes {
            _ if self.intake.is_sorted => queue.insert(waiting),
            passes if passes > 0 && !self.intake.dropper.slides() => queue.push_before(waiting, passes as usize),
            _ => queue.push(waiting),
        };
        if !is_taken {
            self.drop(waiting.query, DropReason::QueueFull);
        } else if let Some(kind_of) = self.intake.kind_of.filter(|_| self.is_forming) {
            self.has_room |= self.can_enter_next_batch(&query, kind_of);
        }
    }

    /// Whether the next batch of a busy server can take this new query.
    fn can_enter_next_batch(&self, query: &Q, kind_of: KindOf<Q>) -> bool {
        let is_alike = |w: &Waiting<Q>| kind_of(&w.query) == kind_of(query);
        let mut open = self.servers.with_room(self.intake.batcher.batch_max() as usize);
        open.any(|(_, s)| s.forming.first().is_none_or(is_alike))
    }

    /// Whether the next query is admitted. Admitted queries are spread evenly.
    fn admits(&mut self) -> bool {
        self.admission += self.intake.view.admit.min(ADMIT_ALL);
        let is_admitted = self.admission >= ADMIT_ALL;
        if is_admitted {
            self.admission -= ADMIT_ALL;
        }
        is_admitted
    }

    #[cold]
    fn drop(&mut self, query: Q, reason: DropReason) {
        self.intake.dropped.push(DroppedQuery { query, reason });
        self.has_output = true;
    }

    #[cold]
    fn report_left(&mut self, server: u32) {
        self.left = Some(server);
        self.has_output = true;
    }

    fn cancel(&mut self, query: Q, joined: Option<Joined>) {
        // Each query leaves with the handle that it arrived with, which only equals this one.
        let mut cancelled: Vec<Q> = Vec::new();
        let queue = &mut self.intake.queue;
        match joined {
            None => queue.remove(query, &mut cancelled),
            Some(joined) if self.intake.is_sorted => queue.remove_due(joined.deadline, query, &mut cancelled),
            Some(joined) => queue.remove_arrived(joined.arrived, query, &mut cancelled),
        }
        // Queries that wait, or arrive, take the places that become free.
        if self.is_forming && self.servers.cancel(query, &mut cancelled) {
            self.has_room = true;
        }
        cancelled.into_iter().for_each(|query| self.drop(query, DropReason::Cancelled));
    }

    #[inline(always)]
    fn finish_batch(&mut self, server: u32) {
        let of_server = self.servers.get_mut(server);
        match of_server.state {
            ServerState::Busy => {
                of_server.state = ServerState::Idle;
                self.is_open |= !of_server.forming.is_empty();
                self.servers.idle.insert(server);
            }
            ServerState::Draining => {
                of_server.state = ServerState::Gone;
                self.report_left(server);
            }
            ServerState::Idle | ServerState::Gone => panic!("server {server} ended a batch that it did not run"),
        }
    }

    fn remove_server(&mut self, server: u32) {
        let Removal { is_gone, forming } = self.servers.remove(server);
        if is_gone {
            self.report_left(server);
        }
        // Its next batch goes back to the queue. The drop decisions about its members are made again.
        self.put_back(&forming);
        self.is_open |= self.is_forming && !forming.is_empty();
    }

    /// Queries leave a batch that has not started and wait again, before queries that arrived after them.
    pub(super) fn put_back(&mut self, waiting: &[Waiting<Q>]) {
        if !self.intake.is_sorted {
            self.intake.queue.put_back(waiting);
            return;
        }
        for &waiting in waiting {
            if !self.intake.queue.insert(waiting) {
                self.drop(waiting.query, DropReason::QueueFull);
            }
        }
    }
}

/// When a query joined a queue, and with which deadline.
#[derive(Clone, Copy)]
struct Joined {
    arrived: Moment,
    deadline: Moment,
}
