//! Which replica a sender's next query goes to: in proportion, and never by a random draw.
//!
//! A [`Router`] belongs to one sender and one task that it sends to. It chooses the group by [`Stride`], because the
//! fractions of a routing table decide the accuracy, and then the replica within the group.

use apportion_domain::Span;

/// Weights are counted in whole parts, so that no float orders anything and a run can go on for ever without drift.
const PARTS: f64 = (1u64 << 40) as f64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    target: u32,
    weight: i64,
    credit: i64,
}

/// Smooth weighted round robin: after any number of picks, each target has had its share to within one pick.
#[derive(Clone, Debug)]
pub struct Stride {
    entries: Vec<Entry>,
    total: i64,
}

impl Stride {
    /// Of `(weight, target)`, in order of preference among equals; targets of weight 0 are never picked. `None` if no
    /// weight is above 0.
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = (f64, u32)>) -> Option<Self> {
        let weights: Vec<_> = weights.into_iter().filter(|&(w, _)| w > 0.0 && w.is_finite()).collect();
        let sum: f64 = weights.iter().map(|&(w, _)| w).sum();
        let parts = |w: f64| ((w / sum * PARTS).round() as i64).max(1);
        let entries: Vec<_> = weights.iter().map(|&(w, target)| Entry { target, weight: parts(w), credit: 0 }).collect();
        let total = entries.iter().map(|e| e.weight).sum();
        (!entries.is_empty()).then_some(Self { entries, total })
    }

    /// The only target that is ever picked, if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.entries.as_slice() {
            [only] => Some(only.target),
            _ => None,
        }
    }

    /// The next target.
    #[inline]
    pub fn pick(&mut self) -> u32 {
        if let [only] = self.entries.as_slice() {
            return only.target;
        }
        let mut best = 0;
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            entry.credit += entry.weight;
            if entry.credit > self.entries[best].credit {
                best = at;
            }
        }
        self.entries[best].credit -= self.total;
        self.entries[best].target
    }
}

/// One pick of a [`Router`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    /// The replica (or queue), by the driver's number.
    pub target: u32,
    /// What [`Router::ended`] wants to hear when the query has ended.
    pub slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Members {
    first: u32,
    count: u32,
    next: u32,
}

/// How a replica is chosen within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Each in its turn.
    Turns,
    /// The one with the fewest of this sender's queries that have not ended; of several, the next in turn (`jsq`).
    LeastOutstanding,
}

/// One sender's choice among the replicas of one task.
#[derive(Clone, Debug)]
pub struct Router {
    groups: Stride,
    members: Vec<Members>,
    targets: Vec<u32>,
    outstanding: Vec<u32>,
    within: Within,
    /// The pick, where there is no choice and nothing to count.
    only: Option<Picked>,
    /// The group whose replicas take turns, where it is the only one that is ever picked and nothing is counted.
    round: Option<u32>,
    /// Weight of each group for each of the replicas that it had at first.
    weights: Vec<f64>,
    /// Profiled time of each group's batch, where there is a backup table or might be one.
    execution: Vec<Span>,
    /// Groups with capacity to spare, in order of preference.
    backup: Vec<u32>,
}

impl Router {
    /// Of groups with their weights and replicas. `phase` turns the starting point, so that senders that start together do
    /// not all begin with the same replica. `None` if no group with a replica has a weight above 0.
    #[must_use]
    pub fn new(within: Within, groups: &[(f64, &[u32])], phase: u32) -> Option<Self> {
        let mut members = Vec::with_capacity(groups.len());
        let mut targets = Vec::new();
        for (_, replicas) in groups {
            let (first, count) = (targets.len() as u32, replicas.len() as u32);
            let next = phase.checked_rem(count).unwrap_or(0);
            members.push(Members { first, count, next });
            targets.extend_from_slice(replicas);
        }
        let weight = |(g, &(w, replicas)): (usize, &(f64, &[u32]))| (if replicas.is_empty() { 0.0 } else { w }, g as u32);
        let stride = Stride::new(groups.iter().enumerate().map(weight))?;
        let outstanding = vec![0; if within == Within::LeastOutstanding { above(&targets) } else { 0 }];
        let weights = groups.iter().map(|(w, replicas)| w / replicas.len().max(1) as f64).collect();
        let only = match targets.as_slice() {
            [target] if within == Within::Turns => Some(Picked { target: *target, slot: 0 }),
            _ => None,
        };
        let (execution, backup) = (Vec::new(), Vec::new());
        let round = stride.only().filter(|_| within == Within::Turns);
        Some(Self { groups: stride, members, targets, outstanding, within, only, round, weights, execution, backup })
    }

    /// With the profiled time of each group's batch and, most accurate first, the positions of the groups that have capacity
    /// to spare (the backup table of Loki section 5.1).
    #[must_use]
    pub fn with_backup(mut self, execution: Vec<Span>, backup: Vec<u32>) -> Self {
        assert!(execution.len() == self.members.len(), "a time for each group");
        self.backup = backup.into_iter().filter(|&g| self.members[g as usize].count > 0).collect();
        self.execution = execution;
        self
    }

