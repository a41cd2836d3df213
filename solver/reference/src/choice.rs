//! Which replicas and shares does a solution choose?

use crate::answer::INTEGER_MAX;
use crate::model::PipelineVariables;
use good_lp::Variable;

/// The replicas of one solution.
#[derive(Clone, Debug)]
pub struct RoundedSolution {
    /// x(g, b), rounded, by pipeline, group and batch size.
    pub replicas: Vec<Vec<Vec<u32>>>,
    /// f(p) by pipeline and prefix.
    pub share: Vec<Vec<f64>>,
}

impl RoundedSolution {
    /// Reads the values of a solution.
    pub fn read(parts: &[PipelineVariables], value: &impl Fn(Variable) -> f64) -> Self {
        let whole = |x: &Variable| value(*x).round().clamp(0.0, INTEGER_MAX) as u32;
        let groups = |part: &PipelineVariables| part.replicas.iter().map(|xs| xs.iter().map(whole).collect()).collect();
        let share = |part: &PipelineVariables| part.share.iter().map(|&f| value(f)).collect();
        Self { replicas: parts.iter().map(groups).collect(), share: parts.iter().map(share).collect() }
    }
}
