//! The loop of an agent: feeds the [`Node`] and carries out what it asks for.

mod slots;
mod told;

use crate::alarm::Alarm;
use crate::backend::{Kind, Loader, Provider};
use crate::devices::Devices;
use crate::files::{Files, Source};
use crate::layout::{Layout, lay_out};
use crate::node::counts::{Batches, Counts, Labels};
use crate::node::{Action, Event, Node};
use crate::peers::{Peers, SendError};
use crate::record::Recorder;
use crate::slot::{Happened, Ran, Slot};
use crate::status::Status;
use crate::telemetry::Tracer;
use crate::wakeful::{KERNELS_FILE, Wakeful};
use crate::wire::{End, Load, Message, Return};
use apportion_domain::Fence;
use apportion_protocol::v1;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Events taken before batches are started.
const EVENTS_MAX: usize = 256;
/// Quick batches of one replica that are run one after the other before others get their turn: connections, and what has come.
const ROUNDS_MAX: u32 = 16;
/// How often time passes for the node.
const TICK: Duration = Duration::from_millis(20);
/// How often readiness is said again, lest a lost message mislead a sender for long.
const ANNOUNCE: Duration = Duration::from_secs(1);

/// What the loop is told.
pub enum Command {
    /// The control plane's number of this agent, which counts from its next target on, and where its files are.
    Welcome(u64, Source),
    /// A target.
    Target(Box<v1::Target>),
    /// What a replica needs to be loaded is there (its file, if it needs one), or not; by the number of its loading.
    File(u64, Result<Option<PathBuf>, String>),
    /// What was counted since the last report.
    Report(oneshot::Sender<v1::Report>),
    /// How much is unfinished.
    Unfinished(oneshot::Sender<usize>),
    /// Take nothing new: the agent is about to stop.
    Leave,
}

/// What the gateway sees of the node.
#[derive(Clone, Default)]
pub struct View {
    /// The number of this agent in the target in force; 0: it has none.
    pub agent: u64,
    /// The target in force.
    pub layout: Arc<Layout>,
    /// Pipelines all of whose tasks have a ready replica.
    pub ready: Arc<BTreeSet<String>>,
    /// Replicas and the length of their queues, running queries included.
    pub queues: Arc<Vec<(u64, usize)>>,
    /// How the replicas were used up to the last announcement.
    pub loads: Arc<BTreeMap<u64, Load>>,
    /// Requests by pipeline since the agent's start: ok, late, dropped, failed.
    pub totals: Arc<BTreeMap<String, [u64; 4]>>,
    /// Batches since the agent's start.
    pub batches: Arc<BTreeMap<Labels, Batches>>,
    /// How this agent's batches are run.
    pub backend: Kind,
    /// What its variants run on, where that is its to say.
    pub provider: Option<Provider>,
}

impl View {
    /// Whether there is a target and all its pipelines are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.layout.fence.is_some() && self.layout.pipelines.keys().all(|p| self.ready.contains(p))
    }
}

/// Ends of the loop.
#[derive(Clone)]
pub struct Handle {
    /// Into the node.
    pub events: mpsc::Sender<Event>,
    /// Into the loop.
    pub commands: mpsc::Sender<Command>,
    /// What the gateway sees.
    pub view: watch::Receiver<View>,
    /// The latest acknowledgement.
    pub ack: watch::Receiver<Option<v1::Ack>>,
    /// Since when the agent's clock runs.
    pub started: Instant,
    /// What can say how the agent's devices are; [`start`] knows of none.
    pub devices: Devices,
    /// Where its spans go.
    pub tracer: Option<Arc<Tracer>>,
    /// Whether its parts run, and what the control plane says.
    pub status: Arc<Status>,
}

