//! Short time slices for threads on a request's way: the loops, the alarm, the ingress. Where processors are busy with something
//! else, a thread that wakes runs at once if its slice, and so its deadline in the system's queue, is short; with the default of
//! some milliseconds it waits for the end of another's. Its share of the processors stays the same. Linux takes the wish since
//! 6.12 and ignores it before.

use std::time::Duration;

/// The shortest slice that the system grants.
const SLICE: Duration = Duration::from_micros(100);

/// The calling thread asks for short slices; threads that it starts do not. Where that is refused it stays as it was.
pub(crate) fn shorten() {
    match set(SLICE) {
        Ok(()) => tracing::debug!(?SLICE, "this thread has short time slices"),
        Err(error) => tracing::debug!(%error, "this thread has the time slices of all others"),
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the C library has no functions for these two calls of the system")]
fn set(slice: Duration) -> std::io::Result<()> {
    /// Threads that this one starts have what is usual.
    const RESET_ON_FORK: u64 = 1;
    let size = u32::try_from(size_of::<libc::sched_attr>()).expect("a few dozen bytes");
    let done = |code: libc::c_long| if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: zeros are valid for a struct of integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the system writes at most `size` bytes into what is that large and ours alone.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })?;
    let usual = u32::try_from(libc::SCHED_OTHER).expect("not negative");
    if attributes.sched_policy != usual {
        return Err(std::io::Error::other("it runs under another policy than the usual one"));
    }
    attributes.size = size;
    attributes.sched_flags |= RESET_ON_FORK;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).expect("short");
    // SAFETY: the system reads `size` bytes of what is that large.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

#[cfg(not(target_os = "linux"))]
fn set(_slice: Duration) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The slice of the calling thread in nanoseconds, by `/proc`; `None` where the system has no such field.
    fn slice_ns() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = text.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit(':').next()?.trim().parse().ok()
    }

    #[test]
    fn the_thread_keeps_its_nice_value_and_those_that_it_starts_have_usual_slices() {
        let nice = || std::fs::read_to_string("/proc/thread-self/stat").map(|s| s.split(' ').nth(18).map(String::from));
        let (usual, nice_before) = (slice_ns(), nice().expect("proc"));
        set(SLICE).expect("every system takes the usual policy");
        assert_eq!(nice().expect("proc"), nice_before);
        let of_child = std::thread::spawn(slice_ns).join().expect("it ends");
        assert_eq!(of_child, usual);
        // What was asked for or, before 6.12, the usual; `None` where the system does not say.
        let now = slice_ns();
        assert!(now == Some(SLICE.as_nanos() as u64) || now == usual, "{now:?}");
    }
}
