//! The time that a hop adds: the same request to a replica at the gateway's own agent and to one at the other agent, both at
//! half the rate that the second can do.

use super::pair::{FAR, HOP_BYTES, NEAR, Pair, latency_ns, row};
use super::{BenchError, Figure, quantile};
use crate::node::Event;
use crate::node::request::Terms;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Requests that wait for answers while the largest rate is sought.
const OUTSTANDING: usize = 64;
/// Shortest sleep that is asked of the system: below it, what is due is sent at once.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// Latency of a local and of a distant replica, and what the way there and back adds.
pub(super) fn measure(pair: &Pair, each: Duration) -> Result<Vec<Figure>, BenchError> {
    let rate = most(pair, FAR, each)? / 2.0;
    let near = at_rate(pair, NEAR, rate, each)?;
    let far = at_rate(pair, FAR, rate, each)?;
    let us = |sorted: &[u64], part| quantile(sorted, part) as f64 / 1e3;
    let figure = |name: &str, part: f64, aim| Figure {
        what: format!("hop to another agent and back, 4 KiB tensors at {rate:.0} requests/s, {name}"),
        unit: "us",
        agents: us(&far, part),
        plain: Some(us(&near, part)),
        aim,
    };
    let added = us(&far, 0.5) - us(&near, 0.5);
    Ok(vec![
        figure("median (plain: the same without the hop)", 0.5, "50 more"),
        figure("p99", 0.99, "200"),
        Figure::alone("added by the way there and back, median", "us", added, "50"),
    ])
}

/// Requests per second with many outstanding.
fn most(pair: &Pair, pipeline: &str, each: Duration) -> Result<f64, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let data = Bytes::from(vec![0; HOP_BYTES]);
    runtime.block_on(async {
        let begun = Instant::now();
        let mut waiting: FuturesUnordered<_> = (0..OUTSTANDING).map(|_| pair.ask(pipeline, row(&data))).collect();
        let mut answered = 0u64;
        while let Some(answer) = waiting.next().await {
            answer?;
            answered += 1;
            if begun.elapsed() < each {
                waiting.push(pair.ask(pipeline, row(&data)));
            }
        }
        Ok(answered as f64 / begun.elapsed().as_secs_f64())
    })
}

/// Sorted latencies in nanoseconds of requests that come at a rate, whatever becomes of those before.
fn at_rate(pair: &Pair, pipeline: &str, rate: f64, each: Duration) -> Result<Vec<u64>, BenchError> {
    let data = Bytes::from(vec![0; HOP_BYTES]);
    let count = ((rate * each.as_secs_f64()) as u64).max(1);
    let (begun, mut answers) = (Instant::now(), Vec::new());
    for i in 0..count {
        let due = Duration::from_secs_f64(i as f64 / rate);
        let early = due.saturating_sub(begun.elapsed());
        if early > SLEEP_MIN {
            std::thread::sleep(early);
        }
        let (reply, answer) = oneshot::channel();
        let event = Event::Arrive { pipeline: pipeline.into(), inputs: row(&data), terms: Terms::default(), reply };
        pair.handle.events.blocking_send(event).map_err(|_| BenchError::Agents("the loop ended".into()))?;
        answers.push(answer);
    }
    let mut latencies = answers.into_iter().map(|a| latency_ns(a.blocking_recv())).collect::<Result<Vec<_>, _>>()?;
    latencies.sort_unstable();
    Ok(latencies)
}
