//! Is there room in the fleet for one more replica of some groups?
//!
//! Example: two devices of type `t4` have a half free each. A replica that needs a half fits, two of them fit as well, and
//! one that needs three quarters does not.

use crate::layout::{Layout, LayoutGroup};
use crate::steering::{SLACK, free_shares};
use std::collections::BTreeMap;

/// Most free shares that are kept of each hardware type: a request needs one replica of each task at most.
const SHARES_MAX: usize = 64;

/// The free shares of the fleet's devices.
#[derive(Clone, Debug, Default)]
pub struct SpareShares<'l> {
    /// By hardware type, the largest first.
    by_hardware: BTreeMap<&'l str, Vec<f64>>,
}

impl<'l> SpareShares<'l> {
    /// Those that the layout leaves free. Devices whose hardware type it does not say have none.
    #[must_use]
    pub fn of(layout: &'l Layout) -> Self {
        let mut by_hardware: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (place, left) in free_shares(layout, |_| true) {
            if let Some(devices) = layout.devices.get(&place.agent).filter(|_| left > SLACK) {
                by_hardware.entry(&devices.hardware).or_default().push(left);
            }
        }
        for shares in by_hardware.values_mut() {
            shares.sort_by(|a, b| b.total_cmp(a));
            shares.truncate(SHARES_MAX);
        }
        Self { by_hardware }
    }

    /// Whether one replica of each of these groups fits beside the others.
    #[must_use]
    pub fn have_room_for(&self, groups: &[&LayoutGroup]) -> bool {
        let mut left = self.by_hardware.clone();
        let mut wanted = groups.to_vec();
        wanted.sort_by(|a, b| b.share.total_cmp(&a.share));
        wanted.into_iter().all(|group| {
            let shares = left.get_mut(group.hardware.as_str());
            let free = shares.and_then(|shares| shares.iter_mut().find(|free| **free + SLACK >= group.share));
            free.is_some_and(|free| {
                *free -= group.share;
                true
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};
    use apportion_protocol::v1;

    #[test]
    fn replicas_fit_beside_each_other_or_not_at_all() {
        // Two agents with two devices each; groups 1 and 2 have one replica on device 0 of each.
        let mut target = chain();
        for peer in &mut target.agents {
            (peer.hardware, peer.devices) = ("h".into(), 2);
        }
        let of = &mut target.pipelines[0];
        for group in &mut of.groups {
            (group.hardware, group.share) = ("h".into(), 1.0);
        }
        let half = v1::GroupTarget { group: 3, share: 0.5, ..of.groups[0].clone() };
        let strange = v1::GroupTarget { group: 4, hardware: "other".into(), ..of.groups[0].clone() };
        of.groups.extend([half, strange]);
        let layout = lay_out(&target).expect("valid");
        let groups = &layout.pipelines["p"].groups;
        let spare = SpareShares::of(&layout);
        let fits = |ids: &[u64]| spare.have_room_for(&ids.iter().map(|id| &groups[id]).collect::<Vec<_>>());
        assert!(fits(&[]) && fits(&[1]) && fits(&[1, 2]) && fits(&[3, 1, 3]) && fits(&[3, 3, 3, 3]));
        assert!(!fits(&[1, 2, 3]) && !fits(&[4]) && !fits(&[3, 3, 3, 3, 3]));
    }
}
