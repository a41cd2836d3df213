//! What is planned? Hardware, pipelines with their demands, and the objective.

use crate::evidence::ProfileEvidence;
use crate::invalid::Invalids;
use crate::pipeline::{FROM_ZERO, check_unique};
use crate::serving::named;
use crate::{
    Hardware, HardwareIndex, Pipeline, PipelineIndex, Profile, ProfileRow, SLACK, Share, TaskIndex, TaskKind, VariantIndex,
};

/// Largest number of pipelines of one problem.
pub const PIPELINES_MAX: usize = 1_024;
/// Largest number of profile rows of all pipelines of one problem. The time of the search grows with them, sometimes with
/// their square.
pub const PROFILE_ROWS_ALL_MAX: usize = 100_000;
/// Largest number of groups that one problem may list as deployed.
pub const DEPLOYED_MAX: usize = 20_000;
/// Largest number of hardware types of one problem.
pub const HARDWARE_MAX: usize = 256;
/// The note of [`Problem::on_medians`].
pub const MEDIANS_NOTE: &str = "planned on medians: the 99th percentiles of the profile's batches are left out";

/// Largest number of notes of one problem.
pub const NOTES_MAX: usize = 1_000;

named! {
    /// What is optimised.
    Mode default HardwareThenAccuracy {
        /// Loki: fewest replicas of the most accurate variants, else the highest accuracy within the counts.
        HardwareThenAccuracy = "hardware_then_accuracy",
        /// Least cost with every floor met.
        MinCost = "min_cost",
        /// Highest weighted accuracy within counts, floors and budget.
        MaxAccuracy = "max_accuracy",
    }
}

named! {
    /// Which queries must meet the SLO.
    LatencyRule default TaskBudget {
        /// The slowest group of each task counts, so that any replica may pass work to any other.
        TaskBudget = "task_budget",
        /// Every path that carries traffic (Loki, equation 4 and 5).
        Path = "path",
    }
}

/// The objective, with its latency rule and its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// What is optimised.
    pub mode: Mode,
    /// Which queries must meet the SLO.
    pub latency_rule: LatencyRule,
    /// Cap on the cost of devices per hour, in the currency of `price_per_hour`.
    pub budget_per_hour: Option<f64>,
}

/// A group that runs now.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployed {
    /// Its pipeline.
    pub pipeline: PipelineIndex,
    /// Its task.
    pub task: TaskIndex,
    /// Its variant.
    pub variant: VariantIndex,
    /// Its hardware.
    pub hardware: HardwareIndex,
    /// Its share of a device.
    pub share: Share,
    /// Its batch size.
    pub batch: u32,
    /// How many replicas run.
    pub replicas: u32,
}

/// Limits on the devices that some pipelines have together. Each pipeline counts the whole devices that it has by itself.
/// Only the exact planner keeps to quotas; the checker refuses the plans of others that exceed them.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceQuota {
    /// Its name in findings.
    pub name: String,
    /// Its pipelines.
    pub pipelines: Vec<PipelineIndex>,
    /// Most devices of each hardware type of the problem; `None` is not limited.
    pub counts: Vec<Option<u32>>,
    /// Most devices of all types together.
    pub devices: Option<u32>,
    /// Cap on the cost of the devices per hour, in the currency of `price_per_hour`.
    pub cost_per_hour: Option<f64>,
}

/// A problem that is not checked yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProblemDraft {
    /// What is optimised.
    pub objective: Objective,
    /// At least one.
    pub hardware: Vec<Hardware>,
    /// At least one.
    pub pipelines: Vec<Pipeline>,
    /// What runs now.
    pub deployed: Vec<Deployed>,
    /// Weight of the switching cost in `min_cost`.
    pub switching_weight: f64,
    /// Limits on groups of pipelines. A problem file has none: a service makes them from the quotas of projects.
    pub quotas: Vec<DeviceQuota>,
    /// Sentences about the figures of this problem. They change no plan; the report of each plan repeats them.
    pub notes: Vec<String>,
    /// How latencies were measured, where that is known. It changes no plan.
    pub evidence: Vec<ProfileEvidence>,
}

/// A valid problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    draft: ProblemDraft,
}

impl std::ops::Deref for Problem {
    type Target = ProblemDraft;
    fn deref(&self) -> &ProblemDraft {
        &self.draft
    }
}

impl Problem {
    /// Checks a draft. [`Pipeline::new`] has checked the rules of each pipeline.
    ///
    /// # Errors
    /// Every refused value with its JSON pointer in the problem file.
    pub fn new(draft: ProblemDraft) -> Result<Self, Invalids> {
        let mut invalids = check_hardware(&draft.hardware);
        if draft.pipelines.is_empty() || draft.pipelines.len() > PIPELINES_MAX {
            let found = format!("{} pipelines", draft.pipelines.len());
            invalids.push("/pipelines", found, format!("1 to {PIPELINES_MAX} pipelines"));
        }
        let rows: usize = draft.pipelines.iter().map(Pipeline::profile_rows).sum();
        if rows > PROFILE_ROWS_ALL_MAX {
            let expected = format!("at most {PROFILE_ROWS_ALL_MAX} profile rows over all pipelines");
            invalids.push("/pipelines", format!("{rows} profile rows"), expected);
        }
        if draft.deployed.len() > DEPLOYED_MAX {
            let found = format!("{} deployed groups", draft.deployed.len());
            invalids.push("/deployed", found, format!("at most {DEPLOYED_MAX} deployed groups"));
        }
        if draft.notes.len() > NOTES_MAX {
            let found = format!("{} notes", draft.notes.len());
            invalids.push("/notes", found, format!("at most {NOTES_MAX} notes"));
        }
        check_unique(draft.pipelines.iter().map(|p| p.name.as_str()), "/pipelines", &mut invalids);
        if let Some(budget) = draft.objective.budget_per_hour {
            invalids.check_number("/objective/budget_per_hour", budget, FROM_ZERO, "a number of at least 0, or null");
        }
        invalids.check_number("/switching/weight", draft.switching_weight, FROM_ZERO, "a number of at least 0");
        check_quotas(&draft, &mut invalids);
        invalids.into_result()?;
        Ok(Self { draft })
    }

