//! How does a person see that a program works? Spinners and bars on stderr, hidden where stderr is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The time between two frames of an animation.
const TICK: Duration = Duration::from_millis(100);

/// A spinner with a message.
pub fn spinner(message: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(message.to_owned());
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(TICK);
    bar
}

/// A bar of `length` steps in the style of an `indicatif` template. It moves only when its owner moves it.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A bar whose clock runs also while no step ends.
pub fn ticking_bar(length: u64, template: &str) -> ProgressBar {
    let bar = bar(length, template);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
