//! A live record of all that a node was told, and when, and what it did: replayed through a fresh node, the same must come out.
//!
//! A record is a file of frames: the node's beginning, then events with their times, digests of the actions that followed, and
//! digests of the answers to requests. It says what happened and not why; it is for finding out, not for keeping.

use crate::chooser::Needs;
use crate::layout::lay_out;
use crate::node::request::{Answer, Terms};
use crate::node::{Action, Event, Node};
use crate::slot::{Fault, Happened};
use crate::unwire::{decode, take, tensors, text, trace, u8, u64};
use crate::wire::{End, FrameError, Out, encode, put_end, put_tensors, put_text, put_trace};
use apportion_protocol::v1;
use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Largest record; what comes after is not recorded.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

const BEGIN: u8 = 0;
const EVENT: u8 = 1;
const TARGET: u8 = 2;
const ACTIONS: u8 = 3;
const ANSWER: u8 = 4;

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("the record cannot be read")]
    Disk(#[from] std::io::Error),
    /// A frame is none.
    #[error("frame {0} of the record is none")]
    Frame(usize, #[source] FrameError),
    /// A target in it cannot be obeyed.
    #[error("frame {0} of the record: {1}")]
    Target(usize, String),
    /// Something else came out.
    #[error("frame {0} of the record: a fresh node does something else")]
    Differs(usize),
    /// A request was answered otherwise, or not at all.
    #[error("request {0} of the record: a fresh node answers something else")]
    Answer(u64),
}

struct Writing {
    file: BufWriter<File>,
    left: u64,
}

impl Writing {
    fn frame(&mut self, pieces: &[Bytes]) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let needed = length as u64 + 4;
        if needed > self.left {
            if self.left > 0 {
                tracing::warn!(RECORD_BYTES_MAX, "the record is full: nothing more is recorded");
            }
            self.left = 0;
            return;
        }
        self.left -= needed;
        let mut written = self.file.write_all(&(length as u32).to_le_bytes());
        for piece in pieces {
            written = written.and_then(|()| self.file.write_all(piece));
        }
        if let Err(error) = written {
            tracing::error!(%error, "the record ends here");
            self.left = 0;
        }
    }
}

/// A record that is written.
#[derive(Clone)]
pub struct Recorder {
    writing: Arc<Mutex<Writing>>,
    requests: u64,
}

impl Recorder {
    /// Begins a record of `Node::new(agent, first_request)`.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn begin(path: &Path, agent: u64, first_request: u64) -> std::io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let this = Self { writing: Arc::new(Mutex::new(Writing { file, left: RECORD_BYTES_MAX })), requests: 0 };
        let mut out = Out::default();
        out.open.put_u8(BEGIN);
        out.open.put_u64(agent);
        out.open.put_u64(first_request);
        this.write(out);
        Ok(this)
    }

    fn write(&self, mut out: Out) {
        out.close();
        let pieces: Vec<Bytes> = out.pieces.into_iter().collect();
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).frame(&pieces);
    }

    /// A target is about to be obeyed.
    pub fn target(&self, now_ns: u64, target: &v1::Target) {
        let mut out = Out::default();
        out.open.put_u8(TARGET);
        out.open.put_u64(now_ns);
        out.open.put_slice(&target.encode_to_vec());
        self.write(out);
    }

    /// An event is about to be handled; what it is to be handled as. Targets have a frame of their own.
    pub fn event(&mut self, now_ns: u64, event: Event) -> Event {
        let mut out = Out::default();
        out.open.put_u8(EVENT);
        out.open.put_u64(now_ns);
        if !put_event(&mut out, &event) {
            return event;
        }
        self.write(out);
        let Event::Arrive { pipeline, inputs, terms, reply } = event else { return event };
        // The answer passes through here on its way to the client.
        let (passing, answer) = oneshot::channel();
        self.requests += 1;
        let (this, number) = (self.clone(), self.requests);
        tokio::spawn(async move {
            let Ok(answer) = answer.await else { return };
            let mut out = Out::default();
            out.open.put_u8(ANSWER);
            out.open.put_u64(number);
            out.open.put_slice(&digest_of_answer(&answer));
            this.write(out);
            let _client_gone = reply.send(answer);
        });
        Event::Arrive { pipeline, inputs, terms, reply: passing }
    }

    /// What followed from all events since the last time.
    pub fn actions(&self, actions: &[Action]) {
        let mut out = Out::default();
        out.open.put_u8(ACTIONS);
        out.open.put_slice(&digest_of_actions(actions));
        self.write(out);
    }

    /// Brings what was recorded so far to the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn flush(&self) -> std::io::Result<()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).file.flush()
    }
}

