//! How much may the pipelines of a project have together, and which pipelines have devices first?
//!
//! Example: the project `team-a` may have four `gpu`, and has priority 10. Its two pipelines have at most four `gpu` in any
//! target. In a round they have them before the pipelines of projects with a lower priority.

use apportion_domain::SLACK;
use apportion_wire::PipelineSpec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use utoipa::ToSchema;

/// The project of pipelines that name none. Unless it is registered, it has no quota, and priority 0.
pub const DEFAULT_PROJECT: &str = "default";

/// Devices by hardware type.
pub type DeviceCounts = BTreeMap<String, u32>;

/// Prices per hour by hardware type. A type that is not there costs 1.
pub type DevicePrices = BTreeMap<String, f64>;

/// Limits on the devices that all pipelines of a project have together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectQuota {
    /// Most devices by hardware type. A type that is not there is not limited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware: BTreeMap<String, u32>,
    /// Most devices of all types together; null is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub devices: Option<u32>,
    /// Limit on the cost of the devices per hour, 0 to 1e12; null is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1e12)]
    pub cost_per_hour: Option<f64>,
}

/// A project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Project {
    /// Its name.
    pub name: String,
    /// Projects with a higher number have devices first.
    pub priority: i64,
    /// Its limits.
    pub quota: ProjectQuota,
}

/// The limit of a quota that would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaLimit {
    /// Devices of this hardware type.
    Hardware(String),
    /// Devices of all types.
    Devices,
    /// The cost per hour.
    Cost,
}

/// More than a quota permits.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaBreach {
    /// The project.
    pub project: String,
    /// The limit.
    pub limit: QuotaLimit,
    /// The amount that the pipelines would have.
    pub asked: f64,
    /// The amount that the quota permits.
    pub permitted: f64,
}

impl fmt::Display for QuotaBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, limit, asked, permitted } = self;
        match limit {
            QuotaLimit::Hardware(name) => {
                write!(f, "project {project} may have {permitted} {name}, its pipelines need {asked}")
            }
            QuotaLimit::Devices => {
                write!(f, "project {project} may have {permitted} devices, its pipelines need {asked}")
            }
            QuotaLimit::Cost => {
                write!(f, "project {project} may cost {permitted:.4} per hour, its pipelines need {asked:.4}")
            }
        }
    }
}

/// The price of a device per hour.
#[must_use]
pub fn price_of(prices: &DevicePrices, hardware: &str) -> f64 {
    prices.get(hardware).copied().unwrap_or(1.0)
}

/// The cost of devices per hour.
#[must_use]
pub fn cost_of(prices: &DevicePrices, devices: &DeviceCounts) -> f64 {
    devices.iter().map(|(name, count)| price_of(prices, name) * f64::from(*count)).sum()
}

impl ProjectQuota {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// The limits that these devices of the project exceed.
    #[must_use]
    pub fn breaches(&self, project: &str, devices: &DeviceCounts, prices: &DevicePrices) -> Vec<QuotaBreach> {
        let breach =
            |limit, asked: f64, permitted: f64| QuotaBreach { project: project.to_owned(), limit, asked, permitted };
        let of_type = |(name, &most): (&String, &u32)| {
            let has = devices.get(name).copied().unwrap_or(0);
            (has > most).then(|| breach(QuotaLimit::Hardware(name.clone()), f64::from(has), f64::from(most)))
        };
        let mut breaches: Vec<QuotaBreach> = self.hardware.iter().filter_map(of_type).collect();
        let all: u32 = devices.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        if let Some(most) = self.devices.filter(|most| all > *most) {
            breaches.push(breach(QuotaLimit::Devices, f64::from(all), f64::from(most)));
        }
        let cost = cost_of(prices, devices);
        if let Some(most) = self.cost_per_hour.filter(|most| cost > most + SLACK * most.max(1.0)) {
            breaches.push(breach(QuotaLimit::Cost, cost, most));
        }
        breaches
    }

    /// The rest of the quota when the project has these devices already.
    #[must_use]
    pub fn without(&self, devices: &DeviceCounts, prices: &DevicePrices) -> Self {
        let has = |name: &str| devices.get(name).copied().unwrap_or(0);
        let all: u32 = devices.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        Self {
            hardware: self.hardware.iter().map(|(name, most)| (name.clone(), most.saturating_sub(has(name)))).collect(),
            devices: self.devices.map(|most| most.saturating_sub(all)),
            cost_per_hour: self.cost_per_hour.map(|most| (most - cost_of(prices, devices)).max(0.0)),
        }
    }

    /// How many more devices of a type fit in.
    #[must_use]
    pub fn devices_left(&self, hardware: &str, prices: &DevicePrices) -> u32 {
        let price = price_of(prices, hardware);
        let of_type = self.hardware.get(hardware).copied();
        let by_cost = self.cost_per_hour.filter(|_| price > 0.0).map(|most| {
            let count = ((most + SLACK * most.max(1.0)) / price).floor();
            if count >= f64::from(u32::MAX) { u32::MAX } else { count as u32 }
        });
        [of_type, self.devices, by_cost].into_iter().flatten().min().unwrap_or(u32::MAX)
    }
}

