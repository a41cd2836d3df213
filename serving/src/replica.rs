//! One queue and the servers behind it: a replica with a queue of its own, or a whole group with a central one.

use crate::batcher::Batcher;
use crate::dropper::{DropReason, Dropper};
use crate::queue::{Queue, Waiting};
use apportion_domain::Moment;

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
    /// The batch of a server has ended; its members are readable until the server's next batch starts.
    BatchFinished {
        /// The server.
        server: u32,
    },
    /// A query is no longer wanted. One that runs already, or is not here, is left alone.
    Cancel {
        /// The handle it arrived with.
        query: Q,
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
enum ServerState {
    Idle,
    Busy,
    Draining,
    Gone,
}

#[derive(Clone, Debug)]
struct Server<Q> {
    state: ServerState,
    members: Vec<Waiting<Q>>,
}

/// Queue, dropper and batcher of one queue that `n` identical servers serve, lowest number first.
///
/// One server is a replica with its own queue (Loki); several are a group with a central queue (InferLine). Once its
/// buffers have grown, neither a query nor a batch costs an allocation.
#[derive(Clone, Debug)]
pub struct Station<Q> {
    queue: Queue<Q>,
    batcher: Batcher,
    dropper: Dropper,
    servers: Vec<Server<Q>>,
    idle: IdleSet,
    now: Moment,
    starting: bool,
    dropped: Vec<(Q, DropReason)>,
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
        let server = || Server { state: ServerState::Idle, members: Vec::new() };
        Self {
            queue: Queue::new(queue_len_max),
            batcher,
            dropper,
            servers: (0..servers).map(|_| server()).collect(),
            idle,
            now: Moment::ZERO,
            starting: false,
            dropped: Vec::new(),
            gone: None,
            pending: false,
            undrained: false,
        }
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
                if !self.queue.push(Waiting { query, arrived: now, deadline }) {
                    self.drop(query, DropReason::QueueFull);
                }
            }
            Input::BatchFinished { server } => self.finish(server),
            Input::Tick => {
                self.starting = true;
                self.pending = true;
            }
            Input::Cancel { query } => {
                if self.queue.remove(query) {
                    self.drop(query, DropReason::Cancelled);
                }
            }
            Input::AddServer { server } => self.add(server),
            Input::RemoveServer { server } => self.remove(server),
        }
    }

    /// The next thing to do, until `None`.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<Q>> {
        if !self.pending {
            if cfg!(debug_assertions) {
                self.undrained = false;
            }
            return None;
        }
        if self.starting {
            if let Some(output) = self.start_next() {
                return Some(output);
            }
            self.starting = false;
        }
        if let Some((query, reason)) = self.dropped.pop() {
            return Some(Output::Drop { query, reason });
        }
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
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Moment, Wakeup)> {
        (!self.idle.is_empty() && self.batcher.size(self.queue.len()) > 0).then_some((self.now, Wakeup::Start))
    }

    /// Members of the batch that a server runs, or has just ended.
    #[inline]
    #[must_use]
    pub fn batch(&self, server: u32) -> &[Waiting<Q>] {
        &self.servers[server as usize].members
    }

    /// Exchanges the members of the batch that a server has just ended for an empty buffer, for a driver that sends queries
    /// on while it goes through them.
    #[inline]
    pub fn swap_batch(&mut self, server: u32, buffer: &mut Vec<Waiting<Q>>) {
        debug_assert!(buffer.is_empty(), "an empty buffer");
        debug_assert!(self.servers[server as usize].state != ServerState::Busy, "a batch that has ended");
        std::mem::swap(&mut self.servers[server as usize].members, buffer);
    }

    /// Queries in the queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Servers that have not left; draining ones count.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.iter().filter(|s| s.state != ServerState::Gone).count()
    }

    /// Queries that run.
    #[must_use]
    pub fn running(&self) -> usize {
        let busy = |s: &&Server<Q>| matches!(s.state, ServerState::Busy | ServerState::Draining);
        self.servers.iter().filter(busy).map(|s| s.members.len()).sum()
    }

    #[cold]
    fn drop(&mut self, query: Q, reason: DropReason) {
        self.dropped.push((query, reason));
        self.pending = true;
    }

    #[cold]
    fn has_gone(&mut self, server: u32) {
        self.gone = Some(server);
        self.pending = true;
    }

    #[inline]
    fn start_next(&mut self) -> Option<Output<Q>> {
        let server = self.idle.first()?;
        let members = &mut self.servers[server as usize].members;
        members.clear();
        if self.dropper.inspects() {
            let size = self.batcher.size(self.queue.len());
            while members.len() < size {
                let Some(waiting) = self.queue.pop() else { break };
                match self.dropper.verdict(self.now, &waiting) {
                    Some(reason) => self.dropped.push((waiting.query, reason)),
                    None => members.push(waiting),
                }
            }
        } else {
            self.queue.take(self.batcher.size(self.queue.len()), members);
        }
        if members.is_empty() {
            return None;
        }
        let size = members.len() as u32;
        self.servers[server as usize].state = ServerState::Busy;
        self.idle.remove(server);
        Some(Output::StartBatch { server, size })
    }

    #[inline]
    fn finish(&mut self, server: u32) {
        let state = &mut self.servers[server as usize].state;
        match *state {
            ServerState::Busy => {
                *state = ServerState::Idle;
                self.idle.insert(server);
            }
            ServerState::Draining => {
                *state = ServerState::Gone;
                self.has_gone(server);
            }
            ServerState::Idle | ServerState::Gone => panic!("server {server} ended a batch that it did not run"),
        }
    }

    fn add(&mut self, server: u32) {
        let at = server as usize;
        assert!(at <= self.servers.len(), "server {server} leaves a gap after {}", self.servers.len());
        if at == self.servers.len() {
            self.servers.push(Server { state: ServerState::Gone, members: Vec::new() });
        }
        assert!(self.servers[at].state == ServerState::Gone, "server {server} is here already");
        self.servers[at].state = ServerState::Idle;
        self.idle.insert(server);
    }

    fn remove(&mut self, server: u32) {
        let state = &mut self.servers[server as usize].state;
        match *state {
            ServerState::Idle => {
                *state = ServerState::Gone;
                self.idle.remove(server);
                self.has_gone(server);
            }
            ServerState::Busy => *state = ServerState::Draining,
            ServerState::Draining | ServerState::Gone => panic!("server {server} was removed before"),
        }
    }
}

/// Numbers of idle servers, smallest first, as bits.
#[derive(Clone, Debug, Default)]
struct IdleSet {
    words: Vec<u64>,
    count: u32,
}

impl IdleSet {
    #[inline]
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let at = self.words.iter().position(|&w| w != 0)?;
        Some(at as u32 * 64 + self.words[at].trailing_zeros())
    }

    #[inline]
    fn insert(&mut self, server: u32) {
        let at = (server / 64) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (server % 64);
        self.count += 1;
    }

    #[inline]
    fn remove(&mut self, server: u32) {
        self.words[(server / 64) as usize] &= !(1 << (server % 64));
        self.count -= 1;
    }
}
