//! Tables of single decisions, and drawn histories of a small world against rules and a slow version.

use super::super::facts::MachineRecord;
use super::*;
use crate::decide::draws::Draws;
use MachineStage::{Alive, Coming, Cordoned, Ended, Ending};

const IDLE: Duration = Duration::from_secs(300);
const PROVISION: Duration = Duration::from_secs(60);

fn at(second: u64) -> Duration {
    Duration::from_secs(1_000_000 + second)
}

fn limits(changes_left: u32) -> PoolLimits {
    PoolLimits { idle: IDLE, changes_left }
}

fn facts(wanted: u32, count_max: u32) -> HardwareFacts {
    HardwareFacts {
        hardware: "t4".into(),
        wanted,
        others: 0,
        count_max,
        devices_each: 2,
        provision: PROVISION,
        retry_at: None,
    }
}

fn machine(name: &str, stage: MachineStage) -> PoolMachine {
    let record =
        MachineRecord { name: name.into(), hardware: "t4".into(), devices: 2, stage, since: Duration::from_secs(999_990) };
    PoolMachine { record, is_live: stage != Coming, is_used: false, left: None, limit: None }
}

fn used(name: &str) -> PoolMachine {
    PoolMachine { is_used: true, ..machine(name, Alive) }
}

fn words(turn: &MachineTurn) -> Vec<String> {
    let changes = turn.changes.iter().map(ToString::to_string);
    changes.chain(turn.obstacles.iter().map(ToString::to_string)).collect()
}

fn first(facts: HardwareFacts, machines: &[PoolMachine], changes_left: u32) -> Vec<String> {
    words(&MachinePool::default().decide(at(0), &[facts], machines, limits(changes_left)))
}

#[test]
fn missing_devices_are_asked_for_in_whole_machines() {
    let two = [used("a"), machine("b", Coming)];
    assert_eq!(first(facts(4, 10), &two, 9), [""; 0]);
    assert_eq!(first(facts(5, 10), &two, 9), ["ask for 1 of t4 (wanted)"]);
    assert_eq!(first(facts(9, 20), &two, 9), ["ask for 3 of t4 (wanted)"]);
    let foreign = HardwareFacts { others: 4, ..facts(8, 10) };
    assert_eq!(first(foreign, &two, 9), [""; 0], "other agents count");
}

#[test]
fn limits_leave_devices_missing_and_say_so() {
    let two = [used("a"), machine("b", Ending)];
    let bounded = first(facts(8, 7), &two, 9);
    assert_eq!(bounded[0], "ask for 1 of t4 (wanted)", "one that ends still counts");
    assert!(bounded[1].contains("4 devices are missing, and count_max allows 7"), "{bounded:?}");
    let spent = first(facts(8, 20), &two, 1);
    assert!(spent[1].contains("4 devices are missing, and this hour has no more changes"), "{spent:?}");
    let waits = first(HardwareFacts { retry_at: Some(at(1)), ..facts(8, 20) }, &two, 9);
    assert!(waits[0].contains("the next wish waits") && waits.len() == 1, "{waits:?}");
    let again = first(HardwareFacts { retry_at: Some(at(0)), ..facts(8, 20) }, &two, 9);
    assert_eq!(again, ["ask for 3 of t4 (wanted)"]);
}

#[test]
fn an_idle_machine_is_cordoned_late_and_then_released() {
    let mut pool = MachinePool::default();
    let mut machines = vec![used("a"), machine("b", Alive)];
    let mut decide = |second, wanted, machines: &[PoolMachine]| {
        words(&pool.decide(at(second), &[facts(wanted, 10)], machines, limits(9)))
    };
    assert_eq!(decide(0, 2, &machines), [""; 0]);
    assert_eq!(decide(200, 4, &machines), [""; 0], "the load is back for a moment");
    assert_eq!(decide(210, 2, &machines), [""; 0]);
    assert_eq!(decide(509, 2, &machines), [""; 0]);
    assert_eq!(decide(510, 2, &machines), ["cordon b (idle)"]);
    machines[1].record = MachineRecord { stage: Cordoned, since: at(510), ..machines[1].record.clone() };
    machines[1].is_used = true;
    assert_eq!(decide(600, 2, &machines), [""; 0], "a round has placed a replica meanwhile");
    machines[1].is_used = false;
    assert_eq!(decide(602, 2, &machines), ["give b back"]);
    assert_eq!(decide(603, 4, &machines), ["use b again"]);
}

