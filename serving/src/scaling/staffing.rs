//! Which groups get devices when there are too few for all?

/// One group that wants replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDemand {
    /// Replicas that it has in any case.
    pub has: u32,
    /// Replicas that it should have.
    pub wanted: u32,
    /// Its hardware type, by position.
    pub pool: usize,
    /// The share of each replica, in eighths of a device.
    pub eighths: u64,
}

/// Example: two groups have one replica each and want five. With three free devices they get three and two.
///
/// Replicas of each group, at least the present number and at most the wanted one. Devices are given one at a time, to the
/// group with the smallest part of its wanted replicas whose pool has room; among equals to the first. A pipeline is as
/// fast as its slowest task, so one task gains nothing while another has too little.
///
/// `pools` are the free eighths of each hardware type; `None` is no limit.
#[must_use]
pub fn share_out(wants: &[GroupDemand], mut pools: Vec<Option<u64>>) -> Vec<u32> {
    let mut counts: Vec<u32> = wants.iter().map(|w| w.has).collect();
    let mut open: Vec<usize> = (0..wants.len()).filter(|&at| wants[at].wanted > wants[at].has).collect();
    // Parts are compared as fractions, without dividing.
    let order = |counts: &[u32], a: usize, b: usize| {
        let part = |x: usize, y: usize| u64::from(counts[x]) * u64::from(wants[y].wanted);
        part(a, b).cmp(&part(b, a)).then(a.cmp(&b))
    };
    while let Some(next) = open.iter().copied().min_by(|&a, &b| order(&counts, a, b)) {
        let want = &wants[next];
        let left = pools[want.pool].map(|free| free.checked_sub(want.eighths));
        if left == Some(None) {
            open.retain(|&at| at != next);
            continue;
        }
        pools[want.pool] = left.flatten();
        counts[next] += 1;
        if counts[next] >= want.wanted {
            open.retain(|&at| at != next);
        }
    }
    counts
}
