use super::*;
use crate::workload::WorkloadKind;

const LIMITS: RolloutLimits = RolloutLimits { at_a_time_max: 1, ready_within: Duration::from_secs(60), changes_left: 100 };

fn name(name: &str) -> WorkloadName {
    WorkloadName { namespace: "serving".into(), kind: WorkloadKind::Deployment, name: name.into() }
}

fn state(replicas: u32, ready_replicas: u32) -> WorkloadState {
    WorkloadState { replicas, ready_replicas, is_observed: true, ..WorkloadState::default() }
}

fn memory(applied: u32, ready: u32, applied_at_s: u64) -> WorkloadMemory {
    let applied_at = Duration::from_secs(applied_at_s);
    WorkloadMemory { applied, before: None, applied_at, ready, failed: None }
}

/// A workload: its name, its goal, what the API shows, and what is remembered.
type Row = (&'static str, u32, WorkloadState, Option<WorkloadMemory>);

/// A turn at second 100.
fn turn_of(rows: &[Row], limits: RolloutLimits) -> RolloutTurn {
    let goals: Vec<_> = rows.iter().map(|row| WorkloadGoal { workload: name(row.0), replicas: row.1 }).collect();
    let seen = rows.iter().map(|row| (name(row.0), row.2.clone())).collect();
    let known = rows.iter().filter_map(|row| Some((name(row.0), row.3?))).collect();
    next_turn(&goals, &seen, &known, limits, Duration::from_secs(100))
}

fn changes(turn: &RolloutTurn) -> Vec<String> {
    turn.changes.iter().map(|change| format!("{} {} to {}", change.workload.name, change.from, change.to)).collect()
}

fn obstacles(turn: &RolloutTurn) -> Vec<String> {
    turn.obstacles.iter().map(ToString::to_string).collect()
}

#[test]
fn growth_comes_first_and_shrinking_waits_until_it_is_ready() {
    let old = ("a-old", 0, state(3, 3), Some(memory(3, 3, 0)));
    let table: [(WorkloadState, WorkloadMemory, &[&str]); 4] = [
        (state(0, 0), memory(0, 0, 0), &["b-new 0 to 2"]),
        (state(2, 0), memory(2, 0, 90), &[]),
        (state(2, 1), memory(2, 0, 90), &[]),
        (state(2, 2), memory(2, 0, 90), &["a-old 3 to 0"]),
    ];
    for (new, known, expected) in table {
        let turn = turn_of(&[old.clone(), ("b-new", 2, new.clone(), Some(known))], LIMITS);
        assert_eq!(changes(&turn), expected, "{new:?}");
        assert_eq!(obstacles(&turn), [""; 0]);
        assert!(!turn.is_done);
    }
}

#[test]
fn at_most_so_many_workloads_change_at_a_time() {
    let grow = |name| (name, 2, state(1, 1), Some(memory(1, 1, 0)));
    let rows = [grow("a"), grow("b"), grow("c")];
    for (at_a_time_max, expected) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
        assert_eq!(turn_of(&rows, RolloutLimits { at_a_time_max, ..LIMITS }).changes.len(), expected);
    }
    let moving = ("d", 2, state(2, 1), Some(memory(2, 1, 90)));
    let [a, b, c] = rows;
    let two = RolloutLimits { at_a_time_max: 2, ..LIMITS };
    assert_eq!(changes(&turn_of(&[a, b, c, moving], two)), ["a 1 to 2"], "one already moves");
}

#[test]
fn a_workload_is_taken_as_it_is_found() {
    let turn = turn_of(&[("a", 3, state(3, 0), None)], LIMITS);
    assert_eq!(turn.notes, [(name("a"), memory(3, 3, 100))]);
    assert!(turn.is_done && turn.changes.is_empty() && turn.obstacles.is_empty());
}

