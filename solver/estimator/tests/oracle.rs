//! A second simulator, slow and obvious, that agrees with the first on the end of every request of small random cases.
//!
//! It holds all future events in one list, searches the list for the earliest, and knows no serving machine: queues are
//! vectors, and turns are counted by hand. Fan-outs are whole, so that nothing is drawn.

mod common;

use apportion_domain::Queueing;
use common::{Fan, Stage, arrivals, build, finishes, run};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum What {
    BatchEnds { replica: usize },
    Joins { task: usize, from: Option<usize>, request: usize },
}

/// A replica, or where a central queue keeps its queries.
#[derive(Clone, Debug, Default)]
struct Replica {
    task: usize,
    queue: Vec<usize>,
    batch: Option<Vec<usize>>,
}

struct Oracle<'a> {
    stages: &'a [Stage],
    central: bool,
    network: u64,
    /// `(time, order at that time, order of making, what)`.
    events: Vec<(u64, u32, u64, What)>,
    made: u64,
    replicas: Vec<Replica>,
    /// Next turn of each sender (a replica, or the frontend at the end) for each task.
    turns: Vec<Vec<usize>>,
    open: Vec<usize>,
    ends: Vec<u64>,
}

const BATCH_ENDS: u32 = 0;
const CHILD_JOINS: u32 = 1;
const REQUEST_JOINS: u32 = 2;

impl Oracle<'_> {
    fn replicas_of(&self, task: usize) -> Vec<usize> {
        (0..self.replicas.len()).filter(|&r| self.replicas[r].task == task).collect()
    }

    fn later(&mut self, at: u64, order: u32, what: What) {
        self.made += 1;
        self.events.push((at, order, self.made, what));
    }

    fn play(mut self) -> Vec<u64> {
        while let Some(now) = self.events.iter().map(|e| e.0).min() {
            while let Some(i) = self.earliest(now) {
                let what = self.events.remove(i).3;
                match what {
                    What::BatchEnds { replica } => self.end(now, replica),
                    What::Joins { task, from, request } => self.join(task, from, request),
                }
            }
            self.start(now);
        }
        self.ends
    }

    fn earliest(&self, now: u64) -> Option<usize> {
        let due = (0..self.events.len()).filter(|&i| self.events[i].0 == now);
        due.min_by_key(|&i| (self.events[i].1, self.events[i].2))
    }

    /// The sender's turn is taken when the query joins: between two joins of one sender nothing else takes its turns, and
    /// all hops last the same.
    fn join(&mut self, task: usize, from: Option<usize>, request: usize) {
        let targets = self.replicas_of(task);
        let sender = from.unwrap_or(self.replicas.len());
        let turn = self.turns[sender][task];
        self.turns[sender][task] += 1;
        let target = if self.central { targets[0] } else { targets[turn % targets.len()] };
        self.replicas[target].queue.push(request);
    }

    fn end(&mut self, now: u64, replica: usize) {
        let task = self.replicas[replica].task;
        for request in self.replicas[replica].batch.take().expect("a batch ends once") {
            self.open[request] -= 1;
            for (child, stage) in self.stages.iter().enumerate().skip(1).filter(|(_, s)| s.parent == task) {
                let Fan::Mean(count) = stage.fanout else { panic!("whole means only") };
                for _ in 0..count as usize {
                    self.open[request] += 1;
                    if self.network == 0 {
                        self.join(child, Some(replica), request);
                    } else {
                        self.later(
                            now + self.network,
                            CHILD_JOINS,
                            What::Joins { task: child, from: Some(replica), request },
                        );
                    }
                }
            }
            if self.open[request] == 0 {
                self.ends[request] = now;
            }
        }
    }

    fn start(&mut self, now: u64) {
        for replica in 0..self.replicas.len() {
            let task = self.replicas[replica].task;
            let holder = if self.central { self.replicas_of(task)[0] } else { replica };
            if self.replicas[replica].batch.is_some() || self.replicas[holder].queue.is_empty() {
                continue;
            }
            let stage = &self.stages[task];
            let queue = &mut self.replicas[holder].queue;
            let size = queue.len().min(stage.batch as usize);
            let batch: Vec<_> = queue.drain(..size).collect();
            let millis = stage.base_ms + stage.each_ms * size as f64;
            self.replicas[replica].batch = Some(batch);
            self.later(now + (millis * 1e6).round() as u64, BATCH_ENDS, What::BatchEnds { replica });
        }
    }
}

fn oracle(stages: &[Stage], central: bool, network: u64, at: &[u64]) -> Vec<u64> {
    let replica = |task| Replica { task, ..Replica::default() };
    let replicas: Vec<_> = (0..stages.len()).flat_map(|t| (0..stages[t].replicas).map(move |_| replica(t))).collect();
    // Senders begin at different turns: the replicas of one task by their index (with a central queue, their queue does).
    let mut turns = Vec::new();
    for stage in stages {
        turns.extend((0..stage.replicas as usize).map(|r| vec![r; stages.len()]));
    }
    turns.push(vec![0; stages.len()]);
    let (open, ends) = (vec![1; at.len()], vec![0; at.len()]);
    let mut o = Oracle { stages, central, network, events: vec![], made: 0, replicas, turns, open, ends };
    for (request, &moment) in at.iter().enumerate() {
        o.later(moment + network, REQUEST_JOINS, What::Joins { task: 0, from: None, request });
    }
    o.play()
}

prop_compose! {
    fn stages()(
        count in 1_usize..4,
        parents in prop::collection::vec(0_usize..3, 4),
        fanouts in prop::collection::vec(0_u8..4, 4),
        replicas in prop::collection::vec(1_u32..4, 4),
        batches in prop::collection::vec(1_u32..5, 4),
        base in prop::collection::vec(0_u8..4, 4),
        each in prop::collection::vec(1_u8..4, 4),
    ) -> Vec<Stage> {
        let stage = |t: usize| Stage {
            parent: if t == 0 { 0 } else { parents[t] % t },
            fanout: Fan::Mean(f64::from(fanouts[t])),
            replicas: replicas[t],
            batch: batches[t],
            base_ms: f64::from(base[t]),
            each_ms: f64::from(each[t]),
            accuracy: 0.9,
        };
        (0..count).map(stage).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Whole milliseconds everywhere, so that many events fall into one instant and their order matters.
    #[test]
    fn both_simulators_end_every_request_at_the_same_nanosecond(
        stages in stages(),
        central: bool,
        network_ms in 0_u8..3,
        gaps_ms in prop::collection::vec(0_u64..6, 1..40),
    ) {
        let mut at = 0;
        let at: Vec<u64> = gaps_ms.iter().map(|gap| { at += gap * 1_000_000; at }).collect();
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let built = build(&stages, queueing, f64::from(network_ms), 1e6);
        let expected = oracle(&stages, central, u64::from(network_ms) * 1_000_000, &at);
        prop_assert_eq!(finishes(&run(&built, &arrivals(&at))), expected);
    }
}
