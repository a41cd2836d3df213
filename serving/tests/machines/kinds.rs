//! Batches of one kind, where queries of several kinds come. A query's kind is its number divided by 100.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::batcher::Batcher;
use apportion_serving::replica::{StationInput, StationOutput};
use apportion_serving::{Dropper, Priority, Station, StationView};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SERVICE_NS: u64 = 10;

fn kind_of(query: &u64) -> u64 {
    query / 100
}

fn station(batcher: Batcher, dropper: Dropper) -> Station<u64> {
    let service = vec![TimeSpan::from_nanos(SERVICE_NS); batcher.batch_max() as usize];
    Station::new(1, batcher, dropper, 1_000).with_service(service)
}

/// The log of one server that serves these queries: (when, number, deadline), in order of time. Each batch takes
/// [`SERVICE_NS`].
fn run(mut station: Station<u64>, queries: &[(u64, u64, u64)]) -> Vec<String> {
    let (mut seen, mut ends, mut next) = (Vec::new(), None, 0);
    loop {
        let wake = station.poll_timeout().map(|(at, _)| at.as_nanos());
        let arrival = queries.get(next).map(|&(at, ..)| at);
        let Some(now) = [wake, arrival, ends].into_iter().flatten().min() else { break };
        let input = if ends == Some(now) {
            ends = None;
            StationInput::BatchFinished { server: 0 }
        } else if arrival == Some(now) {
            let (_, query, deadline) = queries[next];
            next += 1;
            StationInput::Arrive { query, deadline: Moment::from_nanos(deadline) }
        } else {
            StationInput::Tick
        };
        station.handle(Moment::from_nanos(now), input);
        while let Some(output) = station.poll_output() {
            match output {
                StationOutput::StartBatch { server, .. } => {
                    let members: Vec<u64> = station.batch(server).iter().map(|w| w.query).collect();
                    ends = Some(now + SERVICE_NS);
                    seen.push(format!("{now}: {members:?}"));
                }
                StationOutput::Drop { query, reason } => seen.push(format!("{now}: drop {query} {}", reason.name())),
                StationOutput::ServerGone { .. } => {}
            }
        }
        assert!(seen.len() <= 2 * queries.len(), "it never ends: {seen:?}");
    }
    seen
}

#[test]
fn the_oldest_query_gives_a_batch_its_kind() {
    let queries = [(0, 100, 900), (1, 200, 900), (2, 101, 900), (3, 201, 900), (4, 202, 900), (5, 102, 900)];
    let station = station(Batcher::AtStart { batch_max: 2 }, Dropper::Never).with_kinds(kind_of);
    let batches = ["0: [100]", "10: [200, 201]", "20: [101, 102]", "30: [202]"];
    assert_eq!(run(station, &queries), batches);
}

#[test]
fn a_next_batch_that_has_its_kind_lets_others_wait() {
    let queries = [(0, 100, 900), (1, 200, 900), (2, 101, 900), (3, 201, 900), (4, 102, 900)];
    let station = station(Batcher::Forming { batch_max: 3 }, Dropper::Never).with_kinds(kind_of);
    assert_eq!(run(station, &queries), ["0: [100]", "10: [200, 201]", "20: [101, 102]"]);
}

#[test]
fn wait_until_serves_all_kinds_in_time() {
    let station = || station(Batcher::WaitUntil { batch_max: 3, delay: None, reserve: TimeSpan::ZERO }, Dropper::Never);
    // Two batches, one after the other, have to end by 100.
    let both = [(0, 100, 100), (1, 200, 100)];
    assert_eq!(run(station().with_kinds(kind_of), &both), ["80: [100]", "90: [200]"]);
    let full = [(0, 100, 900), (1, 200, 900), (2, 201, 900), (3, 202, 900)];
    assert_eq!(run(station().with_kinds(kind_of), &full), ["3: [100]", "13: [200, 201, 202]"]);
}

#[test]
fn a_dropped_kind_leaves_its_turn_to_the_next() {
    let queries = [(0, 100, 900), (1, 200, 15), (2, 201, 15), (3, 101, 900), (4, 202, 900)];
    let station = station(Batcher::AtStart { batch_max: 2 }, Dropper::OnTime).with_kinds(kind_of);
    let seen = ["0: [100]", "10: drop 200 deadline", "10: drop 201 deadline"];
    let seen: Vec<&str> = seen.into_iter().chain(["10: [202]", "20: [101]"]).collect();
    let got = run(station, &queries);
    assert_eq!(got.len(), seen.len(), "{got:?}");
    assert!(got.contains(&"10: [202]".to_string()) && got.contains(&"20: [101]".to_string()), "{got:?}");
}

