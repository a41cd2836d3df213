//! Do the papers' results hold on this code, does the whole system work on real input, and how fast is each part?
//!
//! What belongs here: the comparisons of the papers ([`reproduce`]), the demo ([`demo`]), benchmarks
//! ([`bench`](mod@bench)) and the comparison with Kubernetes' own autoscaler ([`hpa`]), over the public interfaces of the
//! other crates. What never does: a policy, a planner, the arguments of a command. The commonest addition is a comparison:
//! a function that returns a report, and a row in the list of [`reproduce`].

pub mod bench;
pub mod demo;
pub mod hpa;
pub mod live;
pub mod reproduce;
