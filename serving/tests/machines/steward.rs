//! Scripts of the steward: its inputs, and the decision that is then in force.

use apportion_domain::{Dropping, Moment, TimeSpan};
use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::{Headroom, LadderStep};
use apportion_serving::leap_reserve::LeapLoss;
use apportion_serving::monitor::Monitor;
use apportion_serving::outline::{Outline, PlannedGroup};
use apportion_serving::steward::{PERIOD, Scaler, StewardConfig, StewardInput};
use apportion_serving::tables::{RoutedGroup, RouterTable, TaskGraph, route};
use apportion_serving::tuner::TrafficEnvelope;
use apportion_serving::{Ladder, Steering, Steward};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn group(task: usize, accuracy: f64, replica_qps: f64, fanout: &[f64], replicas: u32) -> PlannedGroup {
    let execution = TimeSpan::from_millis(1e3 / replica_qps);
    PlannedGroup { task, accuracy, replica_qps, execution, fanout: fanout.to_vec(), replicas, traffic_share: 0.0 }
}

/// `a -> b`: an accurate and a fast group for `a`, two queries of `b` for each.
fn config(demand_qps: f64) -> StewardConfig {
    let outline = Outline {
        graph: TaskGraph { order: vec![0, 1], children: vec![vec![1], vec![]] },
        after: vec![vec![1], vec![]],
        groups: vec![
            group(0, 0.7, 100.0, &[2.0], 1),
            group(0, 0.9, 50.0, &[2.0], 2),
            group(1, 0.8, 100.0, &[], 3),
            group(1, 0.6, 200.0, &[], 1),
        ],
        slo: TimeSpan::from_millis(200.0),
        hops: vec![TimeSpan::ZERO; 2],
        queue_factor: 2.0,
        dropping: Dropping::Reroute,
        demand_qps,
    };
    StewardConfig { outline, routes: true, scaler: None }
}

/// Offers `count` requests in one period, and ends it.
fn period(steward: &mut Steward, number: u64, count: u32) -> Option<Steering> {
    let bin = Moment::from_nanos((number - 1) * SECOND + SECOND / 2);
    steward.handle(bin, StewardInput::Offered { bin, count });
    let end = Moment::from_nanos(number * SECOND);
    assert!(steward.poll_timeout() <= end);
    steward.handle(end, StewardInput::Tick);
    steward.poll_output()
}

fn shares(steering: &Steering, from: Option<u32>, to_task: u32) -> Vec<(u32, f64)> {
    let is_asked = |t: &&RouterTable| t.from == from && t.to_task == to_task;
    steering.tables.iter().find(is_asked).map(|t| t.entries.clone()).unwrap_or_default()
}

#[test]
fn a_ladder_knows_what_leaps_miss_by_the_dropping_policy() {
    let loss = |dropping: Dropping| {
        let mut of = config(100.0);
        of.outline.dropping = dropping;
        let steps = vec![LadderStep { rate_qps: 100.0, replicas: vec![1; 4] }];
        let feedback = Headroom::Feedback(Box::new(HeadroomController::new(PROMISE)));
        of.scaler = Some(Scaler::Ladder(Ladder::new(steps, vec![1; 4], feedback)));
        let steward = Steward::new(of, Moment::ZERO, 0).expect("few paths");
        steward.feedback().map(|controller| controller.leap().loss())
    };
    assert_eq!([loss(Dropping::Pard), loss(Dropping::PerTask)], [Some(LeapLoss::Excess), Some(LeapLoss::Queue)]);
}

