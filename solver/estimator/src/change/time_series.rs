//! The results of a run over time.

use super::replicas::Replicas;
use crate::result::{WINDOWS_MAX, Window};
use crate::state::statistics::{RunSums, Statistics};
use apportion_domain::{Moment, TimeSpan};

/// Sums of a run at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    run: RunSums,
    cost: f64,
    served_ms: f64,
}

/// Windows of a run.
#[derive(Debug)]
pub struct TimeSeries {
    windows: Vec<Window>,
    start: Moment,
    length: TimeSpan,
    before: Sums,
}

impl TimeSeries {
    /// Before the first window.
    pub fn new(length: TimeSpan) -> Self {
        Self { windows: Vec::new(), start: Moment::ZERO, length, before: Sums::default() }
    }

    /// When the present window ends.
    pub fn window_end(&self) -> Moment {
        self.start + self.length
    }

    /// The present window ends at `now`, and the next one begins.
    pub fn close_window(&mut self, now: Moment, replicas: &mut Replicas, statistics: &Statistics) {
        replicas.add_costs(now);
        let run = statistics.sums();
        let sums = Sums { run, cost: replicas.cost, served_ms: replicas.served_ms };
        let before = std::mem::replace(&mut self.before, sums);
        let length = now.since(self.start);
        let counted = |at: usize| run.counts[at] - before.run.counts[at];
        let served_ms = sums.served_ms - before.served_ms;
        let busy_ms = run.busy.as_millis() - before.run.busy.as_millis();
        self.windows.push(Window {
            start: self.start,
            length,
            arrived: run.arrived - before.run.arrived,
            ok: counted(0),
            late: counted(1),
            dropped: counted(2),
            failed: counted(3),
            replicas: served_ms / length.as_millis().max(1e-9),
            cost: sums.cost - before.cost,
            utilisation: if served_ms > 0.0 { busy_ms / served_ms } else { 0.0 },
        });
        self.start = now;
        if self.windows.len() >= WINDOWS_MAX {
            self.windows = self.windows.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |a, b| a.with(b))).collect();
            self.length = self.length + self.length;
        }
    }

    /// All windows up to the end of the run at `now`.
    pub fn finish(&mut self, now: Moment, replicas: &mut Replicas, statistics: &Statistics) -> Vec<Window> {
        if now > self.start {
            self.close_window(now, replicas, statistics);
        }
        std::mem::take(&mut self.windows)
    }
}
