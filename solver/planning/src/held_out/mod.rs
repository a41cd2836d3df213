//! Does a plan hold on samples of the load that it was not made on?

pub(crate) mod effort;
pub(crate) mod judge;
pub(crate) mod search;
pub(crate) mod side_by_side;
pub(crate) mod verdict;