/// How an agent runs its replicas.
#[derive(Clone)]
pub struct Options {
    /// How variants are loaded.
    pub loader: Loader,
    /// Batches take at least as long as their profile says.
    pub pace: bool,
    /// The state directory.
    pub files: Files,
    /// Where all that the node is told is recorded, and what it does.
    pub record: Option<PathBuf>,
    /// Where spans go, if anywhere.
    pub tracer: Option<Arc<Tracer>>,
    /// Processors may sleep between requests, however many come ([`crate::wakeful`]).
    pub may_sleep: bool,
}

struct Loop {
    node: Node,
    wakeful: Wakeful,
    options: Options,
    peers: Peers,
    alarm: Option<Alarm>,
    recorder: Option<Recorder>,
    slots: HashMap<u64, Slot>,
    /// Replicas by the numbers of their loadings, which their threads know them by: a target may number replicas anew.
    loadings: HashMap<u64, u64>,
    last_loading: u64,
    /// Quick batches have ended that the node has not acted upon yet.
    is_more: bool,
    agent: u64,
    /// The number that the control plane gave last.
    welcomed: Option<u64>,
    target: Option<v1::Target>,
    totals: Arc<BTreeMap<String, [u64; 4]>>,
    batches: Arc<BTreeMap<Labels, Batches>>,
    unreported: Counts,
    handle: Handle,
    view: watch::Sender<View>,
    ack: watch::Sender<Option<v1::Ack>>,
}

/// Starts the loop with the last target of the state directory.
#[must_use]
pub fn start(options: Options) -> Handle {
    let (events, event_inbox) = mpsc::channel(65_536);
    let (commands, command_inbox) = mpsc::channel(1_024);
    let (view, seen) = {
        let (backend, provider) = (options.loader.kind(), options.loader.provider());
        watch::channel(View { backend, provider, ..View::default() })
    };
    let (ack, acknowledged) = watch::channel(None);
    let (started, devices, tracer) = (Instant::now(), Devices::default(), options.tracer.clone());
    let status = Arc::new(Status::default());
    let handle =
        Handle { events: events.clone(), commands, view: seen, ack: acknowledged, started, devices, tracer, status };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let last = options.files.last_target();
    let agent = last.as_ref().map_or(0, |(agent, _)| *agent);
    let ringing = events.clone();
    // Where the inbox is full, the loop is awake.
    let alarm = Alarm::start(move || drop(ringing.try_send(Event::Wake)));
    let alarm = alarm.inspect_err(|error| tracing::error!(%error, "no alarm: batches start late")).ok();
    let first_request = now.as_nanos() as u64;
    let recorder = options.record.as_ref().and_then(|path| {
        let begun = Recorder::begin(path, agent, first_request);
        begun.inspect_err(|error| tracing::error!(%error, path = %path.display(), "nothing is recorded")).ok()
    });
    let mut this = Loop {
        alarm,
        recorder,
        node: Node::new(agent, first_request),
        wakeful: if options.may_sleep { Wakeful::never() } else { Wakeful::by(KERNELS_FILE.as_ref()) },
        options,
        peers: Peers::new(events),
        slots: HashMap::new(),
        loadings: HashMap::new(),
        last_loading: 0,
        is_more: false,
        agent,
        welcomed: None,
        target: None,
        totals: Arc::default(),
        batches: Arc::default(),
        unreported: Counts::default(),
        handle: handle.clone(),
        view,
        ack,
    };
    if let Some((_, target)) = last {
        tracing::info!(fence = ?target.fence, "coming back with the last target");
        this.obey(target);
    }
    let status = handle.status.clone();
    tokio::spawn(async move { status.run("loop", this.run(event_inbox, command_inbox)).await });
    handle
}