#[test]
fn a_used_machine_stays_while_its_devices_are_wanted() {
    let mut pool = MachinePool::default();
    for second in [0, 1_000, 2_000] {
        let turn = pool.decide(at(second), &[facts(3, 10)], &[used("a"), used("b")], limits(9));
        assert_eq!(words(&turn), [""; 0]);
    }
}

#[test]
fn spread_replicas_move_together_one_machine_at_a_time() {
    let mut pool = MachinePool::default();
    let mut machines = vec![used("a"), used("b"), used("c")];
    machines[1].record.since = at(0);
    let mut decide =
        |second, machines: &[PoolMachine]| words(&pool.decide(at(second), &[facts(2, 10)], machines, limits(9)));
    assert_eq!(decide(0, &machines), [""; 0]);
    assert_eq!(decide(300, &machines), ["cordon b (spare)"], "the newest");
    machines[1].record = MachineRecord { stage: Cordoned, since: at(300), ..machines[1].record.clone() };
    assert_eq!(decide(400, &machines), [""; 0], "its replicas have not moved");
    machines[1].is_used = false;
    assert_eq!(decide(402, &machines), ["give b back"]);
    machines.remove(1);
    machines[1].is_used = false;
    assert_eq!(decide(404, &machines), [""; 0], "one without replicas goes by itself");
    assert_eq!(decide(704, &machines), ["cordon c (idle)"]);
}

#[test]
fn the_newest_wish_is_withdrawn_first() {
    let mut pool = MachinePool::default();
    let mut newer = machine("newer", Coming);
    newer.record.since = at(0);
    let machines = [machine("older", Coming), newer, used("a")];
    let mut decide = |second| words(&pool.decide(at(second), &[facts(4, 10)], &machines, limits(9)));
    assert_eq!(decide(0), [""; 0]);
    assert_eq!(decide(300), ["take back the wish newer"]);
}

#[test]
fn a_machine_is_replaced_before_its_time_is_over() {
    let ending = |left_s, limit_s| {
        let (left, limit) = (Some(Duration::from_secs(left_s)), Some(Duration::from_secs(limit_s)));
        PoolMachine { left, limit, ..used("old") }
    };
    assert_eq!(first(facts(2, 10), &[ending(241, 7_200)], 9), [""; 0]);
    assert_eq!(first(facts(2, 10), &[ending(240, 7_200)], 9), ["ask for 1 of t4 (renewed)"]);
    assert_eq!(first(facts(2, 10), &[ending(240, 400)], 9), [""; 0], "at most half of its time");
    let larger = first(facts(6, 10), &[ending(240, 7_200)], 9);
    assert_eq!(larger, ["ask for 1 of t4 (renewed)", "ask for 2 of t4 (wanted)"], "a hold stops the second");
    let coming = [ending(100, 7_200), machine("new", Coming)];
    assert_eq!(first(facts(2, 10), &coming, 9), [""; 0], "the old one stays until the new one is there");
    let both = [ending(100, 7_200), machine("new", Alive)];
    assert_eq!(first(facts(2, 10), &both, 9), ["cordon old (ends_soon)"]);
    let full = first(facts(2, 2), &[ending(100, 7_200)], 9);
    assert!(full[0].contains("count_max allows 2"), "there is no room for a successor: {full:?}");
}

#[test]
fn a_machine_that_does_not_end_is_killed() {
    let mut ending = machine("a", Ending);
    ending.record.since = at(0) - ENDING_MAX;
    assert_eq!(first(facts(0, 10), &[ending.clone()], 0), [""; 0]);
    ending.record.since -= Duration::from_secs(1);
    assert_eq!(first(facts(0, 10), &[ending], 0), ["end a, which does not end by itself"]);
}

/// A substrate and its agents, whose machines come, die and are used at random.
struct World {
    draws: Draws,
    machines: Vec<PoolMachine>,
    named: u32,
    now: Duration,
}

impl World {
    fn new(seed: u64) -> Self {
        Self { draws: Draws(seed), machines: Vec::new(), named: 0, now: at(0) }
    }

