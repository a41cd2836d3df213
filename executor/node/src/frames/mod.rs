//! How do messages between agents share a connection?
//!
//! Each message is a stream of chunks. The chunks of several streams take turns, so a small message waits for at most a
//! few chunks of large ones. This module does no I/O: [`Cutter`] makes the bytes to write, and [`Joiner`] takes the bytes
//! that were read.
//!
//! A chunk has a head of three numbers of 4 bytes, big-endian. They are the stream's number, how many bytes of the message
//! are still to come (this chunk included), and the chunk's own length. The first chunk of a stream so gives the message's
//! length. The last chunk is the one whose two lengths are equal. A stream's number is free again when the stream has
//! ended.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

/// Largest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Largest small message, in bytes. A small message is sent whole, and before larger ones.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a message in one chunk.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of large messages that are written at once. A small message waits for at most this many bytes.
pub const BURST_BYTES_MAX: usize = CHUNK_BYTES_MAX;
/// A message of at most this many bytes is copied out of its read buffer. To keep the buffer and to read on into another
/// one costs more: fresh pages of memory each time.
const COPIED_BYTES_MAX: usize = 16 * 1024;
/// Most large messages that are cut at the same time. Further ones wait for their turn.
pub const STREAMS_MAX: usize = 64;
/// Most bytes of messages that have begun to come and are not complete. A sender with more is broken.
pub const OPEN_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Bytes before each chunk.
pub const HEAD_BYTES: usize = 12;

/// A message as the pieces of memory that it lies in: tensors are not copied to be sent.
pub type Pieces = VecDeque<Bytes>;

/// Bytes that are written next.
#[derive(Debug, Default)]
pub struct Burst {
    pieces: VecDeque<Bytes>,
    len: usize,
    message_bytes: usize,
}

impl Burst {
    /// Bytes of messages in it when it was made, heads of chunks not counted.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Burst {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |p| &p[..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.pieces);
        filled.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "more was written than there is");
        self.len -= count;
        while count > 0 {
            let front = self.pieces.front_mut().expect("the length is that of the pieces");
            let step = count.min(front.len());
            front.advance(step);
            count -= step;
            if front.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}

struct Stream {
    number: u32,
    whole: usize,
    rest: usize,
    pieces: Pieces,
}

/// Cuts messages into chunks.
#[derive(Default)]
pub struct Cutter {
    /// Those of at most [`SMALL_BYTES_MAX`]: they go first, in their order.
    small: VecDeque<Pieces>,
    /// Larger ones, by whose turn it is.
    large: VecDeque<Stream>,
    /// Numbers from 1 on that are free below the highest that was ever used.
    free: Vec<u32>,
    highest: u32,
}

/// Bytes of a message.
#[must_use]
pub fn len(pieces: &Pieces) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

impl Cutter {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether another small message should be taken now.
    #[must_use]
    pub fn has_room_for_small(&self) -> bool {
        self.small.len() < STREAMS_MAX
    }

    /// Whether another larger message may be taken now: the other end takes no more of them at a time.
    #[must_use]
    pub fn has_room_for_large(&self) -> bool {
        self.large.len() < STREAMS_MAX
            && self.large.iter().map(|s| s.whole).sum::<usize>() <= OPEN_BYTES_MAX - MESSAGE_BYTES_MAX
    }

    /// Bytes of messages that are not cut yet.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.small.iter().map(len).sum::<usize>() + self.large.iter().map(|s| s.rest).sum::<usize>()
    }

    /// Takes a message of at most [`MESSAGE_BYTES_MAX`].
    pub fn take(&mut self, message: Pieces) {
        let rest = len(&message);
        assert!((1..=MESSAGE_BYTES_MAX).contains(&rest), "the length was checked");
        if rest <= SMALL_BYTES_MAX {
            self.small.push_back(message);
            return;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.highest += 1;
            self.highest
        });
        self.large.push_back(Stream { number, whole: rest, rest, pieces: message });
    }

    /// What to write next: the small messages, up to [`SMALL_BYTES_MAX`] of them, and a chunk of the large message whose
    /// turn it is. So neither kind keeps the other from getting on.
    pub fn burst(&mut self) -> Burst {
        let mut burst = Burst::default();
        while burst.len < SMALL_BYTES_MAX
            && let Some(message) = self.small.pop_front()
        {
            let length = len(&message);
            burst.message_bytes += length;
            burst.push(head(0, length, length));
            message.into_iter().for_each(|piece| burst.push(piece));
        }
        let most = burst.len + BURST_BYTES_MAX;
        while burst.len < most
            && let Some(mut stream) = self.large.pop_front()
        {
            let length = stream.rest.min(CHUNK_BYTES_MAX);
            burst.push(head(stream.number, stream.rest, length));
            let mut left = length;
            while left > 0 {
                let front = stream.pieces.front_mut().expect("the rest is that of the pieces");
                let piece = front.split_to(left.min(front.len()));
                left -= piece.len();
                burst.push(piece);
                if front.is_empty() {
                    stream.pieces.pop_front();
                }
            }
            burst.message_bytes += length;
            stream.rest -= length;
            match stream.rest {
                0 => self.free.push(stream.number),
                _ => self.large.push_back(stream),
            }
        }
        burst
    }
}

