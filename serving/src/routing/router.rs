//! Which replica does a sender's next query go to? The choice is in proportion to weights, and never random.
//!
//! A [`Router`] belongs to one sender and one task that it sends to. It chooses the group by [`Stride`], because the
//! fractions of a routing table decide the accuracy, and then the replica within the group.

pub use super::stride::Stride;
use apportion_domain::{SLACK, TimeSpan};

/// One pick of a [`Router`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChoice {
    /// The replica (or queue), by the driver's number.
    pub target: u32,
    /// The argument of [`Router::ended`] when the query has ended.
    pub slot: u32,
}

/// The slot of a query that is not counted.
const NO_SLOT: u32 = u32::MAX;

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
    /// The replica with the fewest queries of this sender that have not ended; of several, the next in turn (`jsq`).
    LeastOutstanding,
}

/// The use that a plan makes of one group of a task, for one sender. By default it does not use the group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupUse {
    /// The group's part of the sender's queries, when it has all replicas of the plan.
    pub fraction: f64,
    /// The number of these replicas; 0 if the group is not in the plan.
    pub planned: u32,
    /// Weight of each of its replicas while it stands in for missing replicas of the plan; 0 if it never does.
    pub stand_in: f64,
}

/// The replicas of a group that serve now.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// The targets of their queries: one target each, or one queue for all.
    pub targets: &'a [u32],
    /// The number of replicas.
    pub replicas: u32,
    /// The number that there should be: another one than in the plan if replicas follow the load.
    pub wanted: u32,
}

/// The weight of each group while a plan comes into force. A group of the plan gets its fraction, times the part of its
/// planned replicas that serve. Groups of the former plan get the rest. So senders move as new replicas become ready. If
/// no group of either kind serves, all serving groups count alike.
///
/// Where replicas follow the load, fractions stay. With one of two planned replicas a group is whole if no more are
/// wanted, and a third one gets a part of the group's queries.
fn weights(parts: &[GroupUse], groups: &[Serving<'_>]) -> Vec<f64> {
    let by_plan = |(p, group): (&GroupUse, &Serving<'_>)| {
        let whole = p.planned.min(group.wanted.max(1));
        if whole == 0 { 0.0 } else { p.fraction * (f64::from(group.replicas) / f64::from(whole)).min(1.0) }
    };
    let counts = groups.iter().map(|group| group.replicas);
    let mut weights: Vec<f64> = parts.iter().zip(groups).map(by_plan).collect();
    let whole: f64 = parts.iter().filter(|p| p.planned > 0).map(|p| p.fraction).sum();
    let missing = whole - weights.iter().sum::<f64>();
    let stand_in = |(p, n): (&GroupUse, u32)| p.stand_in * f64::from(n);
    let standing: f64 = parts.iter().zip(counts.clone()).map(stand_in).sum();
    if missing > SLACK * whole && standing > 0.0 {
        let stand_ins = parts.iter().zip(counts.clone()).map(stand_in);
        weights.iter_mut().zip(stand_ins).for_each(|(w, s)| *w += missing * s / standing);
    }
    if weights.iter().all(|w| *w <= 0.0) { counts.map(f64::from).collect() } else { weights }
}

/// Picks the replicas of one task for one sender.
#[derive(Clone, Debug)]
pub struct Router {
    groups: Stride,
    members: Vec<Members>,
    targets: Vec<u32>,
    outstanding: Vec<u32>,
    within: Within,
    /// The only possible pick, where nothing is counted.
    only: Option<RouteChoice>,
    /// The only group that is ever picked, where its replicas take turns and nothing is counted.
    round: Option<u32>,
    /// The use that the plan in force makes of each group.
    parts: Vec<GroupUse>,
    /// Profiled time of each group's batch, where there may be a backup table.
    execution: Vec<TimeSpan>,
    /// Groups with capacity to spare, in order of preference.
    backup: Vec<u32>,
    /// Counts of queries that were behind.
    late: LateQueries,
    /// Turns the starting point among replicas.
    phase: u32,
    /// Whether it turns the starting point among groups too.
    groups_start: GroupsStart,
}

/// The group at which a sender begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupsStart {
    /// All senders begin at the same group.
    InStep,
    /// Senders with different numbers begin at different places of the round of groups.
    ByPhase,
}