    fn devices(&self, counts: impl Fn(&PoolMachine) -> bool) -> u32 {
        self.machines.iter().filter(|machine| counts(machine)).map(|machine| machine.record.devices).sum()
    }

    /// Time passes: wishes come true, machines die, plans use devices.
    fn pass(&mut self, luck: Luck) {
        self.now += Duration::from_secs(10);
        for machine in &mut self.machines {
            let (record, draw) = (&mut machine.record, self.draws.below(40));
            let stage = match (record.stage, luck) {
                (Coming, Luck::Mixed) if draw < 8 => Alive,
                (Coming | Alive, Luck::Mixed) if draw == 39 => Ended,
                (Coming, Luck::Good) => Alive,
                (Ending, _) if draw < 8 => Ended,
                (same, _) => same,
            };
            if stage != record.stage {
                *record = MachineRecord { stage, since: self.now, ..record.clone() };
            }
            machine.is_live = matches!(stage, Alive | Cordoned);
            machine.left = match (machine.left, luck) {
                (_, Luck::Good) => None,
                (Some(left), Luck::Mixed) => Some(left.saturating_sub(Duration::from_secs(10))),
                (None, Luck::Mixed) => (draw == 20).then_some(Duration::from_secs(300)),
            };
        }
        self.machines.retain(|machine| machine.record.stage != Ended);
    }

    /// The target places its devices on machines that are alive.
    fn place(&mut self, devices: u32, packing: Packing) {
        let mut left = devices;
        if packing == Packing::Tight {
            self.machines.sort_by_key(|machine| !machine.is_used);
        }
        for machine in &mut self.machines {
            let is_open = machine.record.stage == Alive && machine.is_live;
            let (may, each) = match packing {
                Packing::Tight => (is_open, machine.record.devices),
                // The replicas of a cordoned machine have not moved yet.
                Packing::Spread => (is_open || (machine.record.stage == Cordoned && machine.is_used), 1),
            };
            machine.is_used = may && left > 0;
            left = if machine.is_used { left.saturating_sub(each) } else { left };
        }
    }

    fn carry_out(&mut self, turn: &MachineTurn) {
        for change in &turn.changes {
            match change {
                MachineChange::Ask { count, .. } => {
                    for _ in 0..*count {
                        self.named += 1;
                        let mut machine = machine(&format!("m{:04}", self.named), Coming);
                        machine.record.since = self.now;
                        self.machines.push(machine);
                    }
                }
                MachineChange::Reclaim { name } => self.set(name, Alive),
                MachineChange::Cordon { name, .. } => self.set(name, Cordoned),
                MachineChange::Release { name } | MachineChange::Withdraw { name } => self.set(name, Ending),
                MachineChange::Kill { name } => self.set(name, Ended),
            }
        }
        self.machines.retain(|machine| machine.record.stage != Ended);
    }

    fn set(&mut self, name: &str, stage: MachineStage) {
        let machine = self.machines.iter_mut().find(|machine| machine.record.name == name).expect("a known machine");
        machine.record = MachineRecord { stage, since: self.now, ..machine.record.clone() };
        machine.is_live = matches!(stage, Alive | Cordoned);
    }
}

/// How replicas are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// On the machines that have some already, and on few.
    Tight,
    /// One device on each machine, until all are placed.
    Spread,
}

/// What happens to machines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Luck {
    /// All that are asked for come, and none is lost.
    Good,
    /// Some come, and some are lost.
    Mixed,
}

fn stays(machine: &PoolMachine) -> bool {
    machine.record.stage == Coming || (machine.record.stage == Alive && !ends_soon(machine, PROVISION))
}

/// The slow version of an ask: machine by machine, with cordoned ones first.
fn slow_ask(world: &World, facts: &HardwareFacts, budget: u32) -> u32 {
    let mut supply = world.devices(stays);
    for machine in world.machines.iter().filter(|machine| machine.record.stage == Cordoned) {
        if supply < facts.wanted && machine.is_live && !ends_soon(machine, PROVISION) {
            supply += machine.record.devices;
        }
    }
    let (mut all, mut asked) = (world.devices(|_| true), 0);
    while supply < facts.wanted && all + facts.devices_each <= facts.count_max && asked < budget {
        (supply, all, asked) = (supply + facts.devices_each, all + facts.devices_each, asked + 1);
    }
    asked
}

