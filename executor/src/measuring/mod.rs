//! How is the latency of a variant measured? The profiler and the agents measure with the same code.
//!
//! A batch size is measured in three steps ([`point`]). First, batches run until their times are steady. Then a fixed
//! calculation shows how much other work disturbs this machine ([`noise`]). Then batches run until the intervals of the
//! median and of the 99th percentile are narrow ([`interval`]), or a cap of time is met. [`stats`] makes rows of a profile
//! from the times.

pub mod drawn;
pub mod held;
pub mod interval;
pub mod noise;
pub mod percentiles;
pub mod point;
pub mod processor;
pub mod provenance;
pub mod rows;
pub mod stats;
