//! Scripts of a station: one line per event, what it asks for at the line's end.

use apportion_domain::{Moment, Span};
use apportion_serving::batcher::Batcher;
use apportion_serving::dropper::ADMIT_ALL;
use apportion_serving::station::{Input, Output, QueuePolicy, Wakeup};
use apportion_serving::{DropReason, Dropper, Priority, Station, View};
use proptest::prelude::*;

/// Runs a script (`steer` takes the forward time, the budget, the priority and the admitted part): `at event -> outputs`, where the outputs are separated by commas and `tick` at an end says that the
/// station wants a tick now, `wake 9` that it wants one later. Queries are numbers; `s0: 1+2` is a batch of server 0.
fn check(mut station: Station<u64>, script: &str) {
    play(&mut station, script);
}

/// The same of a station that goes on afterwards.
fn play(station: &mut Station<u64>, script: &str) {
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (event, expected) = line.split_once("->").expect("an arrow in each line");
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let input = match words[1] {
            "arrive" => {
                let deadline = words.get(4).map_or(Moment::NEVER, |by| Moment::from_nanos(by.parse().expect("a number")));
                Input::Arrive { query: number(2), deadline }
            }
            // `overtake 5 by 30 passes 2`
            "overtake" => {
                let deadline = Moment::from_nanos(number(4));
                Input::Overtake { query: number(2), deadline, passes: number(6) as u32 }
            }
            "finished" => Input::BatchFinished { server: number(2) as u32 },
            "cancel" => Input::Cancel { query: number(2) },
            "add" => Input::AddServer { server: number(2) as u32 },
            "remove" => Input::RemoveServer { server: number(2) as u32 },
            "tick" => Input::Tick,
            "steer" => Input::Steer {
                view: View {
                    forward: Span::from_nanos(number(2)),
                    budget: Span::from_nanos(number(3)),
                    priority: if words[4] == "high" { Priority::HighBudgetFirst } else { Priority::LowBudgetFirst },
                    admit: words.get(5).map_or(ADMIT_ALL, |part| (part.parse::<f64>().expect("a part") * 65_536.0) as u32),
                },
            },
            other => panic!("no event {other:?}"),
        };
        station.handle(Moment::from_nanos(number(0)), input);
        let mut seen = Vec::new();
        while let Some(output) = station.poll_output() {
            seen.push(match output {
                Output::StartBatch { server, size } => {
                    let members = station.batch(server);
                    assert_eq!(members.len(), size as usize, "{line}");
                    let members: Vec<_> = members.iter().map(|m| m.query.to_string()).collect();
                    format!("s{server}: {}", members.join("+"))
                }
                Output::Drop { query, reason } => format!("drop {query} {}", reason.name()),
                Output::ServerGone { server } => format!("gone s{server}"),
            });
        }
        match station.poll_timeout() {
            Some((at, Wakeup::Start)) if at == Moment::from_nanos(number(0)) => seen.push("tick".into()),
            Some((at, Wakeup::Start)) => seen.push(format!("wake {}", at.as_nanos())),
            None => {}
        }
        assert_eq!(seen.join(", "), expected.trim(), "{line}");
    }
}

fn station(servers: u32, batch_max: u32, dropper: Dropper, queue_len_max: usize) -> Station<u64> {
    Station::new(servers, Batcher::AtStart { batch_max }, dropper, queue_len_max)
}

/// Batches of `i + 1` queries take `base + (i + 1) * each`.
fn service(batch_max: u64, base: u64, each: u64) -> Vec<Span> {
    (1..=batch_max).map(|size| Span::from_nanos(base + size * each)).collect()
}