/// Queries that were behind when they left a sender, and whether a faster group could make up for it (Loki section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateQueries {
    /// All of them.
    pub behind: u64,
    /// Queries that were behind by more than the whole batch of the table's choice: no group could make up for it. Not
    /// counted without a backup table.
    pub beyond: u64,
    /// Queries that were sent to a faster group.
    pub rerouted: u64,
}

impl std::ops::AddAssign for LateQueries {
    fn add_assign(&mut self, other: Self) {
        self.behind += other.behind;
        self.beyond += other.beyond;
        self.rerouted += other.rerouted;
    }
}

impl Router {
    /// Of groups with their weights and replicas. `phase` is the sender's number. It sets the starting point: senders that
    /// start together begin at replicas that are far from each other. `None` if no group with a replica has a weight above
    /// 0.
    #[must_use]
    pub fn new(within: Within, groups: &[(f64, &[u32])], phase: u32) -> Option<Self> {
        let mut members = Vec::with_capacity(groups.len());
        let mut targets = Vec::new();
        for (_, replicas) in groups {
            let (first, count) = (targets.len() as u32, replicas.len() as u32);
            let next = first_turn(phase, count);
            members.push(Members { first, count, next });
            targets.extend_from_slice(replicas);
        }
        let weight = |(g, &(w, replicas)): (usize, &(f64, &[u32]))| (if replicas.is_empty() { 0.0 } else { w }, g as u32);
        let stride = Stride::new(groups.iter().enumerate().map(weight))?;
        let outstanding = vec![0; if within == Within::LeastOutstanding { above(&targets) } else { 0 }];
        let part = |(w, replicas): &(f64, &[u32])| GroupUse { fraction: *w, planned: replicas.len() as u32, stand_in: 0.0 };
        let parts = groups.iter().map(part).collect();
        let only = match targets.as_slice() {
            [target] if within == Within::Turns => Some(RouteChoice { target: *target, slot: NO_SLOT }),
            _ => None,
        };
        let (execution, backup) = (Vec::new(), Vec::new());
        let round = stride.only().filter(|_| within == Within::Turns);
        let late = LateQueries::default();
        Some(Self {
            groups: stride,
            members,
            targets,
            outstanding,
            within,
            only,
            round,
            parts,
            execution,
            backup,
            late,
            phase,
            groups_start: GroupsStart::InStep,
        })
    }

    /// A router of one of several ingresses. It begins its round of groups elsewhere than those of the other ingresses.
    ///
    /// Example: clients use three ingresses in turn, and every fourth query goes to a group with one replica. If the
    /// ingresses were in step, three queries in a row would come to this replica, and none in the next nine.
    #[must_use]
    pub fn of_ingress(mut self) -> Self {
        self.groups_start = GroupsStart::ByPhase;
        for _ in 0..first_turn(self.phase, self.groups.round()) {
            self.groups.pick();
        }
        self
    }

    /// As it is after this number of queries that have ended.
    #[must_use]
    pub fn turned(mut self, queries: u32) -> Self {
        for _ in 0..queries {
            let group = self.groups.pick();
            let members = &mut self.members[group as usize];
            members.next = if members.next + 1 >= members.count { 0 } else { members.next + 1 };
        }
        self
    }

    /// With the profiled time of each group's batch and, most accurate first, the positions of the groups that have
    /// capacity to spare (the backup table of Loki section 5.1).
    #[must_use]
    pub fn with_backup(mut self, execution: Vec<TimeSpan>, backup: Vec<u32>) -> Self {
        assert!(execution.len() == self.members.len(), "a time for each group");
        self.backup = backup;
        self.execution = execution;
        self
    }

