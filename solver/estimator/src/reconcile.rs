//! What is done next so that the replicas that are there become those that are wanted, on the devices that there are.

use crate::crews::{Crew, Crews, Manner};
use apportion_domain::Moment;
use apportion_serving::staffing::{Want, share_out};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A crew lets a replica go.
    LetGo(usize, Manner),
    /// A crew that wants more keeps one that was about to go: it is warm.
    Recall(usize),
}

impl Crews {
    /// Starts to load what is wanted and fits on the devices, gives up what loads and is not wanted, and names what else is to be
    /// done, one step at a time.
    ///
    /// Make before break: while a task has replicas that load, its others stay, unless they hold the device that is missing.
    /// Where the task's own new replicas miss it, one goes and one loads at a time. A task's last replica goes only if
    /// nothing else is in motion that could free a device.
    pub fn reconcile(&mut self, now: Moment) -> Option<Step> {
        if let Some(at) = self.crews.iter().position(|c| c.counted() < c.wanted as usize && c.returning().is_some()) {
            return Some(Step::Recall(at));
        }
        for crew in &mut self.crews {
            while crew.counted() > crew.wanted as usize && crew.loading.pop().is_some() {}
        }
        let is_short = self.load(now);
        self.leaver(&is_short)
    }

    /// Loads as much as fits, each crew its part; whether each hardware type has too few devices.
    fn load(&mut self, now: Moment) -> Vec<bool> {
        let mut free = self.devices.clone();
        for crew in &self.crews {
            if let Some(free) = &mut free[crew.hardware] {
                *free = free.saturating_sub(crew.held() * crew.eighths);
            }
        }
        let mut start = |crew: &mut Crew| {
            let left = free[crew.hardware].map(|f| f.checked_sub(crew.eighths));
            if left != Some(None) {
                free[crew.hardware] = left.flatten();
                crew.loading.push(now + crew.load);
            }
        };
        // A task without any replica comes before a group without any, and that before those that want more.
        for at in 0..self.crews.len() {
            let is_bare = |c: &Crew| !c.is_colleague(&self.crews[at]) || c.counted() == 0;
            if self.crews[at].wanted > 0 && self.crews.iter().all(is_bare) {
                start(&mut self.crews[at]);
            }
        }
        for crew in self.crews.iter_mut().filter(|c| c.wanted > 0 && c.counted() == 0) {
            start(crew);
        }
        let want = |c: &Crew| Want { has: c.counted() as u32, wanted: c.wanted, pool: c.hardware, eighths: c.eighths };
        let wants: Vec<Want> = self.crews.iter().map(want).collect();
        let mut is_short = vec![false; self.devices.len()];
        for (crew, count) in self.crews.iter_mut().zip(share_out(&wants, free)) {
            while crew.counted() < count as usize {
                crew.loading.push(now + crew.load);
            }
            is_short[crew.hardware] |= count < crew.wanted;
        }
        is_short
    }

    fn leaver(&self, is_short: &[bool]) -> Option<Step> {
        let is_surplus = |c: &Crew| c.ready.len() > c.wanted as usize;
        for (at, crew) in self.crews.iter().enumerate().filter(|(_, c)| is_surplus(c)) {
            let of_task = || self.crews.iter().filter(|c| c.is_colleague(crew));
            let is_last = of_task().map(|c| c.ready.len()).sum::<usize>() == 1;
            let is_loading = of_task().any(|c| !c.loading.is_empty());
            let is_leaving = of_task().any(|c| !c.leaving.is_empty());
            let is_lacking = of_task().any(|c| c.counted() < c.wanted as usize);
            let is_replaced = !is_lacking && !is_loading;
            let is_next = is_short[crew.hardware] && !(is_lacking && (is_loading || is_leaving));
            if !is_last && (is_replaced || is_next) {
                let drains = crew.is_central && crew.wanted == 0 && (is_replaced || crew.ready.len() == 1);
                return Some(Step::LetGo(at, if drains { Manner::Drain } else { Manner::Finish }));
            }
        }
        let moves = |c: &Crew| !c.loading.is_empty() || !c.leaving.is_empty();
        if self.crews.iter().any(moves) {
            return None;
        }
        let last = self.crews.iter().position(|c| is_surplus(c) && is_short[c.hardware]);
        last.map(|at| Step::LetGo(at, Manner::Close))
    }
}

impl Crew {
    /// Which of those that go could stay: it has not been told to end.
    pub fn returning(&self) -> Option<usize> {
        self.leaving.iter().position(|l| match l.manner {
            Manner::Finish => !self.is_central,
            Manner::Drain => true,
            Manner::Close => false,
        })
    }
}