#[test]
fn what_is_more_important_passes_the_last_of_those_that_wait_unless_the_policy_orders_them() {
    let script = |third: &str| {
        format!(
            "
         0 arrive 1 by 90             -> tick
         0 tick                       -> s0: 1
         1 arrive 2 by 70             ->
         2 arrive 3 by 80             ->
         3 overtake 4 by 75 passes 1  ->
         9 finished 0                 -> tick
         9 tick                       -> s0: 2
        19 finished 0                 -> tick
        19 tick                       -> s0: {third}"
        )
    };
    check(station(1, 1, Dropper::Never, 100), &script("4"));
    check(station(1, 1, Dropper::Window, 100), &script("3"));
    check(station(1, 1, Dropper::Never, 100).by_remaining_time(), &script("4"));
    let waits = Batcher::WaitUntil { batch_max: 2, delay: None, reserve: Span::ZERO };
    let waits = Station::new(1, waits, Dropper::Never, 100).with_service(service(2, 0, 5));
    // It starts in time for the query that was passed.
    check(
        waits,
        "
         0 arrive 1 by 40             -> wake 35
         1 overtake 2 by 90 passes 1  -> tick
         1 cancel 2                   -> drop 2 cancelled, wake 35
         ",
    );
}

#[test]
fn without_batches_that_are_filled_ahead_their_queries_wait_again_and_with_them_the_running_batch_counts() {
    let forming = Batcher::Forming { batch_max: 2 };
    let mut station = Station::new(1, forming, Dropper::Never, 100).with_service(service(2, 10, 0));
    play(
        &mut station,
        "
         0 arrive 1   -> tick
         0 tick       -> s0: 1
         1 arrive 2   -> tick
         1 tick       ->",
    );
    assert_eq!((station.waiting().len(), station.queued()), (0, 1));
    station.reconfigure(Batcher::AtStart { batch_max: 2 }, service(2, 10, 0));
    assert_eq!((station.waiting().len(), station.queued()), (1, 1));
    play(
        &mut station,
        "
         3 arrive 3    ->
        10 finished 0  -> tick
        10 tick        -> s0: 2+3",
    );
    // The batch that runs ends at 20, whatever enters the next one ends at 30.
    station.reconfigure(forming, service(2, 10, 0));
    station.set_policy(QueuePolicy { dropper: Dropper::OnTime, is_by_remaining_time: false, is_monitored: false });
    play(
        &mut station,
        "
        13 arrive 4 by 25 -> tick
        13 tick           -> drop 4 deadline
        14 arrive 5 by 35 -> tick
        14 tick           ->
        20 finished 0     -> tick
        20 tick           -> s0: 5",
    );
}

#[test]
fn another_policy_puts_what_waits_in_its_order() {
    let mut station = station(1, 1, Dropper::Never, 100);
    play(
        &mut station,
        "
         0 arrive 1 by 50 -> tick
         0 tick           -> s0: 1
         1 arrive 2 by 90 ->
         2 arrive 3 by 70 ->
         3 arrive 4 by 80 ->
         4 arrive 5 by 60 ->",
    );
    station.set_policy(QueuePolicy { dropper: Dropper::EndToEnd, is_by_remaining_time: true, is_monitored: true });
    assert!(station.monitor().is_some_and(|m| m.arrived == 0), "it measures from now on");
    play(
        &mut station,
        "
         9 finished 0        -> tick
         9 tick              -> s0: 5
        10 steer 0 0 high    ->
        11 finished 0        -> tick
        11 tick              -> s0: 2",
    );
    station.set_policy(QueuePolicy { dropper: Dropper::Never, is_by_remaining_time: false, is_monitored: false });
    assert!(station.monitor().is_none() && station.view() == View::default());
    play(
        &mut station,
        "
        20 finished 0 -> tick
        20 tick       -> s0: 3
        30 finished 0 -> tick
        30 tick       -> s0: 4",
    );
}

#[test]
fn queries_of_one_moment_share_a_batch_and_the_rest_waits_for_the_server() {
    check(
        station(1, 2, Dropper::Never, 100),
        "
         0 arrive 1  -> tick
         0 arrive 2  -> tick
         0 arrive 3  -> tick
         0 tick      -> s0: 1+2
         4 arrive 4  ->
         9 finished 0 -> tick
         9 arrive 5  -> tick
         9 tick      -> s0: 3+4
        20 finished 0 -> tick
        20 tick      -> s0: 5
        25 finished 0 ->
        ",
    );
}

