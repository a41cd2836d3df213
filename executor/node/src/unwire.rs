//! How are the messages of [`crate::wire`] read? Input is untrusted: malformed frames return an error and never panic.

use crate::tensor::{Datatype, Tensor, holds};
use crate::trace::TraceContext;
use crate::wire::{
    Announced, Credit, CreditReturn, DISPATCHED_MAX, DispatchedQuery, FrameError, JoinInputs, JoinPart, Message, PartEnd,
    PendingReplica, RANK_MAX, ReplicaLoad, RoutedQuery, Scope,
};
use apportion_protocol::v1;
use bytes::{Buf, Bytes};
use prost::Message as _;

/// Most tensors of one query.
const TENSORS_MAX: usize = 1_024;
/// Most forks above one query: there are at most so many edges into joins.
const SCOPES_MAX: u16 = 64;

/// Whether messages of this kind, by the first byte of their frames, bring tensors along.
#[must_use]
pub const fn brings_tensors(kind: u8) -> bool {
    matches!(kind, 2 | 4 | 5 | 11)
}

/// The message in one frame; tensors share its bytes.
///
/// # Errors
/// [`FrameError`] if it is none.
pub fn decode(mut frame: Bytes) -> Result<Message, FrameError> {
    let from = &mut frame;
    let message = match u8(from)? {
        1 => {
            let agent = u64(from)?;
            let count = u32(from)?;
            let mut replicas = Vec::new();
            for _ in 0..count {
                replicas.push(Announced {
                    replica: u64(from)?,
                    group: u64(from)?,
                    pipeline: text(from)?,
                    task: text(from)?,
                    accuracy_ppm: u32(from)?,
                });
            }
            let (mut coming, mut yielding) = (Vec::new(), Vec::new());
            for _ in 0..u32(from)? {
                coming.push(PendingReplica { replica: u64(from)?, is_blocked: u8(from)? > 0 });
            }
            for _ in 0..u32(from)? {
                yielding.push(u64(from)?);
            }
            let mut loads = Vec::new();
            for _ in 0..u32(from)? {
                let replica = u64(from)?;
                let (queued, served_mqps) = (u32(from)?, u32(from)?);
                let (busy_ppm, slowness_ppm, is_disturbed) = (u32(from)?, u32(from)?, u8(from)? > 0);
                loads.push((replica, ReplicaLoad { queued, served_mqps, busy_ppm, slowness_ppm, is_disturbed }));
            }
            let mut failed = Vec::new();
            for _ in 0..u32(from)? {
                failed.push(u64(from)?);
            }
            Message::Ready { agent, replicas, coming, yielding, loads, failed }
        }
        2 => Message::Query { from: u64(from)?, hop: u64(from)?, query: query(from)? },
        3 => Message::Taken { hop: u64(from)? },
        4 => {
            let (request, row, attempt) = (u64(from)?, u32(from)?, u8(from)?);
            Message::Return(CreditReturn { request, row, attempt, credit: credit(from)?, end: end(from)? })
        }
        5 => Message::Part(part(from)?),
        6 => Message::Cancel { origin: u64(from)?, request: u64(from)? },
        7 => Message::Measured(v1::Measured::decode(std::mem::take(from)).map_err(|_| FrameError::Field("measured"))?),
        8 => Message::Steering(v1::Steering::decode(std::mem::take(from)).map_err(|_| FrameError::Field("steering"))?),
        9 => Message::Ping { from: u64(from)?, number: u64(from)? },
        10 => Message::Pong { from: u64(from)?, number: u64(from)? },
        11 => Message::Batch { from: u64(from)?, queries: batch(from)? },
        _ => return Err(FrameError::Field("message type")),
    };
    if from.is_empty() { Ok(message) } else { Err(FrameError::Field("length")) }
}

