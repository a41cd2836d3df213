//! Batches that are filled ahead, and servers that wait for a full batch.

use super::script::*;
use apportion_domain::TimeSpan;
use apportion_serving::batcher::Batcher;
use apportion_serving::{Dropper, Station};

#[test]
fn the_next_batch_fills_while_one_runs() {
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
fn centrally_waiting_queries_enter_the_batch_that_starts_soonest() {
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
fn cancelled_queries_and_removed_servers_free_places_in_next_batches() {
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
fn wait_until_starts_before_the_oldest_query_is_late() {
    let until = |delay: Option<u64>, reserve: u64| {
        let (delay, reserve) = (delay.map(TimeSpan::from_nanos), TimeSpan::from_nanos(reserve));
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
