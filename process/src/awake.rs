//! How does a process keep the machine's processors from sleeping?
//!
//! Linux bounds the wake-up time of processors while a process holds `/dev/cpu_dma_latency` open (the kernel's "PM QoS"
//! interface). With 0, a processor without work polls instead of halting. That costs power.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// While it lives, processors do not sleep.
#[derive(Debug)]
pub struct AwakeProcessors {
    /// The kernel forgets the bound when the file is closed.
    _held: File,
}

impl AwakeProcessors {
    /// The kernel's file: the longest wake-up time in microseconds, as a native 32-bit number.
    pub const KERNEL_FILE: &str = "/dev/cpu_dma_latency";

    /// Keeps them awake by this file, which is [`Self::KERNEL_FILE`] outside of tests.
    ///
    /// # Errors
    /// If the file is not there, or the process may not write to it.
    pub fn hold(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _held: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reads_a_native_number() {
        let path = std::env::temp_dir().join(format!("apportion-awake-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        let held = AwakeProcessors::hold(&path).expect("it may be written");
        assert_eq!(std::fs::read(&path).expect("it is there"), 0_i32.to_ne_bytes());
        drop(held);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(AwakeProcessors::hold(&path).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
    }
}
