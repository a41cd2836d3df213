//! How are a node's events and actions written down, so that a fresh node can replay them?
//!
//! A record is a sequence of frames. The first frame holds the layout of the frames and the arguments of [`Node::new`].
//! Each event is a frame with its time. Each call of [`Node::flush`] is a frame with a digest (SHA-256) of the actions.
//! Each frame has its length in front: four bytes, little-endian. This module writes and reads frames; the agent's loop
//! keeps the file.

use crate::chooser::RequestNeeds;
use crate::frames::Pieces;
use crate::layout::{LayoutError, lay_out};
use crate::node::request::{RequestAnswer, RequestTerms};
use crate::node::{Action, Node, NodeEvent, RunSpread};
use crate::replica_event::{BatchFault, ReplicaEvent};
use crate::unwire::{decode, take, tensors, text, trace, u8, u64};
use crate::wire::{FrameError, MessageWriter, PartEnd, encode, put_end, put_tensors, put_text, put_trace};
use apportion_protocol::v1;
use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Between the names of variants; no name that a request gives has it.
const VARIANTS_SEPARATOR: &str = ",";
/// The layout of all frames, as the first one says it. It gets another number when any frame or digest changes, so that a
/// record of another layout is refused and never misread.
const LAYOUT: &[u8; 8] = b"apprec02";
const BEGIN: u8 = 0;
const EVENT: u8 = 1;
const TARGET: u8 = 2;
const ACTIONS: u8 = 3;