#[test]
fn tables_follow_the_load_up_at_once_and_down_slowly() {
    let mut steward = Steward::new(config(200.0), Moment::ZERO, 0).expect("few paths");
    let first = steward.poll_output().expect("the first tables");
    assert_eq!(first.epoch, 1);
    // At the plan's demand every group of a task is used alike, as the plan was proven.
    assert_eq!(shares(&first, None, 0), [(1, 0.5), (0, 0.5)]);
    let mut seen = Vec::new();
    for number in 1..=12 {
        let steering = period(&mut steward, number, 50);
        seen.extend(steering.map(|s| (number, shares(&s, None, 0).len())));
    }
    assert_eq!(seen.last().map(|&(_, groups)| groups), Some(1), "half the load fits on the accurate group: {seen:?}");
    assert!(matches!(seen[0], (0..=2, 2)), "it does not fall at once: {seen:?}");
    period(&mut steward, 13, 200);
    let up = period(&mut steward, 14, 200).expect("others");
    assert_eq!(shares(&up, None, 0).len(), 2);
    assert!(up.epoch > first.epoch + 2);
}

#[test]
fn late_ticks_do_not_inflate_the_load() {
    let mut steward = Steward::new(config(10.0), Moment::ZERO, 0).expect("few paths");
    // 100 requests a second for 20 s, and each period is ended 80 ms late.
    for bin in (0..20 * SECOND).step_by(10_000_000).map(Moment::from_nanos) {
        steward.handle(bin, StewardInput::Offered { bin, count: 1 });
        if steward.poll_timeout() + TimeSpan::from_nanos(80_000_000) <= bin {
            steward.handle(bin, StewardInput::Tick);
        }
    }
    assert!((steward.demand_qps() - 100.0).abs() < 1.5, "{}", steward.demand_qps());
}

#[test]
fn a_steward_repeats_no_decision() {
    let mut steward = Steward::new(config(100.0), Moment::ZERO, 7).expect("few paths");
    assert_eq!(steward.poll_output().map(|s| s.epoch), Some(8));
    assert_eq!(steward.poll_output(), None);
    assert!((1..6).all(|number| period(&mut steward, number, 100).is_none()));
    steward.handle(Moment::from_nanos(6 * SECOND), StewardInput::Ready { group: 2, replicas: 3 });
    assert_eq!(steward.poll_output(), None);
}

#[test]
fn a_lost_replica_moves_its_share_at_once() {
    let mut steward = Steward::new(config(200.0), Moment::ZERO, 0).expect("few paths");
    let _first = steward.poll_output();
    steward.handle(Moment::ZERO, StewardInput::Ready { group: 1, replicas: 0 });
    let lost = steward.poll_output().expect("other tables");
    assert_eq!(shares(&lost, None, 0), [(0, 1.0)]);
    assert!(lost.tables.iter().all(|t| t.from != Some(1)), "who is not there sends nothing");
    steward.handle(Moment::ZERO, StewardInput::Ready { group: 0, replicas: 0 });
    let none = steward.poll_output().expect("other tables");
    assert_eq!(shares(&none, None, 0).len(), 2, "as planned, for the replicas that come");
}

#[test]
fn seen_fan_out_replaces_the_profile_and_fades() {
    let mut steward = Steward::new(config(100.0), Moment::ZERO, 0).expect("few paths");
    let first = steward.poll_output().expect("the first tables");
    let to_fast = |s: &Steering| shares(s, Some(1), 1).iter().find(|e| e.0 == 3).map_or(0.0, |e| e.1);
    let planned = to_fast(&first);
    let mut last = first;
    for number in 1..=5 {
        // Twice as many children as profiled.
        steward.handle(
            Moment::ZERO.max(Moment::from_nanos((number - 1) * SECOND)),
            StewardInput::Made { group: 1, queries: 500, children: &[2_000] },
        );
        last = period(&mut steward, number, 100).unwrap_or(last);
    }
    assert!(to_fast(&last) > planned, "{} > {planned}", to_fast(&last));
    for number in 6..=60 {
        last = period(&mut steward, number, 100).unwrap_or(last);
    }
    assert!((to_fast(&last) - planned).abs() < 0.05, "{} ~ {planned}", to_fast(&last));
}

