//! Who plans, and what is its plan served with?

use apportion_domain::Dropping;
use apportion_planning::Planner;

/// What the accuracy may fall to in the paper's phase 2 (section 2.2: 13 % below the best).
pub const ACCURACY_FLOOR: f64 = 0.87;

/// Who plans, and what its plan is served with.
#[derive(Clone, Copy)]
pub struct Contender {
    /// Its name in tables.
    pub name: &'static str,
    /// Who plans.
    pub planner: Planner,
    /// Least accuracy that it plans for.
    pub floor: Option<f64>,
    /// Dropping policies that it has.
    pub dropping: &'static [Dropping],
}

/// Each contender is served with the better of the policies that it has; only two-step plans leave groups to reroute to.
pub const CONTENDERS: [Contender; 4] = [
    Contender {
        name: "two-step",
        planner: Planner::Milp,
        floor: None,
        dropping: &[Dropping::Reroute, Dropping::PerTask, Dropping::LastTask],
    },
    Contender {
        name: "two-step, accuracy 0.87",
        planner: Planner::Milp,
        floor: Some(ACCURACY_FLOOR),
        dropping: &[Dropping::Reroute, Dropping::PerTask, Dropping::LastTask],
    },
    Contender {
        name: "hardware-only",
        planner: Planner::HardwareOnly,
        floor: None,
        dropping: &[Dropping::PerTask, Dropping::LastTask],
    },
    Contender {
        name: "proteus",
        planner: Planner::Proteus,
        floor: None,
        dropping: &[Dropping::PerTask, Dropping::LastTask],
    },
];

/// Contenders of the three phases, among those of the static comparison: two-step, hardware-only, pipeline-agnostic.
pub const TWO_STEP: usize = 0;

/// See [`TWO_STEP`].
pub const HARDWARE_ONLY: usize = 2;

/// See [`TWO_STEP`].
pub const AGNOSTIC: usize = 3;