/// Why a record cannot be replayed. Frames are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The record has another layout.
    #[error(
        "frame {0} of the record does not begin with `{layout}`: replay it with the release that wrote it",
        layout = LAYOUT.escape_ascii()
    )]
    Layout(usize),
    /// A frame is malformed.
    #[error("frame {0} of the record is malformed")]
    Frame(usize, #[source] FrameError),
    /// An agent refuses a target of the record.
    #[error("frame {0} of the record: its target is refused")]
    Target(usize, #[source] LayoutError),
    /// The node's actions are not the recorded ones.
    #[error("frame {0} of the record: a fresh node does something else")]
    Differs(usize),
}

/// The first frame of the record of `Node::new(agent, first_request)`.
#[must_use]
pub fn begin_frame(agent: u64, first_request: u64) -> Pieces {
    let mut out = MessageWriter::default();
    out.open.put_u8(BEGIN);
    out.open.put_slice(LAYOUT);
    out.open.put_u64(agent);
    out.open.put_u64(first_request);
    finished(out)
}

/// The frame of a target that the node is about to get at `now_ns`.
#[must_use]
pub fn target_frame(now_ns: u64, target: &v1::Target) -> Pieces {
    let mut out = MessageWriter::default();
    out.open.put_u8(TARGET);
    out.open.put_u64(now_ns);
    out.open.put_slice(&target.encode_to_vec());
    finished(out)
}

/// The frame of an event that the node is about to get at `now_ns`; none for a target, which [`target_frame`] writes.
#[must_use]
pub fn event_frame(now_ns: u64, event: &NodeEvent) -> Option<Pieces> {
    let mut out = MessageWriter::default();
    out.open.put_u8(EVENT);
    out.open.put_u64(now_ns);
    put_event(&mut out, event).then(|| finished(out))
}

/// The frame of the actions that one call of [`Node::flush`] has returned.
#[must_use]
pub fn actions_frame(actions: &[Action]) -> Pieces {
    let mut out = MessageWriter::default();
    out.open.put_u8(ACTIONS);
    out.open.put_slice(&digest_of_actions(actions));
    finished(out)
}

fn finished(mut out: MessageWriter) -> Pieces {
    out.close();
    out.pieces
}

/// Writes an event; false for a target, which has a frame of its own.
fn put_event(out: &mut MessageWriter, event: &NodeEvent) -> bool {
    match event {
        NodeEvent::Target(_) => return false,
        NodeEvent::AgentNumber(agent) => {
            out.open.put_u8(1);
            out.open.put_u64(*agent);
        }
        NodeEvent::Arrive { pipeline, inputs, terms, caller } => {
            out.open.put_u8(2);
            out.open.put_u64(*caller);
            put_text(out, pipeline);
            out.open.put_u8(terms.timeout_ns.is_some().into());
            out.open.put_u64(terms.timeout_ns.unwrap_or(0));
            out.open.put_u64(terms.level.into());
            out.open.put_u8(terms.needs.is_some().into());
            out.open.put_u64(terms.needs.map_or(0, |n| n.accuracy_ppm_min.into()));
            out.open.put_u64(terms.needs.map_or(0, |n| n.latency_ns_max));
            out.open.put_u64(terms.needs.map_or(0, |n| n.price_nano_max));
            put_text(out, &terms.variants.join(VARIANTS_SEPARATOR));
            put_trace(out, terms.trace);
            out.open.put_u64(terms.sender);
            put_tensors(out, inputs);
        }
        NodeEvent::Message(message) => {
            out.open.put_u8(3);
            out.close();
            out.pieces.extend(encode(message));
        }
        NodeEvent::Unsent { hop, why } => {
            out.open.put_u8(4);
            out.open.put_u64(*hop);
            put_text(out, why);
        }
        NodeEvent::PeerUp(agent) => {
            out.open.put_u8(5);
            out.open.put_u64(*agent);
        }
        NodeEvent::PeerDown(agent) => {
            out.open.put_u8(6);
            out.open.put_u64(*agent);
        }
        NodeEvent::Replica { replica, event } => {
            out.open.put_u8(7);
            out.open.put_u64(*replica);
            put_replica_event(out, event);
        }
        NodeEvent::Tick => out.open.put_u8(8),
        NodeEvent::Wake => out.open.put_u8(9),
        NodeEvent::Announce => out.open.put_u8(10),
        NodeEvent::Leave => out.open.put_u8(11),
        NodeEvent::ClientGone(caller) => {
            out.open.put_u8(12);
            out.open.put_u64(*caller);
        }
    }
    true
}

fn put_replica_event(out: &mut MessageWriter, event: &ReplicaEvent) {
    match event {
        ReplicaEvent::Ready => out.open.put_u8(0),
        ReplicaEvent::Failed(why) => {
            out.open.put_u8(1);
            put_text(out, why);
        }
        ReplicaEvent::BatchEnded { server, result: Ok(outputs), took } => {
            out.open.put_u8(2);
            out.open.put_u64(u64::from(*server));
            out.open.put_u64(took.as_nanos() as u64);
            put_tensors(out, outputs);
        }
        ReplicaEvent::BatchEnded { server, result: Err(fault), took } => {
            out.open.put_u8(if fault.is_of_batch { 3 } else { 4 });
            out.open.put_u64(u64::from(*server));
            out.open.put_u64(took.as_nanos() as u64);
            put_text(out, &fault.why);
        }
        ReplicaEvent::Left { server, took } => {
            out.open.put_u8(5);
            out.open.put_u64(u64::from(*server));
            out.open.put_u64(took.as_nanos() as u64);
        }
    }
}

fn read_event(from: &mut Bytes) -> Result<NodeEvent, FrameError> {
    Ok(match u8(from)? {
        1 => NodeEvent::AgentNumber(u64(from)?),
        2 => {
            let caller = u64(from)?;
            let (pipeline, is_timed, ns) = (text(from)?, u8(from)? > 0, u64(from)?);
            let level = read_u32(from)?;
            let (has_needs, accuracy_ppm_min, latency_ns_max) = (u8(from)? > 0, read_u32(from)?, u64(from)?);
            let (price_nano_max, named) = (u64(from)?, text(from)?);
            let needs = has_needs.then_some(RequestNeeds { accuracy_ppm_min, latency_ns_max, price_nano_max });
            let named = named.split(VARIANTS_SEPARATOR).filter(|name| !name.is_empty());
            let variants = named.map(str::to_owned).collect();
            let (trace, sender) = (trace(from)?, u64(from)?);
            let terms = RequestTerms { timeout_ns: is_timed.then_some(ns), level, needs, variants, trace, sender };
            NodeEvent::Arrive { pipeline, inputs: tensors(from)?, terms, caller }
        }
        3 => NodeEvent::Message(decode(std::mem::take(from))?),
        4 => NodeEvent::Unsent { hop: u64(from)?, why: text(from)? },
        5 => NodeEvent::PeerUp(u64(from)?),
        6 => NodeEvent::PeerDown(u64(from)?),
        7 => NodeEvent::Replica { replica: u64(from)?, event: read_replica_event(from)? },
        8 => NodeEvent::Tick,
        9 => NodeEvent::Wake,
        10 => NodeEvent::Announce,
        11 => NodeEvent::Leave,
        12 => NodeEvent::ClientGone(u64(from)?),
        _ => return Err(FrameError::Field("event")),
    })
}

fn read_u32(from: &mut Bytes) -> Result<u32, FrameError> {
    u32::try_from(u64(from)?).map_err(|_| FrameError::Field("terms"))
}

fn read_replica_event(from: &mut Bytes) -> Result<ReplicaEvent, FrameError> {
    Ok(match u8(from)? {
        0 => ReplicaEvent::Ready,
        1 => ReplicaEvent::Failed(text(from)?),
        kind @ 2..=5 => {
            let server = u32::try_from(u64(from)?).map_err(|_| FrameError::Field("server"))?;
            let took = Duration::from_nanos(u64(from)?);
            if kind == 5 {
                return Ok(ReplicaEvent::Left { server, took });
            }
            let fault = |why| BatchFault { why, is_of_batch: kind == 3 };
            let result = if kind == 2 { Ok(tensors(from)?) } else { Err(fault(text(from)?)) };
            ReplicaEvent::BatchEnded { server, result, took }
        }
        _ => return Err(FrameError::Field("replica event")),
    })
}

fn digest(out: MessageWriter) -> [u8; 32] {
    let mut out = out;
    out.close();
    let mut hash = Sha256::new();
    out.pieces.iter().for_each(|piece| hash.update(piece));
    hash.finalize().into()
}

fn put_spread(out: &mut MessageWriter, spread: RunSpread) {
    let (kind, p99) = match spread {
        RunSpread::Batch(p99) => (0, p99),
        RunSpread::Slot(p99) => (1, p99),
    };
    out.open.put_u8(kind);
    out.open.put_u64(p99.as_nanos() as u64);
}

fn digest_of_actions(actions: &[Action]) -> [u8; 32] {
    let mut out = MessageWriter::default();
    for action in actions {
        match action {
            Action::Send { agent, message } => {
                out.open.put_u8(1);
                out.open.put_u64(*agent);
                out.close();
                out.pieces.extend(encode(message));
            }
            Action::Load { replica, digest } => {
                out.open.put_u8(2);
                out.open.put_u64(*replica);
                put_text(&mut out, digest);
            }
            Action::Run { replica, server, inputs, expected, spread } => {
                out.open.put_u8(3);
                out.open.put_u64(*replica);
                out.open.put_u64(u64::from(*server));
                out.open.put_u64(expected.as_nanos() as u64);
                put_spread(&mut out, *spread);
                put_tensors(&mut out, inputs);
            }
            Action::LeaveSlot { replica, server } => put_numbers(&mut out, 12, &[*replica, u64::from(*server)]),
            Action::Prefetch(files) => {
                out.open.put_u8(4);
                files.iter().for_each(|file| put_text(&mut out, file));
            }
            Action::Unload(replica) => put_numbers(&mut out, 5, &[*replica]),
            Action::Renumber(pairs) => {
                out.open.put_u8(8);
                pairs.iter().flat_map(|pair| [pair.from, pair.to]).for_each(|id| out.open.put_u64(id));
            }
            Action::Acknowledge => out.open.put_u8(6),
            Action::Span(span) => {
                out.open.put_u8(7);
                put_trace(&mut out, Some(span.trace));
                out.open.put_u64(span.id);
            }
            Action::Answer { caller, answer } => {
                out.open.put_u8(9);
                out.open.put_u64(*caller);
                put_answer(&mut out, answer);
            }
            Action::Want(want) => {
                out.open.put_u8(11);
                out.open.put_slice(&want.encode_to_vec());
            }
            Action::CountRefused(message) => {
                out.open.put_u8(10);
                out.open.put_u8(*message as u8);
            }
        }
    }
    digest(out)
}

/// An action of this kind that is numbers alone.
fn put_numbers(out: &mut MessageWriter, kind: u8, numbers: &[u64]) {
    out.open.put_u8(kind);
    numbers.iter().for_each(|number| out.open.put_u64(*number));
}

fn put_answer(out: &mut MessageWriter, answer: &RequestAnswer) {
    match answer {
        RequestAnswer::Done { pieces, late, latency_ns, dropped, chosen } => {
            out.open.put_u8(0);
            out.open.put_u8((*late).into());
            out.open.put_u64(*latency_ns);
            out.open.put_u32(*dropped);
            put_text(out, chosen.as_ref().map_or("", |c| &c.variants));
            for piece in pieces {
                out.open.put_u32(piece.row);
                out.open.put_u64(piece.order);
                put_end(out, &PartEnd::Leaf { task: piece.task.clone(), outputs: piece.outputs.clone() });
            }
        }
        RequestAnswer::Unmet(why)
        | RequestAnswer::NotReady(why)
        | RequestAnswer::Dropped(why)
        | RequestAnswer::Failed(why) => {
            out.open.put_u8(1);
            put_text(out, why);
        }
        RequestAnswer::TimedOut => out.open.put_u8(2),
        RequestAnswer::GivenUp => out.open.put_u8(3),
        RequestAnswer::ClientGone => out.open.put_u8(4),
    }
}

/// How much of a record was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedRecord {
    /// Events, targets included.
    pub events: usize,
    /// Calls of [`Node::flush`] whose actions were the recorded ones.
    pub flushes: usize,
    /// Answers among these actions.
    pub answers: usize,
}