#[test]
fn other_owners_stop_every_change_of_the_pipeline() {
    let owner = |manager: &str| ReplicasOwner { manager: manager.into(), since: "2026-11-24T19:15:03Z".into() };
    let owned = |manager| WorkloadState { owners: vec![owner(manager)], ..state(1, 1) };
    let hpa = WorkloadState { autoscaler: Some("web".into()), ..state(1, 1) };
    let known = Some(memory(1, 1, 0));
    let table = [
        (owned("kubectl-create"), "field manager kubectl-create owns them since 2026-11-24T19:15:03Z"),
        (hpa, "HorizontalPodAutoscaler web targets it too"),
        (state(5, 5), "something else changed its replicas from 1 to 5"),
    ];
    for (found, expected) in table {
        let turn = turn_of(&[("a", 2, state(1, 1), known), ("b", 2, found, known)], LIMITS);
        assert_eq!(changes(&turn), [""; 0]);
        let said = obstacles(&turn);
        assert!(said.len() == 1 && said[0].contains("Deployment serving/b") && said[0].contains(expected), "{said:?}");
    }
    let ours = turn_of(&[("a", 2, owned("apportion"), known)], LIMITS);
    assert_eq!(changes(&ours), ["a 1 to 2"]);
}

#[test]
fn a_missing_workload_stops_the_pipeline() {
    let goals = [WorkloadGoal { workload: name("a"), replicas: 1 }];
    let turn = next_turn(&goals, &BTreeMap::new(), &BTreeMap::new(), LIMITS, Duration::ZERO);
    assert!(obstacles(&turn)[0].starts_with("Deployment serving/a does not exist"), "{turn:?}");
}

#[test]
fn replicas_that_are_never_ready_are_rolled_back_once() {
    let late = turn_of(&[("a", 4, state(4, 2), Some(memory(4, 2, 39)))], LIMITS);
    assert_eq!(changes(&late), ["a 4 to 2"]);
    assert_eq!(late.changes[0].why, ScaleReason::RollBack);
    let expected = "Deployment serving/a: 4 replicas did not become ready within 60 s, so it keeps 2";
    assert_eq!(obstacles(&late), [expected]);
    let not_late = turn_of(&[("a", 4, state(4, 2), Some(memory(4, 2, 41)))], LIMITS);
    assert_eq!((changes(&not_late), obstacles(&not_late)), (vec![], vec![]));
    let after = WorkloadMemory { failed: Some(4), ..memory(2, 2, 50) };
    let again = turn_of(&[("a", 4, state(2, 2), Some(after))], LIMITS);
    assert_eq!((changes(&again), obstacles(&again)), (vec![], vec![expected.to_owned()]));
    let other_goal = turn_of(&[("a", 3, state(2, 2), Some(after))], LIMITS);
    assert_eq!(changes(&other_goal), ["a 2 to 3"], "another plan is tried");
}

#[test]
fn a_patch_that_the_watch_does_not_show_yet_is_awaited() {
    let sent = |at_s| WorkloadMemory { before: Some(1), ..memory(2, 1, at_s) };
    let awaited = turn_of(&[("a", 2, state(1, 1), Some(sent(95)))], LIMITS);
    assert_eq!((changes(&awaited), obstacles(&awaited), awaited.is_done), (vec![], vec![], false));
    let lost = turn_of(&[("a", 2, state(1, 1), Some(sent(80)))], LIMITS);
    assert_eq!(changes(&lost), ["a 1 to 2"], "it never reached the API");
}

#[test]
fn changes_beyond_the_budget_wait() {
    let grow = |name| (name, 2, state(1, 1), Some(memory(1, 1, 0)));
    let limits = RolloutLimits { at_a_time_max: 2, changes_left: 1, ..LIMITS };
    let turn = turn_of(&[grow("a"), grow("b")], limits);
    assert_eq!(changes(&turn), ["a 1 to 2"]);
    assert_eq!(
        obstacles(&turn),
        ["Deployment serving/b from 1 to 2 waits: this hour has no more changes (changes_per_hour)"]
    );
}
