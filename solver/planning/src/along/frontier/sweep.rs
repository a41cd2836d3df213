//! Which value does a frontier vary?

use apportion_domain::{HardwareIndex, Invalid, Invalids, Pipeline, PipelineDraft, PipelineIndex, Problem};

/// The value that a frontier varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Demand in queries per second: of one pipeline, or of all together, each keeping its part of the sum.
    Demand(Option<PipelineIndex>),
    /// SLO of one pipeline, in milliseconds.
    Slo(PipelineIndex),
    /// Cap on the cost of devices per hour, in the currency of `price_per_hour`.
    Budget,
    /// Devices of one hardware type; a whole number.
    Count(HardwareIndex),
}

/// A problem with one value of a sweep.
pub(super) struct SweptProblem {
    /// In the unit of [`Sweep::unit`].
    pub value: f64,
    pub problem: Problem,
}

impl Sweep {
    /// The name in files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demand(_) => "demand",
            Self::Slo(_) => "slo",
            Self::Budget => "budget",
            Self::Count(_) => "count",
        }
    }

    /// The name of the value with its unit, in files.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Demand(_) => "demand_qps",
            Self::Slo(_) => "slo_ms",
            Self::Budget => "budget_per_hour",
            Self::Count(_) => "count",
        }
    }

    /// Whether a larger value leaves fewer plans.
    #[must_use]
    pub const fn more_is_harder(self) -> bool {
        matches!(self, Self::Demand(_))
    }

    /// The value in the problem; `None` where there is no limit.
    #[must_use]
    pub fn present(self, problem: &Problem) -> Option<f64> {
        match self {
            Self::Demand(Some(p)) => Some(problem.pipeline(p).demand_qps),
            Self::Demand(None) => Some(problem.pipelines.iter().map(|p| p.demand_qps).sum()),
            Self::Slo(p) => Some(problem.pipeline(p).slo_ms),
            Self::Budget => problem.objective.budget_per_hour,
            Self::Count(h) => problem.hardware_at(h).count.map(f64::from),
        }
    }

    /// The problem with this value.
    ///
    /// # Errors
    /// A value out of range, with its pointer in the problem file.
    pub fn problem_at(self, problem: &Problem, value: f64) -> Result<Problem, Invalids> {
        match self {
            Self::Demand(Some(p)) => changed(problem, p, |d| d.demand_qps = value),
            Self::Demand(None) => in_proportion(problem, value),
            Self::Slo(p) => changed(problem, p, |d| d.slo_ms = value),
            Self::Budget => problem.changed(|d| d.objective.budget_per_hour = Some(value)),
            Self::Count(h) => {
                if !((0.0..=f64::from(u32::MAX)).contains(&value) && value.fract() == 0.0) {
                    let pointer = format!("/hardware/{}/count", h.get());
                    return Err(Invalids(vec![Invalid::new(pointer, value, "a whole number of at least 0")]));
                }
                problem.changed(|d| d.hardware[h.get()].count = Some(value as u32))
            }
        }
    }
}

fn changed(problem: &Problem, p: PipelineIndex, change: impl FnOnce(&mut PipelineDraft)) -> Result<Problem, Invalids> {
    let mut draft = PipelineDraft::clone(problem.pipeline(p));
    change(&mut draft);
    let pipeline = Pipeline::new(draft, &problem.hardware, &format!("/pipelines/{}", p.get()))?;
    problem.changed(|d| d.pipelines[p.get()] = pipeline)
}

/// All demands with this sum, in the proportions that they have; evenly where all are 0.
fn in_proportion(problem: &Problem, total: f64) -> Result<Problem, Invalids> {
    let present: f64 = problem.pipelines.iter().map(|p| p.demand_qps).sum();
    let even = 1.0 / problem.pipelines.len() as f64;
    let mut all = problem.clone();
    for (p, pipeline) in problem.pipelines.iter().enumerate() {
        let part = if present > 0.0 { pipeline.demand_qps / present } else { even };
        all = changed(&all, PipelineIndex(p), |d| d.demand_qps = total * part)?;
    }
    Ok(all)
}