/// Takes, each time, the first that waits and the next ones of its kind.
fn oracle(queries: &[(u64, u64, u64)], batch_max: usize) -> Vec<String> {
    let (mut waiting, mut rest, mut now, mut seen) = (Vec::new(), queries, 0, Vec::new());
    while !rest.is_empty() || !waiting.is_empty() {
        if waiting.is_empty() {
            let (at, ..) = rest[0];
            now = now.max(at);
        }
        while let Some((&(_, query, _), others)) = rest.split_first().filter(|((at, ..), _)| *at <= now) {
            waiting.push(query);
            rest = others;
        }
        let kind = kind_of(&waiting[0]);
        let batch: Vec<u64> = waiting.iter().copied().filter(|q| kind_of(q) == kind).take(batch_max).collect();
        waiting.retain(|q| !batch.contains(q));
        seen.push(format!("{now}: {batch:?}"));
        now += SERVICE_NS;
    }
    seen
}

fn batchers() -> impl Strategy<Value = Batcher> {
    let most = 1u32..5;
    prop_oneof![
        most.clone().prop_map(|batch_max| Batcher::AtStart { batch_max }),
        most.clone().prop_map(|batch_max| Batcher::Forming { batch_max }),
        most.prop_map(|batch_max| Batcher::WaitUntil { batch_max, delay: None, reserve: TimeSpan::ZERO }),
    ]
}

const DROPPERS: [Dropper; 5] = [Dropper::Never, Dropper::Expired, Dropper::OnTime, Dropper::Window, Dropper::EndToEnd];

/// Distinct moments, up to `kinds` kinds.
fn arrivals(kinds: u64) -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((1u64..8, 0..kinds, 5u64..80), 1..40).prop_map(|steps| {
        let (mut now, mut counts) = (0, BTreeMap::new());
        let query = |(gap, kind, patience): (u64, u64, u64)| {
            now += gap;
            let count = counts.entry(kind).or_insert(0);
            *count += 1;
            (now, 100 * kind + *count, now + patience)
        };
        steps.into_iter().map(query).collect()
    })
}

proptest! {
    #[test]
    fn one_kind_is_served_like_no_kinds(queries in arrivals(1), batcher in batchers(), at in 0usize..5,
                                                       sorted in any::<bool>(), high in any::<bool>()) {
        let new = || {
            let station = station(batcher, DROPPERS[at]);
            // Nexus's window slides over the order of arrival.
            let is_sorted = sorted && DROPPERS[at] != Dropper::Window;
            let mut station = if is_sorted { station.by_remaining_time() } else { station };
            let priority = if high { Priority::HighBudgetFirst } else { Priority::LowBudgetFirst };
            station.handle(Moment::ZERO, StationInput::Steer { view: StationView { priority, ..StationView::default() } });
            assert!(station.poll_output().is_none());
            station
        };
        let (with, without) = (run(new().with_kinds(kind_of), &queries), run(new(), &queries));
        // Which is dropped first at one moment says nothing: only what is served, and when, and what is not.
        let sort = |mut all: Vec<String>| { all.sort(); all };
        prop_assert_eq!(sort(with), sort(without));
    }

    #[test]
    fn batches_at_start_agree_with_the_oracle(queries in arrivals(4), batch_max in 1u32..5) {
        let station = station(Batcher::AtStart { batch_max }, Dropper::Never).with_kinds(kind_of);
        prop_assert_eq!(run(station, &queries), oracle(&queries, batch_max as usize));
    }

    #[test]
    fn no_batch_has_two_kinds_and_every_query_ends_once(queries in arrivals(4), batcher in batchers(), at in 0usize..5,
                                                        sorted in any::<bool>()) {
        let station = station(batcher, DROPPERS[at]);
        let station = if sorted { station.by_remaining_time() } else { station };
        let mut ended = Vec::new();
        for line in run(station.with_kinds(kind_of), &queries) {
            let numbers: Vec<u64> = line.split_once(':').expect("a time").1
                .split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
            prop_assert!(numbers.iter().all(|n| kind_of(n) == kind_of(&numbers[0])), "{}", line);
            ended.extend(numbers);
        }
        ended.sort_unstable();
        let mut sent: Vec<u64> = queries.iter().map(|&(_, query, _)| query).collect();
        sent.sort_unstable();
        prop_assert_eq!(ended, sent);
    }
}
