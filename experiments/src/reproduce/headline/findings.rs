//! What does a run of the headline find? All cases, with the settings that were chosen for them.

use super::cases::{Case, CaseName, CaseSet, PolicyPoint};
use super::contest::RunOutcome;
use super::protocol::{HeadlineProtocol, ScalerKind};
use super::scalers::ContestScaler;
use super::traces::TraceSet;

/// All results of a run.
pub struct Findings {
    /// What was compared.
    pub protocol: HeadlineProtocol,
    /// The sets of traces, before the pipelines' factors.
    pub traces: Vec<TraceSet>,
    /// All cases, by pipeline, set and stretch.
    pub cases: Vec<Case>,
    /// The settings that were chosen, by pipeline and set.
    pub chosen: Vec<ChosenSettings>,
    /// By case with a plan: the chosen settings after a step of the load.
    pub surprised: Vec<Surprise>,
    /// By case with a plan: the chosen settings under other dropping policies.
    pub policies: Vec<CasePolicies>,
}

/// The settings that a stretch chose for a pipeline.
pub struct ChosenSettings {
    /// The pipeline and the stretch.
    pub name: CaseName,
    /// By contender; `None` if it is not tuned.
    pub settings: Vec<Option<ContestScaler>>,
}

/// The chosen settings on a load that steps up.
pub struct Surprise {
    /// The case.
    pub name: CaseName,
    /// By contender.
    pub outcomes: Vec<Option<RunOutcome>>,
}

/// The chosen settings of a case under other dropping policies.
pub struct CasePolicies {
    /// The case, by position.
    pub case: usize,
    /// The results.
    pub points: Vec<PolicyPoint>,
}

impl Findings {
    /// The names of the sets that were played, in the order of the run.
    pub fn sets(&self) -> Vec<&str> {
        let mut sets: Vec<&str> = Vec::new();
        for case in &self.cases {
            if !sets.contains(&case.name.set.as_str()) {
                sets.push(&case.name.set);
            }
        }
        sets
    }

    /// The cases of one set, or of all.
    pub fn cases_of(&self, set: Option<&str>) -> CaseSet<'_> {
        let cases = self.cases.iter().filter(|case| set.is_none_or(|set| case.name.set == set)).collect();
        CaseSet { cases, attainment: self.protocol.attainment, ours: self.ours() }
    }

    /// The cases without a plan to start from: everybody has lost them.
    pub fn lost(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.plan.is_none())
    }

    /// The position of ours among the contenders: the first with the whole system.
    pub fn ours(&self) -> usize {
        self.of_kind(&[ScalerKind::System]).first().copied().unwrap_or_default()
    }

    /// The positions of HPA among the contenders.
    pub fn hpas(&self) -> Vec<usize> {
        self.of_kind(&[ScalerKind::HpaUtilisation, ScalerKind::HpaRate, ScalerKind::HpaConcurrency])
    }

    fn of_kind(&self, kinds: &[ScalerKind]) -> Vec<usize> {
        let contenders = self.protocol.contenders.iter().enumerate();
        contenders.filter(|(_, c)| kinds.contains(&c.scaler)).map(|(at, _)| at).collect()
    }

    /// The name of a contender.
    pub fn name(&self, contender: usize) -> &str {
        &self.protocol.contenders[contender].name
    }
}
