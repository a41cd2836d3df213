//! How does a live agent drive its [`Node`]: which events does it feed, and how are the actions carried out?

mod callers;
mod handle;
mod load_times;
mod loop_state;
mod measurer;
mod reports;
mod slots;

pub use handle::{AgentCommand, AgentHandle, AgentOptions, ClientPresence, ClientRequest, FetchedFile, NodeView};

use crate::alarm::Alarm;
use crate::backend::BackendKind;
use crate::devices::Devices;
use crate::peers::{LinkKeys, LinkProtection, PeerLinks, SendError};
use crate::record::Recorder;
use crate::refused::ReachedLimit;
use crate::slot::{GivenBatch, SlotTimes};
use crate::wake_lock::WakeLock;
use apportion_domain::Fence;
use apportion_node::greeting::{LinkKeyring, ReceivedKeys, without_link_keys};
use apportion_node::layout::{Layout, LayoutError, lay_out};
use apportion_node::node::counts::ReportCounts;
use apportion_node::node::{Action, Node, NodeEvent, RefusedMessage};
use apportion_node::wire::{CreditReturn, DispatchedQuery, Message, PartEnd};
use apportion_protocol::v1;
use callers::Callers;
use load_times::LoadTimes;
use loop_state::Loop;
use measurer::Measurer;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, mpsc, watch};

/// Events taken before batches are started.
const EVENTS_MAX: usize = 256;
/// Quick batches of one replica that are run one after the other before others get their turn: connections, and what has
/// come.
const ROUNDS_MAX: u32 = 16;
/// Events, and requests, that wait for the loop.
const INBOX_MAX: usize = 65_536;
/// Wants that wait for the control stream. Beyond them the oldest are forgotten: requests that wait say them again.
const WANTS_MAX: usize = 16;
/// How often time passes for the node.
const TICK: Duration = Duration::from_millis(20);
/// How often readiness is said again, lest a lost message mislead a sender for long.
const ANNOUNCE: Duration = Duration::from_secs(1);

/// What comes to the loop.
struct Inboxes {
    events: mpsc::Receiver<NodeEvent>,
    requests: mpsc::Receiver<ClientRequest>,
    commands: mpsc::Receiver<AgentCommand>,
}

/// Starts the loop with the last target of the state directory.
#[must_use]
pub fn start(options: AgentOptions) -> AgentHandle {
    let (events, event_inbox) = mpsc::channel(INBOX_MAX);
    let (requests, request_inbox) = mpsc::channel(INBOX_MAX);
    let (commands, command_inbox) = mpsc::channel(1_024);
    let (view, seen) = watch::channel(first_view(&options));
    let (ack, acknowledged) = watch::channel(None);
    let measurer = Measurer::new(&options);
    let (started, devices, tracer) = (Instant::now(), Devices::default(), options.tracer.clone());
    let handle = AgentHandle {
        events: events.clone(),
        requests,
        commands,
        view: seen,
        ack: acknowledged,
        wants: broadcast::Sender::new(WANTS_MAX),
        measured: measurer.told(),
        started,
        devices,
        tracer,
        link_keys: LinkKeys::new(options.files.certificates()),
        status: Arc::default(),
    };
    let last = options.files.last_target();
    let (agent, first_request) = (last.as_ref().map_or(0, |(agent, _)| *agent), unix_ns());
    let alarm = start_alarm(events.clone());
    let recorder = options.record.as_ref().and_then(|path| begin_record(path, agent, first_request));
    let mut this = Loop {
        alarm,
        recorder,
        callers: Callers::default(),
        node: Node::new(agent, first_request),
        wake_lock: if options.may_sleep { WakeLock::never() } else { WakeLock::of_kernel() },
        measurer,
        options,
        peers: PeerLinks::new(events, handle.link_keys.clone()),
        slots: HashMap::new(),
        loadings: HashMap::new(),
        load_times: LoadTimes::default(),
        slot_times: SlotTimes::of_seed(first_request),
        hops_reported: None,
        is_more: false,
        agent,
        welcomed: None,
        target: None,
        received_keys: ReceivedKeys::default(),
        totals: Arc::default(),
        choices: Arc::default(),
        batches: Arc::default(),
        unreported: ReportCounts::default(),
        handle: handle.clone(),
        view,
        ack,
    };
    last.into_iter().for_each(|(_, target)| this.resume(target));
    let status = handle.status.clone();
    let inboxes = Inboxes { events: event_inbox, requests: request_inbox, commands: command_inbox };
    tokio::spawn(async move { status.run("loop", this.run(inboxes)).await });
    handle
}

