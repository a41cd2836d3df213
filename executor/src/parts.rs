//! What does a panic mean in one part of the agent's process, and how does the process end?
//!
//! A runtime catches the panic of a future and goes on without it. The agent would then serve without its peers, its
//! control stream or its loop, and nobody would notice. So a panic here ends the process, after the log has said which
//! part it was. The supervisor of the process then starts it again. A variant is no part: its panic fails its batch or
//! its replica.

use apportion_process::panic_message;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::pin::pin;
use std::time::Duration;

/// Exit status after a panic: the one of Rust's own.
pub const PANICKED: u8 = 101;
/// How long the last words may take: the panic may have come while the log was held.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

thread_local! {
    static PART: Cell<Option<&'static str>> = const { Cell::new(None) };
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Puts a thread's value back when it goes.
struct Restore<T: Copy + 'static> {
    key: &'static std::thread::LocalKey<Cell<T>>,
    before: T,
}

impl<T: Copy> Restore<T> {
    fn set(key: &'static std::thread::LocalKey<Cell<T>>, value: T) -> Self {
        Self { key, before: key.replace(value) }
    }
}

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.key.set(self.before);
    }
}

/// Runs a future as the part of this name: a panic while it is polled is the part's.
pub async fn part<F: Future>(name: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _restored = Restore::set(&PART, Some(name));
        future.as_mut().poll(context)
    })
    .await
}

/// A call has panicked, with these words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CallPanic(pub String);

/// Calls a function that may panic without harm to the agent.
///
/// # Errors
/// [`CallPanic`] with the words of its panic.
pub fn contained<T>(call: impl FnOnce() -> T) -> Result<T, CallPanic> {
    let _restored = Restore::set(&IS_CONTAINED, true);
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|cause| CallPanic(panic_message(&*cause).unwrap_or_else(|| "it did not say why".into())))
}

/// From here on, a panic that is not [`contained`] ends the process with [`PANICKED`], after the log has said where it was.
pub fn end_on_panic() {
    let usual = take_hook();
    set_hook(Box::new(move |info| {
        if IS_CONTAINED.get() {
            return usual(info);
        }
        // Whatever the log does now, the end comes.
        let hurried = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(LAST_WORDS_MAX);
            end(PANICKED)
        });
        if hurried.is_ok() {
            say(info);
        }
        end(PANICKED)
    }));
}

fn say(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let part = PART.get().or(thread.name()).unwrap_or("a thread without a name");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let cause = info.payload_as_str().unwrap_or("it did not say why");
    tracing::error!(part, place, cause, "a part of the agent has panicked: the process ends");
}

/// Ends the process at once, without what the libraries would do at its end. ONNX Runtime's destructors run while its
/// threads still load a variant: a process that ends as usual dies of a segmentation fault then.
#[allow(unsafe_code)]
pub fn end(status: u8) -> ! {
    let _closed = std::io::stdout().flush();
    // SAFETY: it takes a number and never returns.
    unsafe { libc::_exit(status.into()) }
}

/// Lets every other thread of the machine go first: the calling thread's work is in no hurry.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn stand_back() {
    /// As `nice` has it.
    const NICE: i32 = 10;
    // SAFETY: it takes numbers; on Linux process 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        tracing::debug!("the thread keeps its priority");
    }
}

/// Does nothing where priorities are those of processes.
#[cfg(not(target_os = "linux"))]
pub fn stand_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_has_its_name_while_it_is_polled_only() {
        let nested = async {
            let own = PART.get();
            (own, part("inner", async { PART.get() }).await, PART.get())
        };
        assert_eq!(part("outer", nested).await, (Some("outer"), Some("inner"), Some("outer")));
        assert_eq!(PART.get(), None);
    }

    #[test]
    fn a_contained_panic_is_an_error_with_its_words() {
        assert_eq!(contained(|| 3), Ok(3));
        assert_eq!(contained(|| panic!("row {}", 7)).map(|()| 0), Err(CallPanic("row 7".to_owned())));
        assert!(!IS_CONTAINED.get());
    }
}
