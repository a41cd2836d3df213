//! Which plan is best, with a proof? The exact planner: mixed-integer programmes over groups, budgets and flows.
//!
//! The rooms import downwards only: `search`, `decompose`, `stage`, `solution`, `model`.
//!
//! One formulation ([`model::constraints`]) serves every mode. A mode is a sequence of stages over it:
//!
//! - `hardware_then_accuracy` (Loki section 4.2): the fewest replicas of the most accurate variants. If that is infeasible:
//!   the highest accuracy A within the counts, and then the fewest replicas with an accuracy of at least `A (1 - 1e-6)`.
//!   The paper leaves out this last stage. Without it the second step fills the cluster for nothing.
//! - `min_cost`: one stage. `max_accuracy`: the highest weighted accuracy, then the least cost that keeps it.
//!
//! A problem of three or more pipelines is taken apart along the devices and the budget that they share ([`decompose`]).
//!
//! One pipeline on one kind of device takes a shorter way ([`stage::enumerate`]). It has few budget vectors, and each has a
//! bound in closed form ([`stage::envelope`]).

pub(crate) mod decompose;
pub(crate) mod model;
pub(crate) mod priced;
pub(crate) mod search;
pub(crate) mod solution;
pub(crate) mod stage;