/// What the gateway sees before there is a target.
fn first_view(options: &AgentOptions) -> NodeView {
    let (backend, provider) = (options.loader.kind(), options.loader.provider());
    NodeView { backend, provider, ..NodeView::default() }
}

/// Nanoseconds since the beginning of 1970: no two lives of an agent begin at the same.
fn unix_ns() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// The thread that wakes the loop when a station is due.
fn start_alarm(events: mpsc::Sender<NodeEvent>) -> Option<Alarm> {
    // A loop whose inbox is full is awake.
    let alarm = Alarm::start(move || drop(events.try_send(NodeEvent::Wake)));
    alarm.inspect_err(|error| tracing::error!(%error, "no alarm: batches start late")).ok()
}

fn begin_record(path: &Path, agent: u64, first_request: u64) -> Option<Recorder> {
    let begun = Recorder::begin(path, agent, first_request);
    begun.inspect_err(|error| tracing::error!(%error, path = %path.display(), "nothing is recorded")).ok()
}

impl Loop {
    async fn run(mut self, mut inboxes: Inboxes) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut announced = Instant::now();
        loop {
            tokio::select! {
                event = inboxes.events.recv() => {
                    let Some(event) = event else { return };
                    self.feed(event);
                    self.take_waiting(&mut inboxes);
                }
                request = inboxes.requests.recv() => {
                    let Some(request) = request else { return };
                    self.take_request(request);
                    self.take_waiting(&mut inboxes);
                }
                command = inboxes.commands.recv() => {
                    let Some(command) = command else { return };
                    self.handle_command(command);
                }
                _ = tick.tick() => {
                    self.handle.status.tick();
                    self.note_gone_clients();
                    self.feed(NodeEvent::Tick);
                    if announced.elapsed() >= ANNOUNCE {
                        announced = Instant::now();
                        self.feed(NodeEvent::Announce);
                        self.flush_record();
                    }
                    self.publish_view();
                    self.wake_lock.update();
                }
                // The connections' turn has come before.
                () = tokio::task::yield_now(), if self.is_more => {}
            }
            self.carry_out();
            self.wake_due_stations();
        }
    }

    /// Takes the events and requests that wait, so that queries which come together share a batch.
    fn take_waiting(&mut self, inboxes: &mut Inboxes) {
        for _ in 1..EVENTS_MAX {
            let event = inboxes.events.try_recv().map(|event| self.feed(event));
            let request = inboxes.requests.try_recv().map(|request| self.take_request(request));
            if event.is_err() && request.is_err() {
                return;
            }
        }
    }

    fn take_request(&mut self, request: ClientRequest) {
        let ClientRequest { pipeline, inputs, terms, reply, presence } = request;
        let caller = self.callers.add(reply, &presence);
        self.feed(NodeEvent::Arrive { pipeline, inputs, terms, caller });
    }

    /// Tells the node of the clients that have gone since the last tick. It answers their requests, so it hears of each
    /// once.
    fn note_gone_clients(&mut self) {
        for caller in self.callers.take_gone() {
            self.feed(NodeEvent::ClientGone(caller));
        }
    }

    /// Wakes the stations that are due, and has itself woken for the next.
    fn wake_due_stations(&mut self) {
        while self.node.wake_ns().is_some_and(|at| at <= self.now_ns()) {
            self.feed(NodeEvent::Wake);
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

    fn feed(&mut self, event: NodeEvent) {
        self.wake_lock.count_event();
        let now = self.now_ns();
        let event = match event {
            // What a thread says of a replica that is not there any more is of no interest.
            NodeEvent::Replica { replica: loading, event } => {
                let Some(replica) = self.loadings.get(&loading).copied() else { return };
                self.note_load(loading, &event);
                NodeEvent::Replica { replica, event }
            }
            event => event,
        };
        self.handle_event(now, event);
    }

    fn handle_event(&mut self, now: u64, event: NodeEvent) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event);
        }
        self.node.handle(now, event);
    }

    fn flush_record(&mut self) {
        if let Some(Err(error)) = self.recorder.as_mut().map(Recorder::flush) {
            tracing::error!(%error, "the record may lack its end");
        }
    }

    /// Shows the gateway what has changed.
    fn publish_view(&mut self) {
        self.collect_counts();
        let layout = self.node.layout().clone();
        let ready = Arc::new(layout.pipelines.keys().filter(|p| self.node.ready(p)).cloned().collect());
        let queues = Arc::new(self.node.replicas().map(|r| (r.id, r.len() + r.in_group_queue)).collect());
        let (totals, choices, batches) = (self.totals.clone(), self.choices.clone(), self.batches.clone());
        let (backend, provider) = (self.options.loader.kind(), self.options.loader.provider());
        let loads = Arc::new(self.node.replicas().map(|r| (r.id, r.load())).collect());
        let agent = self.agent;
        let headrooms = Arc::new(self.node.headrooms().map(|(name, of)| (name.clone(), of)).collect());
        self.view.send_replace(NodeView {
            agent,
            layout,
            ready,
            queues,
            loads,
            totals,
            choices,
            batches,
            headrooms,
            backend,
            provider,
        });
    }

    fn handle_command(&mut self, command: AgentCommand) {
        match command {
            // The agent keeps its number until it obeys a target of that control plane. A control plane may welcome it
            // without knowing its fleet.
            AgentCommand::Welcome(agent, source) => {
                self.welcomed = Some(agent);
                self.options.files.set_source(source);
            }
            AgentCommand::Target(mut target) => {
                self.received_keys.complete(&mut target);
                let fence = |t: &v1::Target| t.fence.map(Fence::from);
                let in_force = self.target.as_ref().and_then(fence);
                if let Some(newer) = in_force.filter(|newer| fence(&target) < Some(*newer)) {
                    tracing::warn!(fence = ?target.fence, ?newer, "a target older than the one in force is refused");
                    let (incarnation, generation) = (newer.incarnation, newer.generation.0);
                    self.refuse(&target, &format!("a newer target is in force here: {incarnation}.{generation}"));
                } else if Some(without_link_keys(&target)) != self.target.as_ref().map(without_link_keys) {
                    self.apply_target(*target);
                } else {
                    self.take_link_keys(*target);
                    self.acknowledge();
                }
            }
            AgentCommand::KeepCertificates => self.options.files.keep_certificates_soon(),
            AgentCommand::Measure(order) => self.measure(*order),
            AgentCommand::StopMeasuring(claim) => self.measurer.stop(claim),
            AgentCommand::File(fetched) => self.open_slot(fetched),
            AgentCommand::Report(reply) => {
                let uptime_ms = self.handle.started.elapsed().as_millis() as u64;
                self.collect_counts();
                let counts = std::mem::take(&mut self.unreported);
                let (hops, loads) = (self.due_hops(Instant::now()), self.load_times.take());
                let _gone = reply.send(v1::Report { hops, loads, ..reports::report(uptime_ms, counts) });
            }
            AgentCommand::Unfinished(reply) => {
                let _gone = reply.send(self.node.unfinished());
            }
            AgentCommand::Leave => {
                self.feed(NodeEvent::Leave);
                self.flush_record();
                self.publish_view();
            }
        }
    }

    /// Takes the target of the agent's last life.
    fn resume(&mut self, mut target: v1::Target) {
        tracing::info!(fence = ?target.fence, "coming back with the last target");
        self.received_keys.complete(&mut target);
        self.apply_target(target);
    }

    /// What a target means for this agent. Another server forms its own batches, so it has no slots.
    fn lay_out(&self, target: &v1::Target) -> Result<Layout, LayoutError> {
        let layout = lay_out(target)?;
        if self.options.loader.kind() == BackendKind::Remote {
            layout.refuse_continuous(self.welcomed.unwrap_or(self.agent))?;
        }
        Ok(layout)
    }

    fn apply_target(&mut self, target: v1::Target) {
        match self.lay_out(&target) {
            Ok(layout) => {
                tracing::info!(fence = ?target.fence, pipelines = layout.pipelines.len(), "obeying a target");
                if let Some(number) = self.welcomed.filter(|number| *number != self.agent) {
                    self.agent = number;
                    self.feed(NodeEvent::AgentNumber(number));
                }
                let incarnation = |target: &v1::Target| target.fence.map(|fence| fence.incarnation);
                if self.target.as_ref().is_some_and(|last| incarnation(last) != incarnation(&target)) {
                    self.measurer.forget();
                }
                self.set_link_keys(&target);
                self.peers.set(&layout.agents, self.agent);
                let now = self.now_ns();
                if let Some(recorder) = &mut self.recorder {
                    recorder.target(now, &target);
                }
                self.node.handle(now, NodeEvent::Target(Arc::new(layout)));
                self.options.files.keep_target_soon(self.agent, &target);
                self.options.files.follow_target(&target);
                self.target = Some(target);
                self.carry_out();
                self.publish_view();
            }
            Err(error) => {
                tracing::error!(fence = ?target.fence, %error, "a target cannot be obeyed");
                self.refuse(&target, &error.to_string());
            }
        }
    }

    /// Takes the keys of links, and their protection, of the target in force, which has come again.
    fn take_link_keys(&mut self, target: v1::Target) {
        if self.target.as_ref() != Some(&target) {
            tracing::info!(fence = ?target.fence, "the keys of the links, or their protection, have changed");
            self.set_link_keys(&target);
            self.options.files.keep_target_soon(self.agent, &target);
            self.target = Some(target);
        }
    }

    /// Greetings use the keys of this target from now on.
    fn set_link_keys(&self, target: &v1::Target) {
        let keyring = LinkKeyring::of_target(target, self.agent);
        let has_others = target.agents.iter().any(|peer| peer.agent != self.agent);
        let is_member = target.agents.iter().any(|peer| peer.agent == self.agent);
        if has_others && is_member && keyring.is_empty() {
            tracing::warn!("the target has no keys for connections to other agents: run a service of the same release");
        }
        self.handle.link_keys.follow_target(LinkProtection::from(target.links()), keyring);
    }

    /// Carries out what the node asks for; what follows from quick batches too, as far as [`ROUNDS_MAX`] allows.
    fn carry_out(&mut self) {
        self.is_more = (0..ROUNDS_MAX).all(|_| self.carry_out_once());
    }

    /// Whether the node was told something that it has not acted upon yet.
    fn carry_out_once(&mut self) -> bool {
        let (mut acknowledge, mut is_more) = (false, false);
        let actions = self.node.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.actions(&actions);
        }
        for action in actions {
            match action {
                Action::Send { agent, message } => self.send(agent, message),
                Action::Load { replica, digest } => self.fetch(replica, digest),
                Action::Run { replica, server, inputs, expected, spread } => {
                    let batch = GivenBatch { server, inputs, expected, hold: Duration::ZERO };
                    let Some(happened) = self.start_batch(replica, batch, spread) else { continue };
                    let now = self.now_ns();
                    self.wake_lock.count_event();
                    self.handle_event(now, NodeEvent::Replica { replica, event: happened });
                    is_more = true;
                }
                Action::LeaveSlot { replica, server } => self.leave_slot(replica, server),
                Action::Prefetch(digests) => self.prefetch(digests),
                Action::Unload(replica) => self.unload(replica),
                Action::Renumber(pairs) => self.renumber(&pairs),
                Action::Acknowledge => acknowledge = true,
                Action::Answer { caller, answer } => self.callers.answer(caller, answer),
                // Without a stream nobody hears of it; requests that still wait say it again.
                Action::Want(want) => drop(self.handle.wants.send(want)),
                Action::CountRefused(RefusedMessage::Steering) => ReachedLimit::PeerSteering.count(),
                Action::CountRefused(RefusedMessage::Measurement) => ReachedLimit::PeerMeasured.count(),
                Action::Span(span) => {
                    if let Some(tracer) = &self.options.tracer {
                        tracer.export(*span, self.handle.started);
                    }
                }
            }
        }
        if acknowledge {
            self.acknowledge();
            self.publish_view();
        }
        is_more
    }

    fn send(&mut self, agent: u64, message: Message) {
        let Err(error) = self.peers.send(agent, &message) else { return };
        match message {
            // Without a connection the node hears of its end, and finds another place.
            Message::Query { hop, .. } if error != SendError::NoWay => {
                self.feed(NodeEvent::Unsent { hop, why: error.to_string() });
            }
            Message::Batch { queries, .. } if error != SendError::NoWay => {
                for DispatchedQuery { hop, .. } in queries {
                    self.feed(NodeEvent::Unsent { hop, why: error.to_string() });
                }
            }
            Message::Return(part) if matches!(part.end, PartEnd::Leaf { .. }) && error != SendError::NoWay => {
                let end = PartEnd::Failed(format!("its outputs cannot be sent back: {error}"));
                self.send(agent, Message::Return(CreditReturn { end, ..part }));
            }
            // Without it a join would wait for ever: the request hears of it before the part's own end can come back.
            Message::Part(part) if error != SendError::NoWay => {
                let end = PartEnd::Dropped(format!("task {}: its inputs cannot be sent: {error}", part.join));
                let Some(credit) = part.ended.first().copied() else { return };
                let (request, row, attempt) = (part.request, part.row, part.attempt);
                let back = CreditReturn { request, row, attempt, credit, end };
                if part.origin == self.agent {
                    self.feed(NodeEvent::Message(Message::Return(back)));
                } else {
                    self.send(part.origin, Message::Return(back));
                }
            }
            _ => tracing::debug!(agent, %error, "a message is dropped"),
        }
    }
}
