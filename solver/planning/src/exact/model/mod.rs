//! How is a planning problem stated as a mixed-integer programme?
//!
//! [`groups`] lists what may run, [`trie`] where queries may go, and [`space`] joins both. [`columns`] and
//! [`constraints`] write the programme for one [`goal`].

pub(crate) mod alone;
pub(crate) mod bounds;
pub(crate) mod budgets;
pub(crate) mod columns;
pub(crate) mod constraints;
pub(crate) mod covers;
pub(crate) mod goal;
pub(crate) mod groups;
pub(crate) mod latency;
pub(crate) mod paths;
pub(crate) mod quotas;
pub(crate) mod space;
pub(crate) mod tightening;
pub(crate) mod tolerances;
pub(crate) mod trie;
