//! Servers, their batches, and the queue in front of them.

use super::script::*;
use apportion_domain::Moment;
use apportion_serving::station::StationInput;
use apportion_serving::{DropReason, Dropper};

#[test]
fn queries_of_one_moment_share_a_batch() {
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
fn a_full_queue_drops_new_queries_and_keeps_waiting_ones() {
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
fn cancelling_removes_waiting_queries_and_keeps_running_ones() {
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
fn a_slot_is_found_by_its_query_and_ends_early() {
    let mut slots = station(3, 1, Dropper::Never, 100);
    play(
        &mut slots,
        "
         0 arrive 7   -> tick
         0 arrive 8   -> tick
         0 arrive 7   -> tick
         0 arrive 9   -> tick
         0 tick       -> s0: 7, s1: 8, s2: 7
        ",
    );
    assert_eq!((slots.servers_of(7), slots.servers_of(8), slots.servers_of(9)), (vec![0, 2], vec![1], vec![]));
    play(
        &mut slots,
        "
         5 finished 2 -> tick
         5 tick       -> s2: 9
        ",
    );
    assert_eq!((slots.servers_of(7), slots.servers_of(9)), (vec![0], vec![2]));
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
fn an_ended_batch_can_be_swapped_for_a_buffer() {
    let mut station = station(1, 2, Dropper::Never, 100);
    let mut buffer = Vec::new();
    for round in 0..3 {
        let now = Moment::from_nanos(round);
        for input in [
            StationInput::Arrive { query: round, deadline: Moment::NEVER },
            StationInput::Tick,
            StationInput::BatchFinished { server: 0 },
        ] {
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
    station.handle(Moment::from_nanos(5), StationInput::Tick);
    assert_eq!(station.poll_output(), None);
    station.handle(Moment::from_nanos(4), StationInput::Tick);
}

#[test]
#[should_panic(expected = "before the outputs of the last one were drained")]
#[cfg(debug_assertions)]
fn an_input_before_the_outputs_are_drained_is_our_bug() {
    let mut station = station(1, 1, Dropper::Never, 1);
    station.handle(Moment::ZERO, StationInput::Arrive { query: 1, deadline: Moment::NEVER });
    station.handle(Moment::ZERO, StationInput::Tick);
}

#[test]
fn reasons_have_the_names_of_result_files() {
    let reasons = [DropReason::QueueFull, DropReason::Deadline, DropReason::Cancelled, DropReason::NoReplica];
    assert_eq!(reasons.map(DropReason::name), ["queue_full", "deadline", "cancelled", "no_replica"]);
}