/// False for a target, which has a frame of its own.
fn put_event(out: &mut Out, event: &Event) -> bool {
    match event {
        Event::Obey(_) => return false,
        Event::Number(agent) => {
            out.open.put_u8(1);
            out.open.put_u64(*agent);
        }
        Event::Arrive { pipeline, inputs, terms, .. } => {
            out.open.put_u8(2);
            put_text(out, pipeline);
            out.open.put_u8(terms.timeout_ns.is_some().into());
            out.open.put_u64(terms.timeout_ns.unwrap_or(0));
            out.open.put_u64(terms.level.into());
            out.open.put_u8(terms.needs.is_some().into());
            out.open.put_u64(terms.needs.map_or(0, |n| n.accuracy_ppm_min.into()));
            out.open.put_u64(terms.needs.map_or(0, |n| n.latency_ns_max));
            put_trace(out, terms.trace);
            out.open.put_u64(terms.sender);
            put_tensors(out, inputs);
        }
        Event::Message(message) => {
            out.open.put_u8(3);
            out.close();
            out.pieces.extend(encode(message));
        }
        Event::Unsent { hop, why } => {
            out.open.put_u8(4);
            out.open.put_u64(*hop);
            put_text(out, why);
        }
        Event::PeerUp(agent) => {
            out.open.put_u8(5);
            out.open.put_u64(*agent);
        }
        Event::PeerDown(agent) => {
            out.open.put_u8(6);
            out.open.put_u64(*agent);
        }
        Event::Slot(replica, happened) => {
            out.open.put_u8(7);
            out.open.put_u64(*replica);
            put_happened(out, happened);
        }
        Event::Tick => out.open.put_u8(8),
        Event::Wake => out.open.put_u8(9),
        Event::Announce => out.open.put_u8(10),
        Event::Leave => out.open.put_u8(11),
    }
    true
}

fn put_happened(out: &mut Out, happened: &Happened) {
    match happened {
        Happened::Ready => out.open.put_u8(0),
        Happened::Failed(why) => {
            out.open.put_u8(1);
            put_text(out, why);
        }
        Happened::Batch(Ok(outputs), took) => {
            out.open.put_u8(2);
            out.open.put_u64(took.as_nanos() as u64);
            put_tensors(out, outputs);
        }
        Happened::Batch(Err(fault), took) => {
            out.open.put_u8(if fault.is_of_batch { 3 } else { 4 });
            out.open.put_u64(took.as_nanos() as u64);
            put_text(out, &fault.why);
        }
    }
}

fn event(from: &mut Bytes, reply: oneshot::Sender<Answer>) -> Result<Event, FrameError> {
    Ok(match u8(from)? {
        1 => Event::Number(u64(from)?),
        2 => {
            let (pipeline, is_timed, ns) = (text(from)?, u8(from)? > 0, u64(from)?);
            let level = small(from)?;
            let (has_needs, accuracy_ppm_min, latency_ns_max) = (u8(from)? > 0, small(from)?, u64(from)?);
            let needs = has_needs.then_some(Needs { accuracy_ppm_min, latency_ns_max });
            let (trace, sender) = (trace(from)?, u64(from)?);
            let terms = Terms { timeout_ns: is_timed.then_some(ns), level, needs, trace, sender };
            Event::Arrive { pipeline, inputs: tensors(from)?, terms, reply }
        }
        3 => Event::Message(decode(std::mem::take(from))?),
        4 => Event::Unsent { hop: u64(from)?, why: text(from)? },
        5 => Event::PeerUp(u64(from)?),
        6 => Event::PeerDown(u64(from)?),
        7 => Event::Slot(u64(from)?, happened(from)?),
        8 => Event::Tick,
        9 => Event::Wake,
        10 => Event::Announce,
        11 => Event::Leave,
        _ => return Err(FrameError::Field("event")),
    })
}

fn small(from: &mut Bytes) -> Result<u32, FrameError> {
    u32::try_from(u64(from)?).map_err(|_| FrameError::Field("terms"))
}

fn happened(from: &mut Bytes) -> Result<Happened, FrameError> {
    Ok(match u8(from)? {
        0 => Happened::Ready,
        1 => Happened::Failed(text(from)?),
        kind @ 2..=4 => {
            let took = Duration::from_nanos(u64(from)?);
            let fault = |why| Fault { why, is_of_batch: kind == 3 };
            Happened::Batch(if kind == 2 { Ok(tensors(from)?) } else { Err(fault(text(from)?)) }, took)
        }
        _ => return Err(FrameError::Field("what happened")),
    })
}

fn digest(out: Out) -> [u8; 32] {
    let mut out = out;
    out.close();
    let mut hash = Sha256::new();
    out.pieces.iter().for_each(|piece| hash.update(piece));
    hash.finalize().into()
}