/// The queries of one batch, which all are for one replica.
fn batch(from: &mut Bytes) -> Result<Vec<DispatchedQuery>, FrameError> {
    let count = u32(from)?;
    if count == 0 || count > DISPATCHED_MAX {
        return Err(FrameError::Field("batch"));
    }
    let mut queries: Vec<DispatchedQuery> = Vec::new();
    for _ in 0..count {
        let next = DispatchedQuery { hop: u64(from)?, waited_ns: u64(from)?, query: query(from)? };
        if queries.first().is_some_and(|first| first.query.replica != next.query.replica) {
            return Err(FrameError::Field("replica of a batch"));
        }
        queries.push(next);
    }
    Ok(queries)
}

fn query(from: &mut Bytes) -> Result<RoutedQuery, FrameError> {
    Ok(RoutedQuery {
        pipeline: text(from)?,
        task: text(from)?,
        replica: u64(from)?,
        origin: u64(from)?,
        request: u64(from)?,
        row: u32(from)?,
        credit: credit(from)?,
        budget_ns: u64(from)?.cast_signed(),
        hops: u8(from)?,
        attempt: u8(from)?,
        group: u64(from)?,
        behind_ns: u64(from)?,
        level: u32(from)?,
        apart: u64(from)?,
        pins: pins(from)?,
        trace: trace(from)?,
        scopes: scopes(from)?,
        inputs: tensors(from)?,
    })
}

fn pins(from: &mut Bytes) -> Result<Vec<u64>, FrameError> {
    let count = u16(from)?;
    let mut pins = Vec::new();
    for _ in 0..count {
        pins.push(u64(from)?);
    }
    Ok(pins)
}

pub(crate) fn trace(from: &mut Bytes) -> Result<Option<TraceContext>, FrameError> {
    match u8(from)? {
        0 => Ok(None),
        1 => Ok(Some(TraceContext { id: take(from, 16)?.get_u128(), parent: u64(from)? })),
        _ => Err(FrameError::Field("trace")),
    }
}

fn scopes(from: &mut Bytes) -> Result<Vec<Scope>, FrameError> {
    let count = u16(from)?;
    if count > SCOPES_MAX {
        return Err(FrameError::Field("forks"));
    }
    let scope = |from: &mut Bytes| {
        Ok(Scope {
            join: text(from)?,
            fork: text(from)?,
            agent: u64(from)?,
            replica: u64(from)?,
            credit: credit(from)?,
            row: u32(from)?,
        })
    };
    (0..count).map(|_| scope(from)).collect()
}

fn part(from: &mut Bytes) -> Result<JoinPart, FrameError> {
    let pipeline = text(from)?;
    let (origin, request, row, attempt) = (u64(from)?, u64(from)?, u32(from)?, u8(from)?);
    let (join, fork, parent, scope) = (text(from)?, text(from)?, text(from)?, credit(from)?);
    // Lists grow as they are read: a frame cannot claim more than it has.
    let (mut ended, mut brought) = (Vec::new(), Vec::new());
    for _ in 0..u32(from)? {
        ended.push(credit(from)?);
    }
    for _ in 0..u32(from)? {
        brought.push(JoinInputs { row: u32(from)?, order: u64(from)?, inputs: tensors(from)? });
    }
    Ok(JoinPart { pipeline, origin, request, row, attempt, join, fork, parent, scope, ended, brought })
}

fn end(from: &mut Bytes) -> Result<PartEnd, FrameError> {
    match u8(from)? {
        0 => Ok(PartEnd::Leaf { task: text(from)?, outputs: tensors(from)? }),
        1 => Ok(PartEnd::Dropped(text(from)?)),
        2 => Ok(PartEnd::Failed(text(from)?)),
        3 => Ok(PartEnd::NotReady(text(from)?)),
        4 => Ok(PartEnd::Harmful(text(from)?)),
        _ => Err(FrameError::Field("end")),
    }
}

fn credit(from: &mut Bytes) -> Result<Credit, FrameError> {
    let credit = Credit { start: u64(from)?, len: u64(from)? };
    let end = credit.start.checked_add(credit.len).ok_or(FrameError::Field("credit"))?;
    if credit.len == 0 || end > Credit::WHOLE.len { Err(FrameError::Field("credit")) } else { Ok(credit) }
}

