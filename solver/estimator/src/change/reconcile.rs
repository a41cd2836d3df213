//! Which step comes next, so that the present replicas become the wanted ones on the given devices?

use super::replicas::{Departure, GroupReplicas, Replicas};
use apportion_domain::Moment;
use apportion_serving::staffing::{GroupDemand, share_out};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A group lets a replica go.
    Remove(usize, Departure),
    /// A group that wants more replicas keeps one that was about to leave: it is warm.
    Recall(usize),
}

impl Replicas {
    /// Starts to load wanted replicas that fit on the devices, gives up unwanted ones that load, and names the next step.
    ///
    /// Make before break: while a task has replicas that load, its others stay, unless they hold the device that is
    /// missing. Where the task's own new replicas miss it, one goes and one loads at a time. A task's last replica goes
    /// only if nothing else is in motion that could free a device.
    pub fn reconcile(&mut self, now: Moment) -> Option<Step> {
        if let Some(at) = self.groups.iter().position(|c| c.counted() < c.wanted as usize && c.can_return().is_some()) {
            return Some(Step::Recall(at));
        }
        for group in &mut self.groups {
            while group.counted() > group.wanted as usize && group.loading.pop().is_some() {}
        }
        let is_short = self.start_loading(now);
        self.next_removal(&is_short)
    }

    /// Loads as many replicas as fit, each group its part. Returns for each hardware type whether it has too few devices.
    fn start_loading(&mut self, now: Moment) -> Vec<bool> {
        let mut free = self.devices.clone();
        for group in &self.groups {
            if let Some(free) = &mut free[group.hardware] {
                *free = free.saturating_sub(group.devices_held() * group.eighths);
            }
        }
        let mut start = |group: &mut GroupReplicas| {
            let left = free[group.hardware].map(|f| f.checked_sub(group.eighths));
            if left != Some(None) {
                free[group.hardware] = left.flatten();
                group.loading.push(now + group.load);
            }
        };
        // A task without replicas comes first, then a group without replicas, then groups that want more.
        for at in 0..self.groups.len() {
            let has_none = |c: &GroupReplicas| !c.is_sibling(&self.groups[at]) || c.counted() == 0;
            if self.groups[at].wanted > 0 && self.groups.iter().all(has_none) {
                start(&mut self.groups[at]);
            }
        }
        for group in self.groups.iter_mut().filter(|c| c.wanted > 0 && c.counted() == 0) {
            start(group);
        }
        let want = |c: &GroupReplicas| GroupDemand {
            has: c.counted() as u32,
            wanted: c.wanted,
            pool: c.hardware,
            eighths: c.eighths,
        };
        let wants: Vec<GroupDemand> = self.groups.iter().map(want).collect();
        let mut is_short = vec![false; self.devices.len()];
        for (group, count) in self.groups.iter_mut().zip(share_out(&wants, free)) {
            while group.counted() < count as usize {
                group.loading.push(now + group.load);
            }
            is_short[group.hardware] |= count < group.wanted;
        }
        is_short
    }

    fn next_removal(&self, is_short: &[bool]) -> Option<Step> {
        let is_surplus = |c: &GroupReplicas| c.ready.len() > c.wanted as usize;
        for (at, group) in self.groups.iter().enumerate().filter(|(_, c)| is_surplus(c)) {
            let of_task = || self.groups.iter().filter(|c| c.is_sibling(group));
            let is_last = of_task().map(|c| c.ready.len()).sum::<usize>() == 1;
            let is_loading = of_task().any(|c| !c.loading.is_empty());
            let is_leaving = of_task().any(|c| !c.leaving.is_empty());
            let is_lacking = of_task().any(|c| c.counted() < c.wanted as usize);
            let is_replaced = !is_lacking && !is_loading;
            let is_next = is_short[group.hardware] && !(is_lacking && (is_loading || is_leaving));
            if !is_last && (is_replaced || is_next) {
                let drains = group.is_central && group.wanted == 0 && (is_replaced || group.ready.len() == 1);
                return Some(Step::Remove(at, if drains { Departure::Drain } else { Departure::Finish }));
            }
        }
        let moves = |c: &GroupReplicas| !c.loading.is_empty() || !c.leaving.is_empty();
        if self.groups.iter().any(moves) {
            return None;
        }
        let last = self.groups.iter().position(|c| is_surplus(c) && is_short[c.hardware]);
        last.map(|at| Step::Remove(at, Departure::Close))
    }
}

impl GroupReplicas {
    /// A leaving replica that can stay, because its servers have not been removed.
    pub fn can_return(&self) -> Option<usize> {
        self.leaving.iter().position(|l| match l.departure {
            Departure::Finish => !self.is_central,
            Departure::Drain => true,
            Departure::Close => false,
        })
    }
}
