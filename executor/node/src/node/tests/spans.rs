//! Spans of traced requests, to the nanosecond.

use super::world::*;
use super::*;
use crate::trace::{Batch, SpanActivity, TraceContext, Visit};
use std::time::Duration;

/// How long a message takes in the world.
const HOP_NS: u64 = 10_000;
const TRACE: TraceContext = TraceContext { id: 7, parent: 8 };

/// Task `a` at agent 1 takes 1 ms, task `b` at the agents of its replicas takes 5; the world is up.
fn world(agents: u64, of_b: &[(u64, u64)], batching: &str) -> World {
    let mut world = World::new(agents, sums);
    let crews: [Crew<'_>; 2] = [(1, 0, 2, 1, &[(1, 1)]), (2, 1, 2, 5, of_b)];
    world.apply_target(&served(target(1, "ab", &[(true, 0, 1)], &crews), batching, "naive"));
    world.pass(50 * MS);
    world
}

fn visit(task: &str, replica: u64, batch: Batch) -> SpanActivity {
    let (pipeline, task) = ("p".into(), task.into());
    SpanActivity::Visit(Visit { pipeline, task, variant: String::new(), replica, batch: Some(batch) })
}

#[test]
fn a_requests_spans_say_where_its_time_went() {
    let mut world = world(2, &[(2, 2)], "at_start");
    world.trace = Some(TRACE);
    let (t, answer) = (world.now_ns, world.ask(1, "p", &[3.0]));
    world.pass(20 * MS);
    assert_eq!(outcome(&answer), Ok(vec![3.0]));
    let batch = |begun_ns, ms| Batch { size: 1, begun_ns, execution: Duration::from_millis(ms), wait: Duration::ZERO };
    let [(1, a), (2, b), (1, hop)] = &world.spans[..] else { panic!("{:?}", world.spans) };
    let (sent, came) = (t + MS, t + MS + HOP_NS);
    let span = |above: u64, of: &TraceSpan, begun_ns, ended_ns, what| TraceSpan {
        trace: TraceContext { parent: above, ..TRACE },
        id: of.id,
        begun_ns,
        ended_ns,
        what,
        error: None,
    };
    assert_eq!(*a, span(TRACE.parent, a, t, sent, visit("a", 1, batch(t, 1))));
    assert_eq!(*hop, span(a.id, hop, sent, came + 5 * MS + HOP_NS, SpanActivity::Hop { task: "b".into(), to: 2 }));
    assert_eq!(*b, span(hop.id, b, came, came + 5 * MS, visit("b", 2, batch(came, 5))));
    let ids = BTreeSet::from([a.id, b.id, hop.id]);
    assert!(ids.len() == 3 && !ids.contains(&0));
}

#[test]
fn under_forming_the_wait_in_the_batch_is_told_apart() {
    let mut world = world(1, &[(2, 1)], "forming");
    world.trace = Some(TRACE);
    let t = world.now_ns;
    // The first runs alone at `a`; the others form the next batch from when it begins, and wait for its end.
    let mut answers = vec![world.ask(1, "p", &[1.0])];
    world.pass(MS / 4);
    answers.extend([world.ask(1, "p", &[2.0]), world.ask(1, "p", &[3.0])]);
    world.pass(20 * MS);
    assert!(answers.iter().all(|answer| outcome(answer).is_ok()));
    let of_a = |span: &&(u64, TraceSpan)| matches!(&span.1.what, SpanActivity::Visit(v) if v.task == "a");
    let batches: Vec<(u64, Batch)> = world
        .spans
        .iter()
        .filter(of_a)
        .map(|(_, span)| match &span.what {
            SpanActivity::Visit(Visit { batch: Some(batch), .. }) => (span.begun_ns, *batch),
            other => panic!("{other:?}"),
        })
        .collect();
    let second = Batch { size: 2, begun_ns: t + MS, execution: Duration::from_millis(1), wait: Duration::from_micros(750) };
    assert_eq!(batches[1..], [(t + MS / 4, second); 2]);
}

#[test]
fn the_span_of_a_hop_to_a_lost_agent_fails() {
    let mut world = world(3, &[(2, 2), (3, 3)], "at_start");
    world.trace = Some(TRACE);
    let answer = world.ask(1, "p", &[3.0]);
    world.pass(2 * MS);
    let to = world.batches.last().expect("it runs at `b`").replica;
    world.lose(to);
    world.pass(20 * MS);
    assert_eq!(outcome(&answer), Ok(vec![3.0]));
    let hops = world.spans.iter().filter(|(_, span)| matches!(span.what, SpanActivity::Hop { .. }));
    let hops: Vec<(u64, Option<&str>)> = hops.map(|(_, s)| (s.trace.parent, s.error.as_deref())).collect();
    let [(above, Some("its agent was lost")), (beside, None)] = hops[..] else { panic!("{hops:?}") };
    assert_eq!(above, beside);
}

#[test]
fn a_dropped_querys_span_has_the_reason() {
    let mut world = World::new(1, sums);
    world.apply_target(&served(target(1, "a", &[], &[(1, 0, 1, 80, &[(1, 1)])]), "at_start", "last_task"));
    world.pass(50 * MS);
    // One runs for 80 of the 100 ms, the next until it is late, and nothing is begun for the third.
    let quiet = [world.ask(1, "p", &[1.0]), world.ask(1, "p", &[2.0])];
    world.trace = Some(TRACE);
    let late = world.ask(1, "p", &[3.0]);
    world.pass(300 * MS);
    assert!(outcome(&late).expect_err("dropped").to_string().contains("Dropped"));
    let [(1, span)] = &world.spans[..] else { panic!("{:?}", world.spans) };
    assert!(matches!(&span.what, SpanActivity::Visit(v) if v.batch.is_none()) && span.error.is_some(), "{span:?}");
    drop(quiet);
}
