//! How is the latency of a variant measured? The profiler and the agents measure with the same code.
//!
//! A batch size is measured in three steps ([`point`]). Batches run until their times are steady. They run on until the
//! intervals of the median and of the 99th percentile are narrow ([`interval`]), or a cap of time is met. Meanwhile the
//! disturbance by other work is measured ([`noise`]). [`stats`] makes rows of a profile from the times.

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