impl Loop {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, mut commands: mpsc::Receiver<Command>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut announced = Instant::now();
        loop {
            tokio::select! {
                event = events.recv() => {
                    let Some(event) = event else { return };
                    self.feed(event);
                    for _ in 1..EVENTS_MAX {
                        let Ok(event) = events.try_recv() else { break };
                        self.feed(event);
                    }
                }
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    self.command(command);
                }
                _ = tick.tick() => {
                    self.handle.status.tick();
                    self.feed(Event::Tick);
                    if announced.elapsed() >= ANNOUNCE {
                        announced = Instant::now();
                        self.feed(Event::Announce);
                        self.keep_record();
                    }
                    self.look();
                    self.wakeful.look();
                }
                // The connections' turn has come before.
                () = tokio::task::yield_now(), if self.is_more => {}
            }
            self.carry_out();
            self.sleep();
        }
    }

    /// Wakes the stations that are due, and has itself woken for the next.
    fn sleep(&mut self) {
        while self.node.wake_ns().is_some_and(|at| at <= self.now_ns()) {
            self.feed(Event::Wake);
            self.carry_out();
        }
        let started = self.handle.started;
        if let Some(alarm) = &mut self.alarm {
            alarm.set(self.node.wake_ns().map(|ns| started + Duration::from_nanos(ns)));
        }
    }

    fn now_ns(&self) -> u64 {
        self.handle.started.elapsed().as_nanos() as u64
    }

    fn feed(&mut self, event: Event) {
        self.wakeful.came();
        let now = self.now_ns();
        let event = match event {
            // What a thread says of a replica that is not there any more is of no interest.
            Event::Slot(loading, happened) => {
                let Some(replica) = self.loadings.get(&loading) else { return };
                Event::Slot(*replica, happened)
            }
            event => event,
        };
        self.tell(now, event);
    }

    fn tell(&mut self, now: u64, event: Event) {
        let event = match &mut self.recorder {
            Some(recorder) => recorder.event(now, event),
            None => event,
        };
        self.node.handle(now, event);
    }

    fn keep_record(&self) {
        if let Some(Err(error)) = self.recorder.as_ref().map(Recorder::flush) {
            tracing::error!(%error, "the record may lack its end");
        }
    }

    /// Shows the gateway what has changed.
    fn look(&mut self) {
        self.count();
        let layout = self.node.layout().clone();
        let ready = Arc::new(layout.pipelines.keys().filter(|p| self.node.ready(p)).cloned().collect());
        let queues = Arc::new(self.node.replicas().map(|r| (r.id, r.len())).collect());
        let (totals, batches) = (self.totals.clone(), self.batches.clone());
        let (backend, provider) = (self.options.loader.kind(), self.options.loader.provider());
        let loads = Arc::new(self.node.replicas().map(|r| (r.id, r.load)).collect());
        let agent = self.agent;
        self.view.send_replace(View { agent, layout, ready, queues, loads, totals, batches, backend, provider });
    }

    fn command(&mut self, command: Command) {
        match command {
            // Until a target of that control plane is obeyed, the agent is who it was: what welcomes it may know nothing of the
            // fleet that it serves in.
            Command::Welcome(agent, source) => {
                self.welcomed = Some(agent);
                self.options.files.set_source(source);
            }
            Command::Target(target) => {
                let fence = |t: &v1::Target| t.fence.map(Fence::from);
                let in_force = self.target.as_ref().and_then(fence);
                if let Some(newer) = in_force.filter(|newer| fence(&target) < Some(*newer)) {
                    tracing::warn!(fence = ?target.fence, ?newer, "a target older than the one in force is refused");
                    let (incarnation, generation) = (newer.incarnation, newer.generation.0);
                    self.refuse(&target, &format!("a newer target is in force here: {incarnation}.{generation}"));
                } else if Some(&*target) != self.target.as_ref() {
                    self.obey(*target);
                } else {
                    self.acknowledge();
                }
            }
            Command::File(replica, file) => self.open_slot(replica, file),
            Command::Report(reply) => {
                let uptime_ms = self.handle.started.elapsed().as_millis() as u64;
                self.count();
                let counts = std::mem::take(&mut self.unreported);
                let _gone = reply.send(told::report(uptime_ms, counts));
            }
            Command::Unfinished(reply) => {
                let _gone = reply.send(self.node.unfinished());
            }
            Command::Leave => {
                self.feed(Event::Leave);
                self.keep_record();
                self.look();
            }
        }
    }

    fn obey(&mut self, target: v1::Target) {
        match lay_out(&target) {
            Ok(layout) => {
                tracing::info!(fence = ?target.fence, pipelines = layout.pipelines.len(), "obeying a target");
                if let Some(number) = self.welcomed.filter(|number| *number != self.agent) {
                    self.agent = number;
                    self.feed(Event::Number(number));
                }
                self.peers.set(&layout.agents, self.agent);
                let now = self.now_ns();
                if let Some(recorder) = &self.recorder {
                    recorder.target(now, &target);
                }
                self.node.handle(now, Event::Obey(Arc::new(layout)));
                self.options.files.keep_target_soon(self.agent, &target);
                self.target = Some(target);
                self.carry_out();
                self.look();
            }
            Err(error) => {
                tracing::error!(fence = ?target.fence, error, "a target cannot be obeyed");
                self.refuse(&target, &error);
            }
        }
    }

    /// Carries out what the node asks for; what follows from quick batches too, as far as [`ROUNDS_MAX`] allows.
    fn carry_out(&mut self) {
        self.is_more = (0..ROUNDS_MAX).all(|_| self.carry_out_once());
    }

    /// Whether the node was told something that it has not acted upon yet.
    fn carry_out_once(&mut self) -> bool {
        let (mut acknowledge, mut is_more) = (false, false);
        let actions = self.node.flush();
        if let Some(recorder) = &self.recorder {
            recorder.actions(&actions);
        }
        for action in actions {
            match action {
                Action::Send(agent, message) => self.send(agent, message),
                Action::Load(replica, digest) => self.fetch(replica, digest),
                Action::Run(replica, inputs, expected) => {
                    let is_held = self.options.pace || self.options.loader.kind() == Kind::Emulated;
                    let hold = if is_held { expected } else { Duration::ZERO };
                    let ran = self.slots.get_mut(&replica).and_then(|slot| slot.run(inputs, expected, hold));
                    let happened = match ran {
                        Some(Ran::Later) => continue,
                        Some(Ran::Now(happened)) => happened,
                        None => Happened::Failed("its thread is gone".into()),
                    };
                    let now = self.now_ns();
                    self.wakeful.came();
                    self.tell(now, Event::Slot(replica, happened));
                    is_more = true;
                }
                Action::Prefetch(digests) => self.prefetch(digests),
                Action::Unload(replica) => self.unload(replica),
                Action::Renumber(pairs) => self.renumber(&pairs),
                Action::Acknowledge => acknowledge = true,
                Action::Span(span) => {
                    if let Some(tracer) = &self.options.tracer {
                        tracer.export(*span, self.handle.started);
                    }
                }
            }
        }
        if acknowledge {
            self.acknowledge();
            self.look();
        }
        is_more
    }

    fn send(&mut self, agent: u64, message: Message) {
        let Err(error) = self.peers.send(agent, &message) else { return };
        match message {
            // Without a connection the node hears of its end, and finds another place.
            Message::Query { hop, .. } if error != SendError::NoWay => {
                self.feed(Event::Unsent { hop, why: error.to_string() });
            }
            Message::Return(part) if matches!(part.end, End::Leaf { .. }) && error != SendError::NoWay => {
                let end = End::Failed(format!("its outputs cannot be sent back: {error}"));
                self.send(agent, Message::Return(Return { end, ..part }));
            }
            // Without it a join would wait for ever: the request hears of it before the part's own end can come back.
            Message::Part(part) if error != SendError::NoWay => {
                let end = End::Dropped(format!("task {}: its inputs cannot be sent: {error}", part.join));
                let Some(credit) = part.ended.first().copied() else { return };
                let (request, row, attempt) = (part.request, part.row, part.attempt);
                let back = Return { request, row, attempt, credit, end };
                if part.origin == self.agent {
                    self.feed(Event::Message(Message::Return(back)));
                } else {
                    self.send(part.origin, Message::Return(back));
                }
            }
            _ => tracing::debug!(agent, %error, "a message is dropped"),
        }
    }
}