    /// A changed copy, checked again.
    ///
    /// # Errors
    /// As [`Problem::new`].
    pub fn changed(&self, change: impl FnOnce(&mut ProblemDraft)) -> Result<Self, Invalids> {
        let mut draft = self.draft.clone();
        change(&mut draft);
        Self::new(draft)
    }

    /// The same problem without the 99th percentiles of batches: each batch takes its median, and a note says so. A problem
    /// without percentiles stays as it is. Continuous tasks keep theirs: without one, times in their slots are exponential.
    #[must_use]
    pub fn on_medians(&self) -> Self {
        let mut draft = self.draft.clone();
        for pipeline in &mut draft.pipelines {
            let on_medians = pipeline.changed(&draft.hardware, |d| {
                let batched = d.tasks.iter_mut().filter(|task| task.kind != TaskKind::Continuous);
                for variant in batched.flat_map(|task| &mut task.variants) {
                    let without = |row: &ProfileRow| ProfileRow { p99_ms: None, by_shape: Vec::new(), ..row.clone() };
                    variant.profile = Profile::new(variant.profile.rows().iter().map(without).collect());
                }
            });
            *pipeline = on_medians.expect("a pipeline needs no percentile");
        }
        if draft.pipelines == self.draft.pipelines {
            return self.clone();
        }
        draft.notes.truncate(NOTES_MAX - 1);
        draft.notes.push(MEDIANS_NOTE.to_owned());
        Self { draft }
    }

    /// The pipeline at an index.
    #[must_use]
    pub fn pipeline(&self, index: PipelineIndex) -> &Pipeline {
        &self.draft.pipelines[index.0]
    }

    /// The hardware at an index.
    #[must_use]
    pub fn hardware_at(&self, index: HardwareIndex) -> &Hardware {
        &self.draft.hardware[index.0]
    }

    /// The hardware with this name.
    #[must_use]
    pub fn hardware_named(&self, name: &str) -> Option<HardwareIndex> {
        self.draft.hardware.iter().position(|h| h.name == name).map(HardwareIndex)
    }

    /// The pipeline with this name.
    #[must_use]
    pub fn pipeline_named(&self, name: &str) -> Option<PipelineIndex> {
        self.draft.pipelines.iter().position(|p| p.name == name).map(PipelineIndex)
    }

    /// Whether a variant that needs `memory_mib` fits into a share of a device. `None` needs no memory.
    #[must_use]
    pub fn fits_memory(&self, memory_mib: Option<f64>, hardware: HardwareIndex, share: Share) -> bool {
        match (memory_mib, self.hardware_at(hardware).memory_mib) {
            (Some(needed), Some(device)) => needed <= share.value() * device * (1.0 + SLACK),
            _ => true,
        }
    }
}

/// A quota names pipelines of the problem, and limits its hardware types.
fn check_quotas(draft: &ProblemDraft, invalids: &mut Invalids) {
    for (i, quota) in draft.quotas.iter().enumerate() {
        let at = format!("/quotas/{i}");
        if let Some(unknown) = quota.pipelines.iter().find(|p| p.get() >= draft.pipelines.len()) {
            let expected = format!("positions below {}", draft.pipelines.len());
            invalids.push(format!("{at}/pipelines"), unknown.get(), expected);
        }
        if quota.counts.len() != draft.hardware.len() {
            let expected = format!("{} counts, one for each hardware type", draft.hardware.len());
            invalids.push(format!("{at}/counts"), quota.counts.len(), expected);
        }
        if let Some(cost) = quota.cost_per_hour {
            invalids.check_number(&format!("{at}/cost_per_hour"), cost, FROM_ZERO, "a number of at least 0, or null");
        }
    }
}

/// Checks the hardware types at `/hardware` of a problem file. Returns every refused value, with its JSON pointer.
#[must_use]
pub fn check_hardware(hardware: &[Hardware]) -> Invalids {
    let mut invalids = Invalids::default();
    if hardware.is_empty() || hardware.len() > HARDWARE_MAX {
        let found = format!("{} hardware types", hardware.len());
        invalids.push("/hardware", found, format!("1 to {HARDWARE_MAX} hardware types"));
    }
    check_unique(hardware.iter().map(|h| h.name.as_str()), "/hardware", &mut invalids);
    for (i, h) in hardware.iter().enumerate() {
        let at = format!("/hardware/{i}");
        invalids.check_number(&format!("{at}/price_per_hour"), h.price_per_hour, FROM_ZERO, "a price of at least 0");
        if h.name.is_empty() {
            invalids.push(format!("{at}/name"), "\"\"", "a name");
        }
        if let Some(memory) = h.memory_mib {
            invalids.check_number(&format!("{at}/memory_mib"), memory, FROM_ZERO, "a number of at least 0, or null");
        }
    }
    invalids
}