#[test]
fn backups_have_spare_capacity_most_accurate_first() {
    let mut steward = Steward::new(config(200.0), Moment::ZERO, 0).expect("few paths");
    let _first = steward.poll_output();
    let mut last = Steering::default();
    for number in 1..=20 {
        last = period(&mut steward, number, 100).unwrap_or(last);
    }
    // Both groups of a task are used to what they are in the plan at most, so each has some to spare.
    let groups: Vec<u32> = last.backup.iter().map(|&(group, _)| group).collect();
    assert!(groups.iter().position(|&g| g == 0) < groups.iter().position(|&g| g == 2), "{groups:?}");
    let spare = |group: u32| last.backup.iter().find(|&&(g, _)| g == group).map_or(0.0, |&(_, qps)| qps);
    assert!(spare(0) > 90.0, "all of the fast group: {:?}", last.backup);
}

#[test]
fn views_are_sent_where_the_policy_uses_them() {
    let mut of = StewardConfig { routes: false, ..config(100.0) };
    of.outline.dropping = Dropping::Pard;
    let mut steward = Steward::new(of, Moment::ZERO, 0).expect("few paths");
    let first = steward.poll_output().expect("the first views");
    assert_eq!((first.views.len(), first.tables.len()), (2, 0));
    // The later task's queueing is added to what the first expects.
    let mut monitor = Monitor::default();
    (0..10).for_each(|_| monitor.enter(TimeSpan::from_millis(30.0)));
    monitor.arrived = 10;
    steward.handle(Moment::ZERO, StewardInput::Measured { task: 1, monitor: &mut monitor });
    assert_eq!(monitor.arrived, 0, "it is taken over");
    let later = period(&mut steward, 1, 100).expect("other views");
    assert_eq!(later.views[0].forward, first.views[0].forward + TimeSpan::from_millis(30.0));
    // Without a replica's throughput the load is more than what is served.
    steward.handle(Moment::from_nanos(SECOND), StewardInput::Ready { group: 2, replicas: 1 });
    let staffed = period(&mut steward, 2, 100).expect("other views");
    assert!(staffed.views[0].forward != later.views[0].forward, "the mix of batch times is another");
}

#[test]
fn the_tuner_scales_groups_in_proportion() {
    let sample = TrafficEnvelope::of_rate(TimeSpan::from_millis(20.0), 100.0);
    let of = config(100.0);
    assert_eq!((of.outline.scales(), of.outline.replicas_by_task()), (vec![1.0, 2.0], vec![3, 4]));
    let of = StewardConfig { scaler: Some(Scaler::Tuner(of.outline.tuner(&sample, 100.0, vec![3, 4]))), ..of };
    let mut steward = Steward::new(of, Moment::ZERO, 0).expect("few paths");
    assert_eq!(steward.poll_output().map(|s| s.replicas), Some(vec![]));
    for bin in 0..10 {
        let at = Moment::from_nanos(bin * SECOND / 100);
        steward.handle(at, StewardInput::Offered { bin: at, count: 10 });
    }
    assert_eq!(steward.poll_timeout(), Moment::from_nanos(SECOND / 10));
    steward.handle(Moment::from_nanos(SECOND / 10), StewardInput::Tick);
    let up = steward.poll_output().expect("more replicas");
    let [a, b, c, d] = up.replicas[..] else { panic!("a count for each group: {:?}", up.replicas) };
    assert!(a > 1 && b == 2 * a || b + 1 == 2 * a, "{:?}", up.replicas);
    assert!(c >= 3 * d - 2 && d > 1, "{:?}", up.replicas);
}

