//! One queue and the servers behind it: a replica with a queue of its own, or a whole group with a central one.

use crate::alike::KindOf;
use crate::batcher::Batcher;
use crate::dropper::{ADMIT_ALL, DropReason, Dropper, View};
use crate::idle::IdleSet;
use crate::monitor::Monitor;
use crate::queue::{Queue, Waiting};
use apportion_domain::{Moment, Span};

/// What happens to a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<Q> {
    /// A query joins the queue.
    Arrive {
        /// The driver's handle.
        query: Q,
        /// When its request should be answered.
        deadline: Moment,
    },
    /// A query joins the queue before the last `passes` of those that wait there ([`Station::waiting`]), because it is more important.
    /// Where the policy itself decides the order (a queue kept by remaining time, nexus's window), that order stands.
    Overtake {
        /// The driver's handle.
        query: Q,
        /// When its request should be answered.
        deadline: Moment,
        /// How many it passes.
        passes: u32,
    },
    /// The batch of a server has ended; its members are readable until the server's next batch starts.
    BatchFinished {
        /// The server.
        server: u32,
    },
    /// Every query that equals this one is no longer wanted. One that runs already, or is not here, is left alone.
    Cancel {
        /// The handle it arrived with, or one that equals it.
        query: Q,
    },
    /// The same of queries that joined at one moment with one deadline, for a driver that remembers both: a long queue is not
    /// searched for them.
    CancelJoined {
        /// The handle it arrived with, or one that equals it.
        query: Q,
        /// When it joined the queue.
        arrived: Moment,
        /// What it joined with.
        deadline: Moment,
    },
    /// A server joins; its number is the driver's choice and is not in use.
    AddServer {
        /// Its number, dense from 0.
        server: u32,
    },
    /// A server leaves once its batch has ended.
    RemoveServer {
        /// Its number.
        server: u32,
    },
    /// Module states were synchronised.
    Steer {
        /// What the station has to know of them.
        view: View,
    },
    /// The moment that [`Station::poll_timeout`] named has come.
    Tick,
}

/// What a station asks of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<Q> {
    /// A server starts a batch; its members are [`Station::batch`].
    StartBatch {
        /// The server.
        server: u32,
        /// How many queries.
        size: u32,
    },
    /// A query has left without being served.
    Drop {
        /// The handle it arrived with.
        query: Q,
        /// Why.
        reason: DropReason,
    },
    /// A server that was to be removed has no batch any more.
    ServerGone {
        /// The server.
        server: u32,
    },
}

/// Why a station wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// A free server can start a batch.
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    Idle,
    Busy,
    Draining,
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Server<Q> {
    pub(crate) state: ServerState,
    pub(crate) members: Vec<Waiting<Q>>,
    /// The next batch, under `forming`.
    pub(crate) forming: Vec<Waiting<Q>>,
    /// When its members entered, in their order.
    pub(crate) entered: Vec<Moment>,
    /// From entering the batch that runs, or ran last, to its start, summed over its members.
    pub(crate) batch_wait: Span,
    /// When the batch that runs is expected to end.
    pub(crate) ends: Moment,
}

impl<Q> Server<Q> {
    fn new(state: ServerState) -> Self {
        Self {
            state,
            members: Vec::new(),
            forming: Vec::new(),
            entered: Vec::new(),
            batch_wait: Span::ZERO,
            ends: Moment::ZERO,
        }
    }
}

