//! How many bytes of large tensors go to another agent, beside a plain TCP stream.

use super::pair::{LARGE, LARGE_BYTES, Pair, row};
use super::{BenchError, Figure};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Tensors that are on their way at the same time.
const OUTSTANDING: usize = 4;

/// MB/s of both.
pub(super) fn measure(pair: &Pair, each: Duration) -> Result<Figure, BenchError> {
    let plain = stream(each)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let data = Bytes::from(vec![0; LARGE_BYTES]);
    let agents = runtime.block_on(async {
        let begun = Instant::now();
        let mut waiting: FuturesUnordered<_> = (0..OUTSTANDING).map(|_| pair.ask(LARGE, row(&data))).collect();
        let mut moved = 0;
        while let Some(answer) = waiting.next().await {
            answer?;
            moved += LARGE_BYTES;
            if begun.elapsed() < each {
                waiting.push(pair.ask(LARGE, row(&data)));
            }
        }
        Ok::<_, BenchError>(moved as f64 / 1e6 / begun.elapsed().as_secs_f64())
    })?;
    let what = "tensors of 5 MB to another agent (plain: a TCP stream)".into();
    Ok(Figure { what, unit: "MB/s", agents, plain: Some(plain), aim: "0.6 of plain" })
}

/// What one thread writes and another reads.
fn stream(each: Duration) -> Result<f64, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut to = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    let begun = Instant::now();
    let reading = std::thread::spawn(move || {
        let (mut buffer, mut moved) = (vec![0; LARGE_BYTES], 0);
        while from.read_exact(&mut buffer).is_ok() {
            moved += LARGE_BYTES;
        }
        (moved, begun.elapsed())
    });
    let data = vec![0; LARGE_BYTES];
    while begun.elapsed() < each {
        to.write_all(&data)?;
    }
    drop(to);
    let (moved, took) = reading.join().map_err(|_| BenchError::Agents("the plain stream's reader died".into()))?;
    Ok(moved as f64 / 1e6 / took.as_secs_f64())
}