#[test]
fn the_ladder_climbs_at_once_and_keeps_inherited_replicas() {
    let step = |rate_qps, replicas: [u32; 4]| LadderStep { rate_qps, replicas: replicas.to_vec() };
    let steps = vec![step(100.0, [1, 2, 3, 1]), step(400.0, [1, 4, 6, 1])];
    let ladder =
        |replicas: [u32; 4]| Some(Scaler::Ladder(Ladder::new(steps.clone(), replicas.to_vec(), Headroom::Constant(1.0))));
    let mut steward =
        Steward::new(StewardConfig { scaler: ladder([1, 2, 3, 1]), ..config(100.0) }, Moment::ZERO, 0).expect("few paths");
    assert_eq!(steward.poll_output().map(|s| s.replicas), Some(vec![]));
    // 100 in half a second: less 25 by chance, 150/s.
    let bin = Moment::from_nanos(SECOND / 20);
    steward.handle(bin, StewardInput::Offered { bin, count: 100 });
    steward.handle(Moment::from_nanos(SECOND / 10), StewardInput::Tick);
    assert_eq!(steward.poll_output().map(|s| s.replicas), Some(vec![1, 4, 6, 1]));
    // Another host takes over what the first had added, and has seen no arrival.
    let mut next =
        Steward::new(StewardConfig { scaler: ladder([1, 4, 6, 1]), ..config(100.0) }, Moment::ZERO, 9).expect("few paths");
    let mut replicas_at = |second: u64| {
        next.handle(Moment::from_nanos(second * SECOND), StewardInput::Tick);
        next.poll_output().map(|s| s.replicas).unwrap_or_default()
    };
    assert_eq!((replicas_at(1), replicas_at(30)), (vec![], vec![]), "kept");
    assert_eq!(replicas_at(31), [1, 2, 3, 1]);
}

#[test]
fn a_steward_inherits_load_and_fan_out() {
    let mut former = Steward::new(config(200.0), Moment::ZERO, 0).expect("few paths");
    for number in 1..=5 {
        let bin = Moment::from_nanos((number - 1) * SECOND);
        former.handle(bin, StewardInput::Made { group: 1, queries: 500, children: &[2_000] });
        period(&mut former, number, 40);
    }
    let made = |steward: &mut Steward| {
        let told = steward.poll_output().expect("tables");
        shares(&told, Some(1), 1).iter().find(|e| e.0 == 3).map_or(0.0, |e| e.1)
    };
    let now = Moment::from_nanos(5 * SECOND);
    let fresh = || Steward::new(config(200.0), now, 0).expect("few paths");
    let (mut blank, mut next, mut other) = (fresh(), fresh(), fresh());
    next.inherit(&former, &[Some(0), Some(1), Some(2), Some(3)]);
    other.inherit(&former, &[None; 4]);
    assert_eq!(blank.demand_qps(), 200.0, "the plan's, before anything was seen");
    assert_eq!((next.demand_qps(), other.demand_qps()), (former.demand_qps(), former.demand_qps()));
    assert!(former.demand_qps() < 90.0, "{}", former.demand_qps());
    // Twice as many children as profiled were seen, by the group that both plans have.
    let shares = [&mut blank, &mut next, &mut other].map(made);
    assert!(shares[1] > shares[2], "{shares:?}");
    assert_eq!(next.poll_timeout(), former.poll_timeout(), "the period goes on");
}

#[test]
fn load_after_a_pause_is_spread_over_the_pause() {
    let mut steward = Steward::new(config(100.0), Moment::ZERO, 0).expect("few paths");
    steward.handle(Moment::ZERO, StewardInput::Offered { bin: Moment::ZERO, count: 1_000 });
    steward.handle(Moment::from_nanos(10 * SECOND), StewardInput::Tick);
    assert!((steward.demand_qps() - 100.0).abs() < 1.0, "{}", steward.demand_qps());
}

#[test]
fn the_envelope_of_a_rate_covers_a_steady_load() {
    let span = TimeSpan::from_millis(50.0);
    let even = TrafficEnvelope::of(span, (0..6_000).map(|i| Moment::from_nanos(i * SECOND / 100)));
    let of_rate = TrafficEnvelope::of_rate(span, 100.0);
    assert!(even.counts().iter().zip(of_rate.counts()).all(|(seen, most)| seen <= most));
}

