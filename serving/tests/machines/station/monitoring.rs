//! Measurements, and arrivals in bulk.

use super::script::*;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::batcher::Batcher;
use apportion_serving::station::{StationInput, StationOutput};
use apportion_serving::{Dropper, Station};
use proptest::prelude::*;

#[test]
fn a_monitor_tells_queueing_from_batch_wait() {
    let mut station = forming(1, 2, Dropper::Never).monitored();
    // The first query starts at once; the second enters at 4 and starts at 10; the fourth waits from 6 to 10 and enters
    // there.
    for (at, input) in [
        (0, StationInput::Arrive { query: 1, deadline: Moment::NEVER }),
        (0, StationInput::Tick),
        (4, StationInput::Arrive { query: 2, deadline: Moment::NEVER }),
        (4, StationInput::Tick),
        (5, StationInput::Arrive { query: 3, deadline: Moment::NEVER }),
        (5, StationInput::Tick),
        (6, StationInput::Arrive { query: 4, deadline: Moment::NEVER }),
        (10, StationInput::BatchFinished { server: 0 }),
        (10, StationInput::Tick),
    ] {
        station.handle(Moment::from_nanos(at), input);
        while station.poll_output().is_some() {}
    }
    let monitor = station.monitor().expect("it measures");
    assert_eq!((monitor.arrived, monitor.entered, monitor.queueing_ns), (4, 4, 4));
    assert_eq!(monitor.waits(), [0, 6, 5].map(TimeSpan::from_nanos));
    assert_eq!((monitor.queueing_max, monitor.wait_max), (TimeSpan::from_nanos(4), TimeSpan::from_nanos(6)));
    monitor.clear();
    assert_eq!((monitor.arrived, monitor.waits().len()), (0, 0));
}

proptest! {
    /// Whatever the policy, and also where there is no room for all of them.
    #[test]
    fn bulk_arrivals_equal_single_arrivals(
        sizes in prop::collection::vec(0_u64..9, 1..12),
        dropper in prop::sample::select(vec![Dropper::Never, Dropper::OnTime, Dropper::Window, Dropper::Admission]),
        kind in 0..4,
    ) {
        let batcher = if kind == 1 { Batcher::Forming { batch_max: 3 } } else { Batcher::AtStart { batch_max: 3 } };
        let new = || Station::new(2, batcher, dropper, 12).with_service(vec![TimeSpan::from_nanos(5); 3]);
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
                one.handle(now, StationInput::Arrive { query, deadline });
                expected.extend(std::iter::from_fn(|| one.poll_output()));
            }
            many.handle_arrivals(now, queries.into_iter());
            seen.extend(std::iter::from_fn(|| many.poll_output()));
            let due: Vec<u32> = ends.extract_if(.., |(end, _)| *end <= now.as_nanos()).map(|(_, server)| server).collect();
            let finished = due.into_iter().map(|server| StationInput::BatchFinished { server });
            for input in finished.chain([StationInput::Tick]) {
                one.handle(now, input);
                many.handle(now, input);
                expected.extend(std::iter::from_fn(|| one.poll_output()));
                let outputs: Vec<_> = std::iter::from_fn(|| many.poll_output()).collect();
                let started = outputs.iter().filter_map(|output| match output {
                    StationOutput::StartBatch { server, .. } => Some(*server),
                    _ => None,
                });
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
