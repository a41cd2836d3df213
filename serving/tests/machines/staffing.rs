//! Who gets the devices when there are not enough.

use apportion_serving::staffing::{GroupDemand, share_out};
use proptest::prelude::*;

fn want(has: u32, wanted: u32) -> GroupDemand {
    GroupDemand { has, wanted, pool: 0, eighths: 8 }
}

#[test]
fn tasks_that_want_the_same_get_the_same() {
    assert_eq!(share_out(&[want(1, 5), want(1, 5)], vec![Some(32)]), [3, 3]);
    assert_eq!(share_out(&[want(1, 5), want(1, 5)], vec![Some(24)]), [3, 2]);
    assert_eq!(share_out(&[want(1, 5), want(1, 5)], vec![None]), [5, 5]);
}

#[test]
fn devices_are_shared_in_proportion_to_wanted_replicas() {
    assert_eq!(share_out(&[want(0, 8), want(0, 4)], vec![Some(48)]), [4, 2]);
    let other = GroupDemand { pool: 1, eighths: 4, ..want(0, 4) };
    assert_eq!(share_out(&[want(1, 4), other], vec![Some(7), Some(9)]), [1, 2]);
    assert_eq!(share_out(&[want(3, 2)], vec![Some(80)]), [3], "nothing is taken away");
}

proptest! {
    /// No other division of the same pool leaves the worst off better off.
    #[test]
    fn the_worst_off_could_not_be_better_off(wants in prop::collection::vec((0..3_u32, 1..5_u32), 1..4), devices in 0..8_u32) {
        let wants: Vec<GroupDemand> = wants.into_iter().map(|(has, wanted)| want(has, wanted)).collect();
        let worst = |counts: &[u32]| {
            let parts = counts.iter().zip(&wants).map(|(&n, w)| f64::from(n) / f64::from(w.wanted));
            parts.fold(f64::INFINITY, f64::min).min(1.0)
        };
        let counts = share_out(&wants, vec![Some(u64::from(devices) * 8)]);
        let spent: u32 = counts.iter().zip(&wants).map(|(n, w)| n - w.has).sum();
        prop_assert!(spent <= devices);
        // Every division, one by one.
        let mut best = worst(&wants.iter().map(|w| w.has).collect::<Vec<_>>());
        for code in 0..8_u32.pow(wants.len() as u32) {
            let extra: Vec<u32> = (0..wants.len() as u32).map(|at| code / 8_u32.pow(at) % 8).collect();
            if extra.iter().sum::<u32>() <= devices {
                let tried: Vec<u32> = extra.iter().zip(&wants).map(|(e, w)| w.has + e).collect();
                best = best.max(worst(&tried));
            }
        }
        prop_assert!((worst(&counts) - best).abs() < 1e-12, "{counts:?} of {wants:?} with {devices}: {best}");
    }
}
