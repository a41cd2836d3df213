//! How are the changes between two plans written? `apportion diff` and the service write the same form.

use apportion_domain::{GroupSize, PlanChange};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The changes from one plan to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDiffFile {
    /// The groups that differ, by pipeline and group; empty if both plans have the same groups.
    pub changes: Vec<GroupChangeFile>,
}

/// The change of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupChangeFile {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// The share of a device that each replica has, above 0, at most 1.
    pub share: f64,
    /// The size in the first plan; null if the group is not in it.
    pub from: Option<GroupSizeFile>,
    /// The size in the second plan; null if the group is not in it.
    pub to: Option<GroupSizeFile>,
}

/// The size of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSizeFile {
    /// Replicas.
    pub replicas: u32,
    /// Batch size.
    pub batch: u32,
}

impl From<&[PlanChange]> for PlanDiffFile {
    fn from(changes: &[PlanChange]) -> Self {
        Self { changes: changes.iter().map(GroupChangeFile::from).collect() }
    }
}

impl From<&PlanChange> for GroupChangeFile {
    fn from(change: &PlanChange) -> Self {
        let PlanChange { pipeline, group, from, to } = change;
        Self {
            pipeline: pipeline.clone(),
            task: group.task.clone(),
            variant: group.variant.clone(),
            hardware: group.hardware.clone(),
            share: group.share.value(),
            from: from.map(GroupSizeFile::from),
            to: to.map(GroupSizeFile::from),
        }
    }
}

impl From<GroupSize> for GroupSizeFile {
    fn from(GroupSize { replicas, batch }: GroupSize) -> Self {
        Self { replicas, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{GroupName, Share};
    use serde_json::json;

    #[test]
    fn a_new_group_has_no_size_before() {
        let group = GroupName { task: "t".into(), variant: "v".into(), hardware: "h".into(), share: Share::WHOLE };
        let change = PlanChange { pipeline: "p".into(), group, from: None, to: Some(GroupSize { replicas: 2, batch: 4 }) };
        let written = serde_json::to_value(PlanDiffFile::from(&[change][..])).expect("JSON");
        let expected = json!({"changes": [{"pipeline": "p", "task": "t", "variant": "v", "hardware": "h", "share": 1.0,
            "from": null, "to": {"replicas": 2, "batch": 4}}]});
        assert_eq!(written, expected);
    }
}
