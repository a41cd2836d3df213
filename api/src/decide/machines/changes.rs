//! Which machines are asked for, and which go back?
//!
//! Asks come at once, because requests wait. Machines go back late: a load that has just fallen may be back. A machine is
//! cordoned first: no new replica is placed there, and it is told to end when it has none.

#[cfg(test)]
mod tests;

use super::facts::{
    AskReason, HardwareFacts, MachineChange, MachineObstacle, MachineStage, MachineTurn, PoolLimits, PoolMachine,
    ReturnReason,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A successor is asked for this long before it is needed, beside the time that it takes to come. In this time its
/// replicas load, and the old machine's move.
pub const RENEW_MARGIN: Duration = Duration::from_secs(120);
/// A machine that was told to end is ended after this time. An agent drains for 10 s at most.
pub const ENDING_MAX: Duration = Duration::from_secs(60);
/// A cordoned machine stays at least this long, so that a target that was being made meanwhile is seen.
pub const CORDON_WAIT: Duration = Duration::from_secs(5);

/// The memory of the decisions so far.
#[derive(Clone, Debug, Default)]
pub struct MachinePool {
    /// Machines without replicas, by name: since when.
    idle_since: BTreeMap<String, Duration>,
    /// Types with too many devices: since when.
    surplus_since: BTreeMap<String, Duration>,
}

/// The machines of one type, with the sums that decide.
struct TypeView<'a> {
    facts: &'a HardwareFacts,
    machines: Vec<&'a PoolMachine>,
    /// Devices that serve or will: those of wishes and of machines whose time is not almost over.
    supply: u32,
    /// The part of them that serves now.
    serving: u32,
    /// All devices that there are or will be, those that go too.
    all: u32,
}

impl<'a> TypeView<'a> {
    fn new(facts: &'a HardwareFacts, all: &'a [PoolMachine]) -> Self {
        let is_of_type = |machine: &&PoolMachine| machine.record.hardware == facts.hardware;
        let is_there = |machine: &&PoolMachine| machine.record.stage != MachineStage::Ended;
        let machines: Vec<_> = all.iter().filter(is_of_type).filter(is_there).collect();
        let sum = |counts: &dyn Fn(&PoolMachine) -> bool| {
            let devices = machines.iter().filter(|machine| counts(machine)).map(|machine| machine.record.devices);
            devices.fold(facts.others, u32::saturating_add)
        };
        let stays = |machine: &PoolMachine| {
            machine.record.stage == MachineStage::Coming
                || (machine.record.stage == MachineStage::Alive && !ends_soon(machine, facts.provision))
        };
        let serves =
            |machine: &PoolMachine| machine.record.stage == MachineStage::Alive && machine.is_live && stays(machine);
        Self { supply: sum(&stays), serving: sum(&serves), all: sum(&|_| true), facts, machines }
    }

    fn in_stage(&self, stage: MachineStage) -> impl DoubleEndedIterator<Item = &'a PoolMachine> {
        let of_stage: Vec<&'a PoolMachine> =
            self.machines.iter().copied().filter(|machine| machine.record.stage == stage).collect();
        of_stage.into_iter()
    }

    fn ends_soon(&self, machine: &PoolMachine) -> bool {
        ends_soon(machine, self.facts.provision)
    }
}

/// The time before its end at which a machine's successor is asked for. It is at most half of its whole time.
#[must_use]
pub fn renew_before(provision: Duration, limit: Option<Duration>) -> Duration {
    let before = provision.saturating_mul(2).saturating_add(RENEW_MARGIN);
    limit.map_or(before, |limit| before.min(limit / 2))
}

fn ends_soon(machine: &PoolMachine, provision: Duration) -> bool {
    machine.left.is_some_and(|left| left <= renew_before(provision, machine.limit))
}

impl MachinePool {
    /// Decides about all types. Machines of a type that is not in `types` stay as they are, but one that was told to end
    /// ends.
    pub fn decide(
        &mut self,
        now: Duration,
        types: &[HardwareFacts],
        machines: &[PoolMachine],
        limits: PoolLimits,
    ) -> MachineTurn {
        self.note_idle(now, machines);
        let views: Vec<_> = types.iter().map(|facts| TypeView::new(facts, machines)).collect();
        let mut turn = MachineTurn::default();
        let mut budget = limits.changes_left;
        for view in &views {
            ask(&mut turn, view, &mut budget, now);
        }
        for view in &views {
            cordon_ending(&mut turn, view, &mut budget);
            self.give_back(&mut turn, view, &mut budget, limits.idle, now);
        }
        self.surplus_since.retain(|hardware, _| types.iter().any(|facts| facts.hardware == *hardware));
        finish(&mut turn, machines, now);
        turn
    }

    fn note_idle(&mut self, now: Duration, machines: &[PoolMachine]) {
        let idle = machines.iter().filter(|machine| machine.record.stage == MachineStage::Alive && !machine.is_used);
        let idle: BTreeSet<&String> = idle.map(|machine| &machine.record.name).collect();
        self.idle_since.retain(|name, _| idle.contains(name));
        for name in idle {
            self.idle_since.entry(name.clone()).or_insert(now);
        }
    }