/// Queue, dropper and batcher of one queue that `n` identical servers serve, lowest number first.
///
/// One server is a replica with its own queue (Loki); several are a group with a central queue (InferLine). Once its
/// buffers have grown, neither a query nor a batch costs an allocation.
///
/// Under `forming`, free servers start first; then what waits enters the batches that start soonest. Drop decisions fall when a
/// query enters a batch, which under the other disciplines is when the batch starts.
#[derive(Clone, Debug)]
pub struct Station<Q> {
    pub(crate) queue: Queue<Q>,
    pub(crate) batcher: Batcher,
    pub(crate) dropper: Dropper,
    /// Expected time of a batch of `i + 1` queries; of larger ones, the last.
    pub(crate) service: Vec<Span>,
    /// Whether the queue is kept by remaining time.
    pub(crate) is_sorted: bool,
    /// Whether arriving queries are appended to the queue and nothing else.
    pub(crate) is_plain: bool,
    /// Whether a free server takes what waits as it stands, up to the batch size, at once.
    pub(crate) is_eager: bool,
    pub(crate) is_forming: bool,
    pub(crate) view: View,
    /// Admission that has not been used, in 2^-16 of a query.
    pub(crate) admission: u32,
    pub(crate) monitor: Option<Box<Monitor>>,
    /// Of which kind a query is, if those of several kinds come.
    pub(crate) kind_of: Option<KindOf<Q>>,
    /// Places in the queue of the queries that enter a batch: a buffer.
    pub(crate) places: Vec<usize>,
    pub(crate) servers: Vec<Server<Q>>,
    pub(crate) idle: IdleSet,
    pub(crate) now: Moment,
    starting: bool,
    /// The first server that has not been looked at in this tick.
    pub(crate) cursor: u32,
    /// Whether a free server has a batch to start, or places in next batches have become free for what waits.
    pub(crate) is_open: bool,
    /// Whether a busy server's next batch had room when it was last looked at.
    pub(crate) has_room: bool,
    pub(crate) dropped: Vec<(Q, DropReason)>,
    /// How many of the dropped queries have been told, the first ones first.
    told: usize,
    gone: Option<u32>,
    /// Whether `poll_output` has anything to look for.
    pending: bool,
    undrained: bool,
}

impl<Q: Copy + PartialEq> Station<Q> {
    /// A station of `servers` idle servers whose queue holds at most `queue_len_max` queries.
    #[must_use]
    pub fn new(servers: u32, batcher: Batcher, dropper: Dropper, queue_len_max: usize) -> Self {
        assert!(batcher.batch_max() >= 1, "a batch of at least one");
        let mut idle = IdleSet::default();
        (0..servers).for_each(|s| idle.insert(s));
        let mut station = Self {
            queue: Queue::new(queue_len_max),
            batcher,
            dropper,
            service: Vec::new(),
            is_sorted: false,
            is_plain: false,
            is_eager: false,
            is_forming: batcher.is_forming(),
            view: View::default(),
            admission: 0,
            monitor: None,
            kind_of: None,
            places: Vec::new(),
            servers: (0..servers).map(|_| Server::new(ServerState::Idle)).collect(),
            idle,
            now: Moment::ZERO,
            starting: false,
            cursor: 0,
            is_open: false,
            has_room: false,
            dropped: Vec::new(),
            told: 0,
            gone: None,
            pending: false,
            undrained: false,
        };
        station.settle_ways();
        station
    }

    /// Notes which short ways its settings allow.
    pub(crate) fn settle_ways(&mut self) {
        let measures_nothing = !self.is_sorted && self.monitor.is_none();
        let is_apart = self.kind_of.is_some();
        self.is_plain = measures_nothing && self.dropper != Dropper::Admission && !(is_apart && self.is_forming);
        let is_at_start = matches!(self.batcher, Batcher::AtStart { .. });
        self.is_eager = measures_nothing && is_at_start && !self.dropper.inspects() && !is_apart;
    }

    /// With the expected time of a batch of `i + 1` queries. Without it, batches count as taking no time, which only matters to
    /// `wait_until` and to dropping policies that look ahead.
    #[must_use]
    pub fn with_service(mut self, service: Vec<Span>) -> Self {
        self.service = service;
        self
    }

    /// With a queue kept by remaining time, of which [`View::priority`] says the end that comes first.
    #[must_use]
    pub fn by_remaining_time(mut self) -> Self {
        assert!(self.queue.is_empty(), "before the first query");
        self.is_sorted = true;
        self.settle_ways();
        self
    }

    /// With a monitor.
    #[must_use]
    pub fn monitored(mut self) -> Self {
        self.monitor = Some(Box::default());
        self.settle_ways();
        self
    }

