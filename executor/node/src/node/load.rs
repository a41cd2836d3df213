//! How busy was a replica since the last announcement, and was it slower than profiled?
//!
//! A replica that is slower than profiled for some announcements in a row, though it is not overloaded, is disturbed by
//! its neighbours on the device (INFaaS section 4, figure 4).

use super::{Action, Node};

impl Node {
    /// An announcement is due: what was measured since the last one is what is said from now on.
    pub(super) fn roll_loads(&mut self) {
        let period_ns = self.now_ns.saturating_sub(self.rolled_ns);
        if period_ns == 0 {
            return;
        }
        self.rolled_ns = self.now_ns;
        let changes = self.replicas.values_mut().map(|r| r.roll(period_ns)).filter(|changed| *changed).count();
        if changes > 0 {
            self.actions.push(Action::Acknowledge);
        }
    }
}
