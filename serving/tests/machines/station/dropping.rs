//! Which queries are dropped, and when.

use super::script::*;
use apportion_serving::batcher::Batcher;
use apportion_serving::{Dropper, Station};

#[test]
fn drop_decisions_fall_when_a_query_enters_the_next_batch() {
    // The batch that runs ends at 10. What enters the next one counts with 20 for a full batch, so it ends by 30 at the
    // latest.
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
fn the_window_slides_until_all_its_queries_are_on_time() {
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
fn queries_that_overrun_their_budget_are_dropped() {
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
fn the_priority_chooses_the_end_of_a_sorted_queue() {
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