fn head(stream: u32, rest: usize, length: usize) -> Bytes {
    let mut head = BytesMut::with_capacity(HEAD_BYTES);
    [stream, rest as u32, length as u32].into_iter().for_each(|field| head.put_u32(field));
    head.freeze()
}

/// Why received bytes are no valid chunks.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JoinError {
    /// The head of a chunk contradicts itself or a bound.
    #[error(
        "a chunk of {length} bytes of a message that needs {rest} more: expected 1 to {CHUNK_BYTES_MAX} of at most \
         {MESSAGE_BYTES_MAX}"
    )]
    Head {
        /// Bytes that the message still needs.
        rest: usize,
        /// Bytes of the chunk.
        length: usize,
    },
    /// A stream goes on elsewhere than it ended.
    #[error("stream {stream} goes on with {rest} bytes to come: expected {expected}")]
    Gap {
        /// Its number.
        stream: u32,
        /// Bytes that the chunk says its message needs.
        rest: usize,
        /// Bytes that it does need.
        expected: usize,
    },
    /// More is open than may be.
    #[error("more than {STREAMS_MAX} messages or {OPEN_BYTES_MAX} bytes are under way")]
    TooMuch,
}

struct Open {
    rest: usize,
    bytes: BytesMut,
}

/// Puts messages together again.
#[derive(Default)]
pub struct Joiner {
    open: BTreeMap<u32, Open>,
    open_bytes: usize,
    /// The stream of the chunk that has begun, and how many of its bytes are to come.
    current: Option<(u32, usize)>,
}

impl Joiner {
    /// Takes what was read off the front of `buffer`; gives a message as soon as one is complete. None: more must be read,
    /// into [`Joiner::space`] if it has any.
    ///
    /// # Errors
    /// [`JoinError`] if these are no chunks: the connection is of no use any more.
    pub fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, JoinError> {
        loop {
            if let Some((stream, left)) = self.current {
                let step = left.min(buffer.len());
                let open = self.open.get_mut(&stream).expect("its chunk has begun");
                open.bytes.extend_from_slice(&buffer[..step]);
                buffer.advance(step);
                if let Some(message) = self.came(step) {
                    return Ok(Some(message));
                }
                if self.current.is_some() {
                    return Ok(None);
                }
                continue;
            }
            let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let field = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (stream, rest, length) = (field(0), field(4) as usize, field(8) as usize);
            self.check(stream, rest, length)?;
            if rest == length && length <= COPIED_BYTES_MAX && !self.open.contains_key(&stream) {
                if buffer.len() < HEAD_BYTES + length {
                    return Ok(None);
                }
                buffer.advance(HEAD_BYTES);
                let message = Bytes::copy_from_slice(&buffer[..length]);
                buffer.advance(length);
                return Ok(Some(message));
            }
            buffer.advance(HEAD_BYTES);
            if !self.open.contains_key(&stream) {
                self.open_bytes += rest;
                self.open.insert(stream, Open { rest, bytes: BytesMut::with_capacity(rest) });
            }
            self.current = Some((stream, length));
        }
    }

    fn check(&self, stream: u32, rest: usize, length: usize) -> Result<(), JoinError> {
        if length == 0 || length > CHUNK_BYTES_MAX || length > rest || rest > MESSAGE_BYTES_MAX {
            return Err(JoinError::Head { rest, length });
        }
        match self.open.get(&stream) {
            Some(open) if open.rest != rest => Err(JoinError::Gap { stream, rest, expected: open.rest }),
            // What ends with this chunk is not open for long.
            None if length == rest => Ok(()),
            None if self.open.len() >= STREAMS_MAX || self.open_bytes + rest > OPEN_BYTES_MAX => Err(JoinError::TooMuch),
            _ => Ok(()),
        }
    }

    /// The place of the bytes of the chunk that has begun, and how many are to come. While the buffer is empty, they may be
    /// read into this place at once. [`Joiner::came`] must follow.
    pub fn space(&mut self) -> Option<(&mut BytesMut, usize)> {
        let (stream, left) = self.current?;
        Some((&mut self.open.get_mut(&stream).expect("its chunk has begun").bytes, left))
    }

    /// So many bytes of the chunk that has begun are in their place; gives the message if it is complete.
    pub fn came(&mut self, count: usize) -> Option<Bytes> {
        let (stream, left) = self.current.expect("a chunk has begun");
        let open = self.open.get_mut(&stream).expect("its chunk has begun");
        open.rest -= count;
        self.current = (left > count).then_some((stream, left - count));
        if open.rest > 0 {
            return None;
        }
        let message = self.open.remove(&stream).expect("it was there").bytes.freeze();
        self.open_bytes -= message.len();
        Some(message)
    }

    /// How many bytes should be read into `buffer` next, if not into [`Joiner::space`]. While large messages are under way,
    /// these are only bytes that are sure to belong there. So the bytes of the next large chunk need not be copied.
    #[must_use]
    pub fn wants(&self, buffer: &[u8], most: usize) -> usize {
        if self.open.is_empty() {
            return most;
        }
        let whole = buffer
            .first_chunk::<HEAD_BYTES>()
            .map_or(HEAD_BYTES, |head| HEAD_BYTES + u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize);
        whole.saturating_sub(buffer.len()).clamp(1, most)
    }

    /// Bytes that wait here for the rest of their messages, in memory that was asked for whole.
    #[must_use]
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }
}

#[cfg(test)]
mod tests;