    /// A plan comes into force. `parts` is the use of each group, `execution` the profiled times of their batches, and
    /// `backup` the positions of groups with capacity to spare, most accurate first. The next [`Router::retarget`] applies
    /// it.
    pub fn plan(&mut self, parts: Vec<GroupUse>, execution: Vec<TimeSpan>, backup: Vec<u32>) {
        assert!(execution.is_empty() || execution.len() == parts.len(), "a time for each group");
        self.parts = parts;
        self.execution = execution;
        self.backup = backup;
    }

    /// Changes how a replica is chosen within its group. Queries that were counted before stay counted until they end.
    pub fn choose_by(&mut self, within: Within) {
        if within == self.within {
            return;
        }
        self.within = within;
        (self.only, self.round) = (None, None);
        if within == Within::LeastOutstanding {
            let length = above(&self.targets).max(self.outstanding.len());
            self.outstanding.resize(length, 0);
        }
    }

    /// The next replica for a query that has overrun its last task's part of the SLO by `behind`. A query that is not
    /// behind goes where the table says. Otherwise it goes to the first backup group whose batch is faster than the table's
    /// choice by at least `behind` (Loki section 5.2). `None` if there is no such group: the query should be dropped.
    /// Without a backup table this is the paper's per-task dropping.
    #[inline(always)]
    pub fn pick_behind(&mut self, behind: TimeSpan) -> Option<RouteChoice> {
        if behind == TimeSpan::ZERO { Some(self.pick()) } else { self.pick_faster(behind) }
    }

    #[cold]
    fn pick_faster(&mut self, behind: TimeSpan) -> Option<RouteChoice> {
        self.late.behind += 1;
        let group = self.groups.pick();
        let choice = self.execution.get(group as usize)?;
        let Some(most) = choice.as_nanos().checked_sub(behind.as_nanos()) else {
            self.late.beyond += 1;
            return None;
        };
        // A plan may have brought groups of which none has served yet.
        let serves = |g: u32| self.members.get(g as usize).is_some_and(|m| m.count > 0);
        let fits = |g: &&u32| serves(**g) && self.execution[**g as usize].as_nanos() <= most;
        let faster = self.backup.iter().find(fits).copied()?;
        self.late.rerouted += 1;
        Some(self.pick_within(faster))
    }

    /// Counts of queries that were behind.
    #[must_use]
    pub const fn late(&self) -> LateQueries {
        self.late
    }

    /// The pick of every query that is not behind, where there is no choice and nothing to count.
    #[inline(always)]
    #[must_use]
    pub const fn only(&self) -> Option<RouteChoice> {
        self.only
    }

    /// The next replica.
    #[inline(always)]
    pub fn pick(&mut self) -> RouteChoice {
        if let Some(only) = self.only {
            return only;
        }
        let Some(group) = self.round else { return self.pick_among() };
        let members = &mut self.members[group as usize];
        let at = members.next;
        members.next = if at + 1 == members.count { 0 } else { at + 1 };
        RouteChoice { target: self.targets[(members.first + at) as usize], slot: NO_SLOT }
    }

    /// The next `count` replicas, as by [`Router::pick`]. Data that does not depend on the pick is read once.
    #[inline]
    pub fn pick_each(&mut self, count: u64, mut each: impl FnMut(RouteChoice)) {
        let Some(group) = self.round.filter(|_| self.only.is_none()) else {
            return (0..count).for_each(|_| each(self.pick()));
        };
        let members = &mut self.members[group as usize];
        let targets = &self.targets[members.first as usize..][..members.count as usize];
        let mut at = members.next as usize;
        for _ in 0..count {
            each(RouteChoice { target: targets[at], slot: NO_SLOT });
            at = if at + 1 == targets.len() { 0 } else { at + 1 };
        }
        members.next = at as u32;
    }

    fn pick_among(&mut self) -> RouteChoice {
        let group = self.groups.pick();
        self.pick_within(group)
    }