#[test]
fn a_central_queue_serves_its_servers_lowest_number_first() {
    check(
        station(3, 1, Dropper::Never, 100),
        "
         0 arrive 1   -> tick
         0 tick       -> s0: 1
         1 arrive 2   -> tick
         1 arrive 3   -> tick
         1 tick       -> s1: 2, s2: 3
         2 arrive 4   ->
         3 arrive 5   ->
         5 finished 2 -> tick
         5 finished 0 -> tick
         5 tick       -> s0: 4, s2: 5
        ",
    );
}

#[test]
fn a_full_queue_drops_what_comes_and_keeps_what_waits() {
    check(
        station(1, 4, Dropper::Never, 2),
        "
         0 arrive 1   -> tick
         0 arrive 2   -> tick
         0 arrive 3   -> drop 3 queue_full, tick
         0 tick       -> s0: 1+2
         1 arrive 4   ->
         1 arrive 5   ->
         2 arrive 6   -> drop 6 queue_full
         9 finished 0 -> tick
         9 tick       -> s0: 4+5
        ",
    );
}

#[test]
fn an_expired_query_makes_room_for_the_next() {
    check(
        station(1, 2, Dropper::Expired, 100),
        "
         0 arrive 1 by 5   -> tick
         0 tick            -> s0: 1
         1 arrive 2 by 8   ->
         1 arrive 3 by 9   ->
         1 arrive 4 by 7   ->
         1 arrive 5 by 30  ->
         9 finished 0      -> tick
         9 tick            -> s0: 3+5, drop 2 deadline, drop 4 deadline
        20 arrive 6 by 15  ->
        21 finished 0      -> tick
        21 tick            -> drop 6 deadline
        ",
    );
}

#[test]
fn a_cancelled_query_leaves_the_queue_and_a_running_one_stays() {
    check(
        station(1, 1, Dropper::Never, 100),
        "
         0 arrive 1   -> tick
         0 tick       -> s0: 1
         1 arrive 2   ->
         1 arrive 3   ->
         2 cancel 1   ->
         2 cancel 2   -> drop 2 cancelled
         3 cancel 9   ->
         5 finished 0 -> tick
         5 tick       -> s0: 3
        ",
    );
}

#[test]
fn servers_come_at_once_and_go_after_their_batch() {
    check(
        station(1, 1, Dropper::Never, 100),
        "
         0 arrive 1   -> tick
         0 tick       -> s0: 1
         1 arrive 2   ->
         2 add 1      -> tick
         2 tick       -> s1: 2
         3 remove 0   ->
         4 arrive 3   ->
         5 finished 0 -> gone s0
         6 finished 1 -> tick
         6 tick       -> s1: 3
         7 finished 1 ->
         8 remove 1   -> gone s1
         9 arrive 4   ->
         9 add 0      -> tick
         9 tick       -> s0: 4
        ",
    );
}

#[test]
fn an_ended_batch_can_be_taken_and_its_buffer_comes_back() {
    let mut station = station(1, 2, Dropper::Never, 100);
    let mut buffer = Vec::new();
    for round in 0..3 {
        let now = Moment::from_nanos(round);
        for input in
            [Input::Arrive { query: round, deadline: Moment::NEVER }, Input::Tick, Input::BatchFinished { server: 0 }]
        {
            station.handle(now, input);
            while station.poll_output().is_some() {}
        }
        station.swap_batch(0, &mut buffer);
        assert_eq!(buffer.iter().map(|m| m.query).collect::<Vec<_>>(), [round]);
        buffer.clear();
    }
}

#[test]
#[should_panic(expected = "time went backwards")]
#[cfg(debug_assertions)]
fn time_that_goes_backwards_is_our_bug() {
    let mut station = station(1, 1, Dropper::Never, 1);
    station.handle(Moment::from_nanos(5), Input::Tick);
    assert_eq!(station.poll_output(), None);
    station.handle(Moment::from_nanos(4), Input::Tick);
}

