//! How many children does an emulated query make over an edge?

use apportion_domain::{Edge, Route, Variant};
use apportion_protocol::v1;

/// The distribution of the children that an emulated query makes over an edge. It is the profile's if the profile has one,
/// else the two whole numbers around the mean, as in the estimator. With `one_of`, it is conditional: the edge was chosen.
pub(super) fn fanout(route: Route, edge: &Edge, variant: &Variant) -> v1::Fanout {
    let count = |(children, probability)| v1::FanoutCount { children, probability };
    let counts = match variant.fanout_counts.get(&edge.to) {
        Some(counts) => counts.0.iter().copied().map(count).collect(),
        None => {
            let mean = variant.fanout_to.get(&edge.to).copied().unwrap_or(variant.fanout * edge.ratio);
            let mean = if route == Route::OneOf && edge.ratio > 0.0 { mean / edge.ratio } else { mean };
            let floor = mean.floor().min(f64::from(u32::MAX - 1));
            let rest = mean - floor;
            let both = [(floor as u32, 1.0 - rest), (floor as u32 + 1, rest)];
            both.into_iter().filter(|(_, p)| *p > 0.0).map(count).collect()
        }
    };
    v1::Fanout { to_task: edge.to.0 as u32, counts }
}
