//! What can somebody read who sits on the network between two agents?

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes that are kept.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A proxy that passes bytes on and keeps them. It ends with its process.
pub struct Wiretap {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Wiretap {
    /// Stands before a port of this machine, which may be opened later.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = heard.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // The agent may not listen yet: the other end sees a connection that ends.
                if let Ok(far) = TcpStream::connect(("127.0.0.1", port)) {
                    pass_on(&near, &far, &kept);
                    pass_on(&far, &near, &kept);
                }
            }
        });
        Self { address, heard }
    }

    /// The address at which it takes connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many bytes were kept, and whether these are among them.
    #[must_use]
    pub fn heard(&self, bytes: &[u8]) -> (usize, bool) {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        (heard.len(), heard.windows(bytes.len()).any(|window| window == bytes))
    }
}

/// Passes the bytes of one direction on, in a thread of its own, until one of the ends is closed.
fn pass_on(from: &TcpStream, to: &TcpStream, kept: &Arc<Mutex<Vec<u8>>>) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    let kept = kept.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_BYTES_MAX {
                kept.extend_from_slice(&buffer[..read]);
            }
            drop(kept);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ended = to.shutdown(Shutdown::Both);
        let _ended = from.shutdown(Shutdown::Both);
    });
}
