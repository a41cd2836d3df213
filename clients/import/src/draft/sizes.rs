//! How large are the inputs of one query?

use crate::graph::GraphTensor;
use apportion_domain::pipeline::KIB_PER_QUERY_MAX;
use apportion_domain::tensor::Datatype;

/// Bytes of one KiB.
const BYTES_PER_KIB: f64 = 1024.0;

/// KiB of one row of all these inputs, to three decimals. `None` if the files do not say it: an inner axis may have any
/// size, or elements have no size of their own. `None` also for a size that a pipeline file may not have.
pub(super) fn kib_per_query(inputs: &[GraphTensor]) -> Option<f64> {
    let bytes = |input: &GraphTensor| {
        let datatype = Datatype::from_name(input.datatype?).filter(|datatype| *datatype != Datatype::Bytes)?;
        let sizes = input.sizes()?;
        let elements = sizes.iter().skip(1).map(|size| size.filter(|n| *n > 0).map(|n| n as f64));
        Some(elements.product::<Option<f64>>()? * datatype.size() as f64)
    };
    let kib = inputs.iter().map(bytes).sum::<Option<f64>>()? / BYTES_PER_KIB;
    let rounded = (1e3 * kib).round() / 1e3;
    (rounded > 0.0 && rounded <= KIB_PER_QUERY_MAX).then_some(rounded)
}
