//! How is a programme given to a solver? This is the only file of the crate that names HiGHS.

use crate::answer::ReferenceError;
use crate::choice::RoundedSolution;
use crate::model::Model;
use apportion_domain::{LatencyRule, Problem};
use good_lp::solvers::SolutionStatus;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, WithMipGap, WithTimeLimit,
};
use std::time::Duration;

/// Tolerance of HiGHS on rows, columns and integers. The shares of the paths are published, so it is as tight as
/// HiGHS allows.
const TOLERANCE: f64 = 1e-10;

/// Who solves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// HiGHS.
    #[default]
    Highs,
    /// `microlp`: pure Rust, for small problems.
    MicroLp,
}

impl Solver {
    /// Every solver, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Highs, Self::MicroLp];

    /// The name in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Highs => "highs",
            Self::MicroLp => "microlp",
        }
    }

    /// The solver with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// Settings of [`crate::solve`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferenceSettings {
    /// Who solves.
    pub solver: Solver,
    /// Relative gap at which a stage counts as optimal.
    pub gap: f64,
    /// Time of each stage. An answer has up to four stages. This crate reads no clock: the solver does.
    pub time_limit: Option<Duration>,
}

impl Default for ReferenceSettings {
    fn default() -> Self {
        Self { solver: Solver::default(), gap: 1e-7, time_limit: None }
    }
}

/// Whether an objective is to be small or large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Minimise,
    Maximise,
}

/// A problem with the settings for its solves.
#[derive(Clone, Copy)]
pub struct Programme<'a> {
    pub problem: &'a Problem,
    pub settings: &'a ReferenceSettings,
}

/// One stage's optimum.
pub struct Optimum {
    pub value: f64,
    /// No value is better: the value and the gap that was asked for.
    pub bound: f64,
    pub choice: RoundedSolution,
}

impl<'a> Programme<'a> {
    /// The variables and constraints of the problem under its latency rule. All stages have them.
    pub fn model(self) -> Result<Model<'a>, ReferenceError> {
        let mut model = Model::new(self.problem)?;
        model.add_allocation();
        for part in 0..model.parts.len() {
            match self.problem.objective.latency_rule {
                LatencyRule::TaskBudget => model.add_task_budgets(part),
                LatencyRule::Path => model.add_paths_in_time(part),
            }
        }
        Ok(model)
    }

    /// The least value of an objective; `None` if nothing obeys the constraints.
    pub fn minimise(self, model: Model<'_>, objective: Expression) -> Result<Option<Optimum>, ReferenceError> {
        self.optimise(model, &objective, Direction::Minimise)
    }

    /// The largest value of an objective; `None` if nothing obeys the constraints.
    pub fn maximise(self, model: Model<'_>, objective: Expression) -> Result<Option<Optimum>, ReferenceError> {
        self.optimise(model, &objective, Direction::Maximise)
    }

    fn optimise(
        self,
        model: Model<'_>,
        objective: &Expression,
        direction: Direction,
    ) -> Result<Option<Optimum>, ReferenceError> {
        let Model { variables, constraints, parts, .. } = model;
        let solved = optimise(variables, constraints, objective, direction, self.settings)?;
        Ok(solved.map(|values| {
            let value = eval(objective, &values);
            let gap = self.settings.gap * value.abs();
            let bound = if direction == Direction::Minimise { value - gap } else { value + gap };
            Optimum { value, bound, choice: RoundedSolution::read(&parts, &values) }
        }))
    }
}

fn eval(objective: &Expression, value: &impl Fn(Variable) -> f64) -> f64 {
    use good_lp::IntoAffineExpression;
    objective.constant() + objective.linear_coefficients().map(|(variable, factor)| factor * value(variable)).sum::<f64>()
}

/// The values of the variables.
pub type Values = Box<dyn Fn(Variable) -> f64>;

/// Solves one stage; `None` if nothing obeys the constraints.
pub fn optimise(
    variables: ProblemVariables,
    constraints: Vec<Constraint>,
    objective: &Expression,
    direction: Direction,
    settings: &ReferenceSettings,
) -> Result<Option<Values>, ReferenceError> {
    let unsolved = match direction {
        Direction::Minimise => variables.minimise(objective),
        Direction::Maximise => variables.maximise(objective),
    };
    match settings.solver {
        Solver::Highs => {
            let model = unsolved.using(good_lp::highs).set_threads(1).set_option("output_flag", false);
            let model = model.set_option("mip_rel_gap", settings.gap).set_option("mip_abs_gap", 1e-9);
            let model = model.set_option("primal_feasibility_tolerance", TOLERANCE);
            prove(model.set_option("mip_feasibility_tolerance", TOLERANCE), constraints, settings)
        }
        Solver::MicroLp => {
            let model = unsolved.using(good_lp::microlp).with_mip_gap(settings.gap as f32);
            prove(model.map_err(|e| ReferenceError::Solver(e.to_string()))?, constraints, settings)
        }
    }
}

fn prove<M>(model: M, constraints: Vec<Constraint>, settings: &ReferenceSettings) -> Result<Option<Values>, ReferenceError>
where
    M: SolverModel<Error = ResolutionError> + WithTimeLimit,
    M::Solution: 'static,
{
    let is_limited = settings.time_limit.is_some();
    let model = model.with_all(constraints);
    let model = match settings.time_limit {
        Some(limit) => model.with_time_limit(limit.as_secs_f64()),
        None => model,
    };
    match model.solve() {
        Ok(solution) if matches!(solution.status(), SolutionStatus::TimeLimit) => Err(ReferenceError::TimeLimit),
        Ok(solution) => Ok(Some(Box::new(move |variable| solution.value(variable)))),
        Err(ResolutionError::Infeasible) => Ok(None),
        // the status of both solvers if the limit was reached before a solution
        Err(ResolutionError::Other(why)) if is_limited && (why == "NoSolutionFound" || why.starts_with("Time limit")) => {
            Err(ReferenceError::TimeLimit)
        }
        Err(error) => Err(ReferenceError::Solver(error.to_string())),
    }
}
