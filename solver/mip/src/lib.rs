//! How are mixed-integer linear programmes stated and solved?
//!
//! What belongs here: programmes as data ([`Formulation`]), the two solvers for them, and the limits of a run
//! ([`RunLimits`]). What never does: pipelines, plans, or the meaning of a column. The callers know those.
//!
//! Small programmes go to [`branch`], a branch and bound on the dense dual simplex of [`tableau`]. All others go to
//! HiGHS. The module [`highs`] is the only file of the project that names HiGHS.
//!
//! The commonest addition is a setting of HiGHS: add a field to [`highs::SolveSettings`], and set the option where the
//! solver is configured.

pub mod branch;
mod formulation;
pub mod highs;
mod limits;
mod rounding;
pub mod tableau;
mod work;

pub use formulation::{ColumnId, ColumnRange, ConstraintRow, Ending, Formulation, SolveResult};
pub use limits::{FINISH_TIME_AFTER_STOP, Incumbent, Listener, RunLimits, StopSignal};
pub use rounding::Rounding;
pub use work::WorkBudget;
