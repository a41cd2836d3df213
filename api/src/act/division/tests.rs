//! Which devices do pipelines of small rounds have?

use super::*;
use crate::decide::drift::{FigureKind, ProfileDrift, ProfileFigure};
use crate::decide::projects::ProjectQuota;
use crate::decide::replan::OnBetterPlan;
use apportion_domain::{Assignment, GroupName, Routing, ServingPolicy, Share};
use chrono::Utc;
use serde_json::json;

/// A pipeline of one task of 10 ms on these hardware types.
fn wish(name: &str, demand_qps: f64, mode: &str, hardware: &[&str]) -> ReplanInput {
    let rows: Vec<_> = hardware.iter().map(|name| json!({"hardware": name, "batch": 1, "latency_ms": 10.0})).collect();
    let spec: PipelineSpec = serde_json::from_value(json!({
        "name": name, "slo_ms": 200.0, "replan": {"objective": {"mode": mode}},
        "tasks": [{"name": "t", "variants": [{"name": "v", "accuracy": 0.9, "profile": rows}]}]
    }))
    .expect("a spec");
    let wish = ReplanInput::for_seen_demand(spec, demand_qps);
    ReplanInput { demand_qps, on_better_plan: OnBetterPlan::Apply, ..wish }
}

fn hardware(counts: &[(&str, u32)]) -> Vec<HardwareSpec> {
    let of = |&(name, count): &(&str, u32)| HardwareSpec {
        name: name.to_owned(),
        price_per_hour: 1.0,
        count: Some(count),
        memory_mib: None,
    };
    counts.iter().map(of).collect()
}

async fn shares(wishes: &[ReplanInput], counts: &[(&str, u32)]) -> Vec<PipelineShare> {
    shares_with(wishes, counts, &Teams::default(), &[]).await
}

async fn shares_with(
    wishes: &[ReplanInput],
    counts: &[(&str, u32)],
    teams: &Teams,
    in_force: &[PipelinePlan],
) -> Vec<PipelineShare> {
    shares_in_zones(wishes, counts, teams, in_force, &[]).await
}

async fn shares_in_zones(
    wishes: &[ReplanInput],
    counts: &[(&str, u32)],
    teams: &Teams,
    in_force: &[PipelinePlan],
    devices: &[Device],
) -> Vec<PipelineShare> {
    let (hardware, measured, cancel) = (hardware(counts), Measurements::default(), Arc::default());
    let live: DeviceCounts = counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    let input = DivisionInput {
        wishes: wishes.iter().collect(),
        hardware: &hardware,
        in_force: in_force.iter().collect(),
        teams,
        live: &live,
        measured: &measured,
        cancel: &cancel,
        devices,
        begun: Instant::now(),
        memory: None,
    };
    divide_devices(&input).await
}

/// The devices of one type, by pipeline.
fn of_type(shares: &[PipelineShare], name: &str) -> Vec<u32> {
    shares.iter().map(|share| share.devices.get(name).copied().unwrap_or(0)).collect()
}

fn room(members: &[usize], quota: ProjectQuota) -> ProjectRoom {
    ProjectRoom { project: "team-a".into(), members: members.to_vec(), quota }
}

#[tokio::test]
async fn a_pipeline_that_survives_zones_has_devices_for_it() {
    let mode = "hardware_then_accuracy";
    let mut wishes = [wish("plain", 350.0, mode, &["x"]), wish("safe", 350.0, mode, &["x"])];
    wishes[1].spec.survive = Some(1);
    let zone = |device: u32| if device.is_multiple_of(2) { "a" } else { "b" };
    let device = |at: u32| Device { zone: zone(at).to_owned(), ..Device::new(1, at, "x") };
    let devices: Vec<Device> = (0..12).map(device).collect();
    // Four devices carry the load of each. Of `safe`, either zone must have four.
    let shares = shares_in_zones(&wishes, &[("x", 12)], &Teams::default(), &[], &devices).await;
    assert_eq!(of_type(&shares, "x"), [4, 8], "{shares:?}");
}

#[tokio::test]
async fn a_pipeline_with_one_choice_has_the_devices_that_others_can_spare() {
    let mode = "hardware_then_accuracy";
    // Each needs four devices: at most 100/s of a device of 10 ms.
    let wishes = [wish("picky", 350.0, mode, &["x"]), wish("free", 350.0, mode, &["x", "y"])];
    let shares = shares(&wishes, &[("x", 4), ("y", 4)]).await;
    assert_eq!(shares[0].devices["x"], 4, "{shares:?}");
    assert_eq!(shares[1].devices["y"], 4, "{shares:?}");
    let all = DeviceCounts::from([("x".into(), 4), ("y".into(), 4)]);
    assert_eq!(shares[0].describe(&all), "; it has 4 of 4 x");
}