/// The rules that hold for each turn.
fn check(world: &World, facts: &HardwareFacts, budget: u32, turn: &MachineTurn) {
    let place = || format!("at {:?}: {turn:?}\n{facts:?}\n{:?}", world.now, world.machines);
    let known = |name: &str| world.machines.iter().find(|machine| machine.record.name == name).expect("a known machine");
    let mut asked = 0;
    let mut counted = 0;
    for change in &turn.changes {
        match change {
            MachineChange::Ask { count, .. } => (asked, counted) = (asked + count, counted + count),
            MachineChange::Cordon { name, why } => {
                counted += 1;
                let serving = world.devices(|machine| stays(machine) && machine.record.stage == Alive);
                let is_replaced = *why == ReturnReason::EndsSoon && serving >= facts.wanted;
                let has_room = *why == ReturnReason::Spare && serving - known(name).record.devices >= facts.wanted;
                assert!(is_replaced || has_room || !known(name).is_used, "{name} is used {}", place());
            }
            MachineChange::Release { name } => {
                assert!(!known(name).is_used && known(name).record.stage == Cordoned, "{name} {}", place());
            }
            MachineChange::Withdraw { name } => {
                counted += 1;
                assert_eq!(known(name).record.stage, Coming, "{name} {}", place());
            }
            MachineChange::Reclaim { .. } | MachineChange::Kill { .. } => {}
        }
    }
    assert!(counted <= budget, "{counted} changes of {budget} {}", place());
    let all = world.devices(|_| true) + asked * facts.devices_each;
    assert!(asked == 0 || all <= facts.count_max, "{all} devices {}", place());
    assert_eq!(asked, slow_ask(world, facts, budget), "{}", place());
}

/// The kind of a change, with the reason of one that cordons.
fn kind(change: &MachineChange) -> &'static str {
    match change {
        MachineChange::Ask { .. } => "ask",
        MachineChange::Reclaim { .. } => "reclaim",
        MachineChange::Cordon { why, .. } => why.name(),
        MachineChange::Release { .. } => "release",
        MachineChange::Withdraw { .. } => "withdraw",
        MachineChange::Kill { .. } => "kill",
    }
}

#[test]
fn drawn_histories_keep_the_rules() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let (mut world, mut pool) = (World::new(seed), MachinePool::default());
        let mut wanted = 0;
        for _turn in 0..400 {
            if world.draws.below(12) == 0 {
                wanted = world.draws.below(18) as u32;
            }
            let limits = PoolLimits { idle: Duration::from_secs(30), changes_left: world.draws.below(6) as u32 };
            let packing = if world.draws.below(2) == 0 { Packing::Spread } else { Packing::Tight };
            world.pass(Luck::Mixed);
            let placed = wanted.saturating_sub(world.draws.below(3) as u32);
            world.place(placed, packing);
            let facts = facts(wanted, 14);
            let turn = pool.decide(world.now, std::slice::from_ref(&facts), &world.machines, limits);
            check(&world, &facts, limits.changes_left, &turn);
            seen.extend(turn.changes.iter().map(kind));
            world.carry_out(&turn);
        }
    }
    let all = ["ask", "ends_soon", "idle", "kill", "reclaim", "release", "spare", "withdraw"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "every change was drawn");
}

#[test]
fn drawn_histories_converge_once_the_load_is_steady() {
    for seed in 0..40 {
        let (mut world, mut pool) = (World::new(seed), MachinePool::default());
        for turn in 0..600 {
            let is_steady = turn >= 300;
            let wanted = if is_steady { 7 } else { (turn / 20 * 5) % 18 };
            world.pass(if is_steady { Luck::Good } else { Luck::Mixed });
            world.place(wanted.min(world.devices(|machine| machine.record.stage == Alive)), Packing::Tight);
            let turn = pool.decide(world.now, &[facts(wanted, 14)], &world.machines, limits(9));
            world.carry_out(&turn);
        }
        let alive = world.devices(|machine| machine.record.stage == Alive);
        assert_eq!((alive, world.machines.len()), (8, 4), "seed {seed}: {:?}", world.machines);
        let idle = pool.decide(world.now + IDLE, &[facts(7, 14)], &world.machines, limits(9));
        assert_eq!(words(&idle), [""; 0], "seed {seed}: the next turn changes nothing");
    }
}
