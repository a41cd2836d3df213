//! The queue against a vector that does the same in the obvious way.

use apportion_domain::Moment;
use apportion_serving::Waiting;
use apportion_serving::queue::Queue;
use proptest::prelude::*;

/// One operation on a queue.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Push or insert a query of this request: the gap in nanoseconds before it, and the time left then.
    Add(u8, u64, u64),
    /// The same for a query that passes this number of others. In a queue by deadline it is inserted.
    Overtake(u8, u64, usize),
    Pop,
    PopLast,
    Take(usize),
    /// Take this number from the front and put them back.
    PutBack(usize),
    Remove(u8),
    /// Remove the queries of one request that are as old, or as urgent, as the query at this place.
    RemoveAt(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_u8..6, 0_u64..3, 0_u64..8).prop_map(|(q, gap, rest)| Op::Add(q, gap, rest)),
        2 => (0_u8..6, 0_u64..3, 0_usize..6).prop_map(|(q, gap, passes)| Op::Overtake(q, gap, passes)),
        1 => Just(Op::Pop),
        1 => Just(Op::PopLast),
        1 => (0_usize..5).prop_map(Op::Take),
        1 => (0_usize..5).prop_map(Op::PutBack),
        1 => (0_u8..6).prop_map(Op::Remove),
        2 => any::<usize>().prop_map(Op::RemoveAt),
    ]
}

fn waiting(query: u8, now: u64, rest: u64) -> Waiting<u8> {
    Waiting { query, arrived: Moment::from_nanos(now), deadline: Moment::from_nanos(now + rest) }
}

/// The queue under test, and the vector that it is compared with.
struct Pair {
    queue: Queue<u8>,
    expected: Vec<Waiting<u8>>,
    is_sorted: bool,
    len_max: usize,
}

/// A query joins both, before the last `passes` ones, or where its deadline belongs.
fn add(pair: &mut Pair, waiting: Waiting<u8>, passes: usize) -> Result<(), TestCaseError> {
    let Pair { queue, expected, is_sorted, len_max } = pair;
    let (is_sorted, len_max) = (*is_sorted, *len_max);
    let is_taken = match passes {
        _ if is_sorted => queue.insert(waiting),
        0 => queue.push(waiting),
        _ => queue.push_before(waiting, passes),
    };
    prop_assert_eq!(is_taken, expected.len() < len_max);
    if is_taken {
        let sorted = expected.iter().take_while(|w| w.deadline <= waiting.deadline).count();
        expected.insert(if is_sorted { sorted } else { expected.len().saturating_sub(passes) }, waiting);
    }
    Ok(())
}

/// A waiting query leaves both. It is searched where its deadline or its arrival says; `got` receives the queue's answer.
fn remove_one(pair: &mut Pair, of: Waiting<u8>, got: &mut Vec<u8>) -> Result<(), TestCaseError> {
    let Pair { queue, expected, is_sorted, .. } = pair;
    let is_sorted = *is_sorted;
    if is_sorted {
        queue.remove_due(of.deadline, of.query, got);
    } else {
        queue.remove_arrived(of.arrived, of.query, got);
    }
    prop_assert!(got.contains(&of.query));
    let is_it = |w: &Waiting<u8>| w.query == of.query;
    let near = |w: &Waiting<u8>| if is_sorted { w.deadline == of.deadline } else { w.arrived == of.arrived };
    // A queue in which older ones were put behind younger ones is searched as a whole.
    let all = expected.iter().filter(|w| is_it(w)).count();
    let close = expected.iter().filter(|w| is_it(w) && near(w)).count();
    prop_assert!(got.len() == close || got.len() == all, "{} of {close} or {all}", got.len());
    let is_all = got.len() == all;
    expected.retain(|w| !(is_it(w) && (is_all || near(w))));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_queue_agrees_with_a_vector(ops in prop::collection::vec(op(), 0..200), is_sorted: bool, len_max in 1_usize..60) {
        let mut pair = Pair { queue: Queue::new(len_max), expected: Vec::new(), is_sorted, len_max };
        let mut now = 0;
        for op in ops {
            let (mut got, mut wanted) = (Vec::new(), Vec::new());
            let Pair { queue, expected, .. } = &mut pair;
            match op {
                Op::Add(query, gap, rest) => {
                    now += gap;
                    add(&mut pair, waiting(query, now, rest), 0)?;
                }
                Op::Overtake(query, gap, passes) => {
                    now += gap;
                    add(&mut pair, waiting(query, now, 0), passes)?;
                }
                Op::Pop => prop_assert_eq!(queue.pop(), if expected.is_empty() { None } else { Some(expected.remove(0)) }),
                Op::PopLast => prop_assert_eq!(queue.pop_last(), expected.pop()),
                Op::Take(count) => {
                    let mut taken = Vec::new();
                    queue.take(count, &mut taken);
                    let first: Vec<_> = expected.drain(..count.min(expected.len())).collect();
                    prop_assert_eq!(taken, first);
                }
                Op::PutBack(count) => {
                    let mut taken = Vec::new();
                    queue.take(count, &mut taken);
                    // Two halves that were taken by two servers come back one after the other.
                    let (first, second) = taken.split_at(taken.len() / 2);
                    if !is_sorted {
                        let rest = expected.split_off(taken.len());
                        *expected = [second, first, &rest].concat();
                        queue.put_back(first);
                        queue.put_back(second);
                    } else {
                        queue.put_back(&taken);
                    }
                }
                Op::Remove(query) => {
                    queue.remove(query, &mut got);
                    wanted.extend(expected.iter().map(|w| w.query).filter(|q| *q == query));
                    expected.retain(|w| w.query != query);
                }
                Op::RemoveAt(at) => {
                    let Some(&of) = at.checked_rem(expected.len()).and_then(|at| expected.get(at)) else { continue };
                    remove_one(&mut pair, of, &mut got)?;
                    wanted.clone_from(&got);
                }
            }
            prop_assert_eq!(got, wanted);
            let Pair { queue, expected, .. } = &pair;
            prop_assert_eq!(queue.waiting(), expected.as_slice());
            prop_assert_eq!((queue.len(), queue.is_empty()), (expected.len(), expected.is_empty()));
        }
    }
}