pub(crate) fn tensors(from: &mut Bytes) -> Result<Vec<Tensor>, FrameError> {
    let count = usize::from(u16(from)?);
    if count > TENSORS_MAX {
        return Err(FrameError::Field("tensors"));
    }
    (0..count).map(|_| tensor(from)).collect()
}

fn tensor(from: &mut Bytes) -> Result<Tensor, FrameError> {
    let name = text(from)?;
    let datatype = *Datatype::ALL.get(usize::from(u8(from)?)).ok_or(FrameError::Field("datatype"))?;
    let rank = usize::from(u8(from)?);
    if rank > RANK_MAX {
        return Err(FrameError::Field("rank"));
    }
    let shape = (0..rank).map(|_| Ok(u64(from)? as usize)).collect::<Result<Vec<_>, FrameError>>()?;
    let bytes = usize::try_from(u64(from)?).map_err(|_| FrameError::Field("size"))?;
    let data = take(from, bytes)?;
    holds(&data, &shape, datatype).map_err(|_| FrameError::Field("shape"))?;
    Ok(Tensor { name, datatype, shape, data })
}

pub(crate) fn take(from: &mut Bytes, bytes: usize) -> Result<Bytes, FrameError> {
    if from.len() < bytes { Err(FrameError::Short) } else { Ok(from.split_to(bytes)) }
}

pub(crate) fn text(from: &mut Bytes) -> Result<String, FrameError> {
    let bytes = usize::from(u16(from)?);
    String::from_utf8(take(from, bytes)?.to_vec()).map_err(|_| FrameError::Field("text"))
}

pub(crate) fn u8(from: &mut Bytes) -> Result<u8, FrameError> {
    from.try_get_u8().map_err(|_| FrameError::Short)
}

fn u16(from: &mut Bytes) -> Result<u16, FrameError> {
    from.try_get_u16().map_err(|_| FrameError::Short)
}

fn u32(from: &mut Bytes) -> Result<u32, FrameError> {
    from.try_get_u32().map_err(|_| FrameError::Short)
}

