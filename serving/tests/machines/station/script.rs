//! Scripts of a station: one line per event, with the outputs that it should cause.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::batcher::Batcher;
use apportion_serving::dropper::ADMIT_ALL;
use apportion_serving::station::{StationInput, StationOutput, StationWakeup};
use apportion_serving::{Dropper, Priority, Station, StationView};

/// Runs a script of lines `at event -> outputs`. Outputs are separated by commas. A last output `tick` says that the
/// station wants a tick now, and `wake 9` that it wants one at 9. Queries are numbers; `s0: 1+2` is a batch of server 0.
/// The event `steer` takes the forward time, the budget, the priority and the admitted part.
pub fn check(mut station: Station<u64>, script: &str) {
    play(&mut station, script);
}

/// As [`check`], for a station that is used afterwards.
pub fn play(station: &mut Station<u64>, script: &str) {
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (event, expected) = line.split_once("->").expect("an arrow in each line");
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let input = match words[1] {
            "arrive" => {
                let deadline = words.get(4).map_or(Moment::NEVER, |by| Moment::from_nanos(by.parse().expect("a number")));
                StationInput::Arrive { query: number(2), deadline }
            }
            // `overtake 5 by 30 passes 2`
            "overtake" => {
                let deadline = Moment::from_nanos(number(4));
                StationInput::Overtake { query: number(2), deadline, passes: number(6) as u32 }
            }
            "finished" => StationInput::BatchFinished { server: number(2) as u32 },
            "cancel" => StationInput::Cancel { query: number(2) },
            "add" => StationInput::AddServer { server: number(2) as u32 },
            "remove" => StationInput::RemoveServer { server: number(2) as u32 },
            "tick" => StationInput::Tick,
            "steer" => StationInput::Steer {
                view: StationView {
                    forward: TimeSpan::from_nanos(number(2)),
                    budget: TimeSpan::from_nanos(number(3)),
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
                StationOutput::StartBatch { server, size } => {
                    let members = station.batch(server);
                    assert_eq!(members.len(), size as usize, "{line}");
                    let members: Vec<_> = members.iter().map(|m| m.query.to_string()).collect();
                    format!("s{server}: {}", members.join("+"))
                }
                StationOutput::Drop { query, reason } => format!("drop {query} {}", reason.name()),
                StationOutput::ServerGone { server } => format!("gone s{server}"),
            });
        }
        match station.poll_timeout() {
            Some((at, StationWakeup::Start)) if at == Moment::from_nanos(number(0)) => seen.push("tick".into()),
            Some((at, StationWakeup::Start)) => seen.push(format!("wake {}", at.as_nanos())),
            None => {}
        }
        assert_eq!(seen.join(", "), expected.trim(), "{line}");
    }
}

pub fn station(servers: u32, batch_max: u32, dropper: Dropper, queue_len_max: usize) -> Station<u64> {
    Station::new(servers, Batcher::AtStart { batch_max }, dropper, queue_len_max)
}

/// Batches of `i + 1` queries take `base + (i + 1) * each`.
pub fn service(batch_max: u64, base: u64, each: u64) -> Vec<TimeSpan> {
    (1..=batch_max).map(|size| TimeSpan::from_nanos(base + size * each)).collect()
}

pub fn forming(servers: u32, batch_max: u32, dropper: Dropper) -> Station<u64> {
    let station = Station::new(servers, Batcher::Forming { batch_max }, dropper, 100);
    station.with_service(service(u64::from(batch_max), 0, 10))
}
