//! What changes between two plans as the load changes: replicas, routing tables, module states, variants?
//!
//! [`outline`] is a planned pipeline in numbers. [`tuner`] (InferLine) and [`ladder`] (ours) say how many replicas there
//! should be. [`headroom_controller`] moves a ladder's headroom by the misses that it counts in an [`error_budget`], and
//! keeps a [`leap_reserve`]. [`staffing`] shares out scarce devices, [`state_planner`] is PARD's, [`selector`] is INFaaS's.
//! The [`steward`] drives them for one pipeline.

pub mod error_budget;
pub mod headroom_controller;
pub mod ladder;
pub mod leap_reserve;
pub mod outline;
pub mod selector;
pub mod staffing;
pub mod state_planner;
pub mod steward;
pub mod tuner;
