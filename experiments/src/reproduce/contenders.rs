//! Which planners compete, and which dropping policies serve their plans?

use apportion_domain::Dropping;
use apportion_planning::Planner;

/// The least accuracy in the paper's phase 2 (section 2.2: 13 % below the best).
pub const ACCURACY_FLOOR: f64 = 0.87;

/// A planner, and the dropping policies that serve its plan.
#[derive(Clone, Copy)]
pub struct PaperContender {
    /// Its name in tables.
    pub name: &'static str,
    /// The planner.
    pub planner: Planner,
    /// Least accuracy that it plans for.
    pub floor: Option<f64>,
    /// Dropping policies that it has.
    pub dropping: &'static [Dropping],
}

/// The contenders. Each is served with the best of its policies. Only two-step plans leave groups to reroute to.
pub const CONTENDERS: [PaperContender; 4] = [
    PaperContender {
        name: "two-step",
        planner: Planner::Milp,
        floor: None,
        dropping: &[Dropping::Reroute, Dropping::PerTask, Dropping::LastTask],
    },
    PaperContender {
        name: "two-step, accuracy 0.87",
        planner: Planner::Milp,
        floor: Some(ACCURACY_FLOOR),
        dropping: &[Dropping::Reroute, Dropping::PerTask, Dropping::LastTask],
    },
    PaperContender {
        name: "hardware-only",
        planner: Planner::HardwareOnly,
        floor: None,
        dropping: &[Dropping::PerTask, Dropping::LastTask],
    },
    PaperContender {
        name: "proteus",
        planner: Planner::Proteus,
        floor: None,
        dropping: &[Dropping::PerTask, Dropping::LastTask],
    },
];

/// Position of two-step planning among [`CONTENDERS`].
pub const TWO_STEP: usize = 0;

/// See [`TWO_STEP`].
pub const HARDWARE_ONLY: usize = 2;

/// See [`TWO_STEP`].
pub const AGNOSTIC: usize = 3;
