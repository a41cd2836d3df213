//! How much time does a hop add?
//!
//! The same request goes to a replica at the gateway's own agent and to one at the other agent, at the same rates, in
//! turns.

use super::figure::micros;
use super::pacing::{early, sleep_sharply};
use super::pair::{FAR, HOP_BYTES, NEAR, Pair, latency_ns, row};
use super::{BenchError, Figure, echo, ingress};
use apportion_node::node::request::RequestAnswer;
use apportion_node::tensor::Tensor;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Requests that wait for answers while the largest rate of the loops is sought.
pub(super) const OUTSTANDING: usize = 64;
/// The same where it is sought whether a long queue makes the loops slower: a queue that does so never ends.
const BACKLOGS: [usize; 3] = [OUTSTANDING, 1_000, 10_000];
/// What the design aims at for the time that a hop adds.
pub(super) struct HopAims {
    pub(super) median: &'static str,
    pub(super) p99: &'static str,
}

/// The aims at any rate but half of the ingress's.
pub(super) const AIMS: HopAims = HopAims { median: "-", p99: "twice plain" };
/// How often near and far take turns, so that what else the machine does falls on both.
pub(super) const TURNS: u32 = 5;

/// The time that the way there and back adds. The rates are half of the ingress's rate to the other agent, and half of the
/// loops' rate without the ingress.
pub(super) fn measure(pair: &Pair, each: Duration) -> Result<Vec<Figure>, BenchError> {
    let inputs = row(&Bytes::from(vec![0; HOP_BYTES]));
    let by_ingress = ingress::binary_rate(pair, FAR, HOP_BYTES, each)? / 2.0;
    let by_loops = most(pair, FAR, &inputs, OUTSTANDING, each)? / 2.0;
    let mut carried = Vec::new();
    for outstanding in BACKLOGS {
        let agents = most(pair, FAR, &inputs, outstanding, each)?;
        let plain = Some(most(pair, NEAR, &inputs, outstanding, each)?);
        let what =
            format!("4 KiB to another agent, {outstanding} outstanding (plain: to a replica at the gateway's own agent)");
        carried.push(Figure { what, unit: "requests/s", agents, plain, aim: "-" });
    }
    let mut figures =
        added(pair, "half of what the ingress carries there", by_ingress, HopAims { median: "50", ..AIMS }, each)?;
    figures.extend(added(pair, "half of what the loops carry there", by_loops, AIMS, each)?);
    figures.extend(carried);
    Ok(figures)
}

/// Median and p99 with the hop and without it, and their differences.
pub(super) fn added(pair: &Pair, load: &str, rate: f64, aims: HopAims, each: Duration) -> Result<Vec<Figure>, BenchError> {
    let inputs = row(&Bytes::from(vec![0; HOP_BYTES]));
    let (mut bare, mut near, mut far) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.extend(echo::at_rate(rate, each / TURNS)?);
        near.extend(at_rate(pair, NEAR, &inputs, rate, each / TURNS)?);
        far.extend(at_rate(pair, FAR, &inputs, rate, each / TURNS)?);
    }
    [&mut bare, &mut near, &mut far].into_iter().for_each(|all| all.sort_unstable());
    let figures = [("median", 0.5, aims.median), ("p99", 0.99, aims.p99)].into_iter().flat_map(|(name, part, aim)| {
        let (bare, near, far) = (micros(&bare, part), micros(&near, part), micros(&far, part));
        let what = format!("request to another agent, 4 KiB tensors at {rate:.0} requests/s ({load}), {name}");
        let what = format!("{what} (plain: to a replica at the gateway's own agent)");
        let whole = Figure { what, unit: "us", agents: far, plain: Some(near), aim: "-" };
        let what = format!("added by the way there and back, {name} (plain: the same over a bare TCP connection)");
        [whole, Figure { what, unit: "us", agents: far - near, plain: Some(bare), aim }]
    });
    Ok(figures.collect())
}

/// Requests per second with many outstanding.
pub(super) fn most(
    pair: &Pair,
    pipeline: &str,
    inputs: &[Tensor],
    outstanding: usize,
    each: Duration,
) -> Result<f64, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let begun = Instant::now();
        let mut waiting: FuturesUnordered<_> = (0..outstanding).map(|_| pair.ask(pipeline, inputs.to_vec())).collect();
        let mut answered = 0u64;
        while let Some(answer) = waiting.next().await {
            answer?;
            answered += 1;
            if begun.elapsed() < each {
                waiting.push(pair.ask(pipeline, inputs.to_vec()));
            }
        }
        Ok(answered as f64 / begun.elapsed().as_secs_f64())
    })
}

/// Latencies in nanoseconds of requests that come at a rate, independent of earlier requests. Before each request it takes
/// the answers that have come, and it waits for none. So no thread is woken for an answer, and its tensors are not kept.
pub(super) fn at_rate(
    pair: &Pair,
    pipeline: &str,
    inputs: &[Tensor],
    rate: f64,
    each: Duration,
) -> Result<Vec<u64>, BenchError> {
    sleep_sharply()?;
    let count = ((rate * each.as_secs_f64()) as u64).max(1);
    let (begun, mut waiting, mut latencies) = (Instant::now(), VecDeque::new(), Vec::new());
    for i in 0..count {
        // Also when this thread is behind: else the answers' memory would grow, and slow the agents down.
        take_answers(&mut waiting, &mut latencies)?;
        if let Some(early) = early(i, rate, begun) {
            std::thread::sleep(early);
        }
        waiting.push_back(pair.put(pipeline, inputs.to_vec())?);
    }
    latencies.extend(waiting.into_iter().map(|a| latency_ns(a.blocking_recv())).collect::<Result<Vec<_>, _>>()?);
    Ok(latencies)
}

/// Takes the answers that are there, in the order of the requests.
fn take_answers(
    waiting: &mut VecDeque<oneshot::Receiver<RequestAnswer>>,
    latencies: &mut Vec<u64>,
) -> Result<(), BenchError> {
    while let Some(first) = waiting.front_mut() {
        match first.try_recv() {
            Err(TryRecvError::Empty) => break,
            answer => latencies.push(latency_ns(answer)?),
        }
        waiting.pop_front();
    }
    Ok(())
}
