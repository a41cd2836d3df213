//! What is optimised in one stage, and under which extra conditions?

use apportion_domain::{HardwareIndex, Mode, ObjectiveStep, PipelineIndex, Share, TaskIndex};
use apportion_mip::highs::ReportedGoal;

/// Goal of one stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Fewest replicas.
    Replicas,
    /// Least cost of devices plus switching.
    CostAndSwitching,
    /// Least cost of devices.
    Cost,
    /// Highest weighted accuracy.
    Accuracy,
    /// Fewest devices of one hardware type: the needed count.
    Devices(HardwareIndex),
    /// Largest share of one pipeline's demand that can be served, 0 to 1. Its value is negated.
    Demand(PipelineIndex),
    /// Smallest SLO of one pipeline, as a share of its present SLO.
    Slo(PipelineIndex),
    /// Highest accuracy of one pipeline.
    AccuracyOf(PipelineIndex),
    /// Least cost of switching alone. [`Stage::prices`] gives the prices of devices.
    Switching,
    /// Only the prices of [`Stage::prices`].
    Nothing,
}

/// The numbers of replicas that a task may have on one hardware type and share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaRange {
    pub task: TaskIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    pub least: u32,
    pub most: u32,
}

/// One stage: its goal and its conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    pub goal: Goal,
    /// Budgets by task, of the only pipeline; `None` leaves them to be chosen.
    pub budgets: Option<&'a [f64]>,
    /// Weighted accuracy of at least this.
    pub accuracy_min: Option<f64>,
    /// Price of a whole device of each hardware type, in the unit of the goal and in addition to it. A decomposition
    /// charges it for devices that pipelines share. A replica pays for its share of a device.
    pub prices: Option<&'a [f64]>,
    /// Free devices of each type, or parts of them: the unused parts of whole devices that other pipelines pay for. They
    /// count for nothing.
    pub free: Option<&'a [f64]>,
    /// Least and most replicas of each task in each place, of the only pipeline.
    pub totals: Option<&'a [ReplicaRange]>,
    /// Most nodes of its search; `None` is unlimited.
    pub nodes_max: Option<u32>,
}

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SearchEffort {
    /// Relative gap at which a plan counts as optimal.
    pub gap: f64,
    /// Most nodes of each programme. A search with this limit ends without a clock, and in the same way each time. `None`
    /// is unlimited.
    pub nodes_max: Option<u32>,
}

impl SearchEffort {
    /// Until the gap is proven.
    pub fn until_proven(gap: f64) -> Self {
        Self { gap, nodes_max: None }
    }
}

impl Goal {
    /// The goal of the last stage of a plan with this step.
    pub fn of_step(mode: Mode, step: Option<ObjectiveStep>) -> Self {
        match (mode, step) {
            (Mode::MinCost, _) => Self::CostAndSwitching,
            (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => Self::Replicas,
            (Mode::HardwareThenAccuracy | Mode::MaxAccuracy, _) => Self::Accuracy,
        }
    }

    /// The goal as a listener sees it; `None` for goals of explanations, which are not reported.
    pub fn reported(self) -> Option<ReportedGoal> {
        let (name, factor) = match self {
            Self::Replicas => ("replicas", 1.0),
            Self::Accuracy => ("accuracy", -1.0),
            Self::Cost | Self::CostAndSwitching => ("cost", 1.0),
            _ => return None,
        };
        Some(ReportedGoal { name, factor })
    }
}

impl<'a> Stage<'a> {
    /// A stage with a goal and without conditions.
    pub fn new(goal: Goal) -> Self {
        Self { goal, budgets: None, accuracy_min: None, prices: None, free: None, totals: None, nodes_max: None }
    }

    /// Whether every solution's cost is a whole number.
    pub fn is_whole(&self) -> bool {
        self.goal == Goal::Replicas && self.prices.is_none()
    }

    /// The same stage within these budgets.
    pub fn within_budgets(self, budgets: &'a [f64]) -> Self {
        Self { budgets: Some(budgets), ..self }
    }
}
