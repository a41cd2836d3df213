//! Who gets the devices when there are not enough for what everybody wants.

/// One group that wants replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Replicas that it has in any case.
    pub has: u32,
    /// Replicas that it should have.
    pub wanted: u32,
    /// Where its replicas come from: the hardware type, by position.
    pub pool: usize,
    /// What each takes of the pool, in eighths of a device.
    pub eighths: u64,
}

/// Replicas of each group, at least what it has and at most what it wants: one at a time to the group that has the smallest part
/// of what it wants and whose pool has room; among equals to the first. A pipeline is as fast as its slowest task, so a task that
/// gets all it wants while another starves would gain nothing.
///
/// `pools` are the free eighths of each hardware type; `None` is no limit.
#[must_use]
pub fn share_out(wants: &[Want], mut pools: Vec<Option<u64>>) -> Vec<u32> {
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
