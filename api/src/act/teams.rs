//! Which projects concern the pipelines of a round, and what of their quotas is left?

use super::division::Teams;
use crate::decide::device_pool::ProjectRoom;
use crate::decide::projects::{
    DEFAULT_PROJECT, DeviceCounts, DevicePrices, Project, ProjectQuota, QuotaBreach, project_of, service_levels,
};
use crate::decide::replan::ReplanInput;
use crate::decide::shares::add_devices_of;
use crate::store::{self, PgConnection, projects::ProjectRow};
use apportion_domain::PipelinePlan;
use apportion_wire::PipelineSpec;
use std::collections::BTreeMap;

/// The project of a row.
fn project(row: ProjectRow) -> Project {
    let quota = serde_json::from_value(row.quota).unwrap_or_else(|error| {
        tracing::error!(project = row.name, %error, "the stored quota cannot be read; it does not hold");
        ProjectQuota::default()
    });
    Project { name: row.name, priority: row.priority, quota }
}

/// The projects of these pipelines, with the rest of each quota beside parts that stay as they are.
///
/// # Errors
/// The database's.
pub(super) async fn load_teams(
    db: &mut PgConnection,
    staying: &[&PipelinePlan],
    wishes: &[&ReplanInput],
) -> store::Result<Teams> {
    let projects: Vec<Project> = store::projects::list(db).await?.into_iter().map(project).collect();
    let hardware = store::hardware::list(db).await?;
    let prices: DevicePrices = hardware.iter().map(|row| (row.name.clone(), row.price_per_hour)).collect();
    let names: Vec<String> = staying.iter().map(|part| part.name.clone()).collect();
    let of_staying = store::projects::of_pipelines(db, &names).await?;
    let mut used: BTreeMap<String, DeviceCounts> = BTreeMap::new();
    for part in staying {
        let row = of_staying.iter().find(|row| row.pipeline == part.name);
        let project = row.and_then(|row| row.project.as_deref()).unwrap_or(DEFAULT_PROJECT);
        add_devices_of(used.entry(project.to_owned()).or_default(), part);
    }
    let specs: Vec<&PipelineSpec> = wishes.iter().map(|wish| &wish.spec).collect();
    let room = |project: &Project| {
        let members: Vec<usize> = (0..specs.len()).filter(|&at| project_of(specs[at]) == project.name).collect();
        let used = used.get(&project.name).cloned().unwrap_or_default();
        let quota = project.quota.without(&used, &prices);
        let is_limited = !members.is_empty() && !project.quota.is_unlimited();
        is_limited.then(|| ProjectRoom { project: project.name.clone(), members, quota })
    };
    let provision = hardware.iter().filter_map(|row| {
        let seconds = row.provision_s.or(row.provision_measured_s)?;
        Some((row.name.clone(), seconds))
    });
    Ok(Teams {
        rooms: projects.iter().filter_map(room).collect(),
        levels: service_levels(&projects, &specs),
        provision_s: provision.collect(),
    })
}

/// The devices of each project under a target.
fn devices_of_projects(parts: &[PipelinePlan], project: impl Fn(&str) -> Option<String>) -> BTreeMap<String, DeviceCounts> {
    let mut used: BTreeMap<String, DeviceCounts> = BTreeMap::new();
    for part in parts {
        add_devices_of(used.entry(project(&part.name).unwrap_or_else(|| DEFAULT_PROJECT.to_owned())).or_default(), part);
    }
    used
}

/// The projects with a quota.
///
/// # Errors
/// The database's.
pub(super) async fn limited_projects(db: &mut PgConnection) -> store::Result<Vec<Project>> {
    let projects = store::projects::list(db).await?.into_iter().map(project);
    Ok(projects.filter(|project| !project.quota.is_unlimited()).collect())
}

/// The quotas of these projects that a target of these parts would exceed, and exceed by more than the parts in force do.
/// So an excess that is there already may become smaller in steps.
///
/// # Errors
/// The database's.
pub(super) async fn breaches_of(
    db: &mut PgConnection,
    projects: &[Project],
    parts: &[PipelinePlan],
    specs: &BTreeMap<String, PipelineSpec>,
    in_force: &[PipelinePlan],
) -> store::Result<Vec<QuotaBreach>> {
    if projects.is_empty() {
        return Ok(Vec::new());
    }
    let hardware = store::hardware::list(db).await?.into_iter();
    let prices: DevicePrices = hardware.map(|row| (row.name, row.price_per_hour)).collect();
    let names: Vec<String> = in_force.iter().map(|part| part.name.clone()).collect();
    let rows = store::projects::of_pipelines(db, &names).await?;
    let asked = devices_of_projects(parts, |name| specs.get(name).map(|spec| project_of(spec).to_owned()));
    let has = devices_of_projects(in_force, |name| rows.iter().find(|row| row.pipeline == name)?.project.clone());
    let mut breaches = Vec::new();
    for project in projects {
        let of = |used: &BTreeMap<String, DeviceCounts>| {
            let devices = used.get(&project.name).cloned().unwrap_or_default();
            project.quota.breaches(&project.name, &devices, &prices)
        };
        let known = of(&has);
        let is_known =
            |breach: &QuotaBreach| known.iter().any(|old| old.limit == breach.limit && old.asked >= breach.asked);
        breaches.extend(of(&asked).into_iter().filter(|breach| !is_known(breach)));
    }
    Ok(breaches)
}