/// All of a pipeline's numbers by hand: two groups of `a` that make two queries of `b` each, batches of 20, 10, 10 and 5
/// ms.
#[test]
fn an_outline_adds_up() {
    let outline = config(100.0).outline;
    assert_eq!(outline.service(), TimeSpan::from_millis(30.0));
    assert_eq!(outline.reserves(), [TimeSpan::from_millis(20.0), TimeSpan::ZERO], "two of the slowest batches of `b`");
    assert_eq!(outline.by_group(&[6, 4]), [2, 4, 3, 1]);
    // The plan's shares come before the capacities.
    let mut shared = outline.clone();
    shared.groups[0].fanout = vec![4.0];
    assert_eq!(shared.scales(), [1.0, 3.0]);
    (shared.groups[0].traffic_share, shared.groups[1].traffic_share) = (0.25, 0.75);
    assert_eq!(shared.scales(), [1.0, 2.5]);
    assert_eq!(outline.state_planner().map(|s| s.is_none()), Ok(true), "rerouting looks at no states");
}

fn server() -> impl Strategy<Value = RoutedGroup> {
    (0..3_usize, 0.1..1.0_f64, 0.0..500.0_f64, prop::collection::vec(0.0..3.0_f64, 2))
        .prop_map(|(task, accuracy, capacity_qps, fanout)| RoutedGroup { task, accuracy, capacity_qps, fanout })
}

proptest! {
    /// Shares of a table sum to 1, no group is given more than it has unless its task is overloaded, and what comes in is
    /// what is sent.
    #[test]
    fn algorithm_1_conserves_traffic(mut servers in prop::collection::vec(server(), 1..12), demand_qps in 0.0..800.0_f64) {
        let graph = TaskGraph { order: vec![0, 1, 2], children: vec![vec![1, 2], vec![], vec![]] };
        servers.iter_mut().filter(|s| s.task > 0).for_each(|s| s.fanout.clear());
        let routed = route(&graph, &servers, demand_qps);
        for table in &routed.tables {
            let sum: f64 = table.entries.iter().map(|&(_, share)| share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            let to: Vec<&RoutedGroup> = table.entries.iter().map(|&(group, _)| &servers[group as usize]).collect();
            prop_assert!(to.iter().all(|s| s.task == table.to_task as usize));
            prop_assert!(to.windows(2).all(|w| w[0].accuracy >= w[1].accuracy));
        }
        let capacity = |task: usize| servers.iter().filter(|s| s.task == task).map(|s| s.capacity_qps).sum::<f64>();
        let sent = |task: usize| {
            let into = servers.iter().zip(&routed.incoming_qps).filter(|(s, _)| s.task == task);
            into.map(|(_, incoming)| incoming).sum::<f64>()
        };
        if capacity(0) > 0.0 {
            prop_assert!((sent(0) - demand_qps).abs() <= 1e-6 * (1.0 + demand_qps));
        }
        for task in 0..3 {
            if sent(task) <= capacity(task) {
                for (g, s) in servers.iter().enumerate().filter(|(_, s)| s.task == task) {
                    prop_assert!(routed.incoming_qps[g] <= s.capacity_qps + 1e-6);
                    prop_assert!((routed.left_qps[g] + routed.incoming_qps[g] - s.capacity_qps).abs() < 1e-6);
                }
            }
        }
    }
}

#[test]
fn the_stewards_period_equals_the_module_states_period() {
    assert_eq!(PERIOD, apportion_serving::modules::PERIOD);
    let steward = Steward::new(config(1.0), Moment::ZERO, 0).expect("few paths");
    assert_eq!(steward.poll_timeout(), Moment::ZERO + PERIOD, "without a tuner it wakes once a period");
}
