//! Order and settings of a queue, and how they change while it is used.

use super::script::*;
use apportion_domain::TimeSpan;
use apportion_serving::batcher::Batcher;
use apportion_serving::station::QueuePolicy;
use apportion_serving::{Dropper, Station, StationView};

#[test]
fn important_queries_overtake_unless_the_policy_orders_the_queue() {
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
    let waits = Batcher::WaitUntil { batch_max: 2, delay: None, reserve: TimeSpan::ZERO };
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
fn reconfiguring_returns_queries_that_no_longer_fit_to_the_queue() {
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
fn another_policy_reorders_waiting_queries() {
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
    assert!(station.monitor().is_none() && station.view() == StationView::default());
    play(
        &mut station,
        "
        20 finished 0 -> tick
        20 tick       -> s0: 3
        30 finished 0 -> tick
        30 tick       -> s0: 4",
    );
}