    /// What it has measured since it was last cleared, if it measures.
    pub fn monitor(&mut self) -> Option<&mut Monitor> {
        self.monitor.as_deref_mut()
    }

    /// Takes one input. `now` never goes backwards, and the outputs of the input before have been drained.
    #[inline(always)]
    pub fn handle(&mut self, now: Moment, input: Input<Q>) {
        debug_assert!(now >= self.now, "time went backwards: {now} after {}", self.now);
        debug_assert!(!self.undrained, "an input before the outputs of the last one were drained");
        self.now = now;
        if cfg!(debug_assertions) {
            self.undrained = true;
        }
        match input {
            Input::Arrive { query, deadline } => {
                if self.is_plain && self.queue.has_place() {
                    self.queue.put(query, now, deadline);
                } else {
                    // Another copy, so that the one above may stay in registers: its address is not needed.
                    self.arrive(std::hint::black_box(query), deadline, 0);
                }
            }
            Input::Overtake { query, deadline, passes } => self.arrive(query, deadline, passes),
            Input::BatchFinished { server } => self.finish(server),
            Input::Tick => {
                self.starting = true;
                self.pending = true;
                self.cursor = 0;
            }
            Input::Cancel { query } => self.cancel(query, None),
            Input::CancelJoined { query, arrived, deadline } => self.cancel(query, Some((arrived, deadline))),
            Input::Steer { view } => self.view = view,
            Input::AddServer { server } => self.add(server),
            Input::RemoveServer { server } => self.remove(server),
        }
    }

    /// Queries join the queue at one moment, in this order: the same as an [`Input::Arrive`] for each of them.
    #[inline(always)]
    pub fn handle_arrivals(&mut self, now: Moment, queries: impl ExactSizeIterator<Item = (Q, Moment)>) {
        debug_assert!(now >= self.now, "time went backwards: {now} after {}", self.now);
        debug_assert!(!self.undrained, "an input before the outputs of the last one were drained");
        self.now = now;
        if self.is_plain && self.queue.has_places(queries.len()) {
            return self.queue.put_all(now, queries);
        }
        if cfg!(debug_assertions) {
            self.undrained = true;
        }
        for (query, deadline) in queries {
            self.arrive(query, deadline, 0);
        }
    }