#[tokio::test]
async fn too_few_devices_are_divided_at_lower_demands() {
    let mode = "hardware_then_accuracy";
    let wishes = [wish("a", 600.0, mode, &["x"]), wish("b", 300.0, mode, &["x"])];
    let shares = shares(&wishes, &[("x", 6)]).await;
    assert_eq!((shares[0].devices["x"], shares[1].devices["x"]), (4, 2), "{shares:?}");
}

#[tokio::test]
async fn pipelines_of_different_modes_divide_by_work() {
    let wishes = [wish("a", 300.0, "min_cost", &["x"]), wish("b", 100.0, "max_accuracy", &["x"])];
    let shares = shares(&wishes, &[("x", 10)]).await;
    assert_eq!(shares.iter().map(|share| share.devices["x"]).collect::<Vec<_>>(), [7, 3]);
}

#[tokio::test]
async fn a_pipeline_without_a_profile_takes_nothing_from_the_joint_plan() {
    let mode = "min_cost";
    let wishes = [wish("a", 350.0, mode, &["x"]), wish("b", 350.0, mode, &["absent"])];
    let shares = shares(&wishes, &[("x", 4)]).await;
    assert_eq!(of_type(&shares, "x"), [4, 0], "{shares:?}");
}

#[tokio::test]
async fn a_higher_priority_is_served_first() {
    let mode = "min_cost";
    let wishes = [wish("low", 500.0, mode, &["x"]), wish("high", 500.0, mode, &["x"]), wish("mid", 200.0, mode, &["x"])];
    let teams = Teams { levels: vec![2, 0, 1], ..Teams::default() };
    // high needs five, mid two; low has the other three of its five
    let shares = shares_with(&wishes, &[("x", 10)], &teams, &[]).await;
    assert_eq!(of_type(&shares, "x").iter().sum::<u32>(), 10, "{shares:?}");
    assert!(shares[1].devices["x"] >= 5 && shares[2].devices["x"] >= 2 && shares[0].devices["x"] < 5, "{shares:?}");
    assert_eq!(shares[0].note, "; high, mid went first, by priority");
    assert_eq!((shares[1].note.as_str(), shares[2].note.as_str()), ("", ""));
}

/// The parts of demands on devices of 100/s each, as a brute force serves them: level by level, the largest power of
/// 0.85 for which each pipeline of the level has its whole devices.
fn devices_by_level(demands: &[f64], levels: &[usize], devices: u32) -> Vec<u32> {
    let need = |qps: f64| (qps / 100.0 - 1e-9).ceil().max(1.0) as u32;
    let (mut left, mut has) = (devices, vec![0; demands.len()]);
    for level in 0..demands.len() {
        let own: Vec<usize> = (0..demands.len()).filter(|&at| levels[at] == level).collect();
        for power in 0..=30 {
            let needs: Vec<u32> = own.iter().map(|&at| need(demands[at] * 0.85_f64.powi(power))).collect();
            if needs.iter().sum::<u32>() <= left {
                left -= needs.iter().sum::<u32>();
                own.iter().zip(needs).for_each(|(&at, n)| has[at] = n);
                break;
            }
        }
    }
    has
}

#[tokio::test]
async fn levels_are_served_as_by_brute_force() {
    let mut state = 3_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let mut short = 0;
    for case in 0..12 {
        let demands: Vec<f64> = (0..3).map(|_| 50.0 + f64::from(draw(500))).collect();
        let levels: Vec<usize> = (0..3).map(|_| draw(3) as usize).collect();
        let devices = 3 + draw(14);
        let least = devices_by_level(&demands, &levels, devices);
        let wishes: Vec<ReplanInput> =
            ["a", "b", "c"].iter().zip(&demands).map(|(name, &qps)| wish(name, qps, "min_cost", &["x"])).collect();
        let teams = Teams { levels, ..Teams::default() };
        let has = of_type(&shares_with(&wishes, &[("x", devices)], &teams, &[]).await, "x");
        assert_eq!(has.iter().sum::<u32>(), devices, "case {case}: {demands:?} {has:?}");
        assert!(has.iter().zip(&least).all(|(has, least)| has >= least), "case {case}: {has:?} for {least:?}");
        short += u32::from(demands.iter().map(|qps| (qps / 100.0).ceil()).sum::<f64>() > f64::from(devices));
    }
    assert!(short > 2, "the draws are too alike: {short}");
}