#[test]
#[should_panic(expected = "before the outputs of the last one were drained")]
#[cfg(debug_assertions)]
fn an_input_before_the_outputs_are_drained_is_our_bug() {
    let mut station = station(1, 1, Dropper::Never, 1);
    station.handle(Moment::ZERO, Input::Arrive { query: 1, deadline: Moment::NEVER });
    station.handle(Moment::ZERO, Input::Tick);
}

#[test]
fn reasons_have_the_names_of_result_files() {
    let reasons = [DropReason::QueueFull, DropReason::Deadline, DropReason::Cancelled, DropReason::NoReplica];
    assert_eq!(reasons.map(DropReason::name), ["queue_full", "deadline", "cancelled", "no_replica"]);
}

fn forming(servers: u32, batch_max: u32, dropper: Dropper) -> Station<u64> {
    let station = Station::new(servers, Batcher::Forming { batch_max }, dropper, 100);
    station.with_service(service(u64::from(batch_max), 0, 10))
}

#[test]
fn the_next_batch_fills_while_one_runs_and_starts_when_it_ends() {
    check(
        forming(1, 2, Dropper::Never),
        "
         0 arrive 1   -> tick
         0 tick       -> s0: 1
         1 arrive 2   -> tick
         1 tick       ->
         2 arrive 3   -> tick
         2 tick       ->
         3 arrive 4   ->
        10 finished 0 -> tick
        10 arrive 5   -> tick
        10 tick       -> s0: 2+3
        30 finished 0 -> tick
        30 tick       -> s0: 4+5
        50 finished 0 ->
        ",
    );
}

#[test]
fn what_waits_centrally_enters_the_batch_that_starts_soonest() {
    // Server 0 runs two queries until 20, server 1 one query until 13; 5, 6 and 7 fill server 1's next batch first.
    check(
        forming(2, 2, Dropper::Never),
        "
         0 arrive 1   -> tick
         0 arrive 2   -> tick
         0 tick       -> s0: 1+2
         3 arrive 3   -> tick
         3 tick       -> s1: 3
         4 arrive 5   -> tick
         4 tick       ->
         5 arrive 6   -> tick
         5 tick       ->
         6 arrive 7   -> tick
         6 tick       ->
        13 finished 1 -> tick
        13 tick       -> s1: 5+6
        20 finished 0 -> tick
        20 tick       -> s0: 7
        ",
    );
}

#[test]
fn a_cancelled_query_makes_room_in_the_next_batch_and_a_removed_server_gives_it_back() {
    check(
        forming(2, 2, Dropper::Never),
        "
         0 arrive 1   -> tick
         0 arrive 2   -> tick
         0 arrive 3   -> tick
         0 tick       -> s0: 1+2, s1: 3
         1 arrive 4   -> tick
         1 arrive 5   -> tick
         1 arrive 6   -> tick
         1 arrive 7   -> tick
         1 arrive 8   -> tick
         1 tick       ->
         2 cancel 5   -> drop 5 cancelled, tick
         2 tick       ->
         3 remove 1   -> tick
         3 tick       ->
        10 finished 1 -> gone s1
        20 finished 0 -> tick
        20 tick       -> s0: 6+7
        40 finished 0 -> tick
        40 tick       -> s0: 4+8
        ",
    );
}

#[test]
fn drop_decisions_fall_when_a_query_enters_the_next_batch() {
    // The batch that runs ends at 10. What enters the next one counts with 20 for a full batch, so it ends by 30 at the latest.
    check(
        forming(1, 2, Dropper::OnTime),
        "
         0 arrive 1 by 99 -> tick
         0 tick           -> s0: 1
         1 arrive 2 by 29 -> tick
         1 tick           -> drop 2 deadline
         2 arrive 3 by 30 -> tick
         2 tick           ->
        10 finished 0     -> tick
        10 tick           -> s0: 3
        ",
    );
}