/// Gives a fresh node the recorded events at the recorded times, and compares its actions with the recorded digests. A
/// record that ends within a frame is replayed up to that frame.
///
/// # Errors
/// [`ReplayError`] at the first frame that is malformed, has another layout, or has other actions.
pub fn replay(mut record: Bytes) -> Result<ReplayedRecord, ReplayError> {
    let mut node = Node::new(0, 0);
    let (mut replayed, mut at) = (ReplayedRecord::default(), 0);
    while record.len() >= 4 && record.len() - 4 >= (&record[..4]).get_u32_le() as usize {
        at += 1;
        let malformed = |error| ReplayError::Frame(at, error);
        let length = record.get_u32_le() as usize;
        let frame = &mut take(&mut record, length).map_err(malformed)?;
        match u8(frame).map_err(malformed)? {
            BEGIN => {
                if !frame.starts_with(LAYOUT) {
                    return Err(ReplayError::Layout(at));
                }
                frame.advance(LAYOUT.len());
                node = Node::new(u64(frame).map_err(malformed)?, u64(frame).map_err(malformed)?);
            }
            TARGET => {
                let now_ns = u64(frame).map_err(malformed)?;
                let target = v1::Target::decode(std::mem::take(frame));
                let target = target.map_err(|_| malformed(FrameError::Field("target")))?;
                let layout = lay_out(&target).map_err(|error| ReplayError::Target(at, error))?;
                node.handle(now_ns, NodeEvent::Target(Arc::new(layout)));
                replayed.events += 1;
            }
            EVENT => {
                let now_ns = u64(frame).map_err(malformed)?;
                node.handle(now_ns, read_event(frame).map_err(malformed)?);
                replayed.events += 1;
            }
            ACTIONS => {
                let actions = node.flush();
                if digest_of_actions(&actions) != frame[..] {
                    return Err(ReplayError::Differs(at));
                }
                replayed.flushes += 1;
                replayed.answers += actions.iter().filter(|action| matches!(action, Action::Answer { .. })).count();
            }
            _ => return Err(malformed(FrameError::Field("frame"))),
        }
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Datatype, Tensor};

    /// A record of these frames.
    fn record_of(frames: impl IntoIterator<Item = Vec<u8>>) -> Bytes {
        let framed = |frame: Vec<u8>| [(frame.len() as u32).to_le_bytes().to_vec(), frame].concat();
        frames.into_iter().flat_map(framed).collect::<Vec<u8>>().into()
    }

    fn joined(frame: Pieces) -> Vec<u8> {
        frame.iter().flat_map(|piece| piece.to_vec()).collect()
    }

    #[test]
    fn a_record_of_another_layout_is_refused() {
        let begun = record_of([joined(begin_frame(1, 7))]);
        assert_eq!(replay(begun).expect("of this layout"), ReplayedRecord::default());
        // The first layout: no mark, and ends of batches without their server.
        let former = [&[BEGIN][..], &1_u64.to_be_bytes(), &7_u64.to_be_bytes()].concat();
        let ended =
            [&[EVENT][..], &5_u64.to_be_bytes(), &[7], &1_u64.to_be_bytes(), &[2], &1_000_u64.to_be_bytes()].concat();
        let refused = replay(record_of([former, ended])).expect_err("another layout");
        assert!(matches!(refused, ReplayError::Layout(1)), "{refused}");
    }

    #[test]
    fn events_are_read_as_they_were_written() {
        let output = Tensor { name: "y".into(), datatype: Datatype::Uint8, shape: vec![2], data: vec![1, 2].into() };
        let took = Duration::from_millis(3);
        let faults = [BatchFault::of_batch("a row"), BatchFault { why: "all".into(), is_of_batch: false }];
        let ends = faults.into_iter().map(Err).chain([Ok(vec![output])]);
        let ends = ends.map(|result| ReplicaEvent::BatchEnded { server: 4, result, took });
        let others = [ReplicaEvent::Ready, ReplicaEvent::Failed("no file".into()), ReplicaEvent::Left { server: 2, took }];
        let of_replica = ends.chain(others).map(|event| NodeEvent::Replica { replica: 9, event });
        for event in of_replica.chain([NodeEvent::ClientGone(9), NodeEvent::Leave]) {
            let mut frame = Bytes::from(joined(event_frame(5, &event).expect("no target")));
            assert_eq!((u8(&mut frame).expect("a tag"), u64(&mut frame).expect("a time")), (EVENT, 5));
            let read = read_event(&mut frame).expect("what was written");
            assert_eq!(format!("{read:?}"), format!("{event:?}"));
        }
    }
}