pub(crate) fn u64(from: &mut Bytes) -> Result<u64, FrameError> {
    from.try_get_u64().map_err(|_| FrameError::Short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(message: &Message) -> Bytes {
        crate::wire::encode(message).into_iter().flatten().collect()
    }

    fn sample_tensor() -> Tensor {
        let data = Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8]);
        Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data }
    }

    fn sample() -> Message {
        Message::Query { from: 3, hop: 4, query: sample_query() }
    }

    /// A batch of queries for these replicas.
    fn sample_batch(replicas: &[u64]) -> Message {
        let of = |(at, replica): (u64, &u64)| {
            let query = RoutedQuery { replica: *replica, row: at as u32, ..sample_query() };
            DispatchedQuery { hop: 40 + at, waited_ns: 1_000 * at, query }
        };
        Message::Batch { from: 3, queries: (0..).zip(replicas).map(of).collect() }
    }

    fn sample_query() -> RoutedQuery {
        let tensor = sample_tensor();
        let credit = Credit { start: 3, len: 4 };
        let scope = Scope { join: "j".into(), fork: "f".into(), agent: 2, replica: 5, credit, row: 6 };
        RoutedQuery {
            pipeline: "p".into(),
            task: "t".into(),
            replica: 7,
            origin: 2,
            request: 9,
            row: 1,
            credit: Credit::WHOLE,
            budget_ns: -5,
            hops: 0,
            attempt: 1,
            group: 8,
            behind_ns: 9,
            level: 10,
            apart: 12,
            pins: vec![8, 11],
            trace: Some(TraceContext { id: 10, parent: 11 }),
            scopes: vec![scope],
            inputs: vec![tensor],
        }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let ready = Announced { replica: 1, group: 2, pipeline: "p".into(), task: "t".into(), accuracy_ppm: 900_000 };
        let part = |end| {
            Message::Return(CreditReturn { request: 1, row: 2, attempt: 3, credit: Credit { start: 5, len: 6 }, end })
        };
        let data: Bytes = (0..=255).cycle().take(10_000).collect::<Vec<u8>>().into();
        let large = Tensor { name: "y".into(), datatype: Datatype::Uint8, shape: vec![10_000], data };
        let credit = Credit { start: 5, len: 6 };
        let whole = JoinPart {
            pipeline: "p".into(),
            origin: 1,
            request: 2,
            row: 3,
            attempt: 1,
            join: "j".into(),
            fork: "f".into(),
            parent: "p".into(),
            scope: Credit::WHOLE,
            ended: vec![credit, Credit { start: 1, len: 1 }],
            brought: vec![JoinInputs { row: 1, order: 7, inputs: vec![sample_tensor()] }],
        };
        let messages = [
            sample(),
            sample_batch(&[7]),
            sample_batch(&[7, 7, 7]),
            Message::Part(whole),
            Message::Cancel { origin: 3, request: 4 },
            Message::Measured(v1::Measured {
                agent: 1,
                pipeline: "p".into(),
                ended: Some(v1::EndedRequests { session: u64::MAX, in_time: 1 << 40, missed: 3 }),
                ..Default::default()
            }),
            Message::Steering(v1::Steering { epoch: 1 << 40, backup: vec![1, 2], ..Default::default() }),
            Message::Ready {
                agent: 1,
                replicas: vec![ready],
                coming: vec![PendingReplica { replica: 4, is_blocked: true }],
                yielding: vec![2, 3],
                loads: vec![(
                    1,
                    ReplicaLoad { queued: 1, served_mqps: 2, busy_ppm: 3, slowness_ppm: 4, is_disturbed: true },
                )],
                failed: vec![9],
            },
            Message::Taken { hop: 8 },
            Message::Ping { from: 1, number: 7 },
            Message::Pong { from: 2, number: 7 },
            part(PartEnd::Dropped("full".into())),
            part(PartEnd::Failed("lost".into())),
            part(PartEnd::NotReady("no replica".into())),
            part(PartEnd::Harmful("an index out of range".into())),
            part(PartEnd::Leaf { task: "s".into(), outputs: vec![] }),
            part(PartEnd::Leaf { task: "s".into(), outputs: vec![large, sample_tensor()] }),
        ];
        for message in messages {
            assert_eq!(decode(encode(&message)), Ok(message));
        }
    }

    #[test]
    fn a_batch_without_queries_or_for_two_replicas_is_refused() {
        let refused = |message: &Message| decode(encode(message)).expect_err("it is malformed");
        assert_eq!(refused(&sample_batch(&[])), FrameError::Field("batch"));
        assert_eq!(refused(&sample_batch(&[7, 8])), FrameError::Field("replica of a batch"));
        let whole = encode(&sample_batch(&[7, 7]));
        assert_eq!(decode(whole.slice(..whole.len() - 1)), Err(FrameError::Short));
        // A frame cannot claim more queries than a plan's batch has.
        let mut claim = whole.to_vec();
        claim[9..13].copy_from_slice(&(DISPATCHED_MAX + 1).to_be_bytes());
        assert_eq!(decode(claim.into()), Err(FrameError::Field("batch")));
        claim = whole.to_vec();
        claim[9..13].copy_from_slice(&DISPATCHED_MAX.to_be_bytes());
        assert_eq!(decode(claim.into()), Err(FrameError::Short));
    }

    proptest! {
        #[test]
        fn malformed_frames_return_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _either = decode(Bytes::from(bytes));
        }

        #[test]
        fn a_damaged_frame_is_no_panic(at in 0usize..140, value in any::<u8>(), keep in 0usize..160) {
            let mut bytes = encode(&sample()).to_vec();
            let len = bytes.len();
            bytes[at % len] = value;
            bytes.truncate(keep);
            let _either = decode(Bytes::from(bytes));
        }
    }
}