    /// Takes wishes back and cordons idle machines, after the type had too many devices for a while.
    fn give_back(&mut self, turn: &mut MachineTurn, view: &TypeView<'_>, budget: &mut u32, idle: Duration, now: Duration) {
        let hardware = &view.facts.hardware;
        let mut spare = view.supply.saturating_sub(view.facts.wanted);
        if spare == 0 {
            self.surplus_since.remove(hardware);
            return;
        }
        let is_over = |since: Duration| now.saturating_sub(since) >= idle;
        if !is_over(*self.surplus_since.entry(hardware.clone()).or_insert(now)) {
            return;
        }
        // The newest wish is the furthest from its turn.
        let mut wishes: Vec<_> = view.in_stage(MachineStage::Coming).collect();
        wishes.sort_by_key(|machine| std::cmp::Reverse(machine.record.since));
        for machine in wishes {
            if *budget > 0 && machine.record.devices <= spare {
                spare -= machine.record.devices;
                *budget -= 1;
                turn.changes.push(MachineChange::Withdraw { name: machine.record.name.clone() });
            }
        }
        let since = |machine: &PoolMachine| self.idle_since.get(&machine.record.name).copied();
        let stays = view.in_stage(MachineStage::Alive).filter(|machine| !view.ends_soon(machine));
        let mut unused: Vec<_> = stays.filter(|machine| since(machine).is_some()).collect();
        unused.sort_by_key(|machine| since(machine));
        let mut may_move = view.in_stage(MachineStage::Cordoned).next().is_none();
        for machine in unused {
            if machine.record.devices > spare {
                continue;
            }
            // One that has just lost its replicas goes before any that has some.
            may_move = false;
            if *budget > 0 && since(machine).is_some_and(is_over) {
                spare -= machine.record.devices;
                *budget -= 1;
                let (name, why) = (machine.record.name.clone(), ReturnReason::Idle);
                turn.changes.push(MachineChange::Cordon { name, why });
            }
        }
        if may_move && *budget > 0 {
            cordon_spare(turn, view, budget);
        }
    }
}

/// Cordons one machine whose replicas have room on the others: replicas may be spread over more machines than are needed.
fn cordon_spare(turn: &mut MachineTurn, view: &TypeView<'_>, budget: &mut u32) {
    let has_room = |machine: &PoolMachine| view.serving.saturating_sub(machine.record.devices) >= view.facts.wanted;
    let stays = view.in_stage(MachineStage::Alive).filter(|machine| machine.is_live && !view.ends_soon(machine));
    let newest = stays.filter(|machine| has_room(machine)).max_by_key(|machine| machine.record.since);
    if let Some(machine) = newest {
        *budget -= 1;
        let (name, why) = (machine.record.name.clone(), ReturnReason::Spare);
        turn.changes.push(MachineChange::Cordon { name, why });
    }
}

/// Uses cordoned machines again, and asks for the others that are missing.
fn ask(turn: &mut MachineTurn, view: &TypeView<'_>, budget: &mut u32, now: Duration) {
    let facts = view.facts;
    let mut supply = view.supply;
    for machine in view.in_stage(MachineStage::Cordoned).filter(|machine| !view.ends_soon(machine) && machine.is_live) {
        if supply < facts.wanted {
            supply = supply.saturating_add(machine.record.devices);
            turn.changes.push(MachineChange::Reclaim { name: machine.record.name.clone() });
        }
    }
    let missing = facts.wanted.saturating_sub(supply);
    if missing == 0 {
        return;
    }
    let hardware = || facts.hardware.clone();
    if facts.retry_at.is_some_and(|at| now < at) {
        turn.obstacles.push(MachineObstacle::Waits { hardware: hardware(), missing });
        return;
    }
    let each = facts.devices_each.max(1);
    let room = facts.count_max.saturating_sub(view.all) / each;
    let needed = missing.div_ceil(each);
    let count = needed.min(room).min(*budget);
    *budget -= count;
    // The successors of machines whose time is almost over; the others are for a larger load.
    let ending = view.in_stage(MachineStage::Alive).filter(|machine| view.ends_soon(machine));
    let renewed = ending.fold(0, |sum: u32, machine| sum.saturating_add(machine.record.devices)).div_ceil(each).min(count);
    for (count, why) in [(renewed, AskReason::Renewed), (count - renewed, AskReason::Wanted)] {
        if count > 0 {
            turn.changes.push(MachineChange::Ask { hardware: hardware(), count, why });
        }
    }
    let missing = missing.saturating_sub(count.saturating_mul(each));
    if missing > 0 && room < needed {
        let count_max = facts.count_max;
        turn.obstacles.push(MachineObstacle::CountMax { hardware: hardware(), missing, count_max });
    } else if missing > 0 {
        turn.obstacles.push(MachineObstacle::BudgetSpent { hardware: hardware(), missing });
    }
}

/// Cordons machines whose time is almost over, once the others are enough.
fn cordon_ending(turn: &mut MachineTurn, view: &TypeView<'_>, budget: &mut u32) {
    if view.serving < view.facts.wanted {
        return;
    }
    for machine in view.in_stage(MachineStage::Alive).filter(|machine| view.ends_soon(machine)) {
        if *budget > 0 {
            *budget -= 1;
            let (name, why) = (machine.record.name.clone(), ReturnReason::EndsSoon);
            turn.changes.push(MachineChange::Cordon { name, why });
        }
    }
}

/// Tells cordoned machines without replicas to end, and ends those that do not.
fn finish(turn: &mut MachineTurn, machines: &[PoolMachine], now: Duration) {
    let reclaimed: BTreeSet<String> = turn.changes.iter().filter_map(reclaimed_name).collect();
    for machine in machines {
        let record = &machine.record;
        let (name, age) = (record.name.clone(), now.saturating_sub(record.since));
        match record.stage {
            MachineStage::Cordoned if !machine.is_used && age >= CORDON_WAIT && !reclaimed.contains(&name) => {
                turn.changes.push(MachineChange::Release { name });
            }
            MachineStage::Ending if age > ENDING_MAX => turn.changes.push(MachineChange::Kill { name }),
            _ => {}
        }
    }
}

fn reclaimed_name(change: &MachineChange) -> Option<String> {
    match change {
        MachineChange::Reclaim { name } => Some(name.clone()),
        _ => None,
    }
}
