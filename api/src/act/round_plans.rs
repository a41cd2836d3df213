//! Which plan does each pipeline of a round get on its devices?
//!
//! The pipelines are planned in the order of their levels. The check on samples may ask for more devices than the joint
//! plan counted. Then a pipeline takes them from pipelines of lower levels, which have not been planned yet.

use super::division::{DivisionInput, PipelineShare, divide_devices};
use super::pipeline_plan::plan_pipeline;
use super::replan::{ReplanRound, Verdict, share_of};
use crate::decide::projects::DeviceCounts;
use apportion_domain::SLACK;

/// Plans every pipeline on its devices; the verdicts have the order of the pipelines.
pub(super) async fn plan_by_levels(input: &DivisionInput<'_>, round: &ReplanRound) -> Vec<Verdict> {
    let mut shares = divide_devices(input).await;
    let all = input.all_devices();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&at| input.level(at));
    let mut verdicts: Vec<Option<Verdict>> = shares.iter().map(|_| None).collect();
    for at in order {
        let mut verdict = plan_on(input, at, &shares[at].devices, round).await;
        let served = verdict.served_qps();
        if served < input.wishes[at].demand_qps * (1.0 - SLACK)
            && let Some(more) = with_devices_of_lower_levels(input, &shares, at)
        {
            let better = plan_on(input, at, &more, round).await;
            if better.served_qps() > served {
                let used = better.devices(input.plan_in_force(at));
                take_from_lower_levels(input, &mut shares, at, &used);
                verdict = better;
            }
        }
        verdicts[at] = Some(verdict.noted(&shares[at].describe(&all)));
    }
    verdicts.into_iter().flatten().collect()
}

/// Plans a pipeline on these devices.
async fn plan_on(input: &DivisionInput<'_>, at: usize, devices: &DeviceCounts, round: &ReplanRound) -> Verdict {
    let hardware = share_of(input.hardware, devices);
    let planned = plan_pipeline(input.wishes[at], hardware, input.plan_in_force(at), round).await;
    planned.unwrap_or_else(|error| Verdict::Fail(error.to_string()))
}

/// The devices of a pipeline with all those of lower levels, as far as its project's quota goes; `None` if there are no
/// more.
fn with_devices_of_lower_levels(input: &DivisionInput<'_>, shares: &[PipelineShare], at: usize) -> Option<DeviceCounts> {
    if (0..shares.len()).all(|other| input.level(other) <= input.level(at)) {
        return None;
    }
    let mut pool = input.pool();
    for other in (0..shares.len()).filter(|&other| other != at && input.level(other) <= input.level(at)) {
        pool.take_all(other, &shares[other].devices);
    }
    let mut devices = pool.take_all(at, &shares[at].devices);
    for (name, left) in pool.left().clone() {
        *devices.entry(name.clone()).or_default() += pool.take(at, &name, left);
    }
    let has = |name: &str| shares[at].devices.get(name).copied().unwrap_or(0);
    devices.iter().any(|(name, count)| *count > has(name)).then_some(devices)
}

/// Gives a pipeline these devices beside its own, and the pipelines of lower levels what is left of theirs.
fn take_from_lower_levels(input: &DivisionInput<'_>, shares: &mut [PipelineShare], at: usize, used: &DeviceCounts) {
    let mut wanted = shares[at].devices.clone();
    for (name, count) in used {
        let entry = wanted.entry(name.clone()).or_default();
        *entry = (*entry).max(*count);
    }
    let mut pool = input.pool();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    // its own devices come first within its level: the others of the level keep theirs
    order.sort_by_key(|&other| (input.level(other), other == at));
    for other in order {
        let before = if other == at { wanted.clone() } else { shares[other].devices.clone() };
        let devices = pool.take_all(other, &before);
        if other != at && devices != before {
            let name = &input.wishes[at].spec.name;
            shares[other].note += &format!("; {name} needed more devices and went first, by priority");
        }
        shares[other].devices = devices;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::division::Teams;
    use crate::decide::correction::Measurements;
    use crate::decide::device_pool::ProjectRoom;
    use crate::decide::projects::ProjectQuota;
    use crate::decide::replan::ReplanInput;
    use apportion_wire::{HardwareSpec, PipelineSpec};

    fn devices(count: u32) -> DeviceCounts {
        DeviceCounts::from([("x".into(), count)])
    }

    #[test]
    fn a_pipeline_takes_devices_from_lower_levels_only() {
        let spec = |name: &str| PipelineSpec { name: name.into(), ..PipelineSpec::default() };
        let wishes = ["high", "beside", "low", "mate"].map(|name| ReplanInput::for_seen_demand(spec(name), 1.0));
        let hardware = [HardwareSpec { name: "x".into(), price_per_hour: 1.0, count: Some(10), memory_mib: None }];
        let (measured, cancel, live) = (Measurements::default(), std::sync::Arc::default(), devices(10));
        let quota = ProjectQuota { devices: Some(5), ..ProjectQuota::default() };
        let teams = |members: &[usize]| Teams {
            rooms: vec![ProjectRoom { project: "a".into(), members: members.to_vec(), quota: quota.clone() }],
            levels: vec![0, 0, 1, 2],
            ..Teams::default()
        };
        for (members, most, after) in [(vec![], 8, [6, 2, 2, 0]), (vec![0, 3], 5, [5, 2, 3, 0])] {
            let teams = teams(&members);
            let input = DivisionInput {
                teams: &teams,
                wishes: wishes.iter().collect(),
                in_force: Vec::new(),
                hardware: &hardware,
                measured: &measured,
                live: &live,
                cancel: &cancel,
                devices: &[],
                begun: std::time::Instant::now(),
                memory: None,
            };
            let mut shares = [3, 2, 3, 2].map(|count| PipelineShare { devices: devices(count), note: String::new() });
            assert_eq!(with_devices_of_lower_levels(&input, &shares, 0), Some(devices(most)), "{members:?}");
            assert_eq!(with_devices_of_lower_levels(&input, &shares, 3), None);
            take_from_lower_levels(&input, &mut shares, 0, &devices(most.min(6)));
            assert_eq!(shares.clone().map(|share| share.devices["x"]), after, "{members:?}");
            assert_eq!(shares[3].note, "; high needed more devices and went first, by priority");
            assert_eq!(shares[1].note, "");
        }
    }
}