    #[inline]
    fn pick_within(&mut self, group: u32) -> RouteChoice {
        let members = &mut self.members[group as usize];
        let mut at = members.next;
        let targets = &self.targets[members.first as usize..][..members.count as usize];
        if self.within == Within::LeastOutstanding {
            at = least(targets, &self.outstanding, at);
        }
        members.next = if at + 1 == members.count { 0 } else { at + 1 };
        let target = targets[at as usize];
        let slot = if self.within == Within::LeastOutstanding { target } else { NO_SLOT };
        if let Some(count) = self.outstanding.get_mut(slot as usize) {
            *count += 1;
        }
        RouteChoice { target, slot }
    }

    /// Sets the serving replicas of all groups of the task, in their order. Counts of open queries stay, and so do turns
    /// where weights and counts stay. A group whose count changed starts its turns at the sender's own phase; otherwise
    /// many senders would move on in step. Without a replica in any group nothing changes, and the result is `false`.
    pub fn retarget(&mut self, groups: &[Serving<'_>]) -> bool {
        self.parts.resize(groups.len(), GroupUse::default());
        let with: Vec<(f64, &[u32])> =
            weights(&self.parts, groups).into_iter().zip(groups.iter().map(|g| g.targets)).collect();
        let Some(mut new) = Self::new(self.within, &with, self.phase) else { return false };
        if self.groups_start == GroupsStart::ByPhase {
            new = new.of_ingress();
        }
        new.late = self.late;
        new.parts = std::mem::take(&mut self.parts);
        new.execution = std::mem::take(&mut self.execution);
        if !new.execution.is_empty() {
            // A group that no plan has described yet cannot make up for anything.
            new.execution.resize(groups.len(), TimeSpan::from_nanos(u64::MAX));
        }
        new.backup = std::mem::take(&mut self.backup);
        for (new, old) in new.members.iter_mut().zip(&self.members).filter(|(new, old)| new.count == old.count) {
            new.next = old.next;
        }
        if new.groups.chooses_as(&self.groups) {
            new.groups = self.groups.clone();
        }
        if !self.outstanding.is_empty() {
            let length = new.outstanding.len().max(self.outstanding.len());
            new.outstanding.clone_from(&self.outstanding);
            new.outstanding.resize(length, 0);
        }
        *self = new;
        true
    }

    /// The same choices for another sender, which has no open queries and its own phase ([`Router::new`]). With equal turns
    /// both senders would always send to the same replica at the same time.
    #[must_use]
    pub fn for_another_sender(&self, phase: u32) -> Self {
        let mut other = self.clone();
        other.phase = phase;
        other.members.iter_mut().for_each(|m| m.next = first_turn(phase, m.count));
        other.outstanding.fill(0);
        other.late = LateQueries::default();
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

/// The replica at which the sender with this number begins, below `count`; 0 if there is none.
///
/// Example: of 100 replicas, the senders 0 to 4 begin at 0, 61, 22, 83 and 44. Senders move on equally fast. With
/// neighbouring starts their queries would come to the same few replicas at the same time, and wait there while all others
/// are idle. Steps of the golden section spread any number of senders evenly (Knuth, The Art of Computer Programming,
/// volume 3, section 6.4). The step has no divisor in common with `count`, so as many senders as replicas all begin at
/// different ones.
fn first_turn(phase: u32, count: u32) -> u32 {
    const GOLDEN_SECTION: f64 = 0.618_033_988_749_895;
    if count < 2 {
        return 0;
    }
    let middle = (f64::from(count) * GOLDEN_SECTION) as u32;
    let near = (0..count).flat_map(|distance| [middle.saturating_sub(distance), middle.saturating_add(distance)]);
    let step = near.into_iter().find(|&step| step > 0 && has_no_common_divisor(step, count)).unwrap_or(1);
    (u64::from(phase % count) * u64::from(step) % u64::from(count)) as u32
}

/// Euclid's algorithm.
const fn has_no_common_divisor(mut a: u32, mut b: u32) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// One more than the largest number.
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