/// The project that a pipeline belongs to.
#[must_use]
pub fn project_of(spec: &PipelineSpec) -> &str {
    spec.replan.as_ref().and_then(|replan| replan.project.as_deref()).unwrap_or(DEFAULT_PROJECT)
}

/// The level of each pipeline: those of level 0 have devices first.
///
/// The projects' priorities decide first. Within a project, its pipelines' own priorities rank them. Projects of the same
/// priority are served side by side, rank by rank, so a high number of a pipeline helps it against its own project only.
#[must_use]
pub fn service_levels(projects: &[Project], specs: &[&PipelineSpec]) -> Vec<usize> {
    let own = |spec: &PipelineSpec| spec.replan.as_ref().and_then(|replan| replan.priority).unwrap_or(0);
    let priority = |name: &str| projects.iter().find(|project| project.name == name).map_or(0, |project| project.priority);
    let rank = |spec: &PipelineSpec| {
        let mates = specs.iter().filter(|mate| project_of(mate) == project_of(spec)).map(|mate| own(mate));
        mates.filter(|priority| *priority > own(spec)).collect::<BTreeSet<i64>>().len()
    };
    let keys: Vec<(i64, usize)> =
        specs.iter().map(|spec| (priority(project_of(spec)).saturating_neg(), rank(spec))).collect();
    let ordered: BTreeSet<(i64, usize)> = keys.iter().copied().collect();
    keys.iter().map(|key| ordered.iter().take_while(|other| *other < key).count()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(project: Option<&str>, priority: i64) -> PipelineSpec {
        let replan = json!({"project": project, "priority": priority});
        let tasks = json!([{"name": "t", "variants": [{"name": "v"}]}]);
        serde_json::from_value(json!({"name": "p", "slo_ms": 100.0, "replan": replan, "tasks": tasks})).expect("a spec")
    }

    fn devices(list: &[(&str, u32)]) -> DeviceCounts {
        list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn a_breach_names_project_amount_and_limit() {
        let quota = ProjectQuota { hardware: devices(&[("gpu", 4)]), devices: Some(6), cost_per_hour: Some(12.0) };
        let prices: DevicePrices = [("gpu".to_owned(), 2.5)].into();
        assert_eq!(quota.breaches("team-a", &devices(&[("gpu", 4), ("cpu", 2)]), &prices), []);
        let all = quota.breaches("team-a", &devices(&[("gpu", 6), ("cpu", 1)]), &prices);
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        let expected = [
            "project team-a may have 4 gpu, its pipelines need 6",
            "project team-a may have 6 devices, its pipelines need 7",
            "project team-a may cost 12.0000 per hour, its pipelines need 16.0000",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn the_rest_of_a_quota_admits_what_fits() {
        let quota = ProjectQuota { hardware: devices(&[("gpu", 4)]), devices: Some(6), cost_per_hour: Some(12.0) };
        let prices: DevicePrices = [("gpu".to_owned(), 2.5)].into();
        assert_eq!((quota.devices_left("gpu", &prices), quota.devices_left("cpu", &prices)), (4, 6));
        let rest = quota.without(&devices(&[("gpu", 3), ("cpu", 1)]), &prices);
        // 12 - 7.5 - 1 = 3.5 buys one gpu, or two devices of price 1 by the count
        assert_eq!((rest.devices_left("gpu", &prices), rest.devices_left("cpu", &prices)), (1, 2));
        let none = quota.without(&devices(&[("gpu", 9)]), &prices);
        assert_eq!((none.devices_left("gpu", &prices), none.devices_left("cpu", &prices)), (0, 0));
        assert_eq!(ProjectQuota::default().devices_left("gpu", &prices), u32::MAX);
        assert!(ProjectQuota::default().is_unlimited() && !quota.is_unlimited());
    }

    #[test]
    fn own_priorities_rank_within_a_project_only() {
        let project = |name: &str, priority| Project { name: name.into(), priority, ..Project::default() };
        let projects = [project("first", 10), project("a", 0), project("b", 0)];
        let specs = [
            spec(Some("a"), 1000),
            spec(Some("a"), 0),
            spec(Some("b"), 0),
            spec(None, -5),
            spec(Some("first"), -1000),
            spec(Some("first"), 0),
        ];
        assert_eq!(service_levels(&projects, &specs.iter().collect::<Vec<_>>()), [2, 3, 2, 2, 1, 0]);
    }

    #[test]
    fn a_pipeline_without_a_project_is_in_the_default_one() {
        assert_eq!((project_of(&spec(None, 0)), project_of(&spec(Some("a"), 0))), (DEFAULT_PROJECT, "a"));
    }
}
