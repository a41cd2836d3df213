//! Which devices may a pipeline still take? Those that no other has, as far as the quota of its project goes.

use super::projects::{DeviceCounts, DevicePrices, ProjectQuota, QuotaBreach};
use std::collections::BTreeMap;

/// The rest of a project's quota for some pipelines, by position.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectRoom {
    /// The project.
    pub project: String,
    /// Its pipelines.
    pub members: Vec<usize>,
    /// The devices that these pipelines may have together.
    pub quota: ProjectQuota,
}

/// Devices that no pipeline has yet, and the rest of each quota.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePool {
    left: DeviceCounts,
    rooms: Vec<ProjectRoom>,
    prices: DevicePrices,
}

impl DevicePool {
    /// All devices.
    #[must_use]
    pub fn new(devices: DeviceCounts, rooms: Vec<ProjectRoom>, prices: DevicePrices) -> Self {
        Self { left: devices, rooms, prices }
    }

    /// The devices that nobody has.
    #[must_use]
    pub fn left(&self) -> &DeviceCounts {
        &self.left
    }

    /// The rest of the quotas.
    #[must_use]
    pub fn rooms(&self) -> &[ProjectRoom] {
        &self.rooms
    }

    /// How many devices of a type a pipeline may take.
    #[must_use]
    pub fn available(&self, pipeline: usize, hardware: &str) -> u32 {
        let rooms = self.rooms.iter().filter(|room| room.members.contains(&pipeline));
        let by_quota = rooms.map(|room| room.quota.devices_left(hardware, &self.prices)).min().unwrap_or(u32::MAX);
        self.left.get(hardware).copied().unwrap_or(0).min(by_quota)
    }

    /// Takes devices of a type, at most as many as there are; returns their number.
    pub fn take(&mut self, pipeline: usize, hardware: &str, wanted: u32) -> u32 {
        let taken = self.available(pipeline, hardware).min(wanted);
        if taken > 0 {
            *self.left.entry(hardware.to_owned()).or_default() -= taken;
            let devices: DeviceCounts = BTreeMap::from([(hardware.to_owned(), taken)]);
            for room in self.rooms.iter_mut().filter(|room| room.members.contains(&pipeline)) {
                room.quota = room.quota.without(&devices, &self.prices);
            }
        }
        taken
    }

    /// Takes as many of these devices as there are; returns them.
    pub fn take_all(&mut self, pipeline: usize, devices: &DeviceCounts) -> DeviceCounts {
        devices.iter().map(|(name, &count)| (name.clone(), self.take(pipeline, name, count))).collect()
    }

    /// The limits of a room that these devices exceed.
    #[must_use]
    pub fn breaches(&self, room: &ProjectRoom, devices: &DeviceCounts) -> Vec<QuotaBreach> {
        room.quota.breaches(&room.project, devices, &self.prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(list: &[(&str, u32)]) -> DeviceCounts {
        list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn pipelines_of_a_project_share_its_room() {
        let quota = ProjectQuota { hardware: devices(&[("x", 4)]), devices: None, cost_per_hour: Some(10.0) };
        let room = ProjectRoom { project: "a".into(), members: vec![0, 1], quota };
        let prices: DevicePrices = [("x".to_owned(), 2.0), ("y".to_owned(), 3.0)].into();
        let mut pool = DevicePool::new(devices(&[("x", 6), ("y", 6)]), vec![room], prices);
        assert_eq!((pool.available(0, "x"), pool.available(2, "x"), pool.available(0, "z")), (4, 6, 0));
        assert_eq!(pool.take_all(0, &devices(&[("x", 3), ("z", 1)])), devices(&[("x", 3), ("z", 0)]));
        // one x by the count, and one y of price 3 by the rest of 4
        assert_eq!((pool.available(1, "x"), pool.available(1, "y"), pool.available(2, "y")), (1, 1, 6));
        assert_eq!((pool.take(1, "y", 5), pool.take(1, "x", 5)), (1, 0));
        assert_eq!(pool.left(), &devices(&[("x", 3), ("y", 5)]));
        assert_eq!(pool.take(2, "x", 9), 3, "another project");
    }

    #[test]
    fn no_order_of_takes_exceeds_devices_or_quotas() {
        let mut state = 7_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..200 {
            let all = devices(&[("x", draw(8)), ("y", draw(8))]);
            let quota = ProjectQuota {
                hardware: devices(&[("x", draw(5))]),
                devices: (draw(2) == 0).then(|| draw(7)),
                cost_per_hour: (draw(2) == 0).then(|| f64::from(draw(12))),
            };
            let prices: DevicePrices = [("x".to_owned(), 1.5), ("y".to_owned(), 0.5)].into();
            let room = ProjectRoom { project: "a".into(), members: vec![0, 1], quota: quota.clone() };
            let mut pool = DevicePool::new(all.clone(), vec![room], prices.clone());
            let mut has = vec![devices(&[("x", 0), ("y", 0)]); 3];
            for _ in 0..12 {
                let (pipeline, name) = (draw(3) as usize, ["x", "y"][draw(2) as usize]);
                let taken = pool.take(pipeline, name, draw(4));
                *has[pipeline].entry(name.to_owned()).or_default() += taken;
            }
            let sum = |pipelines: &[usize], name: &str| pipelines.iter().map(|&at| has[at][name]).sum::<u32>();
            assert!(["x", "y"].iter().all(|name| sum(&[0, 1, 2], name) + pool.left()[*name] == all[*name]), "{has:?}");
            let of_project = devices(&[("x", sum(&[0, 1], "x")), ("y", sum(&[0, 1], "y"))]);
            assert_eq!(quota.breaches("a", &of_project, &prices), [], "{has:?}");
        }
    }
}