fn digest_of_actions(actions: &[Action]) -> [u8; 32] {
    let mut out = Out::default();
    for action in actions {
        match action {
            Action::Send(agent, message) => {
                out.open.put_u8(1);
                out.open.put_u64(*agent);
                out.close();
                out.pieces.extend(encode(message));
            }
            Action::Load(replica, file) => {
                out.open.put_u8(2);
                out.open.put_u64(*replica);
                put_text(&mut out, file);
            }
            Action::Run(replica, inputs, hold) => {
                out.open.put_u8(3);
                out.open.put_u64(*replica);
                out.open.put_u64(hold.as_nanos() as u64);
                put_tensors(&mut out, inputs);
            }
            Action::Prefetch(files) => {
                out.open.put_u8(4);
                files.iter().for_each(|file| put_text(&mut out, file));
            }
            Action::Unload(replica) => {
                out.open.put_u8(5);
                out.open.put_u64(*replica);
            }
            Action::Renumber(pairs) => {
                out.open.put_u8(8);
                pairs.iter().flat_map(|(from, to)| [*from, *to]).for_each(|id| out.open.put_u64(id));
            }
            Action::Acknowledge => out.open.put_u8(6),
            Action::Span(span) => {
                out.open.put_u8(7);
                put_trace(&mut out, Some(span.trace));
                out.open.put_u64(span.id);
            }
        }
    }
    digest(out)
}

fn digest_of_answer(answer: &Answer) -> [u8; 32] {
    let mut out = Out::default();
    match answer {
        Answer::Done { pieces, late, latency_ns, dropped, chosen } => {
            out.open.put_u8(0);
            out.open.put_u8((*late).into());
            out.open.put_u64(*latency_ns);
            out.open.put_u32(*dropped);
            put_text(&mut out, chosen.as_ref().map_or("", |c| &c.variants));
            for piece in pieces {
                out.open.put_u32(piece.row);
                out.open.put_u64(piece.order);
                put_end(&mut out, &End::Leaf { task: piece.task.clone(), outputs: piece.outputs.clone() });
            }
        }
        Answer::Unmet(why) | Answer::NotReady(why) | Answer::Dropped(why) | Answer::Failed(why) => {
            out.open.put_u8(1);
            put_text(&mut out, why);
        }
        Answer::TimedOut => out.open.put_u8(2),
        Answer::GivenUp => out.open.put_u8(3),
    }
    digest(out)
}

/// What a record has in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events, targets included.
    pub events: usize,
    /// Times that actions followed, and were the same.
    pub flushes: usize,
    /// Requests that were answered, and alike.
    pub answers: usize,
}

/// Tells a fresh node all that the recorded one was told, at the same times.
///
/// # Errors
/// [`RecordError`] at the first frame at which it does something else.
pub fn replay(path: &Path) -> Result<Replayed, RecordError> {
    let mut from = Bytes::from(std::fs::read(path)?);
    let mut node = Node::new(0, 0);
    let mut asked: Vec<oneshot::Receiver<Answer>> = Vec::new();
    let mut answered: BTreeMap<u64, Bytes> = BTreeMap::new();
    let (mut seen, mut at) = (Replayed::default(), 0);
    // A record that broke off in a frame is good up to there.
    while from.len() >= 4 && from.len() - 4 >= (&from[..4]).get_u32_le() as usize {
        at += 1;
        let bad = |error| RecordError::Frame(at, error);
        let length = from.get_u32_le() as usize;
        let frame = &mut take(&mut from, length).map_err(bad)?;
        match u8(frame).map_err(bad)? {
            BEGIN => node = Node::new(u64(frame).map_err(bad)?, u64(frame).map_err(bad)?),
            TARGET => {
                let now_ns = u64(frame).map_err(bad)?;
                let target = v1::Target::decode(std::mem::take(frame)).map_err(|_| bad(FrameError::Field("target")))?;
                let layout = lay_out(&target).map_err(|error| RecordError::Target(at, error))?;
                node.handle(now_ns, Event::Obey(Arc::new(layout)));
                seen.events += 1;
            }
            EVENT => {
                let now_ns = u64(frame).map_err(bad)?;
                let (reply, answer) = oneshot::channel();
                let event = event(frame, reply).map_err(bad)?;
                if matches!(event, Event::Arrive { .. }) {
                    asked.push(answer);
                }
                node.handle(now_ns, event);
                seen.events += 1;
            }
            ACTIONS => {
                if digest_of_actions(&node.flush()) != frame[..] {
                    return Err(RecordError::Differs(at));
                }
                seen.flushes += 1;
            }
            ANSWER => {
                let number = u64(frame).map_err(bad)?;
                answered.insert(number, std::mem::take(frame));
            }
            _ => return Err(bad(FrameError::Field("frame"))),
        }
    }
    for (number, expected) in answered {
        let answer =
            usize::try_from(number.wrapping_sub(1)).ok().and_then(|at| asked.get_mut(at)).and_then(|a| a.try_recv().ok());
        if answer.is_none_or(|answer| digest_of_answer(&answer) != expected[..]) {
            return Err(RecordError::Answer(number));
        }
        seen.answers += 1;
    }
    Ok(seen)
}