    /// Whether it has nothing to tell and does not want to be woken: then neither need be asked before the next input.
    #[inline(always)]
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        if cfg!(debug_assertions) && !self.pending {
            self.undrained = false;
        }
        !self.pending && self.poll_timeout().is_none()
    }

    /// The next thing to do, until `None`.
    #[inline(always)]
    pub fn poll_output(&mut self) -> Option<Output<Q>> {
        if !self.pending {
            if cfg!(debug_assertions) {
                self.undrained = false;
            }
            return None;
        }
        self.next_output()
    }

    fn next_output(&mut self) -> Option<Output<Q>> {
        if self.is_eager
            && self.starting
            && !self.queue.is_empty()
            && let Some(server) = self.idle.first()
        {
            let size = self.start_eagerly(server);
            // Nothing else can start, and nothing else is to be told.
            if (self.queue.is_empty() || self.idle.is_empty()) && self.dropped.is_empty() && self.gone.is_none() {
                self.starting = false;
                self.pending = false;
                self.undrained = false;
            }
            return Some(Output::StartBatch { server, size });
        }
        if self.starting {
            if let Some(output) = self.start_next() {
                return Some(output);
            }
            self.starting = false;
        }
        if let Some(&(query, reason)) = self.dropped.get(self.told) {
            self.told += 1;
            return Some(Output::Drop { query, reason });
        }
        self.dropped.clear();
        self.told = 0;
        if let Some(server) = self.gone.take() {
            return Some(Output::ServerGone { server });
        }
        self.pending = false;
        if cfg!(debug_assertions) {
            self.undrained = false;
        }
        None
    }

    /// When to tick, and why.
    #[inline(always)]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Moment, Wakeup)> {
        // Without a free server nothing can start, and only `forming` has something else to do.
        if !self.is_forming && (self.idle.is_empty() || self.queue.is_empty()) {
            return None;
        }
        self.next_timeout()
    }

    fn next_timeout(&self) -> Option<(Moment, Wakeup)> {
        let is_now = match self.batcher {
            Batcher::AtStart { .. } => true,
            Batcher::Forming { .. } => self.is_open || (!self.queue.is_empty() && (self.has_room || !self.idle.is_empty())),
            Batcher::WaitUntil { .. } => {
                return self.due().map(|due| (due.max(self.now), Wakeup::Start));
            }
        };
        is_now.then_some((self.now, Wakeup::Start))
    }

    /// Members of the batch that a server runs, or has just ended.
    #[inline]
    #[must_use]
    pub fn batch(&self, server: u32) -> &[Waiting<Q>] {
        &self.servers[server as usize].members
    }

    /// How long the members of the batch that a server runs, or has just ended, waited in it for its start, summed: 0 but under
    /// `forming`, where it is PARD's batch wait (section 4.2).
    #[inline]
    #[must_use]
    pub fn batch_wait(&self, server: u32) -> Span {
        self.servers[server as usize].batch_wait
    }

    /// Exchanges the members of the batch that a server has just ended for an empty buffer, for a driver that sends queries
    /// on while it goes through them.
    #[inline]
    pub fn swap_batch(&mut self, server: u32, buffer: &mut Vec<Waiting<Q>>) {
        debug_assert!(buffer.is_empty(), "an empty buffer");
        debug_assert!(self.servers[server as usize].state != ServerState::Busy, "a batch that has ended");
        std::mem::swap(&mut self.servers[server as usize].members, buffer);
    }

    /// What waits in the queue, first to last; members of next batches have left it.
    #[must_use]
    pub fn waiting(&self) -> &[Waiting<Q>] {
        self.queue.waiting()
    }

    /// Queries that do not run yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.servers.iter().map(|s| s.forming.len()).sum::<usize>()
    }

    /// Servers that have not left; draining ones count.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.iter().filter(|s| s.state != ServerState::Gone).count()
    }

    /// Whether a server has left, or was never here.
    #[must_use]
    pub fn is_gone(&self, server: u32) -> bool {
        self.servers.get(server as usize).is_none_or(|s| s.state == ServerState::Gone)
    }

    /// How batches are formed.
    #[must_use]
    pub const fn batcher(&self) -> Batcher {
        self.batcher
    }

    /// Whether a server is here and runs nothing.
    #[must_use]
    pub fn is_idle(&self, server: u32) -> bool {
        self.servers.get(server as usize).is_some_and(|s| s.state == ServerState::Idle)
    }

    /// A server dies: what it ran and would have run next goes to the end of `lost`. Whether it ran a batch, whose end must not be
    /// told any more.
    pub fn fail(&mut self, server: u32, lost: &mut Vec<Waiting<Q>>) -> bool {
        let of_server = &mut self.servers[server as usize];
        let is_busy = matches!(of_server.state, ServerState::Busy | ServerState::Draining);
        if is_busy {
            lost.append(&mut of_server.members);
        }
        lost.append(&mut of_server.forming);
        of_server.entered.clear();
        if of_server.state == ServerState::Idle {
            self.idle.remove(server);
        }
        of_server.state = ServerState::Gone;
        is_busy
    }

    /// Takes all that waits in the queue to the end of `into`, for a driver that sends it elsewhere.
    pub fn evacuate(&mut self, into: &mut Vec<Waiting<Q>>) {
        self.queue.take(usize::MAX, into);
    }

    /// What it was last told of the module states.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// Queries that run.
    #[must_use]
    pub fn running(&self) -> usize {
        let busy = |s: &&Server<Q>| matches!(s.state, ServerState::Busy | ServerState::Draining);
        self.servers.iter().filter(busy).map(|s| s.members.len()).sum()
    }

    /// A query arrives where there is more to do than to append it, or no room for it.
    #[inline(never)]
    fn arrive(&mut self, query: Q, deadline: Moment, passes: u32) {
        let waiting = Waiting { query, arrived: self.now, deadline };
        if let Some(monitor) = &mut self.monitor {
            monitor.arrived += 1;
        }
        if self.dropper == Dropper::Admission && !self.admits() {
            self.drop(waiting.query, DropReason::Admission);
            return;
        }
        let is_taken = match passes {
            _ if self.is_sorted => self.queue.insert(waiting),
            passes if passes > 0 && self.dropper != Dropper::Window => self.queue.push_before(waiting, passes as usize),
            _ => self.queue.push(waiting),
        };
        if !is_taken {
            self.drop(waiting.query, DropReason::QueueFull);
        } else if let Some(kind_of) = self.kind_of.filter(|_| self.is_forming) {
            self.has_room |= self.can_enter(&query, kind_of);
        }
    }

    /// Whether the next query is one of those that are admitted, which are spread evenly.
    fn admits(&mut self) -> bool {
        self.admission += self.view.admit.min(ADMIT_ALL);
        let is_admitted = self.admission >= ADMIT_ALL;
        if is_admitted {
            self.admission -= ADMIT_ALL;
        }
        is_admitted
    }

    #[cold]
    pub(crate) fn drop(&mut self, query: Q, reason: DropReason) {
        self.dropped.push((query, reason));
        self.pending = true;
    }

    #[cold]
    fn has_gone(&mut self, server: u32) {
        self.gone = Some(server);
        self.pending = true;
    }

    fn cancel(&mut self, query: Q, joined: Option<(Moment, Moment)>) {
        // Each leaves with the handle that it arrived with, which only equals this one.
        let mut gone: Vec<Q> = Vec::new();
        match joined {
            None => self.queue.remove(query, &mut gone),
            Some((_, deadline)) if self.is_sorted => self.queue.remove_due(deadline, query, &mut gone),
            Some((arrived, _)) => self.queue.remove_arrived(arrived, query, &mut gone),
        }
        let forming = if self.is_forming { self.servers.len() } else { 0 };
        for at in 0..forming {
            let server = &mut self.servers[at];
            let before = server.forming.len();
            let mut kept = 0;
            for i in 0..before {
                if server.forming[i].query != query {
                    server.forming.swap(kept, i);
                    server.entered.swap(kept, i);
                    kept += 1;
                }
            }
            gone.extend(server.forming.drain(kept..).map(|w| w.query));
            server.entered.truncate(kept);
            // What waits, or comes, takes the freed places.
            self.has_room |= kept < before;
        }
        gone.into_iter().for_each(|query| self.drop(query, DropReason::Cancelled));
    }

    #[inline(always)]
    fn finish(&mut self, server: u32) {
        let of_server = &mut self.servers[server as usize];
        match of_server.state {
            ServerState::Busy => {
                of_server.state = ServerState::Idle;
                self.is_open |= !of_server.forming.is_empty();
                self.idle.insert(server);
            }
            ServerState::Draining => {
                of_server.state = ServerState::Gone;
                self.has_gone(server);
            }
            ServerState::Idle | ServerState::Gone => panic!("server {server} ended a batch that it did not run"),
        }
    }

    fn add(&mut self, server: u32) {
        let at = server as usize;
        assert!(at <= self.servers.len(), "server {server} leaves a gap after {}", self.servers.len());
        if at == self.servers.len() {
            self.servers.push(Server::new(ServerState::Gone));
        }
        assert!(self.servers[at].state == ServerState::Gone, "server {server} is here already");
        self.servers[at].state = ServerState::Idle;
        self.idle.insert(server);
    }

    fn remove(&mut self, server: u32) {
        let of_server = &mut self.servers[server as usize];
        of_server.entered.clear();
        // Its next batch goes back to the queue; the decisions about its members fall again.
        let forming = std::mem::take(&mut of_server.forming);
        match of_server.state {
            ServerState::Idle => {
                of_server.state = ServerState::Gone;
                self.idle.remove(server);
                self.has_gone(server);
            }
            ServerState::Busy => of_server.state = ServerState::Draining,
            ServerState::Draining | ServerState::Gone => panic!("server {server} was removed before"),
        }
        self.take_back(&forming);
        self.is_open |= self.batcher.is_forming() && !forming.is_empty();
    }
}
