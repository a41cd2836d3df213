//! What a hop is measured beside: 4 KiB to another thread and back over a bare TCP connection, at the same rate.

use super::pacing::{early, sleep_sharply};
use super::pair::HOP_BYTES;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes at the beginning of what is sent that say when it was.
const STAMP_BYTES: usize = size_of::<u64>();

/// Times there and back in nanoseconds. It has three threads, as agents have: one sends, one answers, and one reads the
/// answers.
pub(super) fn at_rate(rate: f64, each: Duration) -> std::io::Result<Vec<u64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    accepted.set_nodelay(true)?;
    let (answers, begun) = (stream.try_clone()?, Instant::now());
    let count = ((rate * each.as_secs_f64()) as u64).max(1);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(accepted, count));
        let heard = scope.spawn(move || hear(answers, count, begun));
        let sent = send(&mut stream, rate, count, begun);
        if sent.is_err() {
            // The others would wait for what does not come.
            stream.shutdown(std::net::Shutdown::Both)?;
        }
        let panicked = |_| std::io::Error::other("a thread of the echo panicked");
        echo.join().map_err(panicked)?.and(sent)?;
        heard.join().map_err(panicked)?
    })
}

fn send(stream: &mut TcpStream, rate: f64, count: u64, begun: Instant) -> std::io::Result<()> {
    sleep_sharply()?;
    let mut bytes = vec![0; HOP_BYTES];
    for i in 0..count {
        if let Some(early) = early(i, rate, begun) {
            std::thread::sleep(early);
        }
        bytes[..STAMP_BYTES].copy_from_slice(&(begun.elapsed().as_nanos() as u64).to_le_bytes());
        stream.write_all(&bytes)?;
    }
    Ok(())
}

fn echo(mut stream: TcpStream, count: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; HOP_BYTES];
    for _ in 0..count {
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
    }
    Ok(())
}

fn hear(mut stream: TcpStream, count: u64, begun: Instant) -> std::io::Result<Vec<u64>> {
    let (mut bytes, mut times) = (vec![0; HOP_BYTES], Vec::new());
    for _ in 0..count {
        stream.read_exact(&mut bytes)?;
        let mut stamp = [0; STAMP_BYTES];
        stamp.copy_from_slice(&bytes[..STAMP_BYTES]);
        times.push((begun.elapsed().as_nanos() as u64).saturating_sub(u64::from_le_bytes(stamp)));
    }
    Ok(times)
}