#[test]
fn a_server_waits_for_a_full_batch_until_the_oldest_query_would_be_late() {
    let until = |delay: Option<u64>, reserve: u64| {
        let (delay, reserve) = (delay.map(Span::from_nanos), Span::from_nanos(reserve));
        let batcher = Batcher::WaitUntil { batch_max: 2, delay, reserve };
        Station::new(1, batcher, Dropper::Never, 100).with_service(service(2, 0, 10))
    };
    check(
        until(None, 0),
        "
         0 arrive 1 by 50  -> wake 40
         5 arrive 2 by 60  -> tick
         5 tick            -> s0: 1+2
         6 arrive 3 by 40  ->
        25 finished 0      -> wake 30
        30 tick            -> s0: 3
        31 arrive 4 by 33  ->
        40 finished 0      -> tick
        40 tick            -> s0: 4
        ",
    );
    // A part of the time is kept for what comes after, and a named delay may be shorter.
    check(until(None, 25), "0 arrive 1 by 50 -> wake 15");
    check(until(Some(7), 0), "3 arrive 1 by 50 -> wake 10");
}

#[test]
fn the_window_slides_to_the_first_place_where_all_would_be_on_time() {
    // Alone 11, two 21. At 20: with a window of two, 2+3 is late for 3 (by 40), 3+4 too; 4+5 fits.
    let station = Station::new(1, Batcher::AtStart { batch_max: 2 }, Dropper::Window, 100).with_service(service(2, 1, 10));
    check(
        station,
        "
         0 arrive 1 by 90 -> tick
         0 tick           -> s0: 1
         1 arrive 2 by 60 ->
         2 arrive 3 by 40 ->
         3 arrive 4 by 50 ->
         4 arrive 5 by 41 ->
         5 arrive 6 by 10 ->
        20 finished 0     -> tick
        20 tick           -> s0: 4+5, drop 2 deadline, drop 3 deadline
        41 finished 0     -> tick
        41 tick           -> drop 6 deadline
        ",
    );
}

#[test]
fn a_part_of_the_slo_is_used_up_or_would_be() {
    let with = |dropper| Station::new(1, Batcher::AtStart { batch_max: 1 }, dropper, 100).with_service(service(1, 0, 10));
    check(
        with(Dropper::Elapsed),
        "
         0 steer 0 15 low ->
         0 arrive 1       -> tick
         0 tick           -> s0: 1
         4 arrive 2       ->
         5 arrive 3       ->
        20 finished 0     -> tick
        20 tick           -> s0: 3, drop 2 budget
        ",
    );
    check(
        with(Dropper::Within),
        "
         0 steer 0 15 low ->
         0 arrive 1       -> tick
         0 tick           -> s0: 1
         4 arrive 2       ->
         5 arrive 3       ->
        10 finished 0     -> tick
        10 tick           -> s0: 3, drop 2 budget
        ",
    );
}

#[test]
fn remaining_time_decides_from_the_end_that_the_load_asks_for() {
    let station = || {
        Station::new(1, Batcher::AtStart { batch_max: 1 }, Dropper::EndToEnd, 100)
            .by_remaining_time()
            .with_service(service(1, 0, 10))
    };
    check(
        station(),
        "
         0 steer 5 0 low   ->
         0 arrive 1 by 99  -> tick
         0 tick            -> s0: 1
         1 arrive 2 by 60  ->
         2 arrive 3 by 24  ->
         3 arrive 4 by 25  ->
        10 finished 0      -> tick
        10 tick            -> s0: 4, drop 3 predicted
        20 finished 0      -> tick
        20 tick            -> s0: 2
        ",
    );
    check(
        station(),
        "
         0 steer 5 0 high  ->
         0 arrive 1 by 99  -> tick
         0 tick            -> s0: 1
         1 arrive 2 by 60  ->
         2 arrive 3 by 24  ->
         3 arrive 4 by 19  ->
         4 arrive 5 by 50  ->
        10 finished 0      -> tick
        10 tick            -> s0: 2, drop 4 predicted
        20 finished 0      -> tick
        20 tick            -> s0: 5, drop 3 predicted
        ",
    );
}

#[test]
fn admission_refuses_a_part_spread_evenly() {
    check(
        Station::new(1, Batcher::AtStart { batch_max: 9 }, Dropper::Admission, 100),
        "
         0 steer 0 0 low 0.5 ->
         0 arrive 1 -> drop 1 admission
         0 arrive 2 -> tick
         0 arrive 3 -> drop 3 admission, tick
         0 arrive 4 -> tick
         0 tick     -> s0: 2+4
        ",
    );
}

