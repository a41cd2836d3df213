use super::*;
use proptest::prelude::*;

/// A message of `bytes` bytes that is told from others by its first, in two pieces.
fn message(mark: u8, bytes: usize) -> Pieces {
    let whole = Bytes::from(vec![mark; bytes]);
    [whole.slice(..bytes / 2), whole.slice(bytes / 2..)].into()
}

/// Everything that the cutter has, as one piece of memory.
fn all(cutter: &mut Cutter) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !cutter.is_empty() {
        bytes.put(cutter.burst());
    }
    bytes
}

/// Feeds bytes in steps of these sizes, some by way of the space; gives mark and length of what came.
fn join(bytes: &[u8], steps: &[usize]) -> Result<Vec<(u8, usize)>, JoinError> {
    let (mut joiner, mut buffer, mut joined) = (Joiner::default(), BytesMut::new(), Vec::new());
    let (mut at, mut steps) = (0, steps.iter().cycle());
    let mut note = |m: Bytes| {
        assert!(m.iter().all(|b| *b == m[0]), "the bytes of one message");
        joined.push((m[0], m.len()));
    };
    loop {
        while let Some(message) = joiner.take(&mut buffer)? {
            note(message);
        }
        if at == bytes.len() {
            return Ok(joined);
        }
        let step = (*steps.next().expect("it goes round")).min(bytes.len() - at);
        match joiner.space() {
            Some((space, left)) if buffer.is_empty() && step % 2 == 1 => {
                let step = step.min(left);
                space.extend_from_slice(&bytes[at..at + step]);
                at += step;
                joiner.came(step).into_iter().for_each(&mut note);
            }
            _ => {
                buffer.extend_from_slice(&bytes[at..at + step]);
                at += step;
            }
        }
    }
}

#[test]
fn a_small_message_waits_for_at_most_one_burst() {
    let mut cutter = Cutter::default();
    cutter.take(message(1, 5_000_000));
    cutter.take(message(2, 5_000_000));
    let mut bytes = Vec::new();
    bytes.put(cutter.burst());
    cutter.take(message(3, 4_096));
    let before = bytes.len();
    bytes.put(cutter.burst());
    assert!(bytes.len() - before <= BURST_BYTES_MAX + 2 * CHUNK_BYTES_MAX);
    let so_far = join(&bytes, &[1 << 16]).expect("chunks");
    assert_eq!(so_far, [(3, 4_096)], "it is there while both large ones have hardly begun");
    bytes.extend(all(&mut cutter));
    assert_eq!(join(&bytes, &[1 << 16]), Ok(vec![(3, 4_096), (1, 5_000_000), (2, 5_000_000)]));
}

#[test]
fn small_messages_without_end_do_not_stop_a_large_one() {
    let mut cutter = Cutter::default();
    cutter.take(message(1, 10 * CHUNK_BYTES_MAX));
    let mut bytes = Vec::new();
    for _ in 0..10 {
        (0..40).for_each(|_| {
            if cutter.has_room_for_small() {
                cutter.take(message(2, 4_096))
            }
        });
        bytes.put(cutter.burst());
    }
    assert!(join(&bytes, &[1 << 16]).expect("chunks").contains(&(1, 10 * CHUNK_BYTES_MAX)));
}

#[test]
fn large_messages_take_turns() {
    let mut cutter = Cutter::default();
    (1..=3).for_each(|mark| cutter.take(message(mark, 40 * CHUNK_BYTES_MAX)));
    cutter.take(message(4, 2 * CHUNK_BYTES_MAX));
    let bytes = all(&mut cutter);
    let order: Vec<u8> = join(&bytes, &[1 << 16]).expect("chunks").iter().map(|(mark, _)| *mark).collect();
    assert_eq!(order, [4, 1, 2, 3]);
}

#[test]
fn what_breaks_a_bound_is_refused() {
    let chunk = |stream, rest, length| head(stream, rest, length).to_vec();
    let refused = |bytes: &[u8]| join(bytes, &[HEAD_BYTES]).expect_err("no chunks");
    assert!(matches!(refused(&chunk(1, 5, 0)), JoinError::Head { .. }));
    assert!(matches!(refused(&chunk(1, 5, 6)), JoinError::Head { .. }));
    assert!(matches!(refused(&chunk(1, 1 << 20, CHUNK_BYTES_MAX + 1)), JoinError::Head { .. }));
    assert!(matches!(refused(&chunk(1, MESSAGE_BYTES_MAX + 1, 1)), JoinError::Head { .. }));
    let gap = [chunk(1, 9, 1), vec![7], chunk(1, 9, 1)].concat();
    assert_eq!(refused(&gap), JoinError::Gap { stream: 1, rest: 9, expected: 8 });
    let one_each = |n: u32, rest| (0..n).flat_map(|s| [chunk(s, rest, 1), vec![7]].concat()).collect::<Vec<_>>();
    assert_eq!(refused(&one_each(STREAMS_MAX as u32 + 1, 2)), JoinError::TooMuch);
    let most = u32::try_from(OPEN_BYTES_MAX / MESSAGE_BYTES_MAX).expect("few");
    assert_eq!(refused(&one_each(most + 1, MESSAGE_BYTES_MAX)), JoinError::TooMuch);
}

proptest! {
    #[test]
    fn all_that_is_cut_is_joined(
        sizes in proptest::collection::vec(1usize..300_000, 1..12),
        steps in proptest::collection::vec(1usize..100_000, 1..5),
    ) {
        let mut cutter = Cutter::default();
        sizes.iter().enumerate().for_each(|(mark, bytes)| cutter.take(message(mark as u8, *bytes)));
        let mut joined = join(&all(&mut cutter), &steps).expect("chunks");
        joined.sort_unstable();
        let expected: Vec<_> = sizes.iter().enumerate().map(|(mark, bytes)| (mark as u8, *bytes)).collect();
        prop_assert_eq!(joined, expected);
    }

    #[test]
    fn garbage_is_an_error_or_waits_for_more(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut joiner, mut buffer) = (Joiner::default(), BytesMut::from(&bytes[..]));
        while let Ok(Some(_)) = joiner.take(&mut buffer) {}
        prop_assert!(joiner.open_bytes() <= OPEN_BYTES_MAX);
    }
}
