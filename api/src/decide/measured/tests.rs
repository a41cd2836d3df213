//! Measured times beside those of the file.

use super::*;
use apportion_wire::TaskSpec;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).expect("a moment")
}

fn hop(to: u64, hop_ms: f64) -> AgentHop {
    AgentHop { to, hop_ms, samples: 8, at: at(to as i64) }
}

fn load(variant: &str, download_ms: f64, start_ms: f64) -> ReplicaLoadTime {
    let name = |text: &str| text.to_owned();
    ReplicaLoadTime {
        pipeline: name("p"),
        task: name("t"),
        variant: name(variant),
        hardware: name("h"),
        download_ms,
        start_ms,
        at: at(7),
    }
}

/// Agents 1 and 2 are live, agent 3 is not.
fn times(loads: Vec<ReplicaLoadTime>) -> FleetTimes {
    let agent = |number, is_live, hops| AgentTimes { number, is_live, hops, loads: Vec::new() };
    let mut agents = vec![
        agent(1, true, vec![hop(2, 0.4123), hop(3, 90.0)]),
        agent(2, true, vec![hop(1, 0.6)]),
        agent(3, false, vec![hop(1, 80.0)]),
    ];
    agents[2].loads = loads;
    FleetTimes::of(agents)
}

/// A pipeline `p` with the task `t` and the variants `a` and `b`.
fn spec(network_ms: Option<f64>, load_ms: [Option<f64>; 2]) -> PipelineSpec {
    let variant = |(name, load_ms): (&str, Option<f64>)| VariantSpec { name: name.into(), load_ms, ..Default::default() };
    let variants = ["a", "b"].into_iter().zip(load_ms).map(variant).collect();
    let task = TaskSpec { name: "t".into(), variants, ..Default::default() };
    PipelineSpec { name: "p".into(), network_ms, tasks: vec![task], ..Default::default() }
}

#[test]
fn a_hop_is_the_median_over_links_of_live_agents() {
    let hop = times(Vec::new()).hop().cloned().expect("it was measured");
    assert_eq!((hop.median_ms, hop.count, hop.measured_at), (0.4123, 2, at(2)));
    assert_eq!(hop.rounded_ms(), 0.41);
    assert_eq!(FleetTimes::of(Vec::new()).hop(), None);
}

#[test]
fn a_load_is_the_median_with_its_parts() {
    let of = times(vec![load("a", 10.0, 100.0), load("a", 900.0, 200.0), load("a", 20.0, 110.0), load("b", 1.0, 1.0)]);
    let median = MeasuredLoad::of(of.loads_of("p", "t", "a")).expect("it was measured");
    assert_eq!((median.median_ms, median.download_ms, median.start_ms, median.count), (130.0, 20.0, 110.0, 3));
    assert_eq!(MeasuredLoad::of(of.loads_of("q", "t", "a")), None);
}

#[test]
fn measured_times_fill_zeros_and_say_so() {
    for none in [None, Some(0.0)] {
        let mut filled = spec(none, [none, Some(150.0)]);
        let notes = fill_times(&mut filled, &times(vec![load("a", 100.0, 33.0)]));
        assert_eq!(filled, spec(Some(0.41), [Some(130.0), Some(150.0)]));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("network_ms is 0 in the file: plans use 0.41 ms"), "{notes:?}");
        assert!(notes[1].contains("load_ms of t/a is 0 in the file: plans use 130 ms"), "{notes:?}");
    }
}

#[test]
fn given_times_stay_and_far_ones_are_warned_of() {
    let given = spec(Some(5.0), [Some(100.0), Some(0.0)]);
    let mut filled = given.clone();
    let notes = fill_times(&mut filled, &times(vec![load("a", 100.0, 33.0)]));
    assert_eq!(filled, given, "b was not measured");
    assert_eq!(notes, ["pipeline p: network_ms is 5 ms in the file, and agents measured 0.41 ms (2 measurements)"]);
}

#[test]
fn a_time_that_nobody_knows_is_a_warning() {
    let compared = compare_times(&spec(None, [Some(1.0), Some(1.0)]), &FleetTimes::default());
    let warnings: Vec<_> = compared.iter().filter_map(|time| time.warning("p")).collect();
    assert_eq!(
        warnings,
        ["pipeline p: network_ms is 0 in the file and no agent has measured it: plans count it as no time"]
    );
}

#[test]
fn times_differ_beyond_a_factor_and_a_least_difference() {
    let measured = |median_ms| Some(MeasuredTime { median_ms, count: 1, measured_at: at(0) });
    // (given, measured, whether they differ)
    let cases = [
        (10.0, 30.0, false),
        (10.0, 31.0, true),
        (31.0, 10.0, true),
        (0.1, 1.0, false),
        (0.1, 1.2, true),
        (5.0, 0.0, true),
    ];
    for (given_ms, found_ms, differs) in cases {
        let time = ComparedTime::new(FileTime::Network, Some(given_ms), measured(found_ms));
        assert_eq!(time.differs(), differs, "{given_ms} and {found_ms}");
        assert_eq!(time.warning("p").is_some(), differs);
    }
}

#[test]
fn a_known_difference_ends_when_the_values_are_clearly_nearer() {
    let found = |median_ms, known: &[&str]| {
        let measured = Some(MeasuredTime { median_ms, count: 1, measured_at: at(0) });
        let compared = [ComparedTime::new(FileTime::Network, Some(10.0), measured)];
        differing_times(&compared, &known.iter().map(ToString::to_string).collect()).len()
    };
    assert_eq!([found(29.0, &[]), found(31.0, &[])], [0, 1]);
    assert_eq!([found(29.0, &["network_ms"]), found(19.0, &["network_ms"])], [1, 0]);
}

#[test]
fn the_oldest_loads_make_room_for_new_ones() {
    let many: Vec<_> = (0..LOAD_TIMES_MAX + 3).map(|i| load("a", i as f64, 0.0)).collect();
    let kept = with_loads(many[..2].to_vec(), &many[2..]);
    assert_eq!((kept.len(), kept[0].download_ms), (LOAD_TIMES_MAX, 3.0));
}