#[test]
fn a_monitor_tells_queueing_from_batch_wait() {
    let mut station = forming(1, 2, Dropper::Never).monitored();
    // The first query starts at once; the second enters at 4 and starts at 10; the fourth waits from 6 to 10 and enters there.
    for (at, input) in [
        (0, Input::Arrive { query: 1, deadline: Moment::NEVER }),
        (0, Input::Tick),
        (4, Input::Arrive { query: 2, deadline: Moment::NEVER }),
        (4, Input::Tick),
        (5, Input::Arrive { query: 3, deadline: Moment::NEVER }),
        (5, Input::Tick),
        (6, Input::Arrive { query: 4, deadline: Moment::NEVER }),
        (10, Input::BatchFinished { server: 0 }),
        (10, Input::Tick),
    ] {
        station.handle(Moment::from_nanos(at), input);
        while station.poll_output().is_some() {}
    }
    let monitor = station.monitor().expect("it measures");
    assert_eq!((monitor.arrived, monitor.entered, monitor.queueing_ns), (4, 4, 4));
    assert_eq!(monitor.waits(), [0, 6, 5].map(Span::from_nanos));
    assert_eq!((monitor.queueing_max, monitor.wait_max), (Span::from_nanos(4), Span::from_nanos(6)));
    monitor.clear();
    assert_eq!((monitor.arrived, monitor.waits().len()), (0, 0));
}

proptest! {
    /// Whatever the policy, and also where there is no room for all of them.
    #[test]
    fn queries_that_arrive_together_are_treated_as_if_one_after_the_other(
        sizes in prop::collection::vec(0_u64..9, 1..12),
        dropper in prop::sample::select(vec![Dropper::Never, Dropper::OnTime, Dropper::Window, Dropper::Admission]),
        kind in 0..4,
    ) {
        let batcher = if kind == 1 { Batcher::Forming { batch_max: 3 } } else { Batcher::AtStart { batch_max: 3 } };
        let new = || Station::new(2, batcher, dropper, 12).with_service(vec![Span::from_nanos(5); 3]);
        let new = || match kind { 2 => new().by_remaining_time(), 3 => new().monitored(), _ => new() };
        let (mut one, mut many) = (new(), new());
        let mut ends: Vec<(u64, u32)> = Vec::new();
        let mut number = 0;
        for (at, &size) in sizes.iter().enumerate() {
            let now = Moment::from_nanos(2 * at as u64);
            let queries: Vec<(u64, Moment)> = (number..number + size).map(|q| (q, Moment::from_nanos(10 + 3 * (q % 7)))).collect();
            number += size;
            let mut seen = Vec::new();
            let mut expected = Vec::new();
            for &(query, deadline) in &queries {
                one.handle(now, Input::Arrive { query, deadline });
                expected.extend(std::iter::from_fn(|| one.poll_output()));
            }
            many.handle_arrivals(now, queries.into_iter());
            seen.extend(std::iter::from_fn(|| many.poll_output()));
            let due: Vec<u32> = ends.extract_if(.., |(end, _)| *end <= now.as_nanos()).map(|(_, server)| server).collect();
            let finished = due.into_iter().map(|server| Input::BatchFinished { server });
            for input in finished.chain([Input::Tick]) {
                one.handle(now, input);
                many.handle(now, input);
                expected.extend(std::iter::from_fn(|| one.poll_output()));
                let outputs: Vec<_> = std::iter::from_fn(|| many.poll_output()).collect();
                let started = outputs.iter().filter_map(|o| match o { Output::StartBatch { server, .. } => Some(*server), _ => None });
                for server in started {
                    prop_assert_eq!(one.batch(server), many.batch(server));
                    ends.push((now.as_nanos() + 5, server));
                }
                seen.extend(outputs);
            }
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(one.poll_timeout(), many.poll_timeout());
        }
    }
}