#[tokio::test]
async fn a_project_has_no_more_than_its_quota() {
    let mode = "hardware_then_accuracy";
    let wishes = [wish("a", 350.0, mode, &["x", "y"]), wish("b", 350.0, mode, &["x"]), wish("c", 100.0, mode, &["x"])];
    for (quota, x, all) in [
        (ProjectQuota { hardware: [("x".into(), 4)].into(), ..ProjectQuota::default() }, 4, 20),
        (ProjectQuota { devices: Some(5), ..ProjectQuota::default() }, 5, 5),
        (ProjectQuota { cost_per_hour: Some(6.5), ..ProjectQuota::default() }, 6, 6),
    ] {
        let teams = Teams { rooms: vec![room(&[0, 1], quota.clone())], ..Teams::default() };
        let shares = shares_with(&wishes, &[("x", 10), ("y", 10)], &teams, &[]).await;
        let of = |name: &str| of_type(&shares[..2], name).iter().sum::<u32>();
        assert!(of("x") <= x && of("x") + of("y") <= all, "{quota:?}: {shares:?}");
        assert!(shares[2].devices["x"] >= 1, "{shares:?}");
    }
}

#[tokio::test]
async fn a_quota_that_is_too_small_is_named() {
    let wishes = [wish("a", 550.0, "min_cost", &["x"]), wish("b", 50.0, "min_cost", &["x"])];
    let quota = ProjectQuota { hardware: [("x".into(), 4)].into(), ..ProjectQuota::default() };
    let teams = Teams { rooms: vec![room(&[0], quota)], ..Teams::default() };
    let shares = shares_with(&wishes, &[("x", 10)], &teams, &[]).await;
    assert_eq!(shares[0].note, "; project team-a may have 4 x, its pipelines need 6");
    assert_eq!((shares[0].devices["x"], shares[1].note.as_str()), (4, ""), "{shares:?}");
}

/// A part in force of replicas of the variant `v` on `x`.
fn running(name: &str, replicas: u32) -> PipelinePlan {
    let group = GroupName { task: "t".into(), variant: "v".into(), hardware: "x".into(), share: Share::WHOLE };
    let assignment = Assignment { group, batch: 1, replicas, traffic_share: 1.0, latency_budget_ms: 0.0, utilisation: 0.0 };
    PipelinePlan {
        name: name.into(),
        demand_qps: 1.0,
        accuracy: 0.9,
        serving: ServingPolicy::default(),
        assignments: vec![assignment],
        flows: Vec::new(),
        routing: Routing::default(),
        ladder: Vec::new(),
    }
}

/// A pipeline with a second variant that is more accurate by `gain` and takes twice as long, and loads for this long.
fn with_better(name: &str, demand_qps: f64, gain: f64, load_ms: f64) -> ReplanInput {
    let mut wish = wish(name, demand_qps, "max_accuracy", &["x"]);
    let variants = &mut wish.spec.tasks[0].variants;
    let mut better = variants[0].clone();
    (better.name, better.accuracy) = ("w".into(), Some(0.9 + gain));
    better.profile.iter_mut().flatten().for_each(|row| row.latency_ms = 20.0);
    variants.push(better);
    variants.iter_mut().for_each(|variant| variant.load_ms = Some(load_ms));
    wish
}

#[tokio::test]
async fn devices_move_only_for_more_than_their_loads_cost() {
    // a serves half of its queries by the better variant on four devices, and all of them on six; b needs one device
    let in_force = [running("a", 4), running("b", 4)];
    for (gain, load_ms, moves) in [(0.01, 30_000.0, false), (0.09, 10.0, true)] {
        let wishes = [with_better("a", 300.0, gain, load_ms), wish("b", 90.0, "max_accuracy", &["x"])];
        let shares = shares_with(&wishes, &[("x", 8)], &Teams::default(), &in_force).await;
        let has = of_type(&shares, "x");
        assert_eq!((has[0] > 4, has[0] + has[1]), (moves, 8), "gain {gain}: {shares:?}");
    }
}

#[tokio::test]
async fn the_work_is_that_of_the_corrected_profile() {
    // without a joint plan (no pipeline meets its SLO), devices are divided by work
    let mut wishes = [wish("a", 100.0, "min_cost", &["x"]), wish("b", 100.0, "min_cost", &["x"])];
    wishes.iter_mut().for_each(|wish| wish.spec.slo_ms = 5.0);
    let figure = ProfileFigure { kind: FigureKind::Latency, task: "t".into(), variant: "v".into(), at: "x".into() };
    let drift =
        ProfileDrift { pipeline: "a".into(), figure, factor: 3.0, profile: 10.0, measured: 30.0, since: Utc::now() };
    let measured = Measurements { drifts: vec![drift], ..Measurements::default() };
    let (hardware, cancel, teams) = (hardware(&[("x", 10)]), Arc::default(), Teams::default());
    let live = DeviceCounts::from([("x".into(), 10)]);
    let input = DivisionInput {
        wishes: wishes.iter().collect(),
        hardware: &hardware,
        in_force: Vec::new(),
        teams: &teams,
        live: &live,
        measured: &measured,
        cancel: &cancel,
        devices: &[],
        begun: Instant::now(),
        memory: None,
    };
    assert_eq!(of_type(&divide_devices(&input).await, "x"), [7, 3]);
}