    /// The next replica for a query that has overrun its last task's part of the SLO by `behind`: the table's, if it has not; else
    /// a replica of the first backup group whose batch takes at least that much less than the table's choice would (Loki section
    /// 5.2). `None` if there is no such group: the query is not worth sending on. Without a backup table this is the paper's
    /// per-task dropping.
    #[inline(always)]
    pub fn pick_behind(&mut self, behind: Span) -> Option<Picked> {
        if behind == Span::ZERO { Some(self.pick()) } else { self.pick_faster(behind) }
    }

    #[cold]
    fn pick_faster(&mut self, behind: Span) -> Option<Picked> {
        let group = self.groups.pick();
        let most = self.execution.get(group as usize)?.as_nanos().checked_sub(behind.as_nanos())?;
        let fits = |g: &&u32| self.members[**g as usize].count > 0 && self.execution[**g as usize].as_nanos() <= most;
        let faster = self.backup.iter().find(fits).copied()?;
        Some(self.pick_within(faster))
    }

    /// The next replica.
    #[inline(always)]
    pub fn pick(&mut self) -> Picked {
        if let Some(only) = self.only {
            return only;
        }
        let Some(group) = self.round else { return self.pick_among() };
        let members = &mut self.members[group as usize];
        let at = members.next;
        members.next = if at + 1 == members.count { 0 } else { at + 1 };
        let slot = members.first + at;
        Picked { target: self.targets[slot as usize], slot }
    }

    fn pick_among(&mut self) -> Picked {
        let group = self.groups.pick();
        self.pick_within(group)
    }

    #[inline]
    fn pick_within(&mut self, group: u32) -> Picked {
        let members = &mut self.members[group as usize];
        let mut at = members.next;
        let targets = &self.targets[members.first as usize..][..members.count as usize];
        if self.within == Within::LeastOutstanding {
            at = least(targets, &self.outstanding, at);
        }
        members.next = if at + 1 == members.count { 0 } else { at + 1 };
        let target = targets[at as usize];
        let slot = if self.within == Within::LeastOutstanding { target } else { members.first + at };
        if let Some(count) = self.outstanding.get_mut(slot as usize) {
            *count += 1;
        }
        Picked { target, slot }
    }

    /// The replicas of the group at this position are from now on these; its weight follows their number. What the sender knows
    /// of their open queries stays. Without a replica in any group, queries go where they went: `false`.
    pub fn retarget(&mut self, group: usize, replicas: &[u32]) -> bool {
        let mut groups: Vec<Vec<u32>> = Vec::with_capacity(self.members.len());
        for (at, m) in self.members.iter().enumerate() {
            let old = &self.targets[m.first as usize..][..m.count as usize];
            groups.push(if at == group { replicas.to_vec() } else { old.to_vec() });
        }
        let weigh = |(w, r): (&f64, &Vec<u32>)| w * r.len() as f64;
        let weights: Vec<f64> = self.weights.iter().zip(&groups).map(weigh).collect();
        let with: Vec<(f64, &[u32])> = weights.into_iter().zip(groups.iter().map(Vec::as_slice)).collect();
        let Some(mut new) = Self::new(self.within, &with, 0) else { return false };
        new.weights.clone_from(&self.weights);
        new.execution = std::mem::take(&mut self.execution);
        new.backup = std::mem::take(&mut self.backup);
        for (new, old) in new.members.iter_mut().zip(&self.members) {
            new.next = old.next.checked_rem(new.count).unwrap_or(0);
        }
        if self.within == Within::LeastOutstanding {
            let length = new.outstanding.len().max(self.outstanding.len());
            new.outstanding.clone_from(&self.outstanding);
            new.outstanding.resize(length, 0);
        }
        *self = new;
        true
    }

    /// The same choices for another sender, which has no open queries yet.
    #[must_use]
    pub fn for_another_sender(&self) -> Self {
        let mut other = self.clone();
        other.outstanding.fill(0);
        other
    }

    /// A query that was sent by this pick has ended, or is lost.
    #[inline]
    pub fn ended(&mut self, slot: u32) {
        if let Some(count) = self.outstanding.get_mut(slot as usize) {
            *count -= 1;
        }
    }
}

/// How many numbers there are up to the largest.
fn above(targets: &[u32]) -> usize {
    targets.iter().max().map_or(0, |&largest| largest as usize + 1)
}

/// Position of the target with the smallest count, the first from `next` on (and round) among equals.
fn least(targets: &[u32], outstanding: &[u32], next: u32) -> u32 {
    let mut best = next as usize;
    let of = |at: usize| outstanding[targets[at] as usize];
    let after = next as usize + 1..targets.len();
    for at in after.chain(0..next as usize) {
        if of(at) < of(best) {
            best = at;
        }
    }
    best as u32
}
